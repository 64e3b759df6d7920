"""The interchange file (docs/attention-file.md): a map as JSON, NPZ or safetensors, or many as JSON lines."""

import gzip
import io
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from headlights.view._maps import AttentionMap, load_numpy
from headlights.view._page import write_beside

FORMAT = "headlights-attention"
VERSION = 1
_ARRAYS = ("weights", "values", "indices")
_BROKEN_NPZ = (  # what zipfile, zlib and NumPy raise for damage in different places
    ValueError,
    EOFError,
    KeyError,
    MemoryError,
    OSError,
    RuntimeError,
    SyntaxError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


def save_attention(path: str | os.PathLike[str], attention: AttentionMap) -> Path:
    """Writes an attention map as a file that `load_attention` and `headlights view` read.

    Args:
        path: Where to; the name ends in `.json`, `.npz` or `.safetensors`, and so chooses the format. An
            older file is replaced at once, never half.
        attention: What to write.

    Returns:
        The path.

    Raises:
        ValueError: The name ends otherwise, or a word cannot be held by the format: NumPy drops NUL
            characters at the end of a string, so NPZ refuses them.
        ImportError: The format is safetensors, which is not installed.
        OSError: The file cannot be written.
    """
    place = Path(path)
    write, _ = _format(place)
    return write_beside(place, write(attention))


def load_attention(path: str | os.PathLike[str]) -> AttentionMap:
    """Reads an attention map that `save_attention` or any other program wrote. Nothing in it is executed.

    Args:
        path: A file whose name ends in `.json`, `.npz` or `.safetensors`.

    Returns:
        The map; arrays keep the type that NPZ and safetensors gave them, numbers from JSON are float64.

    Raises:
        ValueError: The file is broken, cut short or of another kind, or its shapes, words and numbers do not
            fit; one line that names the file, what was expected and what came.
        ImportError: The format is safetensors, which is not installed.
        OSError: The file cannot be read.
    """
    place = Path(path)
    _, read = _format(place)
    try:
        return _to_attention(read(place))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{place}: {_first_line(error)}") from error


def attention_line(attention: AttentionMap) -> str:
    """Writes an attention map as one line of a file of many.

    Args:
        attention: What to write.

    Returns:
        One JSON object in ASCII, without a line's end.
    """
    arrays = {name: array.tolist() for name, array in _arrays(attention).items()}
    return json.dumps(_header(attention) | arrays)


def load_attention_lines(path: str | os.PathLike[str], *, first: int = 1) -> Iterator[AttentionMap]:
    """Reads a file of many attention maps, one JSON object a line, one at a time.

    Args:
        path: The file, UTF-8, by custom named `.jsonl`; compressed if its name ends in `.gz`.
        first: Number of the line to begin with, from 1; those before it are not looked at.

    Yields:
        The maps, each as `load_attention` reads it from JSON.

    Raises:
        ValueError: A line is not such an object, or the compression is broken; one line that names the file
            and the number of the line.
        OSError: The file cannot be read.
    """
    place, number = Path(path), 0
    try:
        with gzip.open(place, "rb") if place.suffix.lower() == ".gz" else place.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if number >= first:
                    yield _to_attention(_parse(line))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{place}: the gzip data is broken or cut off after line {number}") from error
    except (ValueError, TypeError) as error:
        raise ValueError(f"{place}:{number}: {_first_line(error)}") from error


def _to_attention(fields: dict[str, Any]) -> AttentionMap:
    _check_header(fields)
    return AttentionMap(
        fields["source"],
        fields["target"],
        **{name: fields[name] for name in (*_ARRAYS, "title", "links") if fields.get(name) is not None},
    )


def _format(path: Path) -> tuple[Callable[[AttentionMap], bytes], Callable[[Path], dict[str, Any]]]:
    formats = {
        ".json": (_to_json, _from_json),
        ".npz": (_to_npz, _from_npz),
        ".safetensors": (_to_safetensors, _from_safetensors),
    }
    if path.suffix not in formats:
        raise ValueError(f"{path}: expected a name that ends in {', '.join(formats)}, got {path.suffix!r}")
    return formats[path.suffix]


def _check_header(fields: dict[str, Any]) -> None:
    if fields.get("format") != FORMAT:
        raise ValueError(f"expected format {FORMAT!r}, got {fields.get('format')!r}")
    if fields.get("version") != VERSION:
        raise ValueError(f"expected version {VERSION}, got {fields.get('version')!r}")
    for name in ("source", "target"):
        if not isinstance(fields.get(name), list):
            raise ValueError(f"expected {name!r}, a list of words, got {type(fields.get(name)).__name__}")
    if fields.get("weights") is None and fields.get("values") is None:
        raise ValueError("expected 'weights', or 'values' and 'indices', got neither")


def _header(attention: AttentionMap) -> dict[str, Any]:
    """All but the arrays; what is not there is left out."""
    header: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "source": list(attention.source),
        "target": list(attention.target),
    }
    if attention.title is not None:
        header["title"] = attention.title
    if attention.links:
        header["links"] = [list(link) for link in attention.links]
    return header


def _arrays(attention: AttentionMap) -> dict[str, Any]:
    found = {name: getattr(attention, name) for name in _ARRAYS}
    return {name: array for name, array in found.items() if array is not None}


def _to_json(attention: AttentionMap) -> bytes:
    return (attention_line(attention) + "\n").encode("ascii")


def _from_json(path: Path) -> dict[str, Any]:
    return _parse(path.read_bytes())


def _parse(content: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"expected JSON in UTF-8, got {_first_line(error)}") from error
    if not isinstance(fields, dict):
        raise ValueError(f"expected a JSON object, got {type(fields).__name__}")
    target, source = fields.get("target"), fields.get("source")
    if target == [] and isinstance(source, list):
        widths = {"weights": len(source), "values": 0, "indices": 0}
        fields |= {
            name: _without_rows(fields[name], width) for name, width in widths.items() if name in fields
        }
    return fields


def _without_rows(nested: Any, width: int) -> Any:
    """Nested lists cannot say how wide the rows of a map without rows are; an array can."""
    found = load_numpy().asarray(nested)
    return found.reshape((*found.shape, width)) if found.size == 0 and found.ndim in (1, 3) else found


def _to_npz(attention: AttentionMap) -> bytes:
    np = load_numpy()
    header = _header(attention)
    for text in [*attention.source, *attention.target, attention.title or ""]:
        if text.endswith("\0"):
            raise ValueError(
                f"NPZ cannot hold a text that ends in NUL, got {text!r}; use JSON or safetensors"
            )
    for name in ("source", "target"):
        header[name] = np.array(header[name], dtype=None if header[name] else "U1")
    file = io.BytesIO()
    np.savez_compressed(file, **header, **_arrays(attention))
    return file.getvalue()


def _from_npz(path: Path) -> dict[str, Any]:
    np = load_numpy()
    known = ("format", "version", "source", "target", "title", "links", *_ARRAYS)
    with path.open("rb") as file:
        if not zipfile.is_zipfile(file):
            raise ValueError("expected a whole NPZ file (a zip archive), got something else or a part of one")
        file.seek(0)
        try:
            with np.load(file, allow_pickle=False) as archive:
                fields = {name: archive[name] for name in known if name in archive.files}
        except _BROKEN_NPZ as error:
            raise ValueError(f"expected a whole NPZ file, got {_first_line(error)}") from error
    return {name: field if name in _ARRAYS else field.tolist() for name, field in fields.items()}


def _to_safetensors(attention: AttentionMap) -> bytes:
    np, safetensors = load_numpy(), _load_safetensors()
    metadata = {
        name: value if name == "format" else json.dumps(value) for name, value in _header(attention).items()
    }
    arrays = {name: np.ascontiguousarray(array) for name, array in _arrays(attention).items()}
    content: bytes = safetensors.numpy.save(arrays, metadata)
    return content


def _from_safetensors(path: Path) -> dict[str, Any]:
    safetensors = _load_safetensors()
    path.open("rb").close()  # a file that is not there is an OSError, in the system's words
    try:
        with safetensors.safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            fields = {name: file.get_tensor(name) for name in _ARRAYS if name in file.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, OSError, TypeError, AttributeError) as error:
        raise ValueError(f"expected a whole safetensors file, got {_first_line(error)}") from error
    for name in ("version", "source", "target", "title", "links"):
        if name in metadata:
            try:
                fields[name] = json.loads(metadata[name])
            except (ValueError, RecursionError) as error:
                raise ValueError(
                    f"expected JSON in the metadata {name!r}, got {metadata[name]!r:.60}"
                ) from error
    return fields | {"format": metadata.get("format")}


def _load_safetensors() -> Any:
    try:
        import safetensors.numpy  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ImportError("this format needs safetensors: pip install 'headlights[translate]'") from error
    return safetensors


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
