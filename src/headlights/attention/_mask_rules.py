"""What masks are made of: the rule of each, its evaluation on a block of query rows, and how they combine."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Grid(NamedTuple):
    """The sizes that a mask is evaluated for: scores of shape (*leading, queries, keys)."""

    leading: tuple[int, ...]
    queries: int
    keys: int
    device: torch.device


class Block(NamedTuple):
    """A mask on a block of n query rows; both tensors broadcast to (*leading, n, M), None means no effect.

    Attributes:
        visible: Bool, True = may look.
        bias: Float, added to the scores; minus infinity hides.
    """

    visible: Tensor | None
    bias: Tensor | None


class Mask:
    """Base of all masks: combine them with `&` (both), `|` (either) and `~` (the opposite).

    `bias & bias` adds the two, `bias & boolean` applies both; `|` and `~` need boolean masks. To add a rule,
    subclass and define `evaluate`.
    """

    bias_dtype: torch.dtype | None = None
    """Type of what the mask adds to the scores, None for a boolean mask."""

    def evaluate(self, grid: Grid, start: int, stop: int) -> Block:
        """Apply the rule to the query rows start..stop-1.

        Args:
            grid: The sizes of the whole.
            start: First row of the block, 0-based.
            stop: One past the last row.

        Returns:
            What is visible and what is added, each broadcastable to (*leading, stop - start, M).

        Raises:
            ValueError: A tensor of the mask does not fit the sizes.
        """
        raise NotImplementedError(f"{type(self).__name__} must define evaluate(grid, start, stop)")

    def is_plain_causal(self, grid: Grid) -> bool:
        """Tell whether the mask is the lower triangle of a square, which fused kernels know by name.

        Args:
            grid: The sizes of the whole.

        Returns:
            True if query i sees exactly the keys 0..i and N = M; False may also mean "not known".
        """
        del grid
        return False

    def __and__(self, other: "Mask") -> "Mask":
        return And(self, other) if isinstance(other, Mask) else NotImplemented

    def __or__(self, other: "Mask") -> "Mask":
        return Or(self, other) if isinstance(other, Mask) else NotImplemented

    def __invert__(self) -> "Mask":
        return Not(self)


class Keep(Mask):
    """Made by `keep` and `hide`."""

    def __init__(self, tensor: Tensor, per_example: bool) -> None:
        self.tensor = tensor
        self.per_example = per_example

    def evaluate(self, grid: Grid, start: int, stop: int) -> Block:
        tensor = _aligned(self.tensor, grid, self.per_example)
        return Block(_rows(tensor, grid, start, stop), None)


class Lengths(Mask):
    """Made by `lengths`."""

    def __init__(self, lengths: Tensor) -> None:
        self.lengths = lengths[..., None, None]  # (B, 1, 1), as if N and M were there

    def evaluate(self, grid: Grid, start: int, stop: int) -> Block:  # noqa: ARG002
        lengths = _from_left(self.lengths, grid, "lengths", own=2)  # (B, 1.., 1, 1)
        return Block(torch.arange(grid.keys, device=grid.device) < lengths.to(grid.device), None)


class Window(Mask):
    """Made by `window` and `causal`; None means no limit on that side."""

    def __init__(self, before: int | None, after: int | None, query_start: int | None) -> None:
        self.before = before
        self.after = after
        self.query_start = query_start

    def _offset(self, grid: Grid) -> int:
        return grid.keys - grid.queries if self.query_start is None else self.query_start

    def evaluate(self, grid: Grid, start: int, stop: int) -> Block:
        first = start + self._offset(grid)
        last = stop - 1 + self._offset(grid)
        # A side that cuts nothing off costs nothing: one new query against all keys needs no causal mask.
        limits_after = self.after is not None and first + self.after < grid.keys - 1
        limits_before = self.before is not None and last - self.before > 0
        if not (limits_after or limits_before):
            return Block(None, None)
        queries = torch.arange(first, last + 1, device=grid.device)[:, None]
        keys = torch.arange(grid.keys, device=grid.device)
        visible = None
        if self.after is not None and limits_after:
            visible = keys <= queries + self.after
        if self.before is not None and limits_before:
            visible = _both(visible, keys >= queries - self.before)
        return Block(visible, None)  # (n, M)

    def is_plain_causal(self, grid: Grid) -> bool:
        causal = self.before is None and self.after == 0
        return causal and grid.queries == grid.keys and self._offset(grid) == 0


class Segments(Mask):
    """Made by `segments`."""

    def __init__(self, query_ids: Tensor, key_ids: Tensor) -> None:
        self.query_ids = query_ids
        self.key_ids = key_ids

    def evaluate(self, grid: Grid, start: int, stop: int) -> Block:
        for name, ids, size in (
            ("query_ids", self.query_ids, grid.queries),
            ("key_ids", self.key_ids, grid.keys),
        ):
            if ids.shape[-1] != size:
                raise ValueError(f"{name}: expected {size} ids in the last dimension, got {tuple(ids.shape)}")
        queries = _from_left(self.query_ids[..., start:stop], grid, "query_ids", own=1)
        keys = _from_left(self.key_ids, grid, "key_ids", own=1)
        return Block(queries[..., :, None] == keys[..., None, :], None)  # (B, 1.., n, M)


class Bias(Mask):
    """Made by `bias`."""

    def __init__(self, tensor: Tensor, per_example: bool) -> None:
        self.tensor = tensor
        self.per_example = per_example
        self.bias_dtype = tensor.dtype

    def evaluate(self, grid: Grid, start: int, stop: int) -> Block:
        tensor = _aligned(self.tensor, grid, self.per_example)
        return Block(None, _rows(tensor, grid, start, stop))


class And(Mask):
    """Made by `&`."""

    def __init__(self, left: Mask, right: Mask) -> None:
        self.left = left
        self.right = right
        if left.bias_dtype is None or right.bias_dtype is None:
            self.bias_dtype = left.bias_dtype or right.bias_dtype
        else:
            self.bias_dtype = torch.promote_types(left.bias_dtype, right.bias_dtype)

    def evaluate(self, grid: Grid, start: int, stop: int) -> Block:
        left = self.left.evaluate(grid, start, stop)
        right = self.right.evaluate(grid, start, stop)
        if left.bias is None or right.bias is None:
            bias = right.bias if left.bias is None else left.bias
        else:
            bias = left.bias + right.bias
        return Block(_both(left.visible, right.visible), bias)


class Or(Mask):
    """Made by `|`."""

    def __init__(self, left: Mask, right: Mask) -> None:
        _check_boolean(left, "|")
        _check_boolean(right, "|")
        self.left = left
        self.right = right

    def evaluate(self, grid: Grid, start: int, stop: int) -> Block:
        left = self.left.evaluate(grid, start, stop).visible
        right = self.right.evaluate(grid, start, stop).visible
        return Block(None if left is None or right is None else left | right, None)


class Not(Mask):
    """Made by `~`."""

    def __init__(self, mask: Mask) -> None:
        _check_boolean(mask, "~")
        self.mask = mask

    def evaluate(self, grid: Grid, start: int, stop: int) -> Block:
        visible = self.mask.evaluate(grid, start, stop).visible
        if visible is None:
            return Block(torch.zeros(1, 1, dtype=torch.bool, device=grid.device), None)
        return Block(~visible, None)


def check_mask(mask: object) -> None:
    """Refuse anything but a mask or None, a raw tensor with the cure.

    Args:
        mask: What the user passed as `mask=`.

    Raises:
        TypeError: It is neither a mask nor None.
    """
    if mask is None or isinstance(mask, Mask):
        return
    if isinstance(mask, Tensor):
        raise TypeError(
            "mask: a raw tensor does not say what True means; use masks.keep(tensor) if True = may look, "
            "masks.hide(tensor) if True = hidden, masks.bias(tensor) if it is added to the scores"
        )
    raise TypeError(f"mask: expected a mask from headlights.masks, got {type(mask).__name__}")


def _both(left: Tensor | None, right: Tensor | None) -> Tensor | None:
    if left is None or right is None:
        return right if left is None else left
    return left & right


def _check_boolean(mask: Mask, operator: str) -> None:
    if mask.bias_dtype is not None:
        raise TypeError(
            f"{operator}: a bias has no opposite and no alternative; only & works with masks.bias"
        )


def _aligned(tensor: Tensor, grid: Grid, per_example: bool) -> Tensor:
    """Return the mask's tensor as (leading.., N or 1, M or 1), or say which shape was expected."""
    shape = tensor.shape
    if per_example and tensor.ndim >= 2:
        if tensor.ndim == 2:
            tensor = tensor[:, None]  # (B, 1, M)
        missing = len(grid.leading) + 2 - tensor.ndim
        tensor = tensor.reshape(*tensor.shape[:-2], *(1,) * missing, *tensor.shape[-2:])
    full = (*grid.leading, grid.queries, grid.keys)
    if not _broadcasts(tensor.shape, full):
        side = "left (per_example=True)" if per_example else "right"
        raise ValueError(
            f"mask: a tensor of shape {tuple(shape)} does not broadcast to (..., N, M) = {full} "
            f"when aligned from the {side}"
        )
    return tensor


def _from_left(tensor: Tensor, grid: Grid, name: str, own: int) -> Tensor:
    """Insert dimensions after the leading ones, so that the first meets the first; `own` ones stay last."""
    split = tensor.ndim - own
    leading = tensor.shape[:split]
    missing = len(grid.leading) - split
    if missing < 0 or not _broadcasts(leading, grid.leading[:split]):
        raise ValueError(
            f"{name}: its leading dimensions {tuple(leading)} do not fit {grid.leading} of the inputs "
            "when aligned from the left"
        )
    return tensor.reshape((*leading, *(1,) * missing, *tensor.shape[split:]))


def _broadcasts(shape: Sequence[int], full: Sequence[int]) -> bool:
    if len(shape) > len(full):
        return False
    return all(size in (1, goal) for size, goal in zip(reversed(shape), reversed(full), strict=False))


def _rows(tensor: Tensor, grid: Grid, start: int, stop: int) -> Tensor:
    whole = start == 0 and stop == grid.queries
    return tensor if whole or tensor.ndim < 2 or tensor.shape[-2] == 1 else tensor[..., start:stop, :]
