"""The sizes that masks are evaluated for, and how the tensors of a mask align with them."""

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


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that tensors of these shapes broadcast to; RuntimeError if they do not.

    `torch.broadcast_shapes` does the same but takes seconds to import sympy at its first call.
    """
    empties = torch.broadcast_tensors(*(torch.empty(*shape, 0) for shape in shapes))  # type: ignore[no-untyped-call]
    return tuple(empties[0].shape[:-1])


def both(left: Tensor | None, right: Tensor | None) -> Tensor | None:
    """Return what both let see, None standing for everything."""
    if left is None or right is None:
        return right if left is None else left
    return left & right


def aligned(tensor: Tensor, grid: Grid, per_example: bool) -> Tensor:
    """Return the mask's tensor as (leading.., N or 1, M or 1), or say which shape was expected."""
    shape = tensor.shape
    while tensor.ndim < 2:
        tensor = tensor[None]
    if per_example and len(shape) >= 2:
        if tensor.ndim == 2:
            tensor = tensor[:, None]  # (B, 1, M)
        missing = len(grid.leading) + 2 - tensor.ndim
        tensor = tensor.reshape(*tensor.shape[:-2], *(1,) * missing, *tensor.shape[-2:])
    full = (*grid.leading, grid.queries, grid.keys)
    if not broadcasts(tensor.shape, full):
        side = "left (per_example=True)" if per_example else "right"
        raise ValueError(
            f"mask: a tensor of shape {tuple(shape)} does not broadcast to (..., N, M) = {full} "
            f"when aligned from the {side}"
        )
    return tensor


def from_left(tensor: Tensor, grid: Grid, name: str, own: int) -> Tensor:
    """Insert dimensions after the leading ones, so that the first meets the first; `own` ones stay last."""
    split = tensor.ndim - own
    leading = tensor.shape[:split]
    missing = len(grid.leading) - split
    fits = leading == grid.leading[:split] or (missing >= 0 and broadcasts(leading, grid.leading[:split]))
    if not fits:
        raise ValueError(
            f"{name}: its leading dimensions {tuple(leading)} do not fit {grid.leading} of the inputs "
            "when aligned from the left"
        )
    return tensor.reshape((*leading, *(1,) * missing, *tensor.shape[split:])) if missing else tensor


def broadcasts(shape: Sequence[int], full: Sequence[int]) -> bool:
    if len(shape) > len(full):
        return False
    return all(size in (1, goal) for size, goal in zip(reversed(shape), reversed(full), strict=False))


def some_rows(tensor: Tensor, grid: Grid, start: int, stop: int) -> Tensor:
    whole = start == 0 and stop == grid.queries
    return tensor if whole or tensor.ndim < 2 or tensor.shape[-2] == 1 else tensor[..., start:stop, :]


def describe(tensor: Tensor) -> str:
    """Write few integers out, and of other tensors the type and shape."""
    if not tensor.is_floating_point() and tensor.dtype != torch.bool and tensor.numel() <= 8:
        return str(tensor.tolist())
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
