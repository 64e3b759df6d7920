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
            "weights": None if sparse else _weights(weights, N, M, "weights"),
            "values": _weights(values, N, None, "values") if sparse else None,
            "title": title,
            "links": check_links(links, N, M),
        }
        fields["indices"] = _indices(indices, fields["values"].shape, M) if sparse else None
        for name, value in fields.items():
            object.__setattr__(self, name, value)


def load_numpy() -> Any:
    """NumPy, which drawing sentences does without and arrays in files and large maps need."""
    try:
        import numpy  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ImportError(
            "attention files and large maps need NumPy: pip install 'headlights[translate]'"
        ) from error
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


def check_shape(shape: tuple[int, ...], N: int, M: int | None, name: str) -> None:
    """Checks the shape of whole weights, or of kept ones.

    Args:
        shape: What came.
        N: Target words (rows).
        M: Source words (columns); None for kept weights, whose last size is free.
        name: What the caller calls it, for the error.

    Raises:
        ValueError: It is neither one map nor a map for each layer and head, or does not fit the words.
    """
    wanted = f"({N}, k) or (L, H, {N}, k) for {N} target words"
    if M is not None:
        wanted = f"(N, M) = ({N}, {M}) or (L, H, {N}, {M}) for {N} target and {M} source words"
    fits = shape[-2:-1] == (N,) if M is None else shape[-2:] == (N, M)
    if len(shape) not in (2, 4) or not fits or 0 in shape[:-2]:
        hint = "; rows are target words: transpose it" if M is not None and shape[-2:] == (M, N) else ""
        raise ValueError(f"{name}: expected shape {wanted}, got {shape}{hint}")


def check_range(found: Any, name: str) -> None:
    """Checks that every number of a NumPy array is finite and at least 0.

    Args:
        found: The array.
        name: What the caller calls it, for the error.

    Raises:
        ValueError: One is not.
    """
    bad = ~(load_numpy().isfinite(found) & (found >= 0))
    if bad.any():
        raise ValueError(f"{name}: expected finite numbers of at least 0, got {float(found[bad][0])!r}")


def check_indices(found: Any, shape: tuple[int, ...], M: int) -> None:
    """Checks the source words of kept weights.

    Args:
        found: NumPy array.
        shape: The shape of the weights.
        M: Source words.

    Raises:
        ValueError: The shape is another, or a number is no whole number from -1 to M - 1.
    """
    if found.shape != shape:
        raise ValueError(f"indices: expected the shape of values, {shape}, got {found.shape}")
    if found.size and found.dtype.kind not in "iu":
        raise ValueError(f"indices: expected whole numbers, got {found.dtype}")
    bad = (found < -1) | (found >= M)
    if bad.any():
        raise ValueError(
            f"indices: expected whole numbers from -1 (unused) to {M - 1}, got {int(found[bad][0])}"
        )


def _weights(array: object, N: int, M: int | None, name: str) -> Any:
    found = to_numpy(array, name)
    found = found if found.dtype.kind == "f" else found.astype("float64")
    check_shape(found.shape, N, M, name)
    check_range(found, name)
    return found


def _indices(array: object, shape: tuple[int, ...], M: int) -> Any:
    found = to_numpy(array, "indices")
    check_indices(found, shape, M)
    return found.astype("int64")
