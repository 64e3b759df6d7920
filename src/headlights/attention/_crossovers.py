"""Where one path becomes faster than another, as measured, and the rules that choose by it."""

import math

import torch
from torch import Tensor

from headlights.attention._blocks import FEWEST_ROWS
from headlights.attention._mask_rules import Lengths, Mask
from headlights.attention._mask_shapes import Grid
from headlights.attention._reference import result_dtype
from headlights.attention._score_base import Score, eager_obstacle
from headlights.attention._scores import Function

# The table of crossovers. `headlights bench --crossover` measures them again, on the machine where it runs.
MANY_SCORES = 2**22
"""From so many scores on, over all leading dimensions, blocks beat the formula: the caches hold no more."""
SHARES = ((2**20, 1 / 2), (2**18, 1 / 4))
"""With so many pairs N*M, blocks beat the kernel and the formula where a mask shows at most this share."""
PADDED_PAIRS, PADDED_SHARE = 2**13, 7 / 8
"""The kernel is called for each example alone, on its real keys, if that saves an example so many pairs, over
all heads, and leaves at most this share of them."""
WIDE_KEYS = 256
"""With at most so many keys, forward and backward are faster in float32 than in half precision, on a CPU."""


def blocks_pay(score: Score, mask: Mask | None, grid: Grid, *, fused: bool) -> bool:
    """Tell whether the blocked path is the best choice for a call that runs eagerly.

    Args:
        score: The score; a callable is left alone, for it may not score each pair on its own.
        mask: The mask, or None.
        grid: The sizes of the whole.
        fused: Whether the fused path could serve.

    Returns:
        Whether it is.
    """
    leading, queries, keys, _ = grid
    pairs = queries * keys
    if queries < 2 * FEWEST_ROWS or pairs < SHARES[-1][0] or isinstance(score, Function):
        return False
    if not fused and pairs * math.prod(leading) >= MANY_SCORES:
        return True
    if mask is None or (fused and (mask.is_plain_causal(grid) or type(mask) is Lengths)):
        return False  # the kernel leaves out by itself what these hide
    bound = next(share for fewest, share in SHARES if pairs >= fewest)
    return mask.shown_share(grid) <= bound


def short_type(query: Tensor, key: Tensor, value: Tensor) -> torch.dtype | None:
    """The half precision that the fused kernel would compute in, if it is faster to do so in float32.

    On a processor the kernel's backward pass is slow in half precision: 2 to 7 times with up to 32 keys.

    Args:
        query: Float, shape (..., N, E).
        key: Float, shape (..., M, E).
        value: Float, shape (..., M, E_v).

    Returns:
        What the result is to be turned into; None to leave the kernel alone.
    """
    dtype = result_dtype(query)
    if query.device.type != "cpu" or dtype not in (torch.bfloat16, torch.float16):
        return None
    trains = torch.is_grad_enabled() and any(each.requires_grad for each in (query, key, value))
    if not trains or eager_obstacle(query) is not None:  # a graph must not depend on the number of keys
        return None
    return dtype if key.shape[-2] <= WIDE_KEYS else None


def real_lengths(query: Tensor, mask: Mask | None, grid: Grid) -> list[int] | None:
    """Read the lengths of a padded batch if it pays to compute each example alone, on its real keys.

    Lengths are read in eager mode only, and only from memory that the CPU reads without waiting.

    Args:
        query: Float, shape (B, H, N, E).
        mask: The mask, or None.
        grid: The sizes of the whole.

    Returns:
        How many keys each of the B examples has, 0..M; None if it does not pay.
    """
    if type(mask) is not Lengths or len(grid.leading) != 2:
        return None
    batch, heads = grid.leading
    pairs = heads * grid.queries * grid.keys  # of an example
    if pairs < PADDED_PAIRS or eager_obstacle(query) is not None:
        return None
    found = mask.lengths
    if found.device.type != "cpu" or found.shape != (batch, 1, 1) or type(found) is not Tensor:
        return None
    lengths = [min(max(length, 0), grid.keys) for length in found.flatten().tolist()]
    shown = sum(lengths) / max(batch * grid.keys, 1)
    return lengths if (1 - shown) * pairs >= PADDED_PAIRS and shown <= PADDED_SHARE else None
