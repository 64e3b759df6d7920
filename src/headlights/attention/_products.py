"""Blocks for scores that are products, q k^T: tiles in reused buffers, and the derivative written by hand.

With P the weights of a tile, O = P V its context and S = Q K^T its scores, Q holding the scale:

    dV += P^T dO      dP = dO V^T      dS = P * (dP - rowsum(P * dP))      dQ = dS K      dK += dS^T Q
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from headlights.attention._blocks import dropout_stream
from headlights.attention._kept import Kept
from headlights.attention._mask_rules import Mask
from headlights.attention._mask_shapes import Grid
from headlights.attention._reference import result_dtype
from headlights.attention._rotary import Rotary
from headlights.attention._score_base import PreparedKey, Score, check_width, full_precision, wide
from headlights.attention._scores import Bilinear, Dot, ScaledDot
from headlights.attention._tiles import NOTHING_HIDDEN, Shown, Tile, fold, folded, tile_steps, tiles


def fixed_scale(score: Score, width: int) -> float | None:
    """Return by what a score multiplies the product of a query and a prepared key; None if it does else.

    Args:
        score: The score. Subclasses may compute something else, so the exact type counts.
        width: E, of the query.

    Returns:
        The factor, or None.
    """
    if type(score) is ScaledDot:
        return float(max(width, 1) ** -0.5)
    if type(score) is Dot:
        return score.scale if isinstance(score.scale, float) else None
    if type(score) is Bilinear:
        return 1.0
    return fixed_scale(score.score, width) if type(score) is Rotary else None


def are_products(
    query: Tensor,
    prepared: PreparedKey,
    value: Tensor,
    *,
    score: Score,
    mask: Mask | None,
    collectors: Sequence[object],
) -> bool:
    """Tell whether `attend_products` can serve a call of the blocked path.

    Args:
        query: Float, shape (..., N, E).
        prepared: The keys.
        value: Float, shape (..., M, E_v).
        score: The score.
        mask: The mask, or None.
        collectors: What observes.

    Returns:
        Whether it can.
    """
    key = prepared.key
    if type(prepared) is not PreparedKey or fixed_scale(score, query.shape[-1]) is None:
        return False
    if not query.shape[:-2] == key.shape[:-2] == value.shape[:-2]:
        return False
    if not all(isinstance(collector, Kept) for collector in collectors):
        return False
    if mask is None:
        return True
    if mask.bias_dtype is not None and (torch.is_grad_enabled() or mask.bias_dtype != wide(query.dtype)):
        return False  # the bias may be learned, or widen the scores
    # Hidden scores are replaced by taking a minimum, which NaN passes through.
    return bool(key.detach().sum().isfinite())


class Plan:
    """One call, without its tensors.

    Args:
        score: Its scale is fixed.
        mask: What is hidden and added, or None.
        dropout: Probability of dropping a weight.
        grid: The sizes, none of them 0.
        width: E, of the query.
        dtype: Type of the scores.
    """

    def __init__(
        self,
        score: Score,
        mask: Mask | None,
        dropout: float,
        grid: Grid,
        *,
        width: int,
        dtype: torch.dtype,
    ) -> None:
        scale = fixed_scale(score, width)
        assert scale is not None
        self.scale, self.mask, self.grid, self.dtype = scale, mask, grid, dtype
        self.dropout_factors = dropout_stream(dropout, grid.device)
        outer, heads, rows = tile_steps(grid, mask)
        self._room = outer * heads * rows * grid.keys

    def tiles(self) -> Any:
        """Cut the scores: pairs of a `Tile` and what is `Shown` of it."""
        return tiles(self.grid, self.mask, self.dtype)

    def buffer(self) -> Tensor:
        """Make room for the scores of any tile."""
        return torch.empty(self._room, dtype=self.dtype, device=self.grid.device)

    def folded(self, tensor: Tensor) -> Tensor:
        """Give an input the dimensions (P, H, n, width)."""
        return fold(tensor.detach().to(self.dtype), self.grid)

    def laid_out(self, tensor: Tensor) -> Tensor:
        """Give an input those dimensions and lay each head's rows side by side."""
        return self.folded(tensor).contiguous()


def attend_products(
    query: Tensor,
    prepared: PreparedKey,
    value: Tensor,
    *,
    score: Score,
    mask: Mask | None,
    dropout: float,
    collectors: Sequence[Kept],
    differentiable: Sequence[bool],
    grid: Grid,
) -> tuple[Tensor, tuple[Any, ...]]:
    """Compute what the reference path computes, in memory of one tile.

    Args:
        query: Float, shape (..., N, E).
        prepared: The keys, prepared by `score`.
        value: Float, shape (..., M, E_v).
        score: One of those that `fixed_scale` knows.
        mask: What is hidden and added, or None.
        dropout: Probability of dropping a weight.
        collectors: What observes.
        differentiable: For each of them, whether its result carries gradients.
        grid: The sizes, none of them 0.

    Returns:
        The context, shape (..., N, E_v), and one result per collector.

    Raises:
        ValueError: Query and key differ in width.
    """
    while isinstance(score, Rotary):
        query, score = score.turn(query, prepared.start + grid.keys - grid.queries), score.score
    key = prepared.key
    check_width("query", query, "the prepared key's width", key.shape[-1])
    plan = Plan(score, mask, dropout, grid, width=query.shape[-1], dtype=wide(query.dtype))
    if not (torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad)):
        context = _forward(plan, query, key, value, collectors)
        return context, tuple(collector.result() for collector in collectors)
    streams = [kept for kept, wanted in zip(collectors, differentiable, strict=True) if wanted]
    context, *joined = _Products.apply(plan, collectors, streams, query, key, value)  # type: ignore[no-untyped-call]
    results = []
    for collector in collectors:
        if collector not in streams:
            results.append(collector.result())
            continue
        results.append(collector.finish(tuple(joined[: collector.width])))
        joined = joined[collector.width :]
    return context, tuple(results)


class _Products(torch.autograd.Function):
    """All tiles as one operation."""

    @staticmethod
    def forward(
        plan: Plan,
        collectors: Sequence[Kept],
        streams: Sequence[Kept],
        query: Tensor,
        key: Tensor,
        value: Tensor,
    ) -> tuple[Tensor, ...]:
        context = _forward(plan, query, key, value, collectors)
        return context, *(tensor for stream in streams for tensor in stream.take())

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.plan, _, ctx.streams, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(tensor for tensor in output if not tensor.is_floating_point()))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        with torch.no_grad():
            found = _backward(ctx.plan, ctx.streams, ctx.saved_tensors, grads)
        return None, None, None, *once(found)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:  # noqa: ARG004
        raise RuntimeError("path: 'blocked' has no forward-mode derivative; use path='reference'")


def once(grads: list[Tensor | None]) -> list[Tensor | None]:
    """Make gradients refuse an actual second derivative; asking for a graph alone is no offence.

    Args:
        grads: The gradients that a backward pass found.

    Returns:
        The same numbers.
    """
    if not torch.is_grad_enabled():  # it is enabled with create_graph=True
        return grads
    return [None if grad is None else _Once.apply(grad.requires_grad_()) for grad in grads]  # type: ignore[no-untyped-call]


class _Once(torch.autograd.Function):
    """Hands a gradient on and refuses to be differentiated again."""

    @staticmethod
    def forward(grad: Tensor) -> Tensor:
        return grad.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # noqa: ARG004
        raise RuntimeError("path: 'blocked' has no second derivative; use path='reference'")


def _forward(plan: Plan, query: Tensor, key: Tensor, value: Tensor, collectors: Sequence[Kept]) -> Tensor:
    outer, heads = folded(plan.grid)
    shape = (outer, plan.grid.queries, heads, value.shape[-1])
    # Laid out like the inputs of `MultiHeadAttention`, whose heads lie side by side.
    context = value.new_empty(shape, dtype=result_dtype(value)).transpose(1, 2)  # (P, H, N, E_v)
    factors = plan.dropout_factors()
    with full_precision(value.device.type):
        # Each query row is read once, so neither a copy of the queries nor a scaled one would pay.
        q, k, v = plan.folded(query), plan.laid_out(key), plan.laid_out(value)
        room = plan.buffer()
        for collector in collectors:
            collector.begin(room)
        for tile, shown in plan.tiles():
            if tile.is_empty:
                context[tile[:3]] = 0
                continue
            weights = _weights(q, k, tile, shown, room, plan.scale)
            for collector in collectors:
                collector.keep(tile, weights)
            factor = factors(weights)
            applied = weights if factor is None else factor.mul_(weights)
            context[tile[:3]] = _product(applied, v[tile.outer, tile.heads, tile.keys])
    return context.reshape(*plan.grid.leading, *context.shape[-2:])


def _backward(
    plan: Plan, streams: Sequence[Kept], inputs: Sequence[Tensor], grads: Sequence[Tensor | None]
) -> list[Tensor | None]:
    query, key, value = inputs
    upstream, left = grads[0], list(grads[1:])
    observed = []
    for stream in streams:
        if any(grad is not None for grad in left[: stream.width]):
            observed.append((stream, left[: stream.width]))
        left = left[stream.width :]
    factors = plan.dropout_factors()
    with full_precision(value.device.type):
        q, k, v = plan.laid_out(query).mul(plan.scale), plan.laid_out(key), plan.laid_out(value)
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        do = None if upstream is None else plan.laid_out(upstream)
        room, second = plan.buffer(), plan.buffer()
        for tile, shown in plan.tiles():
            if tile.is_empty:
                continue
            rows, keys = tile[:3], (tile.outer, tile.heads, tile.keys)
            weights = _weights(q, k, tile, shown, room, 1.0)
            factor, grad = factors(weights), None
            if do is not None:
                applied = weights if factor is None else weights * factor
                _add_product(dv[keys], applied.mT, do[rows])
                grad = _product(do[rows], v[keys].mT, second)
                grad = grad if factor is None else grad.mul_(factor)
            for stream, stream_grads in observed:
                seen = stream.grad(tile, weights, stream_grads)
                if seen is not None:
                    grad = seen.clone() if grad is None else grad.add_(seen)
            if grad is None:
                continue
            grad.mul_(weights)
            grad.addcmul_(weights, grad.sum(-1, keepdim=True), value=-1)  # the gradient of the scores
            dq[rows] = _product(grad, k[keys])  # each row stands in one tile
            _add_product(dk[keys], grad.mT, q[rows])
    found = (dq.mul_(plan.scale), dk, dv)
    return [total.reshape(t.shape).to(t.dtype) for total, t in zip(found, inputs, strict=True)]


def _weights(q: Tensor, k: Tensor, tile: Tile, shown: Shown, room: Tensor, scale: float) -> Tensor:
    """Compute a tile's weights (p, h, n, m), of the products times `scale`, in the memory of `room`."""
    scores = _product(q[tile[:3]], k[tile.outer, tile.heads, tile.keys].mT, room, scale)
    if shown is NOTHING_HIDDEN:
        return torch.softmax(scores, -1, out=scores)
    limit, dead, bias = shown
    if bias is not None:
        scores += bias
    if limit is not None:
        torch.minimum(scores, limit, out=scores)
    if bias is not None:
        dead = scores.amax(-1, keepdim=True) == -torch.inf
    torch.softmax(scores, -1, out=scores)
    return scores if dead is None else scores.masked_fill_(dead, 0)  # the softmax of nothing but -inf is NaN


def _product(left: Tensor, right: Tensor, room: Tensor | None = None, scale: float = 1.0) -> Tensor:
    """Multiply (p, h, n, e) by (p, h, e, m) and `scale`, in the memory of `room` if given."""
    p, h, n, m = *left.shape[:-1], right.shape[-1]
    memory = left.new_empty(p * h * n * m) if room is None else room[: p * h * n * m]
    # beta = 0 says that what is in the memory counts for nothing.
    if p * h == 1:  # only this product shares one matrix among threads
        out = memory.view(n, m)
        return torch.addmm(out, left[0, 0], right[0, 0], beta=0, alpha=scale, out=out)[None, None]
    out = memory.view(p * h, n, m)
    rows, columns = left.flatten(0, 1), right.flatten(0, 1)
    return torch.baddbmm(out, rows, columns, beta=0, alpha=scale, out=out).view(p, h, n, m)


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add the product of (p, h, n, e) and (p, h, e, m) to a view (p, h, n, m)."""
    if total.shape[:2] == (1, 1):
        total[0, 0].addmm_(left[0, 0], right[0, 0])
    elif total.shape[0] == 1:
        total[0].baddbmm_(left[0], right[0])
    else:
        total += _product(left, right)
