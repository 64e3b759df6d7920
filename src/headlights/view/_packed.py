"""Large maps as text: the largest weights of each row, sorted, rounded and deflated, one string a head.

Nothing here ever holds the weights of all heads at once, let alone their zeros. A page's script unpacks a
head when it is drawn.
"""

import base64
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import product
from operator import getitem
from typing import Any

from headlights.view._arrays import kept_pair, shape_of
from headlights.view._maps import check_indices, check_range, check_shape, load_numpy, to_numpy

READABLE = 64
"""Words of a sentence whose map a page draws in full, with ribbons and every word."""

_NUMBERS = 300_000  # weights of a page that hold every one
_BYTES = 15_000_000  # before base64, which adds a third: a page stays under 20 MiB even where nothing repeats
_GENEROUS = 1_000_000  # kept weights of a whole array, if that is at least _FEWEST of each row
_FEWEST = 16


@dataclass(frozen=True)
class Packed:
    """All heads of a large map.

    Attributes:
        layers: L.
        heads: H.
        kept: Weights that are kept of each row, k.
        index_bytes: Bytes of a column number.
        steps: What the largest weight of a head is rounded to; a weight w of at most W is the whole number
            nearest to `steps` * (w / W) ** (1 / 3).
        largest: The largest weight of each head, layer by layer.
        data: The weights of each head, layer by layer, as base64 of a zlib stream. It holds bytes of k * N
            weights, then of as many column numbers, each the lowest byte of all first. The numbers stand slot
            by slot, in a slot row by row. In a row columns ascend; each is given by what it exceeds the one
            before by. An unused slot has weight 0.
    """

    layers: int
    heads: int
    kept: int
    index_bytes: int
    steps: int
    largest: tuple[float, ...]
    data: tuple[str, ...]


def is_large(weights: object, N: int, M: int) -> bool:
    """Whether weights are too many, or their words, to be drawn one by one.

    Args:
        weights: As `to_heads` takes them.
        N: Target words.
        M: Source words.

    Returns:
        Whether `pack` is for them.
    """
    pair = kept_pair(weights)
    array = weights if pair is None else pair[0]
    shape = shape_of(array, array)
    maps = shape[0] * shape[1] if len(shape) == 4 else 1
    return max(N, M) > READABLE or maps * N * M > _NUMBERS


def pack(weights: object, N: int, M: int, *, share: int = 1) -> Packed:
    """Keeps the largest weights of each row of each head, as many as a page may hold.

    Args:
        weights: As `to_heads` takes them.
        N: Target words, at least 1.
        M: Source words, at least 1.
        share: How many large maps the page has; each gets its part of the bytes.

    Returns:
        The weights as text.

    Raises:
        ValueError: The shape does not fit the words, or a number is negative, infinite or not a number.
        ImportError: NumPy is not installed.
    """
    shape, given = _open(weights, N, M)
    L, H = shape[:2] if len(shape) == 4 else (1, 1)
    rows = L * H * N
    index_bytes = 1 + (M > 1 << 8) + (M > 1 << 16)
    room = _BYTES // share
    kept = min(shape[-1], max(room // (rows * (index_bytes + 1)), 1))
    if kept_pair(weights) is None:
        kept = min(kept, max(_GENEROUS // share // rows, _FEWEST))
    steps = 65535 if rows * kept * (index_bytes + 2) <= room else 255
    largest, data = [], []
    for values, indices in given:
        top, text = _pack_head(*_largest(values, indices, kept), index_bytes, steps)
        largest.append(top)
        data.append(text)
    return Packed(L, H, kept, index_bytes, steps, tuple(largest), tuple(data))


def _open(weights: object, N: int, M: int) -> tuple[tuple[int, ...], Iterator[tuple[Any, Any]]]:
    """The checked shape, and the values and column numbers of head after head; None for every column."""
    pair = kept_pair(weights)
    name = "weights" if pair is None else "values"
    arrays = [_by_head(weights if pair is None else pair[0], name)]
    shape = shape_of(arrays[0], arrays[0])
    check_shape(shape, N, M if pair is None else None, name)
    if pair is not None:
        arrays.append(_by_head(pair[1], "indices"))
        other = shape_of(arrays[1], arrays[1])
        if other != shape:
            raise ValueError(f"indices: expected the shape of values, {shape}, got {other}")

    def heads() -> Iterator[tuple[Any, Any]]:
        for place in product(*map(range, shape[:-2])):
            values = to_numpy(_at(arrays[0], place), name)
            if values.shape != shape[-2:]:
                raise ValueError(f"{name}: expected {shape[-2:]} in every head, got {values.shape}")
            check_range(values, name)
            indices = to_numpy(_at(arrays[1], place), "indices") if pair is not None else None
            if indices is not None:
                check_indices(indices, values.shape, M)
            yield values, indices

    return shape, heads()


def _by_head(array: object, name: str) -> Any:
    """An array, or lists of arrays, that give out head after head; tensors stay where they are until then."""
    item: Any = array
    while isinstance(item, list | tuple) and item:
        item = item[0]
    return array if hasattr(item, "shape") and hasattr(item, "__getitem__") else to_numpy(array, name)


def _at(array: Any, place: tuple[int, ...]) -> Any:
    return reduce(getitem, place, array)


def _largest(values: Any, indices: Any, kept: int) -> tuple[Any, Any]:
    """The `kept` largest of each row, and their columns, which may be -1."""
    np = load_numpy()
    if kept < values.shape[1]:
        chosen = np.argpartition(values, values.shape[1] - kept, axis=1)[:, -kept:]
        values = np.take_along_axis(values, chosen, 1)
        return values, chosen if indices is None else np.take_along_axis(indices, chosen, 1)
    return values, np.broadcast_to(np.arange(kept), values.shape) if indices is None else indices


def _pack_head(values: Any, indices: Any, index_bytes: int, steps: int) -> tuple[float, str]:
    np = load_numpy()
    used = (values > 0) & (indices >= 0)
    last = np.iinfo(np.int64).max
    order = np.argsort(np.where(used, indices, last), axis=1, kind="stable")
    used = np.take_along_axis(used, order, 1)
    weights = np.where(used, np.take_along_axis(values, order, 1), 0).astype(np.float64)
    columns = np.maximum.accumulate(np.where(used, np.take_along_axis(indices, order, 1), 0), axis=1)
    for slot in range(1, columns.shape[1]):  # a column that is named twice counts as the sum, as everywhere
        again = used[:, slot] & (columns[:, slot] == columns[:, slot - 1])
        weights[again, slot] += weights[again, slot - 1]
        weights[again, slot - 1] = 0
    largest = float(weights.max(initial=0))
    numbers = np.rint(steps * np.cbrt(weights / (largest or 1))).astype(np.uint32)
    gaps = np.diff(columns, axis=1, prepend=0).astype(np.uint32)
    planes = [numbers >> 8 * n for n in range(1 if steps < 256 else 2)] + [
        gaps >> 8 * n for n in range(index_bytes)
    ]
    raw = b"".join(plane.astype(np.uint8).tobytes("F") for plane in planes)
    return largest, base64.b64encode(zlib.compress(raw, 6)).decode("ascii")
