"""Weights of any library as arrays, and large maps in tiles."""

import tracemalloc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headlights import view
from headlights.view._tiles import Stack, read_stack, tile_step

sizes = st.integers(1, 13)
steps = st.integers(1, 5)


def kept(weights: Any, k: int) -> SimpleNamespace:
    """The k largest weights of each row, in no special order."""
    indices = np.argsort(-weights, axis=-1, kind="stable")[..., :k]
    return SimpleNamespace(values=np.take_along_axis(weights, indices, -1), indices=indices)


def names(count: int) -> list[str]:
    return [f"w{i}" for i in range(count)]


def loop_tiles(weights: Any, down: int, across: int) -> list[list[float]]:
    N, M = weights.shape
    return [
        [
            max(weights[i, j] for i in range(a, min(a + down, N)) for j in range(b, min(b + across, M)))
            for b in range(0, M, across)
        ]
        for a in range(0, N, down)
    ]


@given(sizes, sizes, steps, steps, st.integers(0, 99))
def test_tiles_are_the_largest_weights_dense_or_sparse(
    N: int, M: int, down: int, across: int, seed: int
) -> None:
    weights = np.random.default_rng(seed).random((N, M))
    expected = loop_tiles(weights, down, across)
    _, dense = read_stack(weights, names(M), names(N))
    _, sparse = read_stack(kept(weights, M), names(M), names(N))
    assert dense.tiles(0, 0, (down, across)).tolist() == expected
    assert sparse.tiles(0, 0, (down, across)).tolist() == expected


@given(st.integers(1, 5000), st.integers(1, 900))
def test_tiles_are_as_few_as_asked_for_and_no_coarser(count: int, limit: int) -> None:
    step = tile_step(count, limit)
    assert -(-count // step) <= limit
    assert step == 1 or -(-count // (step - 1)) > limit


@given(sizes, sizes, st.integers(1, 30), st.integers(0, 99))
def test_strongest_are_those_of_a_full_sort(N: int, M: int, count: int, seed: int) -> None:
    weights = np.random.default_rng(seed).random((N, M))
    expected = sorted((w, i, j) for (i, j), w in np.ndenumerate(weights) if w >= 0.25)[-count:]
    for form in (weights, kept(weights, M)):
        _, stack = read_stack(form, names(M), names(N))
        rows, columns, values = stack.strongest(0, 0, count, 0.25)
        assert list(zip(values, rows, columns, strict=True)) == expected


def test_a_column_named_twice_in_a_row_is_added_up() -> None:
    top = SimpleNamespace(values=[[0.25, 0.5, 0.125, 9.0]], indices=[[1, 0, 1, -1]])
    _, stack = read_stack(top, names(3), ["a"])
    assert stack.tiles(0, 0, (1, 1)).tolist() == [[0.5, 0.375, 0.0]]
    assert stack.largest() == 0.5


def test_arrays_of_any_library_are_read_with_their_heads() -> None:
    rows = np.random.default_rng(1).random((2, 3, 5)).astype(np.float32)
    tensor = torch.tensor(rows, requires_grad=True)
    for form in (rows, rows.tolist(), tensor, [[*tensor]], torch.tensor(rows[None]), [tensor]):
        _, stack = read_stack(form, names(5), names(3))
        assert stack.shape == (1, 2, 3, 5)
        assert np.array_equal(stack.values[0], rows)
    half = torch.tensor(rows).bfloat16()
    assert read_stack(half, names(5), names(3))[1].values.tolist() == [half.float().tolist()]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([[0.5, float("nan")]], r"^weights: expected finite numbers of at least 0, got nan$"),
        ([[0.5, -0.25]], r"^weights: expected finite numbers of at least 0, got -0\.25$"),
        ([[0.5], [0.5]], r"^weights: expected shape \(N, M\) = \(1, 2\).*got \(2, 1\); .*transpose it$"),
        (SimpleNamespace(values=[[float("inf")]], indices=[[0]]), r"^values: expected finite numbers"),
        (SimpleNamespace(values=[[1.0]], indices=[[2]]), r"^indices: .*from -1 \(unused\) to 1, got 2$"),
        (SimpleNamespace(values=[[1.0]], indices=[[0, 1]]), r"^indices: expected the shape of values"),
    ],
)
def test_bad_numbers_are_refused_in_one_line(weights: object, message: str) -> None:
    for draw in (view.matrix, view.heads, view.lines):
        with pytest.raises(ValueError, match=message):
            draw(weights, ["a", "b"], ["c"])


def test_kept_weights_without_words_are_refused() -> None:
    with pytest.raises(
        ValueError, match="source: expected the words beside values and indices, which do not"
    ):
        view.heads(SimpleNamespace(values=[[1.0]], indices=[[0]]))


def test_a_large_sparse_map_is_drawn_in_little_memory() -> None:
    """A dense map of 16,384 x 16,384 float32 would be 1 GiB; kept are 8 weights a row."""
    N = 16384
    generator = np.random.default_rng(2)
    top = SimpleNamespace(
        values=generator.random((N, 8), dtype=np.float32), indices=generator.integers(0, N, (N, 8))
    )
    words = ["word"] * N
    view.matrix([[1.0]], ["a"], ["b"])  # what is loaded once is not counted
    tracemalloc.start()
    try:
        view.matrix(top, words, words)
        assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    finally:
        tracemalloc.stop()


def test_the_largest_weight_of_nothing_is_zero() -> None:
    assert Stack(np.zeros((1, 1, 0, 3)), None, 3).largest() == 0.0
