"""Large maps as text: the right weights in the right places, in little room, and no zeros in memory."""

import base64
import sys
import tracemalloc
import zlib
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headlights.view import AttentionMap, html, page
from headlights.view._packed import READABLE, Packed, is_large, pack


class Kept(NamedTuple):
    values: Any
    indices: Any


def unpacked(packed: Packed, N: int, M: int) -> np.ndarray[Any, Any]:
    """Dense (L, H, N, M), decoded byte by byte as the format is described."""
    maps = []
    for largest, text in zip(packed.largest, packed.data, strict=True):
        raw = zlib.decompress(base64.b64decode(text))
        size = packed.kept * N
        value_bytes = 2 if packed.steps == 65535 else 1
        assert len(raw) == size * (value_bytes + packed.index_bytes)
        dense = np.zeros((N, M))
        for i in range(N):
            column = 0
            for slot in range(packed.kept):
                place = slot * N + i
                number = sum(raw[n * size + place] << 8 * n for n in range(value_bytes))
                column += sum(
                    raw[(value_bytes + n) * size + place] << 8 * n for n in range(packed.index_bytes)
                )
                assert number == 0 or dense[i, column] == 0  # no column twice
                dense[i, column] += (number / packed.steps) ** 3 * largest
        maps.append(dense)
    return np.array(maps).reshape(packed.layers, packed.heads, N, M)


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_kept_weights_come_back(data: st.DataObject) -> None:
    N, M = data.draw(st.integers(1, 7)), data.draw(st.sampled_from([1, 5, 257, 300]))
    k, heads = data.draw(st.integers(0, 5)), data.draw(st.sampled_from([(1, 1), (2, 3)]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    values = rng.random((*heads, N, k)).astype(np.float32)
    indices = rng.integers(-1, M, values.shape)
    expected = np.zeros((*heads, N, M))
    for place in np.ndindex(*values.shape):
        if indices[place] >= 0:
            expected[(*place[:3], indices[place])] += values[place]  # a column that is named twice is a sum
    found = pack(Kept(values, indices), N, M)
    np.testing.assert_allclose(unpacked(found, N, M), expected, atol=3e-5 * expected.max())


def test_whole_weights_keep_their_largest_of_each_row() -> None:
    weights = np.random.default_rng(0).dirichlet(np.ones(101) / 20, (2, 3, 67))
    found = pack(torch.tensor(weights), 67, 101, share=100)
    assert found.kept == 24  # a hundredth of a million, for 402 rows
    lowest = np.sort(weights, axis=-1)[..., -24, None]
    np.testing.assert_allclose(unpacked(found, 67, 101), np.where(weights >= lowest, weights, 0), atol=3e-5)


@pytest.mark.parametrize("kind", ["lists", "tuple of layers", "bfloat16"])
def test_any_arrays_are_packed(kind: str) -> None:
    weights = torch.rand(2, 3, 70, 5).to(torch.bfloat16)
    arrays = {
        "lists": weights.tolist(),
        "tuple of layers": tuple(layer.float().requires_grad_() for layer in weights),
        "bfloat16": weights,
    }
    assert is_large(arrays[kind], 70, 5)
    found = unpacked(pack(arrays[kind], 70, 5), 70, 5)
    np.testing.assert_allclose(found, weights.float().numpy(), atol=5e-5)


def test_a_page_stays_under_20_mib_where_nothing_repeats() -> None:
    """Random columns and weights, 12 x 12 heads of 4,096 tokens: twice as many kept as a page holds."""
    rng = np.random.default_rng(0)
    layer = Kept(
        rng.random((1, 1, 4096, 24), np.float32).repeat(12, 1),
        rng.integers(0, 4096, (1, 1, 4096, 24)).repeat(12, 1),
    )
    found = pack(layer, 4096, 4096, share=12)  # one of twelve layers
    assert (found.kept, found.steps) == (8, 255)  # 15,000,000 bytes of 3 for each of 589,824 rows: 8.5
    assert 12 * sum(map(len, found.data)) < 20 * 2**20 - 200_000  # the rest is for the words and the script


def test_few_steps_round_little() -> None:
    """One byte: at most half a step of the cube root, 3 / (2 * 255) of the largest."""
    rng = np.random.default_rng(0)
    kept = Kept(rng.random((67, 3)), np.arange(3)[None].repeat(67, 0))
    found = pack(kept, 67, 3, share=30_000)  # room for 500 bytes: 2 bytes for each of 201 weights
    assert found.steps == 255
    np.testing.assert_allclose(unpacked(found, 67, 3)[0, 0], kept.values, atol=3 / 510 * kept.values.max())


def test_zeros_never_take_memory() -> None:
    """2 x 2 heads of 4,099 tokens: the whole map would take 512 MiB in float64."""
    rng = np.random.default_rng(0)
    kept = Kept(rng.random((2, 2, 4099, 3)), rng.integers(0, 4099, (2, 2, 4099, 3)))
    words = ["a"] * 4099
    html(kept, words, words)
    tracemalloc.start()
    html(kept, words, words)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * 2**20


def test_pages_of_large_maps_are_the_same_every_time() -> None:
    weights = np.random.default_rng(0).random((70, 70))
    words = ["a"] * 70
    assert html(weights, words, words).text == html(weights, words, words).text


def test_a_few_long_sentences_are_large() -> None:
    assert not is_large(np.zeros((READABLE, READABLE)), READABLE, READABLE)
    assert is_large(np.zeros((READABLE + 1, 3)), READABLE + 1, 3)
    assert is_large(np.zeros((12, 12, 50, 50)), 50, 50)
    assert not is_large(np.zeros((4, 4, 50, 50)), 50, 50)


def test_small_and_large_maps_share_a_page() -> None:
    small = AttentionMap(["a"], ["b"], weights=[[1.0]], title="small")
    large = AttentionMap(["a"] * 70, ["b"], values=[[1.0]], indices=[[69]], title="large")
    text = page([small, large]).text
    assert text.count("<svg") == 1
    assert text.count('<section class="card wide explorer">') == 1


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.zeros((70, 4)), r"weights: expected shape \(N, M\) = \(70, 3\) or .*, got \(70, 4\)"),
        (np.zeros((3, 70)), r"weights: .*, got \(3, 70\); rows are target words: transpose it"),
        (np.full((70, 3), np.nan), "weights: expected finite numbers of at least 0, got nan"),
        (
            [np.zeros((2, 70, 3)), np.zeros((2, 70, 4))],
            r"weights: expected \(70, 3\) in every head, got \(70, 4\)",
        ),
        (Kept(np.ones((69, 1)), np.zeros((69, 1))), r"values: expected shape \(70, k\) or .*, got \(69, 1\)"),
        (
            Kept(np.ones((70, 1)), np.zeros((70, 2), int)),
            r"indices: expected the shape of values, \(70, 1\), got",
        ),
        (
            Kept(np.ones((70, 1)), np.full((70, 1), 3)),
            r"indices: expected whole numbers from -1 .* to 2, got 3",
        ),
        (Kept(np.ones((70, 1)), np.zeros((70, 1))), "indices: expected whole numbers, got float64"),
    ],
)
def test_wrong_large_maps_are_refused(weights: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        html(weights, ["a", "b", "c"], ["d"] * 70)


def test_large_maps_name_the_extra_where_numpy_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(ImportError, match=r"large maps need NumPy: pip install 'headlights\[translate\]'"):
        html([[1.0]] * 70, ["a"], ["b"] * 70)
