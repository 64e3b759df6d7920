"""Keys and values that were projected before, for decoding word by word."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass
class _Buffer:
    """Storage that several caches may share; rows from `tip` on are free and belong to nobody."""

    key: Tensor
    value: Tensor
    tip: int

    @property
    def capacity(self) -> int:
        return self.key.shape[-2]

    @property
    def stored(self) -> tuple[Tensor, Tensor]:
        return self.key, self.value


class KeyValueCache:
    """Stored keys and values, as a value: nothing that is done to it changes it.

    `KeyValueCache()` is empty; `append` and `select` return new ones. Along one line of continuation the
    rows are not copied at each step: with gradients off, a cache that holds the newest rows of its storage
    lets its successor use the room behind them, and the storage doubles when it is full. All other
    continuations copy once, so that two successors of one cache never meet.
    """

    __slots__ = ("_buffer", "_length")

    def __init__(self) -> None:
        self._buffer: _Buffer | None = None
        self._length = 0

    @property
    def length(self) -> int:
        """Number of stored keys."""
        return self._length

    @property
    def key(self) -> Tensor | None:
        """The stored keys, shape (..., length, D); None before the first `append`."""
        return None if self._buffer is None else self._buffer.key[..., : self._length, :]

    @property
    def value(self) -> Tensor | None:
        """The stored values, shape (..., length, D_v); None before the first `append`."""
        return None if self._buffer is None else self._buffer.value[..., : self._length, :]

    def append(self, key: Tensor, value: Tensor) -> "KeyValueCache":
        """Add rows behind those stored.

        Args:
            key: Float, shape (..., n, D); leading dimensions, width, type and device as stored.
            value: Float, shape (..., n, D_v).

        Returns:
            A cache of `length` + n rows.

        Raises:
            ValueError: The rows do not fit each other or those stored.
        """
        _check_rows(self._buffer, key, value)
        length = self._length + key.shape[-2]
        buffer = self._buffer or _Buffer(key[..., :0, :], value[..., :0, :], 0)
        old = slice(0, self._length)
        if _tracks_gradients():
            joined = (
                torch.cat((buffer.key[..., old, :], key), -2),
                torch.cat((buffer.value[..., old, :], value), -2),
            )
            return _made(_Buffer(*joined, length), length)
        if not self._owns_room(buffer, length):
            buffer = _moved(buffer, self._length, max(length, 2 * self._length))
        new = slice(self._length, length)
        buffer.key[..., new, :] = key
        buffer.value[..., new, :] = value
        buffer.tip = length
        return _made(buffer, length)

    def select(self, indices: Tensor, rows: Tensor | None = None) -> "KeyValueCache":
        """Reorder, repeat or drop examples, as beam search does, and rows of each, as it forgets.

        Args:
            indices: Integer, shape (R,); positions along the first leading dimension.
            rows: Integer, shape (R, n); which rows of each of them to take, in 0..length - 1. Default: all.

        Returns:
            A cache with R examples and storage of its own.

        Raises:
            ValueError: There is no leading dimension to select from, `rows` is not of R examples, or a row is
                not stored.
        """
        if self._buffer is None:
            return self
        if self._buffer.key.ndim < 3:
            raise ValueError(
                f"select: the stored keys have shape {tuple(self._buffer.key.shape)} and no leading "
                "dimension; select works on (B, ..., M, D)"
            )
        # Free rows are taken along, whatever is in them, so that the next append need not copy again.
        if rows is None:
            length = self._length
            key, value = (stored.index_select(0, indices) for stored in self._buffer.stored)
        else:
            _check_places(indices, rows, self._length)
            length = rows.shape[1]
            with_room = F.pad(rows, (0, length // 4))
            key, value = (_rows_of(stored, indices, with_room) for stored in self._buffer.stored)
        return _made(_Buffer(key, value, length), length)

    def _owns_room(self, buffer: _Buffer, length: int) -> bool:
        # Outside inference mode torch forbids writing to what was made inside.
        writable = torch.is_inference_mode_enabled() or not buffer.key.is_inference()
        return writable and buffer.tip == self._length and length <= buffer.capacity

    def __repr__(self) -> str:
        if self._buffer is None:
            return "KeyValueCache(empty)"
        return f"KeyValueCache(length={self._length}, key={tuple(self._buffer.key.shape[:-2])})"


def _made(buffer: _Buffer, length: int) -> KeyValueCache:
    cache = KeyValueCache()
    cache._buffer, cache._length = buffer, length
    return cache


def _moved(buffer: _Buffer, length: int, capacity: int) -> _Buffer:
    """Copy the first `length` rows into new storage."""
    copies = []
    for rows in buffer.stored:
        copy = rows.new_empty(*rows.shape[:-2], capacity, rows.shape[-1])
        copy[..., :length, :] = rows[..., :length, :]
        copies.append(copy)
    return _Buffer(copies[0], copies[1], length)


def _rows_of(stored: Tensor, indices: Tensor, rows: Tensor) -> Tensor:
    """Of the examples (R,), the rows (R, n): shape (R, ..., n, D)."""
    inner, capacity, width = stored.shape[1:-2], stored.shape[-2], stored.shape[-1]
    lines = torch.arange(inner.numel(), device=rows.device) + indices[:, None] * inner.numel()  # (R, P)
    places = lines[..., None] * capacity + rows[:, None]  # (R, P, n)
    return (
        stored.reshape(-1, width)
        .index_select(0, places.flatten())
        .view(*places.shape[:1], *inner, rows.shape[1], width)
    )


def _tracks_gradients() -> bool:
    # A compiler follows values more easily than writes into shared storage.
    return torch.is_grad_enabled() or torch.compiler.is_compiling()


def _check_places(indices: Tensor, rows: Tensor, length: int) -> None:
    if rows.ndim != 2 or len(rows) != len(indices):
        raise ValueError(
            f"select: expected rows of shape ({len(indices)}, n), some for each index, "
            f"got {tuple(rows.shape)}"
        )
    if rows.numel():
        least, most = (int(end) for end in rows.aminmax())
        if least < 0 or most >= length:
            raise ValueError(f"select: expected rows in 0..{length - 1}, got {least}..{most}")


def _check_rows(buffer: _Buffer | None, key: Tensor, value: Tensor) -> None:
    if key.ndim < 2 or value.ndim < 2 or key.shape[:-1] != value.shape[:-1]:
        raise ValueError(
            f"append: expected key (..., n, D) and value (..., n, D_v), "
            f"got {tuple(key.shape)} and {tuple(value.shape)}"
        )
    if buffer is None:
        return
    for name, rows, stored in (("key", key, buffer.key), ("value", value, buffer.value)):
        if rows.shape[:-2] != stored.shape[:-2] or rows.shape[-1] != stored.shape[-1]:
            raise ValueError(
                f"append: {name} of shape {tuple(rows.shape)} does not continue stored rows of shape "
                f"{(*stored.shape[:-2], 'n', stored.shape[-1])}"
            )
        if rows.dtype != stored.dtype or rows.device != stored.device:
            raise ValueError(
                f"append: {name} is {rows.dtype} on {rows.device}, the stored rows are "
                f"{stored.dtype} on {stored.device}"
            )
