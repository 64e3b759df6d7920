"""How attention by products is cut into tiles of scores that stay in a core's cache."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from headlights.attention import _blocks
from headlights.attention._mask_rules import Mask
from headlights.attention._mask_shapes import Grid

TILE_SCORES = 2**20
"""How many scores a tile holds for each thread (4 MB in float32): few enough to stay in the cache."""


class Tile(NamedTuple):
    """A piece of the scores, seen as (P, H, N, M): the leading dimensions but the last make P, the last is H.

    Attributes:
        outer: Which of the P.
        heads: Which of the H.
        rows: Which query rows.
        keys: Which keys.
    """

    outer: slice
    heads: slice
    rows: slice
    keys: slice

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The sizes (p, h, n, m)."""
        p, h, n, m = (int(part.stop - part.start) for part in self)
        return p, h, n, m

    @property
    def is_empty(self) -> bool:
        """Whether the rows see no key at all."""
        return bool(self.keys.start == self.keys.stop)


class Shown(NamedTuple):
    """What a mask does to a tile; None means nothing.

    Attributes:
        limit: Plus infinity where a query may look, minus infinity elsewhere; broadcasts to (p, h, n, m).
        dead: Bool, True for rows that see no key; broadcasts to (p, h, n, 1).
        bias: Added to the scores; broadcasts to (p, h, n, m).
    """

    limit: Tensor | None
    dead: Tensor | None
    bias: Tensor | None


NOTHING_HIDDEN = Shown(None, None, None)


def folded(grid: Grid) -> tuple[int, int]:
    """Return P and H: all leading dimensions but the last as one, and the last; 1 where there is none."""
    return math.prod(grid.leading[:-1]), grid.leading[-1] if grid.leading else 1


def fold(tensor: Tensor, grid: Grid) -> Tensor:
    """Give a tensor that broadcasts to (*leading, n, m) the dimensions (P, H, n, m)."""
    return tensor.expand(*grid.leading, *tensor.shape[-2:]).reshape(*folded(grid), *tensor.shape[-2:])


def tile_steps(grid: Grid, mask: Mask | None) -> tuple[int, int, int]:
    """Choose how much of P, of the heads and of the query rows makes a tile.

    Rows first, then heads, then examples, as many as `TILE_SCORES` allows; each thread multiplies a head of
    its own. A window of w keys lets n rows see n + w keys, so that n beyond w would compute more hidden
    scores than visible ones.

    Args:
        grid: The sizes of the whole, none of them 0.
        mask: The mask, or None.

    Returns:
        The three numbers, each at least 1.
    """
    outer, heads = folded(grid)
    middle = grid.queries // 2
    seen = slice(0, grid.keys) if mask is None else mask.key_range(grid, middle, middle + 1)
    span = max(seen.stop - seen.start, 1)
    most = _blocks.MOST_ROWS if 2 * span > grid.keys else min(_blocks.MOST_ROWS, span // 2)
    span = min(2 * span, grid.keys)
    fewest = 4 * _blocks.FEWEST_ROWS  # a product of fewer rows is slow
    rows = min(max(TILE_SCORES // span, fewest), max(most, _blocks.FEWEST_ROWS), grid.queries)
    threads = torch.get_num_threads()
    most_heads = max(TILE_SCORES // (span * rows), 1) * threads
    heads_step = min(most_heads, heads)
    outer_step = min(max(most_heads // heads, 1), outer)
    return outer_step, heads_step, rows


def tiles(grid: Grid, mask: Mask | None, dtype: torch.dtype) -> Iterator[tuple[Tile, Shown]]:
    """Cut the scores into tiles, and the keys of each to those between the first and the last visible.

    Args:
        grid: The sizes of the whole, none of them 0.
        mask: The mask, or None.
        dtype: Type of the scores.

    Yields:
        Each tile and what the mask does to it. They cover every query row of all leading dimensions once.
    """
    outer_step, heads_step, rows_step = tile_steps(grid, mask)
    outer, heads = folded(grid)
    for start in range(0, grid.queries, rows_step):
        rows = slice(start, min(start + rows_step, grid.queries))
        keys, visible, bias = slice(0, grid.keys), None, None
        if mask is not None:
            keys = mask.seen_range(grid, rows.start, rows.stop)
            if keys.start == keys.stop:
                yield Tile(slice(0, outer), slice(0, heads), rows, keys), NOTHING_HIDDEN
                continue
            visible, bias = mask.evaluate_part(grid, rows.start, rows.stop, keys)
            visible = None if visible is None else fold(visible, grid)
            bias = None if bias is None else fold(bias.to(dtype), grid)
        for first in range(0, outer, outer_step):
            some = slice(first, min(first + outer_step, outer))
            kept, shown = _shown(visible, bias, some, keys, dtype)
            step = heads if kept.start == kept.stop else heads_step
            for head in range(0, heads, step):
                group = slice(head, min(head + step, heads))
                yield Tile(some, group, rows, kept), Shown(*(_of_heads(t, group) for t in shown))


def _shown(
    visible: Tensor | None, bias: Tensor | None, outer: slice, keys: slice, dtype: torch.dtype
) -> tuple[slice, Shown]:
    """Cut the keys of some examples to what is visible, and say what the mask does to them."""
    bias = None if bias is None else bias[outer]
    if visible is None:
        return keys, Shown(None, None, bias)
    visible = visible[outer]
    if visible.stride(1) == 0:
        visible = visible[:, :1]  # one for all heads
    flags = visible.view(torch.uint8)  # bytes are reduced many times faster than truth values
    seen = flags.amax((0, 1, 2)).nonzero().flatten().tolist()
    if not seen:
        return slice(keys.start, keys.start), NOTHING_HIDDEN
    if visible.shape[-1] > 1:
        inside = slice(seen[0], seen[-1] + 1)
        keys = slice(keys.start + inside.start, keys.start + inside.stop)
        visible, flags = visible[..., inside], flags[..., inside]
        bias = bias if bias is None or bias.shape[-1] == 1 else bias[..., inside]
    if flags.amin():
        return keys, Shown(None, None, bias)
    dead = flags.amax(-1, keepdim=True) == 0
    limit = visible.to(dtype).sub_(0.5).mul_(torch.inf)  # 1 becomes inf, 0 becomes -inf
    return keys, Shown(limit, dead if dead.any() else None, bias)


def _of_heads(tensor: Tensor | None, heads: slice) -> Tensor | None:
    return tensor if tensor is None or tensor.shape[1] == 1 else tensor[:, heads]
