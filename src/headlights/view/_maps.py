"""An attention map with its words: what an interchange file holds and a page of several maps is made of."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headlights.view._arrays import check_links, check_words


@dataclass(frozen=True, eq=False, init=False)
class AttentionMap:
    """Attention weights of one sentence pair, whole or the largest of each row, with the words of both.

    Attributes:
        source: M source words (keys, columns).
        target: N target words (queries, rows).
        weights: NumPy array, shape (N, M) or (L, H, N, M); None if only the largest weights were kept.
        values: NumPy array, shape (N, k) or (L, H, N, k), the kept weights; None beside `weights`.
        indices: NumPy array of whole numbers, shape of `values`: the source word of each kept weight, -1
            where a slot is unused; None beside `weights`.
        title: A line to draw above the map, or None.
        links: Pairs (source word, target word), counted from 0.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Any
    values: Any
    indices: Any
    title: str | None
    links: tuple[tuple[int, int], ...]

    def __init__(
        self,
        source: Sequence[str],
        target: Sequence[str],
        *,
        weights: object = None,
        values: object = None,
        indices: object = None,
        title: str | None = None,
        links: Iterable[tuple[int, int]] = (),
    ) -> None:
        """Checks the arrays against the words and takes them as NumPy arrays.

        Args:
            source: M source words.
            target: N target words.
            weights: Any array or nested lists, shape (N, M) or (L, H, N, M), finite and at least 0.
            values: In place of `weights`, the kept weights, shape (N, k) or (L, H, N, k), finite and at least
                0.
            indices: The source word of each of `values`, whole numbers from -1 (unused slot) to M - 1.
            title: A line to draw above the map. Default: none.
            links: Pairs (source word, target word), counted from 0. Default: none.

        Raises:
            TypeError: Words are no strings, or the title is none.
            ValueError: Shapes do not fit the words, a number is out of range, or not exactly one of `weights`
                and `values` with `indices` is given.
            ImportError: NumPy is not installed.
        """
        sparse = values is not None and indices is not None
        if (weights is None) != sparse or (not sparse and (values is not None or indices is not None)):
            raise ValueError("AttentionMap: expected either weights, or values and indices together")
        if title is not None and not isinstance(title, str):
            raise TypeError(f"title: expected a string, got {type(title).__name__}")
        words = check_words(source, "source"), check_words(target, "target")
        N, M = len(words[1]), len(words[0])
        fields: dict[str, Any] = {
            "source": words[0],
            "target": words[1],
            "weights": None if sparse else _weights(weights, (N, M), "weights"),
            "values": _weights(values, None, "values", N) if sparse else None,
            "title": title,
            "links": check_links(links, N, M),
        }
        fields["indices"] = _indices(indices, fields["values"].shape, M) if sparse else None
        for name, value in fields.items():
            object.__setattr__(self, name, value)


def load_numpy() -> Any:
    """NumPy, which drawing does without and arrays in files need."""
    try:
        import numpy  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ImportError("attention files need NumPy: pip install 'headlights[translate]'") from error
    return numpy


def to_numpy(array: object, name: str) -> Any:
    """Any array or nested lists as a NumPy array.

    Args:
        array: As `to_list` takes it.
        name: What the caller calls it, for the error.

    Returns:
        A NumPy array of numbers.

    Raises:
        ValueError: Rows differ in length.
        TypeError: It does not hold numbers.
    """
    np = load_numpy()
    value: Any = array
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value  # NumPy has no such type
    try:
        found = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name}: expected rows of one length, got rows of different lengths") from error
    if found.dtype.kind not in "fiub":
        raise TypeError(f"{name}: expected numbers, got {found.dtype}")
    return found


def _weights(array: object, last: tuple[int, int] | None, name: str, rows: int = 0) -> Any:
    np = load_numpy()
    found = to_numpy(array, name)
    found = found if found.dtype.kind == "f" else found.astype(np.float64)
    if last is None:
        good, wanted = (
            found.shape[-2:-1] == (rows,),
            f"({rows}, k) or (L, H, {rows}, k) for {rows} target words",
        )
    else:
        N, M = last
        good = found.shape[-2:] == last
        wanted = f"(N, M) = ({N}, {M}) or (L, H, {N}, {M}) for {N} target and {M} source words"
    if found.ndim not in (2, 4) or not good or 0 in found.shape[:-2]:
        raise ValueError(f"{name}: expected shape {wanted}, got {found.shape}")
    bad = ~(np.isfinite(found) & (found >= 0))
    if bad.any():
        raise ValueError(f"{name}: expected finite numbers of at least 0, got {float(found[bad][0])!r}")
    return found


def _indices(array: object, shape: tuple[int, ...], M: int) -> Any:
    found = to_numpy(array, "indices")
    if found.shape != shape:
        raise ValueError(f"indices: expected the shape of values, {shape}, got {found.shape}")
    if found.size and found.dtype.kind not in "iu":
        raise ValueError(f"indices: expected whole numbers, got {found.dtype}")
    bad = (found < -1) | (found >= M)
    if bad.any():
        raise ValueError(
            f"indices: expected whole numbers from -1 (unused) to {M - 1}, got {int(found[bad][0])}"
        )
    return found.astype("int64")
