"""Path `reference`: the formula written out, which every other path must agree with."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from headlights.attention._mask_rules import Grid, Mask
from headlights.attention._observations import Observation
from headlights.attention._score_base import (
    PreparedKey,
    Score,
    autocast_dtype,
    eager_obstacle,
    full_precision,
)
from headlights.attention._scores import is_own


def attend_reference(
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
    """Compute context = softmax(score(query, key) + bias, hidden keys at minus infinity) @ value.

    Args:
        query: Float, shape (..., N, E_q).
        prepared: The keys, prepared by `score`.
        value: Float, shape (..., M, E_v).
        score: Gives the scores, (..., N, M).
        mask: What is hidden and added, or None.
        dropout: Probability of dropping a weight, 0 <= p < 1.
        observations: What to keep of the weights.
        grid: The sizes.

    Returns:
        The context, shape (..., N, E_v) in the value's type (autocast's where it is on), and one result
        per observation.
    """
    visible, bias = mask.evaluate(grid, 0, grid.queries) if mask is not None else (None, None)
    scores = score(query, prepared)  # (..., N, M)
    if mask is None and score.finite and _may_overwrite(scores, score):
        weights = torch.softmax(scores, -1, out=scores)  # fresh memory would cost more than the exponentials
    else:
        weights = softmax(scores, visible, bias, finite=score.finite)
    seen = tuple(_observe(observation, weights, grid) for observation in observations)
    if dropout > 0:
        weights = F.dropout(weights, dropout)
    with full_precision(value.device.type):
        context = weights @ value.to(weights.dtype)  # (..., N, E_v)
    return context.to(result_dtype(value)), seen


def _may_overwrite(scores: Tensor, score: Score) -> bool:
    return not scores.requires_grad and is_own(score) and eager_obstacle(scores) is None


def softmax(scores: Tensor, visible: Tensor | None, bias: Tensor | None, *, finite: bool) -> Tensor:
    """Turn scores into weights; a row without a visible key becomes zeros, and so does its gradient.

    Args:
        scores: Float32 or float64, shape (..., N, M).
        visible: Bool, broadcastable to the scores, True = may look; None = everything.
        bias: Float, broadcastable to the scores, added to them; None = nothing. Minus infinity hides.
        finite: The scores hold no minus infinity; otherwise that hides too.

    Returns:
        Shape (..., N, M); each row sums to 1, or to 0 if nothing in it is visible.
    """
    if visible is not None and bias is None and finite:
        # The lowest number hides as well as -inf, since no score reaches it, and needs no care for dead rows.
        weights = torch.softmax(scores.masked_fill(~visible, torch.finfo(scores.dtype).min), -1)
        return weights.masked_fill(~visible, 0)
    if bias is not None:
        scores = scores + bias
    hidden = None if visible is None else ~visible
    if bias is not None or not finite:
        infinite = scores == -torch.inf
        hidden = infinite if hidden is None else hidden | infinite
    if hidden is None:
        return torch.softmax(scores, -1)
    dead = hidden.all(-1, keepdim=True)  # (..., N, 1)
    # The softmax of nothing but -inf is NaN, forward and backward. A dead row is computed from zeros instead,
    # so that not even anomaly detection meets a NaN, and then blanked.
    fill = torch.where(dead, 0.0, -torch.inf).to(scores.dtype)
    weights = torch.softmax(torch.where(hidden, fill, scores), -1)
    return weights.masked_fill(dead, 0)


def result_dtype(value: Tensor) -> torch.dtype:
    """Return the type that torch's kernel would give: autocast turns float32 into half precision."""
    autocast = autocast_dtype(value.device.type) if value.dtype == torch.float32 else None
    return value.dtype if autocast is None else autocast


def _observe(observation: Observation, weights: Tensor, grid: Grid) -> Any:
    weights = weights if observation.differentiable else weights.detach()
    shape = (*grid.leading, grid.queries, grid.keys)
    collector = observation.start(shape)
    collector.update(slice(0, grid.queries), weights.expand(shape))
    return collector.result()
