"""The interchange file: what is written is read again, and what is broken is refused in one line."""

import gzip
import io
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from headlights.view import (
    AttentionMap,
    attention_line,
    load_attention,
    load_attention_lines,
    save_attention,
)

FORMATS = [".json", ".npz", ".safetensors"]
GOOD: dict[str, Any] = {
    "format": "headlights-attention",
    "version": 1,
    "source": ["a", "b", "c"],
    "target": ["d", "e"],
    "weights": [[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]],
}


@st.composite
def maps(draw: st.DrawFn) -> AttentionMap:
    word = st.text(max_size=5).filter(lambda text: not text.endswith("\0"))
    source, target = (draw(st.lists(word, max_size=5)) for _ in range(2))
    lead = draw(st.sampled_from([(), (1, 1), (2, 3)]))
    N, M, k = len(target), len(source), draw(st.integers(0, 3))
    dtype = draw(st.sampled_from([np.float16, np.float32, np.float64]))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    links = (
        draw(st.lists(st.tuples(st.integers(0, M - 1), st.integers(0, N - 1)), max_size=3)) if N and M else []
    )
    title = draw(st.none() | word)
    if draw(st.booleans()):
        weights = random.random((*lead, N, M)).astype(dtype)
        return AttentionMap(source, target, weights=weights, title=title, links=links)
    values = random.random((*lead, N, k)).astype(dtype)
    indices = random.integers(-1, M, (*lead, N, k))
    return AttentionMap(source, target, values=values, indices=indices, title=title, links=links)


def assert_same(found: AttentionMap, wanted: AttentionMap, *, types: bool) -> None:
    for name in ("source", "target", "title", "links"):
        assert getattr(found, name) == getattr(wanted, name), name
    for name in ("weights", "values", "indices"):
        one, other = getattr(found, name), getattr(wanted, name)
        assert (one is None) == (other is None), name
        if other is not None:
            assert not types or one.dtype == other.dtype
            np.testing.assert_array_equal(one, other, strict=types)


@pytest.mark.parametrize("suffix", FORMATS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(wanted=maps())
def test_round_trip(tmp_path: Path, suffix: str, wanted: AttentionMap) -> None:
    path = save_attention(tmp_path / f"map{suffix}", wanted)
    empty_json = (
        suffix == ".json" and not wanted.target
    )  # lists without rows cannot say how long they would be
    found = load_attention(path)
    if empty_json and wanted.values is not None:
        assert found.values.size == found.indices.size == 0
        return
    assert_same(found, wanted, types=suffix != ".json")
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_a_map_a_line(tmp_path: Path, suffix: str) -> None:
    wanted = [
        AttentionMap(["a", "b\u2028\r\n"], ["c"], weights=[[0.1, 0.9]], title="t", links=[(1, 0)]),
        AttentionMap([], [], weights=np.zeros((0, 0))),
        AttentionMap(["a"], ["b"], values=[[[[0.5]]]], indices=[[[[-1]]]]),
    ]
    path = tmp_path / f"maps{suffix}"
    text = "".join(f"{attention_line(each)}\n" for each in wanted).encode("ascii")
    path.write_bytes(gzip.compress(text) if suffix.endswith(".gz") else text)
    for first in (1, 2, 3, 4):
        found = list(load_attention_lines(path, first=first))
        assert len(found) == 4 - first
        for one, other in zip(found, wanted[first - 1 :], strict=True):
            assert_same(one, other, types=False)
    (tmp_path / "one.json").write_bytes(text.splitlines()[0])  # a line is a file of one map
    assert_same(load_attention(tmp_path / "one.json"), wanted[0], types=False)


def test_lines_are_read_one_at_a_time_and_broken_ones_named(tmp_path: Path) -> None:
    path = tmp_path / "maps.jsonl"
    good = attention_line(AttentionMap(["a"], ["b"], weights=[[1]]))
    path.write_text(f"{good}\n[1]\n{good}\n\n{json.dumps(GOOD | {'version': 2})}\n")
    maps = load_attention_lines(path)
    assert next(maps).source == ("a",)
    with pytest.raises(ValueError, match=r"maps\.jsonl:2: expected a JSON object, got list"):
        next(maps)
    maps = load_attention_lines(path, first=3)
    assert next(maps).target == ("b",)
    with pytest.raises(ValueError, match=r"maps\.jsonl:4: expected JSON in UTF-8, got Expecting value"):
        next(maps)
    with pytest.raises(ValueError, match=r"maps\.jsonl:5: expected version 1, got 2"):
        next(load_attention_lines(path, first=5))
    with pytest.raises(FileNotFoundError):
        next(load_attention_lines(tmp_path / "none.jsonl"))


def test_broken_compression_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "maps.jsonl.gz"
    line = attention_line(AttentionMap(["a"], ["b"], weights=[[1]]))
    whole = gzip.compress(f"{line}\n{line}".encode())
    path.write_bytes(whole[:-9])
    with pytest.raises(ValueError, match=r"maps\.jsonl\.gz: the gzip data is broken or cut off after line"):
        list(load_attention_lines(path))
    path.write_text(line)
    with pytest.raises(ValueError, match=r"the gzip data is broken or cut off after line 0"):
        list(load_attention_lines(path))


def test_torch_tensors_are_taken(tmp_path: Path) -> None:
    weights = torch.tensor([[0.5, 0.5]], dtype=torch.bfloat16, requires_grad=True)
    saved = AttentionMap(["a", "b"], ["c"], weights=weights)
    found = load_attention(save_attention(tmp_path / "a.safetensors", saved))
    assert found.weights.dtype == np.float32
    assert found.weights.tolist() == [[0.5, 0.5]]


def test_words_of_other_programs_are_read_without_pickle(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **(GOOD | {"source": np.array(["a", "b", "c"], dtype=object)}))
    with pytest.raises(
        ValueError, match=r"a\.npz: expected a whole NPZ file, got Object arrays cannot be loaded"
    ):
        load_attention(tmp_path / "a.npz")


def test_other_keys_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(GOOD | {"model": "mine"}))
    assert load_attention(tmp_path / "a.json").target == ("d", "e")


WRONG = {
    "no format": ({"format": None}, "expected format 'headlights-attention', got None"),
    "other version": ({"version": 2}, "expected version 1, got 2"),
    "source is a string": ({"source": "abc"}, "expected 'source', a list of words, got str"),
    "no target": ({"target": None}, "expected 'target', a list of words, got NoneType"),
    "numbers as words": ({"target": [1, 2]}, "target: expected words that are strings, got int"),
    "no weights": ({"weights": None}, "expected 'weights', or 'values' and 'indices', got neither"),
    "both": ({"values": [[1], [1]], "indices": [[0], [0]]}, "expected either weights, or values and indices"),
    "values alone": (
        {"weights": None, "values": [[1], [1]]},
        "expected either weights, or values and indices",
    ),
    "one word less": (
        {"source": ["a", "b"]},
        r"weights: expected shape \(N, M\) = \(2, 2\) .*, got \(2, 3\)",
    ),
    "three dimensions": ({"weights": [[[1] * 3] * 2]}, r"weights: expected shape .*, got \(1, 2, 3\)"),
    "negative": (
        {"weights": [[0, 0, -0.5], [0, 0, 0]]},
        "weights: expected finite numbers of at least 0, got -0.5",
    ),
    "not a number": ({"weights": [[0, 0, float("nan")], [0, 0, 0]]}, "weights: expected finite .* got nan"),
    "infinite": ({"weights": [[0, 0, float("inf")], [0, 0, 0]]}, "weights: expected finite .* got inf"),
    "index too high": (
        {"weights": None, "values": [[1], [1]], "indices": [[0], [3]]},
        r"indices: expected whole numbers from -1 \(unused\) to 2, got 3",
    ),
    "index too low": (
        {"weights": None, "values": [[1], [1]], "indices": [[0], [-2]]},
        r"indices: expected whole numbers from -1 \(unused\) to 2, got -2",
    ),
    "index between": (
        {"weights": None, "values": [[1], [1]], "indices": [[0], [0.5]]},
        "indices: expected whole numbers, got float64",
    ),
    "fewer indices": (
        {"weights": None, "values": [[1], [1]], "indices": [[0, 1], [0, 1]]},
        r"indices: expected the shape of values, \(2, 1\), got \(2, 2\)",
    ),
    "fewer rows of values": (
        {"weights": None, "values": [[1]], "indices": [[0]]},
        r"values: expected shape \(2, k\) or \(L, H, 2, k\) for 2 target words, got \(1, 1\)",
    ),
    "link outside": ({"links": [[0, 2]]}, r"links: expected pairs below \(3, 2\).*got \(0, 2\)"),
}


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, suffix: str, change: dict[str, Any], message: str
) -> None:
    fields = {name: value for name, value in (GOOD | change).items() if value is not None}
    path = tmp_path / f"map{suffix}"
    arrays: dict[str, Any] = {
        name: np.array(fields[name]) for name in ("weights", "values", "indices") if name in fields
    }
    if suffix == ".json":
        path.write_text(json.dumps(fields))
    elif suffix == ".npz":
        np.savez(path, **fields)
    else:
        rest = {name: value for name, value in fields.items() if name not in arrays}
        words = {name: value if name == "format" else json.dumps(value) for name, value in rest.items()}
        save_file(arrays or {"other": np.zeros(1)}, path, metadata=words)
    with pytest.raises(ValueError, match=message) as caught:
        load_attention(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("change", [{"title": 3}, {"weights": [["x"] * 3] * 2}], ids=["title", "weights"])
def test_wrong_kinds_in_json_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    (tmp_path / "a.json").write_text(json.dumps(GOOD | change))
    with pytest.raises(
        ValueError, match=r"title: expected a string, got int|weights: expected numbers, got <U1"
    ):
        load_attention(tmp_path / "a.json")


def test_ragged_rows_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(GOOD | {"weights": [[1, 0, 0], [1, 0]]}))
    with pytest.raises(
        ValueError, match="weights: expected rows of one length, got rows of different lengths"
    ):
        load_attention(tmp_path / "a.json")


@pytest.mark.parametrize("suffix", FORMATS)
def test_any_part_of_a_file_is_refused(tmp_path: Path, suffix: str) -> None:
    """A file cut anywhere never loads and never raises anything but one line."""
    attention = AttentionMap(["a", "b"], ["c"], weights=np.array([[0.25, 0.75]]))
    whole = save_attention(tmp_path / f"whole{suffix}", attention).read_bytes()
    path = tmp_path / f"part{suffix}"
    for length in range(len(whole.rstrip())):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=rf"part{suffix}: expected ") as caught:
            load_attention(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_changed_byte_never_raises_anything_else(tmp_path: Path, suffix: str) -> None:
    attention = AttentionMap(["a", "b"], ["c"], weights=np.array([[0.25, 0.75]]))
    whole = save_attention(tmp_path / f"whole{suffix}", attention).read_bytes()
    path = tmp_path / f"changed{suffix}"
    refused = 0
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            load_attention(path)
        except ValueError:
            refused += 1
    assert refused > len(whole) // 4


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", b"\xff\xfe", "expected JSON in UTF-8, got 'utf-8' codec"),
        ("a.json", b"[" * 100_000, "expected JSON in UTF-8, got maximum recursion"),
        ("a.json", b"[1]", "expected a JSON object, got list"),
        ("a.npz", b"\x93NUMPY", "expected a whole NPZ file .a zip archive., got something else"),
        ("a.safetensors", b"\xff" * 64, "expected a whole safetensors file, got"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_attention(tmp_path / name)


def test_an_archive_that_claims_too_much_is_refused(tmp_path: Path) -> None:
    """An array header of 2**60 numbers, without the numbers."""
    header = io.BytesIO()
    shape = {"descr": "<f8", "fortran_order": False, "shape": (2**30, 2**30)}
    np.lib.format.write_array_header_1_0(header, shape)
    np.savez(tmp_path / "a.npz", **{name: value for name, value in GOOD.items() if name != "weights"})
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.writestr("weights.npy", header.getvalue())
    with pytest.raises(ValueError, match=r"a\.npz: expected a whole NPZ file, got"):
        load_attention(tmp_path / "a.npz")


def test_metadata_that_is_no_json_is_refused(tmp_path: Path) -> None:
    words = {"format": "headlights-attention", "version": "1", "source": "a b", "target": "[]"}
    save_file({"weights": np.zeros((0, 2))}, tmp_path / "a.safetensors", metadata=words)
    with pytest.raises(ValueError, match="expected JSON in the metadata 'source', got 'a b'"):
        load_attention(tmp_path / "a.safetensors")


def test_names_choose_the_format() -> None:
    with pytest.raises(
        ValueError, match=r"a\.txt: expected a name that ends in \.json, \.npz, \.safetensors, got '\.txt'"
    ):
        save_attention("a.txt", AttentionMap(["a"], ["b"], weights=[[1]]))


@pytest.mark.parametrize("suffix", FORMATS)
def test_missing_files_are_the_systems_error(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(FileNotFoundError):
        load_attention(tmp_path / f"none{suffix}")


def test_npz_refuses_words_it_would_shorten(tmp_path: Path) -> None:
    attention = AttentionMap(["a\0"], ["b"], weights=[[1]])
    with pytest.raises(ValueError, match=r"NPZ cannot hold a text that ends in NUL, got 'a\\x00'; use JSON"):
        save_attention(tmp_path / "a.npz", attention)
    assert load_attention(save_attention(tmp_path / "a.json", attention)).source == ("a\0",)


def test_without_numpy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(
        ImportError, match=r"attention files and large maps need NumPy: pip install 'headlights\[translate\]'"
    ):
        AttentionMap(["a"], ["b"], weights=[[1]])


@pytest.mark.parametrize("name", ["safetensors", "safetensors.numpy"])
def test_without_safetensors_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"needs safetensors: pip install 'headlights\[translate\]'"):
        save_attention(tmp_path / "a.safetensors", AttentionMap(["a"], ["b"], weights=[[1]]))


def test_drawing_needs_neither_torch_nor_numpy() -> None:
    import subprocess

    code = (
        "import sys; sys.modules['numpy'] = sys.modules['torch'] = sys.modules['rich'] = None\n"
        "from headlights import view\n"
        "view.html([[1.0]], ['a'], ['b']), view.svg([[1.0]], ['a'], ['b'])\n"
        "print(view.terminal([[1.0]], ['a'], ['b'], width=20))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, encoding="utf-8")
    assert "b ██" in done.stdout
