"""Multi-head attention as functions: what `MultiHeadAttention` calls, and source A's own function."""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn import functional as F

from headlights.attention._attend import attend
from headlights.attention._input_checks import check_mask_kinds, check_mask_shapes
from headlights.attention._mask_base import Mask
from headlights.attention._observations import MeanWeights, Observation, Weights
from headlights.attention._projections import merge_heads, split_heads
from headlights.attention._score_base import PreparedKey, Score
from headlights.attention._torch_masks import join_masks


class Attended(NamedTuple):
    """What `attend_heads` returns.

    Attributes:
        context: Shape (B, H, N, D_v).
        weights: Those that were applied, after dropout: (B, N, M) as a mean over heads or (B, H, N, M), in
            the query's type; None unless asked for.
        seen: What was observed, before dropout; None unless asked for.
    """

    context: Tensor
    weights: Tensor | None
    seen: Any


def attend_heads(
    query: Tensor,
    key: Tensor | PreparedKey,
    value: Tensor,
    *,
    score: Score | Callable[[Tensor, Tensor], Tensor] | None = None,
    mask: Mask | None = None,
    dropout: float = 0.0,
    need_weights: bool = False,
    average_weights: bool = True,
    observe: Observation | tuple[Observation, ...] | None = None,
) -> Attended:
    """Attend in every head, and return the applied weights too if they are needed.

    Args:
        query: Float, shape (B, H, N, D).
        key: Float, shape (B, H, M, D), or prepared by `score`.
        value: Float, shape (B, H, M, D_v).
        score: As in `attend`.
        mask: As in `attend`.
        dropout: Probability of dropping a weight, 0 <= p <= 1.
        need_weights: Return the weights.
        average_weights: Return their mean over heads instead of all of them.
        observe: As in `attend`.

    Returns:
        The context, the weights and what was observed.
    """
    asked = observe if isinstance(observe, tuple) else () if observe is None else (observe,)
    if need_weights or asked:
        # Products copy heads whose rows lie apart, and turn them while copying; this copy is the cheaper one.
        key = key.contiguous() if isinstance(key, Tensor) else key
        query, value = query.contiguous(), value.contiguous()
    weights: Tensor | None = None
    if dropout > 0 and (need_weights or dropout == 1):
        # Torch's random stream: one draw for the whole (B, H, N, M). Values without columns cost nothing.
        clean = Weights(differentiable=True)
        _, found = attend(query, key, value[..., :0], score=score, mask=mask, observe=(clean, *asked))
        weights = F.dropout(found[0].to(query.dtype), dropout)
        context, seen = weights @ value, found[1:]
        if need_weights:
            weights = weights.mean(1) if average_weights else weights
    elif need_weights:
        kept = MeanWeights(differentiable=True) if average_weights else Weights(differentiable=True)
        context, found = attend(
            query, key, value, score=score, mask=mask, dropout=dropout, observe=(kept, *asked)
        )
        weights, seen = found[0].to(query.dtype), found[1:]
    elif observe is not None:
        context, seen = attend(query, key, value, score=score, mask=mask, dropout=dropout, observe=asked)
    else:
        context, seen = attend(query, key, value, score=score, mask=mask, dropout=dropout), ()
    single = seen[0] if seen and not isinstance(observe, tuple) else None
    return Attended(
        context, weights if need_weights else None, seen if isinstance(observe, tuple) else single
    )


def multi_head_attention(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    Wq: Tensor,
    Wk: Tensor,
    Wv: Tensor,
    Wo: Tensor,
    Bq: Tensor | None = None,
    Bk: Tensor | None = None,
    Bv: Tensor | None = None,
    Bo: Tensor | None = None,
    key_mask: Tensor | None = None,
    attn_mask: Tensor | None = None,
    *,
    num_heads: int,
) -> tuple[Tensor, Tensor]:
    """Multi-head attention with the matrices passed in, for those who own their parameters.

    Source: source A, "MultiheadAttention Implementation"; the names are its own, its global sizes are read
    from the matrices, and nothing is changed in place.

    Args:
        Q: Queries, float, shape (N, B, E).
        K: Keys, float, shape (M, B, E_k).
        V: Values, float, shape (M, B, E_v).
        Wq: Shape (H*D, E); like the next three it is multiplied from the right, transposed.
        Wk: Shape (H*D, E_k).
        Wv: Shape (H*D_v, E_v).
        Wo: Shape (E_a, H*D_v).
        Bq: Added to the projected queries, shape (H*D,). Default: nothing.
        Bk: Added to the projected keys, shape (H*D,). Default: nothing.
        Bv: Added to the projected values, shape (H*D_v,). Default: nothing.
        Bo: Added to the result, shape (E_a,). Default: nothing.
        key_mask: Bool, shape (B, M), True = the key is hidden; a float mask is added. Default: none is.
        attn_mask: Float, shape (N, M), added to the scores, minus infinity hides; a bool mask hides where
            True; 3-D and 4-D shapes as in `MultiHeadAttention`. Default: nothing.
        num_heads: H.

    Returns:
        The result, shape (N, B, E_a), and the weights averaged over heads, shape (B, N, M).

    Raises:
        ValueError: The rows of a matrix cannot be cut into `num_heads` heads.
        AssertionError: A mask is of the wrong kind or has the wrong number of dimensions.
        RuntimeError: Shapes do not fit.
    """
    for name, matrix in (("Wq", Wq), ("Wk", Wk), ("Wv", Wv)):
        if num_heads < 1 or matrix.shape[0] % num_heads:
            raise ValueError(
                f"{name}: {matrix.shape[0]} rows cannot be cut into num_heads = {num_heads} equal heads"
            )
    check_mask_kinds(attn_mask, key_mask)
    sizes = (Q.shape[1], num_heads, Q.shape[0], K.shape[0])
    check_mask_shapes(Q, attn_mask, key_mask, sizes=sizes)
    q, k, v = (
        split_heads(F.linear(x, weight, bias), num_heads, batch_first=False)
        for x, weight, bias in ((Q, Wq, Bq), (K, Wk, Bk), (V, Wv, Bv))
    )
    mask = join_masks(
        attn_mask=attn_mask,
        key_padding_mask=key_mask,
        is_causal=False,
        mask=None,
        sizes=sizes,
        extra=0,
        depth=2,
    )
    attended = attend_heads(q, k, v, mask=mask, need_weights=True)
    assert attended.weights is not None
    return F.linear(merge_heads(attended.context, batched=True, batch_first=False), Wo, Bo), attended.weights
