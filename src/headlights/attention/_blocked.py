"""Path `blocked`: blocks of query rows, each from its scores to its context, so that N*M is never held.

The backward pass computes each block's scores once more. Any score, mask, dropout and observation will do.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from headlights.attention._blocks import BlockPlan, Part
from headlights.attention._collectors import Collector, Pieces
from headlights.attention._kept import All, Kept
from headlights.attention._mask_rules import Mask
from headlights.attention._mask_shapes import Grid
from headlights.attention._observations import Observation
from headlights.attention._products import are_products, attend_products, once
from headlights.attention._reference import attend_reference, result_dtype
from headlights.attention._score_base import PreparedKey, Score, full_precision
from headlights.attention._tiles import Tile, fold, folded


def attend_blocked(
    query: Tensor,
    prepared: PreparedKey,
    value: Tensor,
    *,
    score: Score,
    mask: Mask | None,
    dropout: float,
    observations: Sequence[Observation],
    grid: Grid,
) -> tuple[Tensor, tuple[Any, ...]]:
    """Compute what the reference path computes, in memory of one block.

    Args:
        query: Float, shape (..., N, E_q).
        prepared: The keys, prepared by `score`.
        value: Float, shape (..., M, E_v).
        score: Gives the scores; each must depend on its own query and key only.
        mask: What is hidden and added, or None.
        dropout: Probability of dropping a weight, 0 <= p < 1. One number is drawn from torch's global
            generator and seeds the stream that the blocks use, forward and backward.
        observations: What to keep of the weights.
        grid: The sizes.

    Returns:
        The context, shape (..., N, E_v), and one result per observation.
    """
    if 0 in (*grid.leading, grid.queries, grid.keys):  # nothing to cut into blocks
        options: dict[str, Any] = {"score": score, "mask": mask, "dropout": dropout, "grid": grid}
        return attend_reference(query, prepared, value, observations=observations, **options)
    shape = (*grid.leading, grid.queries, grid.keys)
    collectors = [observation.start(shape) for observation in observations]
    if are_products(query, prepared, value, score=score, mask=mask, collectors=collectors):
        return attend_products(
            query,
            prepared,
            value,
            score=score,
            mask=mask,
            dropout=dropout,
            collectors=cast("list[Kept]", collectors),
            differentiable=[observation.differentiable for observation in observations],
            grid=grid,
        )
    plan = BlockPlan(query, prepared, score=score, mask=mask, dropout=dropout, grid=grid)
    inputs = [query, value, *plan.fields_of(prepared), *plan.outside.tensors]
    if not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)):
        context = _forward(plan, query, value, prepared, collectors)
        return context, tuple(collector.result() for collector in collectors)
    watchers, streams = _sort(observations, collectors, grid)
    context, *joined = _Blocked.apply(plan, watchers, [*streams.values()], *inputs)  # type: ignore[no-untyped-call]
    left = iter(joined)
    results = []
    for collector in collectors:
        stream = streams.get(id(collector))
        if stream is None:
            results.append(collector.result())
            continue
        tensors = tuple(islice(left, stream.width))
        if stream is collector:
            results.append(stream.finish(tensors))
        else:
            collector.update(slice(0, grid.queries), tensors[0])
            results.append(collector.result())
    return context, tuple(results)


def _sort(
    observations: Sequence[Observation], collectors: Sequence[Collector], grid: Grid
) -> tuple[list[Collector], dict[int, Pieces]]:
    """Part the collectors into those that only watch and, by id, what streams gradients for the others."""
    watchers: list[Collector] = []
    streams: dict[int, Pieces] = {}
    for observation, collector in zip(observations, collectors, strict=True):
        if not observation.differentiable:
            watchers.append(collector)
        elif isinstance(collector, Pieces):
            streams[id(collector)] = collector
        else:  # nothing is known of it: it gets all weights, once, with their graph
            streams[id(collector)] = All((*grid.leading, grid.queries, grid.keys))
    return watchers, streams


class _Blocked(torch.autograd.Function):
    """The blocks as one operation, whose inputs are all tensors that may need a gradient."""

    @staticmethod
    def forward(
        plan: BlockPlan, watchers: list[Collector], streams: list[Pieces], *inputs: Tensor
    ) -> tuple[Tensor, ...]:
        query, value, *rest = inputs
        prepared = plan.with_fields(rest)
        context = _forward(plan, query, value, prepared, [*watchers, *streams])
        return context, *(tensor for stream in streams for tensor in stream.take())

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.plan, _, ctx.streams, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(tensor for tensor in output if not tensor.is_floating_point()))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        with torch.no_grad():
            found = _Backward(ctx.plan, ctx.streams, ctx.saved_tensors, ctx.needs_input_grad[3:], grads).run()
        return (None, None, None, *once(found))

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:  # noqa: ARG004
        raise RuntimeError("path: 'blocked' has no forward-mode derivative; use path='reference'")


def _forward(
    plan: BlockPlan, query: Tensor, value: Tensor, prepared: PreparedKey, collectors: Sequence[Collector]
) -> Tensor:
    grid = plan.grid
    context = value.new_empty(*grid.leading, grid.queries, value.shape[-1], dtype=result_dtype(value))
    factors = plan.dropout_factors()
    with full_precision(value.device.type):
        for part in plan.parts():
            if part.is_empty:
                context[..., part.rows, :] = 0
                _show(context.new_zeros(part.height, 0, dtype=plan.weights_dtype), part, grid, collectors)
                continue
            rows, keys = query[..., part.rows, :], prepared.rows(part.keys)
            weights = plan.weights(plan.scores(rows, keys, part), part.visible)
            _show(weights, part, grid, collectors)
            value = value.to(weights.dtype)
            factor = factors(weights)
            applied = weights if factor is None else factor.mul_(weights)
            context[..., part.rows, :] = applied @ value[..., part.keys, :]
    return context


def _whole_rows(weights: Tensor, part: Part, grid: Grid) -> Tensor:
    """Put a block's weights in their place among all keys."""
    if weights.shape[-1] < grid.keys:
        weights = F.pad(weights, (part.keys.start, grid.keys - part.keys.stop))
    return weights.expand(*grid.leading, part.height, grid.keys)


def _show(weights: Tensor, part: Part, grid: Grid, collectors: Sequence[Collector]) -> None:
    whole: Tensor | None = None
    for collector in collectors:
        if isinstance(collector, Kept):
            outer, heads = folded(grid)
            tile = Tile(slice(0, outer), slice(0, heads), part.rows, part.keys)
            collector.keep(tile, fold(weights, grid))
            continue
        whole = _whole_rows(weights, part, grid) if whole is None else whole
        collector.update(part.rows, whole)


class _Backward:
    """One backward pass: sums up the gradients of all inputs, block by block.

    Args:
        plan: What the forward pass did.
        streams: The differentiable observations.
        inputs: Query, value, the fields of the prepared keys, and what reaches the scores from outside.
        needs: Which of the inputs need a gradient.
        grads: Gradients of the context and of each tensor that was observed, None where there is none.
    """

    def __init__(
        self,
        plan: BlockPlan,
        streams: list[Pieces],
        inputs: Sequence[Tensor],
        needs: Sequence[bool],
        grads: Sequence[Tensor | None],
    ) -> None:
        self.plan, self.inputs, self.needs, self.streams = plan, inputs, needs, streams
        self.context_grad = grads[0]
        left = iter(grads[1:])
        self.stream_grads = [list(islice(left, stream.width)) for stream in streams]
        self.offsets = [0] * len(streams)
        # Halves are summed in float32, as a single product would.
        self.sums = [
            torch.zeros_like(t, dtype=torch.promote_types(t.dtype, torch.float32)) if need else None
            for t, need in zip(inputs, needs, strict=True)
        ]
        self.value = inputs[1]

    def run(self) -> list[Tensor | None]:
        factors = self.plan.dropout_factors()
        first = 2 + len(self.plan.field_names)
        stand_ins = [_leaf(t, need) for t, need in zip(self.inputs[first:], self.needs[first:], strict=True)]
        with full_precision(self.value.device.type):
            for part in self.plan.parts():
                self._block(part, stand_ins, factors)
        return [
            None if total is None else total.to(t.dtype)
            for total, t in zip(self.sums, self.inputs, strict=True)
        ]

    def _block(
        self, part: Part, stand_ins: Sequence[Tensor], factors: Callable[[Tensor], Tensor | None]
    ) -> None:
        plan = self.plan
        if part.is_empty:
            if self.streams:  # no weight, no gradient; but the place in what was observed moves on
                zeros = self.value.new_zeros(part.height, 0, dtype=plan.weights_dtype)
                self._from_streams(_whole_rows(zeros, part, plan.grid), part)
            return
        fields = self.inputs[2 : 2 + len(plan.field_names)]
        leaves = [_leaf(self.inputs[0][..., part.rows, :], self.needs[0])]
        leaves += [_leaf(t[..., part.keys, :], need) for t, need in zip(fields, self.needs[2:], strict=False)]
        with torch.enable_grad():
            scores = plan.scores(leaves[0], plan.with_fields(leaves[1:], part.keys), part, stand_ins)
        weights = plan.weights(scores, part.visible)
        grad = self._of_weights(weights, factors(weights), part)
        if grad is None or not scores.requires_grad:
            return
        grad.mul_(weights)
        grad.addcmul_(weights, grad.sum(-1, keepdim=True), value=-1)
        grad = grad.sum_to_size(scores.shape)
        leaves += stand_ins
        targets = [
            (i + bool(i), leaf) for i, leaf in enumerate(leaves) if leaf.requires_grad
        ]  # 1 is the value
        found = torch.autograd.grad(scores, [leaf for _, leaf in targets], grad, allow_unused=True)
        for (i, _), gradient in zip(targets, found, strict=True):
            if gradient is not None:
                self._add(i, gradient, part)

    def _add(self, i: int, gradient: Tensor, part: Part) -> None:
        total = self.sums[i]
        assert total is not None  # a leaf requires a gradient because its input does
        if i == 0:
            total[..., part.rows, :] = gradient  # each row belongs to one block
        elif i < 2 + len(self.plan.field_names):
            total[..., part.keys, :] += gradient
        else:
            total += gradient

    def _of_weights(self, weights: Tensor, factor: Tensor | None, part: Part) -> Tensor | None:
        """Return the gradient of a block's weights, and add up that of the values on the way."""
        grad = None
        if self.context_grad is not None:
            rows = self.context_grad[..., part.rows, :].to(weights.dtype)  # (..., n, E_v)
            if self.needs[1]:
                applied = weights if factor is None else weights * factor
                shape = (*self.inputs[1].shape[:-2], weights.shape[-1], rows.shape[-1])
                self._add(1, (applied.mT @ rows).sum_to_size(shape), part)
            self.value = self.value.to(weights.dtype)
            grad = (rows @ self.value[..., part.keys, :].mT).sum_to_size(weights.shape)
            grad = grad if factor is None else grad.mul_(factor)
        if self.streams:
            seen = self._from_streams(_whole_rows(weights, part, self.plan.grid), part)
            if seen is not None:
                seen = seen[..., part.keys].sum_to_size(weights.shape)
                grad = seen.clone() if grad is None else grad.add_(seen)
        return grad

    def _from_streams(self, weights: Tensor, part: Part) -> Tensor | None:
        """Pull the gradients of what was observed back to the block's weights."""
        leaf = weights.detach().requires_grad_()
        outputs, grads = [], []
        for i, stream in enumerate(self.streams):
            with torch.enable_grad():
                piece = stream.piece(part.rows, leaf)
            pieces = (piece,) if isinstance(piece, Tensor) else tuple(piece)
            for tensor, grad in zip(pieces, self.stream_grads[i], strict=True):
                if grad is not None and tensor.requires_grad:
                    outputs.append(tensor)
                    grads.append(_place(grad, stream.row_dim, self.offsets[i], tensor))
            self.offsets[i] += 0 if stream.row_dim is None else pieces[0].shape[stream.row_dim]
        return torch.autograd.grad(outputs, leaf, grads)[0] if outputs else None


def _place(grad: Tensor, row_dim: int | None, offset: int, piece: Tensor) -> Tensor:
    return grad if row_dim is None else grad.narrow(row_dim, offset, piece.shape[row_dim])


def _leaf(tensor: Tensor, needs_grad: bool) -> Tensor:
    return tensor.detach().requires_grad_(needs_grad)
