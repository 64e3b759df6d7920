"""How the blocked path cuts its work, and what its forward and backward pass must do alike."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import fields, replace
from typing import NamedTuple

import torch
from torch import Tensor

from headlights.attention._captures import Outside
from headlights.attention._mask_rules import Mask
from headlights.attention._mask_shapes import Grid, broadcast
from headlights.attention._score_base import PreparedKey, Score, autocast_dtype
from headlights.attention._scores import is_own

BLOCK_ELEMENTS = 2**21
"""How many scores a block holds at most (8 MB in float32), unless its smallest number of rows needs more."""
FEWEST_ROWS, MOST_ROWS = 16, 512
"""Below, products of matrices get slow; above, nothing is gained."""


def block_rows(grid: Grid, mask: Mask | None, pair_width: int) -> int:
    """Choose how many query rows make a block, from sizes alone.

    As many as keep what its scores take, for all leading dimensions, within `BLOCK_ELEMENTS`. A window of w
    keys lets n rows see n + w keys, so that n beyond w would compute more hidden scores than visible ones.

    Args:
        grid: The sizes of the whole, none of them 0.
        mask: The mask, or None.
        pair_width: How many numbers the score holds for each pair of a query and a key.

    Returns:
        The number of rows, at least 1 and at most N.
    """
    middle = grid.queries // 2
    seen = slice(0, grid.keys) if mask is None else mask.key_range(grid, middle, middle + 1)
    span = max(seen.stop - seen.start, 1)
    rows = BLOCK_ELEMENTS // (math.prod(grid.leading) * min(2 * span, grid.keys) * pair_width)
    most = MOST_ROWS if 2 * span > grid.keys else min(MOST_ROWS, span)
    return min(max(min(rows, most), FEWEST_ROWS), grid.queries)


class Part(NamedTuple):
    """A block of query rows and the keys between the first and the last that one of them sees.

    Attributes:
        rows: Which query rows.
        keys: Which keys.
        visible: Bool, broadcastable to (*leading, n, m) for these rows and keys; None: all are visible.
    """

    rows: slice
    keys: slice
    visible: Tensor | None

    @property
    def height(self) -> int:
        """Number of rows, n."""
        return int(self.rows.stop - self.rows.start)

    @property
    def is_empty(self) -> bool:
        """Whether the rows see no key at all."""
        return bool(self.keys.start == self.keys.stop)


class BlockPlan:
    """One call of the blocked path, without the tensors that need gradients.

    Args:
        query: Float, shape (..., N, E_q).
        prepared: The keys, prepared by `score`.
        score: Gives the scores.
        mask: What is hidden and added, or None.
        dropout: Probability of dropping a weight.
        grid: The sizes, none of them 0.
    """

    def __init__(
        self,
        query: Tensor,
        prepared: PreparedKey,
        *,
        score: Score,
        mask: Mask | None,
        dropout: float,
        grid: Grid,
    ) -> None:
        self.mask, self.grid = mask, grid
        self.dropout_factors = dropout_stream(dropout, grid.device)
        self.is_biased = mask is not None and mask.bias_dtype is not None
        self._score, self._fresh = score, is_own(score)
        self._rows = block_rows(grid, mask, score.pair_width)
        self._query_start = prepared.start + grid.keys - grid.queries
        self._autocast = autocast_dtype(grid.device.type)
        self.field_names = [f.name for f in fields(prepared) if isinstance(getattr(prepared, f.name), Tensor)]
        self._template = self._replaced(prepared, [field.detach() for field in self.fields_of(prepared)])
        self.outside = Outside(score, None)
        if torch.is_grad_enabled() and (self.is_biased or not self._fresh):
            one = Part(slice(0, 1), slice(0, 1), None)
            row, first = query.detach()[..., :1, :], self._template.rows(slice(0, 1))
            self.outside = Outside(score, lambda: self.scores(row, first, one))

    @property
    def weights_dtype(self) -> torch.dtype:
        """The type that scores have unless a score decides otherwise."""
        dtype = torch.promote_types(self._template.key.dtype, torch.float32)
        added = None if self.mask is None else self.mask.bias_dtype
        return dtype if added is None else torch.promote_types(dtype, added)

    def fields_of(self, prepared: PreparedKey) -> list[Tensor]:
        return [getattr(prepared, name) for name in self.field_names]

    def with_fields(self, tensors: Sequence[Tensor], keys: slice = slice(None)) -> PreparedKey:
        """Put tensors into the prepared keys; `keys` says which keys they are."""
        return self._replaced(self._template.rows(keys), tensors)

    def _replaced(self, prepared: PreparedKey, tensors: Sequence[Tensor]) -> PreparedKey:
        return replace(prepared, **dict(zip(self.field_names, tensors, strict=False)))  # type: ignore[arg-type]

    def parts(self) -> Iterator[Part]:
        """Cut the rows into blocks, and the keys of each to those between the first and last visible."""
        grid, mask = self.grid, self.mask
        for start in range(0, grid.queries, self._rows):
            stop = min(start + self._rows, grid.queries)
            keys, visible = slice(0, grid.keys), None
            if mask is not None:
                keys = mask.seen_range(grid, start, stop)
                some = keys.start < keys.stop
                visible = mask.evaluate_part(grid, start, stop, keys).visible if some else None
            if visible is not None:
                seen = visible.reshape(-1, visible.shape[-1]).any(0).nonzero().flatten().tolist()
                if not seen:
                    keys, visible = slice(0, 0), None
                elif visible.shape[-1] > 1:
                    keys = slice(keys.start + seen[0], keys.start + seen[-1] + 1)
                    visible = visible[..., seen[0] : seen[-1] + 1]
                visible = None if visible is None or visible.all() else visible
            yield Part(slice(start, stop), keys, visible)

    def scores(
        self, query: Tensor, prepared: PreparedKey, part: Part, stand_ins: Sequence[Tensor] = ()
    ) -> Tensor:
        """Compute the scores of a block, the mask's bias added.

        Args:
            query: The rows of the block.
            prepared: Its keys.
            part: Which they are.
            stand_ins: Used in the place of `outside.tensors`.

        Returns:
            Shape (..., n, m).
        """
        rows, keys = part.rows, part.keys
        # Without autocast's cache: a copy made while gradients are off would be used with gradients on.
        device, dtype = self.grid.device.type, self._autocast
        precision = torch.autocast(device, dtype, enabled=dtype is not None, cache_enabled=False)
        start = self._query_start + rows.start
        with precision, self.outside.replaced(stand_ins) if stand_ins else nullcontext():
            scores: Tensor = self.outside.call(stand_ins, query, prepared, start=start)
            if self.mask is not None and self.is_biased:
                bias = self.mask.evaluate_part(self.grid, rows.start, rows.stop, keys).bias
                scores = scores if bias is None else scores + bias
        return scores

    def weights(self, scores: Tensor, visible: Tensor | None) -> Tensor:
        """Turn scores into weights, in the memory of the scores if nobody else can hold that.

        Args:
            scores: Shape (..., n, m).
            visible: As in `Part`.

        Returns:
            The weights, detached.
        """
        shape = scores.shape if visible is None else broadcast(scores.shape, visible.shape)
        scores = scores.detach()
        if not self._fresh or scores.shape != shape:
            scores = scores.expand(shape).clone(memory_format=torch.contiguous_format)
        return softmax_(scores, visible, finite=self._score.finite and not self.is_biased)


def dropout_stream(dropout: float, device: torch.device) -> Callable[[], Callable[[Tensor], Tensor | None]]:
    """Draw one number from torch's global generator, if anything is dropped, that seeds streams of factors.

    Args:
        dropout: Probability of dropping a weight.
        device: Where the weights live.

    Returns:
        A function that starts a stream, each time the same. A stream maps a block's weights to 1 / (1 - p)
        where one is kept and 0 where it is dropped, None without dropout; it is to be called once for each
        block that is not empty, in order.
    """
    if dropout == 0:
        return lambda: lambda weights: None  # noqa: ARG005
    seed, kept = int(torch.randint(2**62, ())), 1 - dropout

    def start() -> Callable[[Tensor], Tensor | None]:
        generator = torch.Generator(device).manual_seed(seed)
        return lambda weights: torch.empty_like(weights).bernoulli_(kept, generator=generator).div_(kept)

    return start


def softmax_(scores: Tensor, visible: Tensor | None, *, finite: bool) -> Tensor:
    """Turn scores into weights in place; a row without a visible key becomes zeros.

    Args:
        scores: Shape (..., n, m), without a graph; overwritten.
        visible: Bool, broadcastable to the scores, True = may look; None = everything.
        finite: The scores hold no minus infinity; otherwise that hides too.

    Returns:
        The same tensor.
    """
    if visible is None and finite:
        return torch.softmax(scores, -1, out=scores)
    if visible is not None:
        scores.masked_fill_(~visible, -torch.inf)
    if finite and visible is not None:
        dead = ~visible.any(-1, keepdim=True)
    else:
        dead = scores.amax(-1, keepdim=True) == -torch.inf
    weights = torch.softmax(scores, -1, out=scores)
    return weights.masked_fill_(dead, 0) if dead.any() else weights  # the softmax of nothing but -inf is NaN
