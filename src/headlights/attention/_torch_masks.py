"""The masks of `MultiHeadAttention`: torch's arguments and our own, joined into one `Mask`.

Torch's boolean masks say True = hidden, ours True = may look; from here on only ours exist.
"""

import warnings

from torch import Tensor
from torch.nn import functional as F

from headlights.attention._mask_base import And, Mask, Not, Or, check_mask
from headlights.attention._mask_rules import Bias, Keep
from headlights.attention._mask_shapes import Block, Grid
from headlights.attention._masks import causal, is_zero_one


def join_masks(
    *,
    attn_mask: Tensor | None,
    key_padding_mask: Tensor | None,
    is_causal: bool,
    mask: Mask | None,
    sizes: tuple[int, int, int, int],
    extra: int,
    depth: int,
) -> Mask | None:
    """Hide what any of the masks hides, and add what any of them adds.

    Args:
        attn_mask: (N, M), (B*H, N, M), (1, N, M), or 4-D broadcasting to (B, H, N, M); bool or float.
        key_padding_mask: (B, M) or (M,); bool or float.
        is_causal: Hide the future. The first query stands M - N positions in, or at the first key if N > M.
        mask: Our own; a 3-D tensor in it is (B, N, M).
        sizes: B, H, N and M; M counts stored keys but not the extra slots.
        extra: Number of slots after the keys that no mask hides.
        depth: Frames from here to the user's call, where warnings point.

    Returns:
        One mask over M + `extra` keys, or None if nothing is hidden or added.
    """
    check_mask(mask)
    batch, heads, queries, keys = sizes
    parts: list[Mask] = []
    if attn_mask is not None:
        if attn_mask.ndim == 3 and attn_mask.shape[0] == batch * heads:
            attn_mask = attn_mask.reshape(batch, heads, queries, keys)
        parts.append(_from_torch("attn_mask", attn_mask, per_example=False, depth=depth))
    if key_padding_mask is not None:
        padding = key_padding_mask.reshape(batch, keys)
        parts.append(_from_torch("key_padding_mask", padding, per_example=True, depth=depth))
    if is_causal:
        parts.append(causal() if queries <= keys else causal(query_start=0))
    if mask is not None:
        parts.append(_per_example(mask))
    if not parts:
        return None
    joined = parts[0]
    for part in parts[1:]:
        joined = joined & part
    return OpenSlots(joined, extra) if extra else joined


class OpenSlots(Mask):
    """A mask over M keys with slots appended that every query sees, and to whose scores nothing is added.

    Args:
        mask: The mask over the M keys.
        extra: Number of slots.
    """

    def __init__(self, mask: Mask, extra: int) -> None:
        self.mask = mask
        self.extra = extra
        self.bias_dtype = mask.bias_dtype

    def evaluate(self, grid: Grid, start: int, stop: int) -> Block:
        keys = grid.keys - self.extra
        visible, bias = self.mask.evaluate(grid._replace(keys=keys), start, stop)
        return Block(self._append(visible, keys, True), self._append(bias, keys, 0.0))

    def _append(self, tensor: Tensor | None, keys: int, value: float) -> Tensor | None:
        if tensor is None:
            return None
        return F.pad(tensor.expand(*tensor.shape[:-1], keys), (0, self.extra), value=value)


def _from_torch(name: str, tensor: Tensor, *, per_example: bool, depth: int) -> Mask:
    if not tensor.dtype.is_floating_point:
        return Keep(~tensor, per_example)
    if is_zero_one(tensor):
        warnings.warn(
            f"{name}: this float mask holds only 0 and 1, which hides nothing: it is added to the scores. "
            f"Pass a bool mask, True = hidden: {name}.bool() if 1 = hidden, {name} == 0 if 1 = visible",
            stacklevel=depth + 2,
        )
    return Bias(tensor, per_example)


def _per_example(mask: Mask) -> Mask:
    """Read the 3-D tensors of a mask as (B, N, M): aligned from the right they would be one mask per head."""
    if isinstance(mask, (Keep, Bias)):
        return type(mask)(mask.tensor, True) if mask.tensor.ndim == 3 else mask
    if isinstance(mask, (And, Or)):
        return type(mask)(_per_example(mask.left), _per_example(mask.right))
    return Not(_per_example(mask.mask)) if isinstance(mask, Not) else mask
