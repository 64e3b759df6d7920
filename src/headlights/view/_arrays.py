"""Arrays of any library, read as nested lists and checked against the words that they belong to."""

import math
from collections.abc import Iterable, Sequence
from operator import index
from typing import Any

Map = list[list[float]]
"""One attention map: N rows (target words) of M weights (source words)."""

Heads = list[list[Map]]
"""Maps by layer and head: (L, H, N, M)."""


def to_list(array: object, name: str) -> Any:
    """Turns an array of any library into nested lists of numbers; the only place that knows about libraries.

    Args:
        array: A torch tensor (also on a device, also with gradients), a NumPy array, anything else with
            `tolist` or `__array__`, or nested lists and tuples of these and of numbers.
        name: What the caller calls it, for the error.

    Returns:
        Nested lists of numbers, or one number.

    Raises:
        TypeError: `array` is none of these.
    """
    value: Any = array
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "__array__"):
        return value.__array__().tolist()
    if isinstance(value, list | tuple):
        return [to_list(item, name) for item in value]
    if isinstance(value, int | float):
        return value
    raise TypeError(f"{name}: expected an array or nested lists of numbers, got {type(array).__name__}")


def shape_of(array: object, nested: Any) -> tuple[int, ...]:
    """The shape of `array`, whose nested lists are `nested`; only an array can tell the M of a (0, M) map."""
    if hasattr(array, "shape"):
        return tuple(int(size) for size in array.shape)
    shape = []
    while isinstance(nested, list | tuple) and not hasattr(nested, "shape"):
        shape.append(len(nested))
        if not nested:
            break
        nested = nested[0]
    return (*shape, *map(int, getattr(nested, "shape", ())))


def check_words(words: Sequence[str], name: str) -> tuple[str, ...]:
    """Checks a sentence: a sequence of strings, not one string.

    Args:
        words: The words or tokens.
        name: What the caller calls it, for the error.

    Returns:
        The words as a tuple.

    Raises:
        TypeError: `words` is one string, no sequence, or holds something that is no string.
    """
    if isinstance(words, str):
        raise TypeError(f"{name}: expected a list of words, got one string; split it first")
    if not isinstance(words, Iterable):
        raise TypeError(f"{name}: expected a list of words, got {type(words).__name__}")
    found = tuple(words)
    for word in found:
        if not isinstance(word, str):
            raise TypeError(f"{name}: expected words that are strings, got {type(word).__name__}")
    return found


def check_links(links: Iterable[tuple[int, int]], N: int, M: int) -> tuple[tuple[int, int], ...]:
    """Checks word links.

    Args:
        links: Pairs (source word, target word), counted from 0.
        N: Target words.
        M: Source words.

    Returns:
        The links without repetitions, sorted by source word.

    Raises:
        ValueError: A link is no pair, or points outside its sentence.
    """
    found = set()
    for link in links:
        try:
            i, j = link
            pair = index(i), index(j)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"links: expected pairs of whole numbers (source word, target word), got {link!r}"
            ) from error
        if not (0 <= pair[0] < M and 0 <= pair[1] < N):
            raise ValueError(
                f"links: expected pairs below ({M}, {N}) for {M} source and {N} target words, got {pair}; "
                "words are counted from 0"
            )
        found.add(pair)
    return tuple(sorted(found))


def to_map(weights: object, N: int, M: int) -> Map:
    """Reads one map.

    Args:
        weights: Shape (N, M), or `values` and `indices` of shape (N, k); see `to_heads`.
        N: Target words.
        M: Source words.

    Returns:
        N lists of M floats.

    Raises:
        ValueError: There is more than one map, or `to_heads` refuses the numbers.
    """
    heads = to_heads(weights, N, M)
    if len(heads) != 1 or len(heads[0]) != 1:
        raise ValueError(
            f"weights: expected shape ({N}, {M}), got {len(heads)} layers of {len(heads[0])} heads; "
            "pick one as weights[layer, head] or average them"
        )
    return heads[0][0]


def to_heads(weights: object, N: int, M: int) -> Heads:
    """Reads one map or all heads of all layers.

    Args:
        weights: Shape (N, M) or (L, H, N, M); or an object with arrays `values` and `indices` of shape (N, k)
            or (L, H, N, k) that keeps the k largest of a row, where index -1 marks an unused slot.
        N: Target words (rows).
        M: Source words (columns).

    Returns:
        Nested lists of shape (L, H, N, M); one map is L = H = 1.

    Raises:
        ValueError: The shape does not fit the words, or a number is negative, infinite or not a number.
    """
    pair = kept_pair(weights)
    return _dense(weights, N, M) if pair is None else _expand(*pair, N, M)


def kept_pair(weights: object) -> tuple[object, object] | None:
    """The `values` and `indices` of weights of which the largest were kept, or None for a whole array."""
    values, indices = getattr(weights, "values", None), getattr(weights, "indices", None)
    if values is None or indices is None or callable(values) or callable(indices):
        return None
    return values, indices


def largest_weight(rows: Map) -> float:
    """The largest weight of a map, 0 for an empty one."""
    return max((max(row, default=0.0) for row in rows), default=0.0)


def _dense(weights: object, N: int, M: int) -> Heads:
    nested = to_list(weights, "weights")
    shape = shape_of(weights, nested)
    if shape == (0,) and N == 0:
        shape = (0, M)
    if len(shape) not in (2, 4) or shape[-2:] != (N, M):
        hint = "; rows are target words: transpose it" if shape[-2:] == (M, N) else ""
        raise ValueError(
            f"weights: expected shape (N, M) = ({N}, {M}) or (L, H, {N}, {M}) "
            f"for {N} target and {M} source words, got {shape}{hint}"
        )
    heads: Heads = [[nested]] if len(shape) == 2 else nested
    _check_heads(heads, shape[:-2] or (1, 1))
    return [[[_check_row(row, M) for row in rows] for rows in layer] for layer in heads]


def _check_heads(heads: Any, layers_heads: tuple[int, ...]) -> None:
    L, H = layers_heads
    if L == 0 or H == 0:
        raise ValueError(f"weights: expected at least one layer and one head, got {L} layers of {H} heads")
    if any(len(layer) != H for layer in heads):
        raise ValueError(f"weights: expected {H} heads in every layer, got {sorted({len(x) for x in heads})}")
    rows = {len(head) for layer in heads for head in layer}
    if len(rows) > 1:
        raise ValueError(f"weights: expected as many rows in every head, got {sorted(rows)}")


def _check_row(row: Any, width: int) -> list[float]:
    if not isinstance(row, list) or len(row) != width:
        got = len(row) if isinstance(row, list) else "a number"
        raise ValueError(f"weights: expected rows of {width} numbers, got {got}")
    numbers = []
    for number in row:
        if not isinstance(number, int | float) or not math.isfinite(number) or number < 0:
            raise ValueError(f"weights: expected finite numbers of at least 0, got {number!r}")
        numbers.append(float(number))
    return numbers


def _expand(values: object, indices: object, N: int, M: int) -> Heads:
    kept, places = to_list(values, "values"), to_list(indices, "indices")
    shape, other = shape_of(values, kept), shape_of(indices, places)
    if shape != other or len(shape) not in (2, 4) or shape[-2] != N:
        raise ValueError(
            f"values and indices: expected the same shape ({N}, k) or (L, H, {N}, k) for {N} target words, "
            f"got {shape} and {other}"
        )
    k = shape[-1]
    if len(shape) == 2:
        kept, places = [[kept]], [[places]]
    _check_heads(kept, shape[:-2] or (1, 1))
    return [
        [
            [_expand_row(_check_row(v, k), i, M) for v, i in zip(vs, js, strict=True)]
            for vs, js in zip(a, b, strict=True)
        ]
        for a, b in zip(kept, places, strict=True)
    ]


def _expand_row(values: list[float], indices: list[int], M: int) -> list[float]:
    row = [0.0] * M
    for value, place in zip(values, indices, strict=True):
        if not isinstance(place, int) or not -1 <= place < M:
            raise ValueError(f"indices: expected whole numbers from -1 (unused) to {M - 1}, got {place!r}")
        if place >= 0:
            row[place] += value
    return row
