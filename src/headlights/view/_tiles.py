"""Weights as NumPy arrays, whole or sparse, and large maps in the tiles that a picture has room for."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headlights.view._arrays import check_words
from headlights.view._maps import AttentionMap, to_numpy


@dataclass(frozen=True, eq=False)
class Stack:
    """The maps of L layers of H heads, N rows of M weights each.

    Attributes:
        values: Shape (L, H, N, M), or (L, H, N, k) beside `indices`; finite and at least 0.
        indices: None, or the column of each of `values`, -1 where a slot is unused; no column twice in a row.
        M: Columns.
    """

    values: Any
    indices: Any
    M: int

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Layers, heads, rows and columns, however many weights are kept."""
        L, H, N, _ = self.values.shape
        return L, H, N, self.M

    def largest(self) -> float:
        """The largest weight of all maps, 0 if there is none."""
        return float(self.values.max()) if self.values.size else 0.0

    def tiles(self, layer: int, head: int, step: tuple[int, int]) -> Any:
        """One map in tiles, each the largest weight in it, so that no thin line is lost.

        A sparse map costs time for its kept weights and memory for its tiles.

        Args:
            layer: Which layer, from 0.
            head: Which head, from 0.
            step: Rows and columns of a tile; the last tiles may be cut by the edge.

        Returns:
            NumPy array, float64, shape (N, M) divided by `step` and rounded up.
        """
        values, (down, across) = self.values[layer, head], step
        N = len(values)
        if self.indices is None:
            if across > 1:
                values = np.maximum.reduceat(values, np.arange(0, self.M, across), axis=1)
            if down > 1:
                values = np.maximum.reduceat(values, np.arange(0, N, down), axis=0)
            return values.astype(np.float64)
        rows, columns, kept = _entries(values, self.indices[layer, head])
        tiles = np.zeros((-(-N // down), -(-self.M // across)))
        np.maximum.at(tiles, (rows // down, columns // across), kept)
        return tiles

    def strongest(self, layer: int, head: int, count: int, least: float) -> tuple[Any, Any, Any]:
        """The largest weights of one map.

        Args:
            layer: Which layer, from 0.
            head: Which head, from 0.
            count: At most so many.
            least: Smaller ones are left out, and so are zeros.

        Returns:
            Rows, columns and weights (float64), from the smallest weight to the largest.
        """
        values = self.values[layer, head]
        if self.indices is None:
            rows, columns = np.nonzero((values >= least) & (values > 0))
            kept = values[rows, columns]
        else:
            rows, columns, kept = _entries(values, self.indices[layer, head])
            chosen = (kept >= least) & (kept > 0)
            rows, columns, kept = rows[chosen], columns[chosen], kept[chosen]
        best = np.argpartition(kept, -count)[-count:] if len(kept) > count else np.arange(len(kept))
        order = best[np.argsort(kept[best], kind="stable")]
        return rows[order], columns[order], kept[order].astype(np.float64)


def tile_step(count: int, limit: int) -> int:
    """Tokens of a tile, so that `count` tokens take at most `limit` tiles."""
    return max(1, -(-count // limit))


def read_stack(
    weights: object, source: Sequence[str] | None, target: Sequence[str] | None
) -> tuple[AttentionMap, Stack]:
    """Reads weights of any library, whole or the largest of each row, against their words.

    Args:
        weights: Shape (N, M), (H, N, M) or (L, H, N, M), or a list of one array a layer; or an object with
            arrays `values` and `indices` of shape (N, k), (H, N, k) or (L, H, N, k).
        source: M words (columns), or None if they are not known.
        target: N words (rows), or None if they are not known.

    Returns:
        The words and arrays, checked; and the same weights as (L, H, N, M).

    Raises:
        TypeError: Words are no strings, or weights no numbers.
        ValueError: Shape and words do not fit, or a number is out of range.
    """
    values, indices = getattr(weights, "values", None), getattr(weights, "indices", None)
    if values is None or indices is None or callable(values) or callable(indices):
        whole = _layered(weights, "weights")
        source, target = _words(source, whole, -1, "source"), _words(target, whole, -2, "target")
        if whole.shape == (0,) and not target:
            whole = whole.reshape(0, len(source))
        found = AttentionMap(source, target, weights=whole)
        return found, Stack(_four(found.weights), None, len(found.source))
    if source is None:
        raise ValueError("source: expected the words beside values and indices, which do not tell M")
    values, indices = _layered(values, "values"), _layered(indices, "indices")
    found = AttentionMap(source, _words(target, values, -2, "target"), values=values, indices=indices)
    return found, Stack(*_merged(_four(found.values), _four(found.indices)), len(found.source))


def _words(words: Sequence[str] | None, array: Any, axis: int, name: str) -> tuple[str, ...]:
    """The words, checked, or as many empty ones as the axis is long."""
    if words is not None:
        return check_words(words, name)
    return ("",) * (array.shape[axis] if array.ndim >= -axis else 0)


def _layered(array: object, name: str) -> Any:
    """An array with a first axis of layers if it has heads."""
    found = to_numpy(_without_gradients(array, name), name)
    return found[None] if found.ndim == 3 else found


def _without_gradients(array: object, name: str) -> object:
    """Lists of arrays as lists of NumPy arrays: NumPy itself stacks no tensors that have gradients."""
    if (
        isinstance(array, list | tuple)
        and array
        and (isinstance(array[0], list | tuple) or _is_tensor(array[0]))
    ):
        return [
            to_numpy(each, name) if _is_tensor(each) else _without_gradients(each, name) for each in array
        ]
    return array


def _is_tensor(array: object) -> bool:
    return hasattr(array, "detach")


def _four(array: Any) -> Any:
    return array if array.ndim == 4 else array[None, None]


def _entries(values: Any, indices: Any) -> tuple[Any, Any, Any]:
    """Rows, columns and weights of the used slots of one map."""
    rows, slots = np.nonzero(indices >= 0)
    return rows, indices[rows, slots], values[rows, slots]


def _merged(values: Any, indices: Any) -> tuple[Any, Any]:
    """Adds up the weights of a column that a row names twice."""
    if indices.shape[-1] == 0:
        return values, indices
    order = np.argsort(indices, axis=-1, kind="stable")
    places = np.take_along_axis(indices, order, -1)
    twice = (places[..., 1:] == places[..., :-1]) & (places[..., 1:] >= 0)
    if not twice.any():
        return values, indices
    kept = np.take_along_axis(values, order, -1)
    for slot in range(1, kept.shape[-1]):
        same = twice[..., slot - 1]
        kept[..., slot] += np.where(same, kept[..., slot - 1], 0)
        places[..., slot - 1][same] = -1
    return np.where(places < 0, 0, kept), places
