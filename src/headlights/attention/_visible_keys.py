"""Which keys some query may look at, for scores that decide by the range of their keys."""

import math

import torch
from torch import Tensor

from headlights.attention._mask_rules import Mask
from headlights.attention._mask_shapes import Grid
from headlights.attention._score_base import PreparedKey, Score, eager_obstacle

BLOCK_PAIRS = 2**21
"""How many pairs of a query and a key a mask is evaluated for at once."""


def prepare_keys(score: Score, key: Tensor, mask: Mask | None, grid: Grid) -> PreparedKey:
    """Prepare keys, and tell the score which of them the mask shows if it wants to know.

    Args:
        score: The score.
        key: Float, shape (..., M, E_k).
        mask: The mask, or None.
        grid: The sizes of the call.

    Returns:
        The prepared keys.
    """
    if mask is None or not score.needs_visible or eager_obstacle(key):
        return score.prepare_key(key)
    return score.prepare_key(key, visible=visible_keys(mask, grid, key.shape[:-2]))


def visible_keys(mask: Mask, grid: Grid, leading: tuple[int, ...]) -> Tensor | None:
    """Find the keys that at least one query may look at.

    Args:
        mask: The mask.
        grid: The sizes of the call.
        leading: Leading dimensions of the keys, which may be fewer or smaller than those of the grid.

    Returns:
        Bool, shape (*leading, M), or None if the mask hides no key from all queries.
    """
    found = torch.zeros(*leading, grid.keys, dtype=torch.bool, device=grid.device)
    rows = max(BLOCK_PAIRS // max(math.prod(grid.leading) * grid.keys, 1), 1)
    for start in range(0, grid.queries, rows):
        stop = min(start + rows, grid.queries)
        keys = mask.key_range(grid, start, stop)
        if keys.start == keys.stop:
            continue
        visible = mask.evaluate_part(grid, start, stop, keys).visible
        if visible is None and keys == slice(0, grid.keys):
            return None
        found[..., keys] |= True if visible is None else _among(visible.any(-2), leading)
    return found


def _among(visible: Tensor, leading: tuple[int, ...]) -> Tensor:
    """Reduce (..., m) to the leading dimensions of the keys: visible anywhere is visible."""
    while visible.ndim > len(leading) + 1:
        visible = visible.any(0)
    for dim in range(2, visible.ndim + 1):
        if leading[1 - dim] == 1 and visible.shape[-dim] > 1:
            visible = visible.any(-dim, keepdim=True)
    return visible
