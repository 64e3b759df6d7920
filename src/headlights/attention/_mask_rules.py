"""The rule of each mask: which keys each query row sees, and what is added to its scores."""

import torch
from torch import Tensor

from headlights.attention._mask_base import And, Mask, Not, Or, check_mask
from headlights.attention._mask_shapes import Block, Grid, aligned, both, describe, from_left, some_rows

__all__ = [
    "And",
    "Bias",
    "Block",
    "Grid",
    "Keep",
    "Lengths",
    "Mask",
    "Not",
    "Or",
    "Segments",
    "Window",
    "check_mask",
]


class _TensorMask(Mask):
    """What `Keep` and `Bias` share: a tensor and the side from which it aligns."""

    def __init__(self, tensor: Tensor, per_example: bool, name: str) -> None:
        self.tensor = tensor
        self.per_example = per_example
        self.name = name

    def _rows(self, grid: Grid, start: int, stop: int) -> Tensor:
        return some_rows(aligned(self.tensor, grid, self.per_example), grid, start, stop)

    def own_leading(self) -> tuple[int, ...]:
        shape = self.tensor.shape
        return tuple(shape[:1] if self.per_example and len(shape) == 2 else shape[:-2])

    def __repr__(self) -> str:
        side = ", per_example=True" if self.per_example else ""
        return f"{self.name}({describe(self.tensor)}{side})"


class Keep(_TensorMask):
    """Made by `keep` and `hide`; True = may look."""

    def __init__(self, tensor: Tensor, per_example: bool, name: str = "keep") -> None:
        super().__init__(tensor, per_example, name)

    def evaluate(self, grid: Grid, start: int, stop: int) -> Block:
        return Block(self._rows(grid, start, stop), None)


class Bias(_TensorMask):
    """Made by `bias`."""

    def __init__(self, tensor: Tensor, per_example: bool) -> None:
        super().__init__(tensor, per_example, "bias")
        self.bias_dtype = tensor.dtype

    def evaluate(self, grid: Grid, start: int, stop: int) -> Block:
        return Block(None, self._rows(grid, start, stop))


class Lengths(Mask):
    """Made by `lengths`."""

    def __init__(self, lengths: Tensor) -> None:
        self.lengths = lengths[..., None, None]  # (B, 1, 1), as if N and M were there

    def evaluate(self, grid: Grid, start: int, stop: int) -> Block:
        return self.evaluate_part(grid, start, stop, slice(0, grid.keys))

    def evaluate_part(self, grid: Grid, start: int, stop: int, keys: slice) -> Block:  # noqa: ARG002
        lengths = from_left(self.lengths, grid, "lengths", own=2)  # (B, 1.., 1, 1)
        if lengths.device != grid.device:
            lengths = lengths.to(grid.device)
        return Block(torch.arange(keys.start, keys.stop, device=grid.device) < lengths, None)

    def seen_range(self, grid: Grid, start: int, stop: int) -> slice:  # noqa: ARG002
        longest = int(self.lengths.max()) if self.lengths.numel() else 0
        return slice(0, min(max(longest, 0), grid.keys))

    def shown_share(self, grid: Grid) -> float:
        return float(self.lengths.clamp(0, grid.keys).float().mean()) / grid.keys

    def own_leading(self) -> tuple[int, ...]:
        return tuple(self.lengths.shape[:-2])

    def __repr__(self) -> str:
        return f"lengths({describe(self.lengths[..., 0, 0])})"


class Window(Mask):
    """Made by `window` and `causal`; None means no limit on that side."""

    def __init__(self, before: int | None, after: int | None, query_start: int | None) -> None:
        self.before = before
        self.after = after
        self.query_start = query_start

    def _offset(self, grid: Grid) -> int:
        return grid.keys - grid.queries if self.query_start is None else self.query_start

    def evaluate(self, grid: Grid, start: int, stop: int) -> Block:
        return self.evaluate_part(grid, start, stop, slice(0, grid.keys))

    def key_range(self, grid: Grid, start: int, stop: int) -> slice:
        first, last = start + self._offset(grid), stop - 1 + self._offset(grid)
        begin = 0 if self.before is None else min(max(first - self.before, 0), grid.keys)
        end = grid.keys if self.after is None else min(max(last + self.after + 1, begin), grid.keys)
        return slice(begin, end)

    def evaluate_part(self, grid: Grid, start: int, stop: int, keys: slice) -> Block:
        first, last = start + self._offset(grid), stop - 1 + self._offset(grid)
        # A side that cuts nothing off costs nothing: one new query against all keys needs no causal mask.
        # A traced call must serve all lengths, so there both sides count.
        any_size = torch.compiler.is_compiling() or isinstance(last, torch.SymInt)
        limits_after = self.after is not None and (any_size or first + self.after < keys.stop - 1)
        limits_before = self.before is not None and (any_size or last - self.before > keys.start)
        if not (limits_after or limits_before):
            return Block(None, None)
        queries = torch.arange(first, last + 1, device=grid.device)[:, None]
        positions = torch.arange(keys.start, keys.stop, device=grid.device)
        visible = None
        if self.after is not None and limits_after:
            visible = positions <= queries + self.after
        if self.before is not None and limits_before:
            visible = both(visible, positions >= queries - self.before)
        return Block(visible, None)  # (n, len(keys))

    def is_plain_causal(self, grid: Grid) -> bool:
        causal = self.before is None and self.after == 0
        return bool(causal and grid.queries == grid.keys and self._offset(grid) == 0)

    def __repr__(self) -> str:
        start = "" if self.query_start is None else f"query_start={self.query_start}"
        if self.before is None:
            return f"causal({start})"
        return f"window({self.before}, {self.after}{', ' if start else ''}{start})"


class Segments(Mask):
    """Made by `segments`."""

    def __init__(self, query_ids: Tensor, key_ids: Tensor) -> None:
        self.query_ids = query_ids
        self.key_ids = key_ids

    def evaluate(self, grid: Grid, start: int, stop: int) -> Block:
        return self.evaluate_part(grid, start, stop, slice(0, grid.keys))

    def evaluate_part(self, grid: Grid, start: int, stop: int, keys: slice) -> Block:
        for name, ids, size in (
            ("query_ids", self.query_ids, grid.queries),
            ("key_ids", self.key_ids, grid.keys),
        ):
            if ids.shape[-1] != size:
                raise ValueError(f"{name}: expected {size} ids in the last dimension, got {tuple(ids.shape)}")
        query_ids = from_left(self.query_ids[..., start:stop], grid, "query_ids", own=1)
        key_ids = from_left(self.key_ids[..., keys], grid, "key_ids", own=1)
        return Block(query_ids[..., :, None] == key_ids[..., None, :], None)  # (B, 1.., n, len(keys))

    def seen_range(self, grid: Grid, start: int, stop: int) -> slice:
        asked = self.query_ids[..., start:stop]
        if not asked.numel():
            return slice(0, grid.keys)
        between = (self.key_ids >= asked.min()) & (self.key_ids <= asked.max())  # ids mostly ascend
        places = between.reshape(-1, between.shape[-1]).any(0).nonzero()
        return slice(int(places[0]), int(places[-1]) + 1) if len(places) else slice(0, 0)

    def own_leading(self) -> tuple[int, ...]:
        return max(tuple(self.query_ids.shape[:-1]), tuple(self.key_ids.shape[:-1]), key=len)

    def __repr__(self) -> str:
        return f"segments({describe(self.query_ids)}, {describe(self.key_ids)})"
