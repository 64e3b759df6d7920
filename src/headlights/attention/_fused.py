"""Path `fused`: torch's `scaled_dot_product_attention`, for the scores that it knows."""

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F

from headlights.attention._crossovers import real_lengths, short_type
from headlights.attention._mask_rules import Grid, Mask
from headlights.attention._rotary import Rotary
from headlights.attention._score_base import Score, check_width
from headlights.attention._scores import Dot, ScaledDot


def fused_obstacle(query: Tensor, *, score: Score, mask: Mask | None, observed: bool) -> str | None:
    """Say why the fused path cannot serve a request, from shapes and types alone.

    Args:
        query: Float, shape (..., N, E).
        score: The score asked for.
        mask: The mask asked for, or None.
        observed: Whether observations are asked for.

    Returns:
        The reason in a few words, or None if it can.
    """
    if observed:
        return "cannot observe weights"
    if forward_ad._current_level >= 0:
        return "has no forward-mode derivative"
    if type(score) is Rotary:
        score = score.score
    # Subclasses may compute something else, so the exact type counts.
    if type(score) is Dot:
        if not isinstance(score.scale, float):
            return "has no learned scale"
    elif type(score) is not ScaledDot:
        return f"knows Dot and ScaledDot only, not {type(score).__name__}"
    if mask is not None and mask.bias_dtype not in (None, query.dtype):
        return f"adds a bias of the query's type {query.dtype} only, not {mask.bias_dtype}"
    return None


def attend_fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: Score,
    mask: Mask | None,
    dropout: float,
    grid: Grid,
) -> Tensor:
    """Compute the context without ever holding the weights.

    Args:
        query: Float, shape (..., N, E).
        key: Float, shape (..., M, E).
        value: Float, shape (..., M, E_v).
        score: A `ScaledDot`, or a `Dot` with fixed scale.
        mask: What is hidden and added, or None.
        dropout: Probability of dropping a weight, 0 <= p < 1.
        grid: The sizes.

    Returns:
        The context, shape (..., N, E_v).

    Raises:
        ValueError: `query` and `key` differ in width.
    """
    check_width("query", query, "the key's width", key.shape[-1])
    scale = score.scale if isinstance(score, Dot) else None
    assert not isinstance(scale, Tensor)  # `fused_obstacle` sends learned scales elsewhere
    leading, bias, is_causal = grid.leading, None, False
    four_dims = len(leading) == 2 and query.shape[:2] == key.shape[:2] == value.shape[:2]
    if mask is not None:
        lengths = real_lengths(query, mask, grid) if four_dims else None
        if lengths is not None:
            return _one_by_one(query, key, value, lengths, dropout, scale)
        # The kernel masks the future before it scales: -inf times 0 is NaN, times -1 it is +inf.
        is_causal = (scale is None or scale > 0) and mask.is_plain_causal(grid)
        bias = None if is_causal else _one_tensor(mask, grid)
    if four_dims:
        return _kernel(query, key, value, bias, dropout, is_causal=is_causal, scale=scale)
    query, key, value = (_four_dims(tensor, leading) for tensor in (query, key, value))
    if bias is not None and bias.ndim > 2:
        bias = _four_dims(bias, leading)
    context = _kernel(query, key, value, bias, dropout, is_causal=is_causal, scale=scale)
    if len(leading) == 1:
        return context.squeeze(1)
    return context.reshape(*leading, *context.shape[-2:])


def _kernel(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    dropout: float,
    *,
    is_causal: bool = False,
    scale: float | None,
) -> Tensor:
    """Torch's kernel on tensors of four dimensions, in the type in which it is fastest."""
    short = short_type(query, key, value)
    if short is None:
        return F.scaled_dot_product_attention(query, key, value, bias, dropout, is_causal, scale=scale)
    if bias is not None and bias.dtype != torch.bool:
        bias = bias.float()
    query, key, value = query.float(), key.float(), value.float()
    with torch.autocast("cpu", enabled=False):
        context = F.scaled_dot_product_attention(query, key, value, bias, dropout, is_causal, scale=scale)
    return context.to(short)


def _one_by_one(
    query: Tensor, key: Tensor, value: Tensor, lengths: list[int], dropout: float, scale: float | None
) -> Tensor:
    """Compute each example of a padded batch on its real keys, (B, H, N, E_v)."""
    contexts = []
    # `split` and `cat` have cheap derivatives; that of a slice would be a whole batch for each example.
    for q, k, v, length in zip(*(torch.split(t, 1) for t in (query, key, value)), lengths, strict=True):
        real = k[..., :length, :], v[..., :length, :]
        contexts.append(_kernel(q, *real, None, dropout, scale=scale))
    return torch.cat(contexts)


def _one_tensor(mask: Mask, grid: Grid) -> Tensor | None:
    """Merge what is hidden and what is added into the one mask that the kernel takes."""
    visible, bias = mask.evaluate(grid, 0, grid.queries)
    if bias is None or visible is None:
        return visible if bias is None else bias
    return torch.where(visible, bias, -torch.inf)


def _four_dims(tensor: Tensor, leading: tuple[int, ...]) -> Tensor:
    """Give (..., n, m) two leading dimensions, the only shape that the fast kernels take."""
    if tensor.shape[:-2] != leading:
        tensor = tensor.expand(*leading, *tensor.shape[-2:])
    if len(leading) == 1:
        return tensor.unsqueeze(1)
    if len(leading) < 2:
        return tensor.reshape(*leading, *(1,) * (2 - len(leading)), *tensor.shape[-2:])
    return tensor.flatten(0, len(leading) - 2)  # (product of all but the last, last, n, m)
