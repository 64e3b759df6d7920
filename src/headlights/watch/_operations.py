"""The attention operations that can be watched, each reduced to what its weights depend on."""

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from headlights.attention import Mask, PreparedKey, Score, attend
from headlights.attention._mask_rules import Bias, Keep, Window
from headlights.attention._mask_shapes import broadcast
from headlights.attention._scores import Dot, ScaledDot, as_score


class Attention(NamedTuple):
    """All that the weights of one call depend on; values and dropout are not among it.

    Attributes:
        query: Float, shape (..., N, E_q).
        prepared: M keys, prepared by `score`.
        score: Gives the scores, (..., N, M).
        mask: What is hidden and added, or None.
        leading: The leading dimensions of the weights.
    """

    query: Tensor
    prepared: PreparedKey
    score: Score
    mask: Mask | None
    leading: tuple[int, ...]


def read_call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Attention | None:
    """Reduce a call to what its weights depend on.

    Args:
        function: What was called.
        args: Its positional arguments, which it has accepted already.
        kwargs: Its keyword arguments.

    Returns:
        The attention computed, or None if `function` is not an attention operation.

    Raises:
        TypeError: The query is a NestedTensor.
    """
    reader = _READERS.get(function)
    if reader is None:
        return None
    query = args[0] if args else kwargs["query"]
    if query.is_nested:
        raise TypeError(
            "observe: cannot watch attention over a NestedTensor; pad the batch and mask the padding instead"
        )
    return reader(*args, **kwargs)


def _read_attend(
    query: Tensor,
    key: Tensor | PreparedKey,
    value: Tensor,
    *,
    score: Score | Callable[[Tensor, Tensor], Tensor] | None = None,
    mask: Mask | None = None,
    **_: Any,
) -> Attention:
    chosen = as_score(score)
    prepared = key if isinstance(key, PreparedKey) else chosen.prepare_key(key)
    leading = broadcast(query.shape[:-2], prepared.key.shape[:-2], value.shape[:-2])
    return Attention(query, prepared, chosen, mask, leading)


def _read_scaled_dot_product(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,  # noqa: ARG001 (part of the signature, without effect on clean weights)
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Attention:
    mask: Mask | None = None
    if attn_mask is not None:
        mask = Keep(attn_mask, False) if attn_mask.dtype == torch.bool else Bias(attn_mask, False)
    elif is_causal:
        mask = Window(None, 0, query_start=0)
    if enable_gqa:  # each key head serves the same number of query heads, in order
        groups = query.shape[-3] // max(key.shape[-3], 1)
        key, value = (tensor.repeat_interleave(groups, -3) for tensor in (key, value))
    shapes = [tensor.shape[:-2] for tensor in (query, key, value, attn_mask) if tensor is not None]
    score = ScaledDot() if scale is None else Dot(scale)
    return Attention(query, PreparedKey(key), score, mask, broadcast(*shapes))


def _read_multi_head(*args: Any, **kwargs: Any) -> Attention:
    """Repeat what `F.multi_head_attention_forward` does up to the scores; its L, N, S are our N, B, M."""
    bound = _MULTI_HEAD.bind(*args, **kwargs)
    bound.apply_defaults()
    call = SimpleNamespace(**bound.arguments)
    batched = call.query.ndim == 3
    query, key = _project(call, batched)  # (N, B, E), (M, B, E)
    N, B, H = query.shape[0], query.shape[1], call.num_heads
    if call.bias_k is not None:
        key = torch.cat([key, call.bias_k.expand(1, B, -1)])
    query = query.reshape(N, B, H, -1).permute(1, 2, 0, 3)  # (B, H, N, D)
    if call.static_k is None:
        key = key.reshape(key.shape[0], B, H, -1).permute(1, 2, 0, 3)  # (B, H, M, D)
    else:
        key = call.static_k.reshape(B, H, *call.static_k.shape[1:])
    if call.add_zero_attn:
        key = F.pad(key, (0, 0, 0, 1))
    mask = _multi_head_mask(call, B, key.shape[-2])
    if not batched:
        query, key = query[0], key[0]
    return Attention(query, PreparedKey(key), ScaledDot(), mask, tuple(query.shape[:-2]))


def _project(call: SimpleNamespace, batched: bool) -> tuple[Tensor, Tensor]:
    if call.use_separate_proj_weight:
        query_weight, key_weight = call.q_proj_weight, call.k_proj_weight
    else:
        query_weight, key_weight, _ = call.in_proj_weight.chunk(3)
    query_bias, key_bias = (None, None) if call.in_proj_bias is None else call.in_proj_bias.chunk(3)[:2]
    query, key = F.linear(call.query, query_weight, query_bias), F.linear(call.key, key_weight, key_bias)
    return (query, key) if batched else (query[:, None], key[:, None])


def _multi_head_mask(call: SimpleNamespace, B: int, M: int) -> Mask | None:
    """Merge both masks of `F.multi_head_attention_forward`, where True = hidden; extra slots stay visible."""
    position, padding = call.attn_mask, call.key_padding_mask
    if call.is_causal and padding is None and not call.need_weights:
        return Window(None, 0, query_start=0)  # torch then trusts the hint and never reads attn_mask
    mask: Mask | None = None
    if position is not None:
        if position.ndim == 3:
            position = position.reshape(B, call.num_heads, *position.shape[1:])
            position = position if call.query.ndim == 3 else position[0]
        mask = _hide_or_add(position, M)
    if padding is not None:
        rows = padding[:, None, None] if call.query.ndim == 3 else padding  # (B, 1, 1, M) or (M,)
        padding_mask = _hide_or_add(rows, M)
        mask = padding_mask if mask is None else mask & padding_mask
    return mask


def _hide_or_add(tensor: Tensor, M: int) -> Mask:
    hidden = F.pad(tensor, (0, M - tensor.shape[-1]))  # (..., M), with False or 0 for extra slots
    return Keep(~hidden, False) if hidden.dtype == torch.bool else Bias(hidden, False)


_MULTI_HEAD = inspect.signature(F.multi_head_attention_forward)
_READERS: dict[Callable[..., Any], Callable[..., Attention]] = {
    attend: _read_attend,
    F.scaled_dot_product_attention: _read_scaled_dot_product,
    F.multi_head_attention_forward: _read_multi_head,
}
