"""Multi-head attention as a module: everything `torch.nn.MultiheadAttention` does, and more."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from headlights.attention._cache import KeyValueCache
from headlights.attention._functional import attend_heads
from headlights.attention._input_checks import check_inputs, check_mask_kinds, check_mask_shapes
from headlights.attention._mask_base import Mask
from headlights.attention._observations import Observation
from headlights.attention._own_forward import READ_BY_ENCODER, asked_by_transformer
from headlights.attention._parameter_report import ParameterReport
from headlights.attention._projections import (
    Triple,
    append_slots,
    cut,
    merge_heads,
    project,
    repeat_heads,
    split_heads,
)
from headlights.attention._rotary import Rotary
from headlights.attention._score_base import PreparedKey, Score
from headlights.attention._scores import as_score
from headlights.attention._torch_masks import join_masks


class MultiHeadAttention(nn.Module):
    """Attention in several heads at once, a strict superset of `torch.nn.MultiheadAttention`.

    Takes the same positional arguments, gives the same numbers, loads and saves the same state dict. What
    differs on purpose is listed in `docs/attention.md`, first of all: a query that may look at no key gets
    zero weights, so its output is the bias of `out_proj`, never NaN.

    Source: Vaswani et al. 2017, arXiv:1706.03762, 3.2.2, and source A, "Multi-Head Attention":
    Concat(h_1 .. h_H) W^O with h_i = Attn(Q W_i^Q, K W_i^K, V W_i^V). Their E_i is `head_dim`, E_h is
    `value_head_dim`, E_a is `out_dim`.

    Args:
        embed_dim: E, the width that all others default to.
        num_heads: H.
        dropout: Probability of dropping a weight while training, 0..1. Default: 0.
        bias: Learn biases in the projections. Default: yes.
        add_bias_kv: Append a learned key and value, `bias_k` and `bias_v`. Default: no.
        add_zero_attn: Append a key and value of zeros. Default: no.
        kdim: E_k, width of a key. Default: `embed_dim`.
        vdim: E_v, width of a value. Default: `embed_dim`.
        batch_first: Inputs are (B, N, E) instead of (N, B, E). Default: no, as in torch.
        device: Where the parameters live. Default: torch's default device.
        dtype: Type of the parameters. Default: torch's default type.
        query_dim: Width of a query. Default: `embed_dim`.
        head_dim: D, width of queries and keys in a head. Default: `embed_dim` / `num_heads`.
        value_head_dim: Width of values in a head. Default: `head_dim`.
        out_dim: Width of the output. Default: `embed_dim`.
        num_kv_heads: Heads of keys and values, shared by H / `num_kv_heads` query heads each (Ainslie et al.
            2023, arXiv:2305.13245). Default: `num_heads`.
        score: As in `attend`; gets (B, H, N, D), its parameters serve all heads. Default: `ScaledDot()`.

    Raises:
        ValueError: A size is not above 0, `num_kv_heads` does not divide `num_heads`, or `add_bias_kv` meets
            a score of positions, of which a slot has none.
        AssertionError: `embed_dim` is not divisible by `num_heads` and `head_dim` is not given.
        TypeError: `score` is not a score.

    Example:
        >>> import torch
        >>> from headlights import MultiHeadAttention
        >>> attention = MultiHeadAttention(8, 2, batch_first=True)
        >>> x = torch.randn(3, 5, 8)
        >>> output, weights = attention(x, x, x, is_causal=True)
        >>> output.shape, weights.shape
        (torch.Size([3, 5, 8]), torch.Size([3, 5, 5]))
    """

    in_proj_weight: nn.Parameter | None
    in_proj_bias: nn.Parameter | None
    q_proj_weight: nn.Parameter | None
    k_proj_weight: nn.Parameter | None
    v_proj_weight: nn.Parameter | None
    bias_k: nn.Parameter | None
    bias_v: nn.Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        query_dim: int | None = None,
        head_dim: int | None = None,
        value_head_dim: int | None = None,
        out_dim: int | None = None,
        num_kv_heads: int | None = None,
        score: Score | Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                "embed_dim and num_heads must be greater than 0, "
                f"got embed_dim={embed_dim} and num_heads={num_heads} instead"
            )
        if head_dim is None and embed_dim % num_heads:
            raise AssertionError("embed_dim must be divisible by num_heads")
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.add_zero_attn = add_zero_attn
        self.query_dim = embed_dim if query_dim is None else query_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.head_dim = embed_dim // num_heads if head_dim is None else head_dim
        self.value_head_dim = self.head_dim if value_head_dim is None else value_head_dim
        self.out_dim = embed_dim if out_dim is None else out_dim
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self._check_sizes()
        self.score = None if score is None else as_score(score)
        if add_bias_kv and isinstance(score, Rotary):
            raise ValueError("add_bias_kv: a learned slot has no position, which Rotary needs; leave one out")
        self._make_parameters(bias, add_bias_kv, {"device": device, "dtype": dtype})
        self._reset_parameters()

    def _check_sizes(self) -> None:
        names = ("query_dim", "kdim", "vdim", "head_dim", "value_head_dim", "out_dim", "num_kv_heads")
        for name in names:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be greater than 0, got {getattr(self, name)}")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_kv_heads must divide num_heads, got num_kv_heads={self.num_kv_heads} "
                f"and num_heads={self.num_heads}"
            )

    def _make_parameters(self, bias: bool, add_bias_kv: bool, factory: dict[str, Any]) -> None:
        """Register the parameters under torch's names and in its order, which draws the random numbers."""
        names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        inputs = (self.query_dim, self.kdim, self.vdim)
        packed = len(set(inputs)) == 1
        shapes: dict[str, tuple[int, ...] | None] = {"in_proj_weight": None}
        for name, rows, columns in zip(names, self._columns, inputs, strict=True):
            shapes[name] = None if packed else (rows, columns)
        if packed:
            shapes["in_proj_weight"] = (sum(self._columns), self.query_dim)
        shapes["in_proj_bias"] = (sum(self._columns),) if bias else None
        shapes["bias_k"] = (1, 1, self._columns[1]) if add_bias_kv else None
        shapes["bias_v"] = (1, 1, self._columns[2]) if add_bias_kv else None
        for name, shape in shapes.items():
            parameter = None if shape is None else nn.Parameter(torch.empty(shape, **factory))
            self.register_parameter(name, parameter)
        heads = self.num_heads * self.value_head_dim
        self.out_proj = NonDynamicallyQuantizableLinear(heads, self.out_dim, bias=bias, **factory)

    def _reset_parameters(self) -> None:
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            if getattr(self, name) is not None:
                nn.init.xavier_uniform_(getattr(self, name))
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                nn.init.zeros_(bias)
        for slot in (self.bias_k, self.bias_v):
            if slot is not None:
                nn.init.xavier_normal_(slot)

    @property
    def _columns(self) -> tuple[int, int, int]:
        """Columns of the projected query, key and value."""
        groups = self.num_kv_heads
        return self.num_heads * self.head_dim, groups * self.head_dim, groups * self.value_head_dim

    # How torch's Transformer modules are kept from computing attention themselves: see `_own_forward`.

    @property
    def _qkv_same_embed_dim(self) -> bool:
        """Torch's name for "one matrix for all three"."""
        if torch.compiler.is_dynamo_compiling() or asked_by_transformer():
            return False
        return self.in_proj_weight is not None

    def __getattr__(self, name: str) -> Any:
        if name in READ_BY_ENCODER and not torch.compiler.is_dynamo_compiling() and asked_by_transformer():
            return READ_BY_ENCODER[name]
        return super().__getattr__(name)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
        *,
        mask: Mask | None = None,
        observe: Observation | tuple[Observation, ...] | None = None,
        cache: KeyValueCache | None = None,
    ) -> tuple[Any, ...]:
        """Attend; arguments and results are torch's, those after the star are ours.

        M counts the keys in `cache` too, M + the number of extra slots is the width of the weights. Without
        a batch, leave B out everywhere.

        Args:
            query: Float, shape (N, B, E), or (B, N, E) if `batch_first`.
            key: Float, the same with the number of new keys and `kdim`.
            value: Float, the same with `vdim`.
            key_padding_mask: Bool, shape (B, M), True = hidden; a float mask is added. Default: none is.
            need_weights: Return the weights too. Default: yes.
            attn_mask: Shape (N, M), (B*H, N, M) in which slice b*H + h is for example b and head h,
                (1, N, M), or 4-D that broadcasts to (B, H, N, M); bool, True = hidden, or float, added to the
                scores. Default: nothing.
            average_attn_weights: Return the mean of the weights over heads. Default: yes.
            is_causal: Hide the future, beside whatever `attn_mask` hides. The last query stands at the last
                key; if N > M, the first at the first. Default: no.
            mask: What may be looked at, from `headlights.masks`; a 3-D tensor in it is (B, N, M).
            observe: What to keep of the weights before dropout, as in `attend`. Default: nothing.
            cache: Earlier keys and values, to be continued by these. Default: there are none.

        Returns:
            The output, shape as `query` with `out_dim`; the weights after dropout, shape (B, N, M) or
            (B, H, N, M), None unless needed; then what was observed, if anything, with leading dimensions
            (B, H); then the continued cache, if one was given.

        Raises:
            AssertionError: As torch: a wrong number of dimensions, a wrong width, an integer mask.
            RuntimeError: As torch: an `attn_mask` of the wrong size, differing batch sizes.
            ValueError: `mask`, `cache` or the score do not fit the sizes.
            TypeError: `mask` or `observe` is of the wrong kind.
        """
        check_mask_kinds(attn_mask, key_padding_mask)
        batched = check_inputs(
            query,
            key,
            value,
            widths=(self.query_dim, self.kdim, self.vdim),
            packed=self.in_proj_weight is not None,
            batch_first=self.batch_first,
        )
        q, k, v = self._heads(query, key, value)  # (B, H, N, D), (B, H_kv, M, D), (B, H_kv, M, D_v)
        if cache is not None:
            cache = cache.append(k, v)
            assert cache.key is not None
            assert cache.value is not None
            k, v = cache.key, cache.value
        sizes = (q.shape[0], self.num_heads, q.shape[2], k.shape[2])
        check_mask_shapes(query, attn_mask, key_padding_mask, sizes=sizes)
        joined = join_masks(
            attn_mask=attn_mask,
            key_padding_mask=key_padding_mask,
            is_causal=is_causal,
            mask=mask,
            sizes=sizes,
            extra=(self.bias_k is not None) + self.add_zero_attn,
            depth=4,  # nn.Module.__call__ has two frames
        )
        v = append_slots(v, self.bias_v, self.add_zero_attn)
        attended = attend_heads(
            q,
            self._prepare_key(k),
            repeat_heads(v, self.num_heads),
            score=self.score,
            mask=joined,
            dropout=self.dropout if self.training else 0.0,
            need_weights=need_weights,
            average_weights=average_attn_weights,
            observe=observe,
        )
        merged = merge_heads(attended.context, batched=batched, batch_first=self.batch_first)
        result: tuple[Any, ...] = (self.out_proj(merged), attended.weights)
        if observe is not None:
            result = (*result, attended.seen)
        if not batched:
            result = (result[0], *(_without_batch(item) for item in result[1:]))
        return result if cache is None else (*result, cache)

    def _heads(self, query: Tensor, key: Tensor, value: Tensor) -> Triple:
        weight = self.in_proj_weight
        weights = self.separate_weights() if weight is None else weight
        q, k, v = project(query, key, value, weights, self.in_proj_bias, self._columns)
        heads, groups = self.num_heads, self.num_kv_heads
        return (
            split_heads(q, heads, batch_first=self.batch_first),
            split_heads(k, groups, batch_first=self.batch_first),
            split_heads(v, groups, batch_first=self.batch_first),
        )

    def _prepare_key(self, key: Tensor) -> Tensor | PreparedKey:
        slotted = repeat_heads(append_slots(key, self.bias_k, self.add_zero_attn), self.num_heads)
        extra = slotted.shape[2] - key.shape[2]
        if self.score is None or not extra:
            return slotted
        # The last query stands at the last key, which is not the last slot.
        return replace(self.score.prepare_key(slotted), start=-extra)

    def separate_weights(self) -> Triple:
        """Cut the matrix of all three projections, unless there are three already.

        Returns:
            Those of the query, key and value, shapes (H*D, E), (H_kv*D, E_k) and (H_kv*D_v, E_v), sharing
            memory with the parameters.
        """
        if self.in_proj_weight is not None:
            return cut(self.in_proj_weight, self._columns)
        assert self.q_proj_weight is not None
        assert self.k_proj_weight is not None
        assert self.v_proj_weight is not None
        return self.q_proj_weight, self.k_proj_weight, self.v_proj_weight

    def separate_biases(self) -> Triple | None:
        """Cut the bias of the three projections.

        Returns:
            Those of the query, key and value, shapes (H*D,), (H_kv*D,) and (H_kv*D_v,), sharing memory with
            `in_proj_bias`; None if there is none.
        """
        return None if self.in_proj_bias is None else cut(self.in_proj_bias, self._columns)

    def merge_masks(
        self, attn_mask: Tensor | None, key_padding_mask: Tensor | None, query: Tensor
    ) -> tuple[Tensor | None, int | None]:
        """Join torch's two masks for self-attention, as torch's method of this name; `forward` needs it not.

        Args:
            attn_mask: (N, N) or (B*H, N, N), bool or float.
            key_padding_mask: (B, N), of the same type.
            query: Float, shape (B, N, E).

        Returns:
            The mask, and its kind: (B, N) and 1 for padding alone, (B, H, N, N) and 2 with an `attn_mask`,
            None twice without any.
        """
        if attn_mask is None:
            return key_padding_mask, None if key_padding_mask is None else 1
        B, N, _ = query.shape
        joined = attn_mask.view(B, -1, N, N) if attn_mask.ndim == 3 else attn_mask.view(1, 1, N, N)
        joined = joined.expand(B, self.num_heads, N, N)
        return joined if key_padding_mask is None else joined + key_padding_mask.view(B, 1, 1, N), 2

    def parameter_report(self) -> ParameterReport:
        """Count the parameters, part by part.

        Returns:
            The counts, and what the two factors of W^Q W^K^T hold against their product.
        """
        biases = self._columns if self.in_proj_bias is not None else (0, 0, 0)
        weights = self.separate_weights()
        query, key, value = (w.numel() + bias for w, bias in zip(weights, biases, strict=True))
        output = sum(parameter.numel() for parameter in self.out_proj.parameters())
        total = sum(parameter.numel() for parameter in self.parameters())
        return ParameterReport(
            query=query,
            key=key,
            value=value,
            output=output,
            other=total - query - key - value - output,
            factors_per_head=(self.query_dim + self.kdim) * self.head_dim,
            product_per_head=self.query_dim * self.kdim,
        )


def _without_batch(item: Any) -> Any:
    """Remove the leading dimension of 1 from a result, be it a tensor or a tuple of results."""
    if isinstance(item, Tensor):
        return item.squeeze(0)
    if not isinstance(item, tuple):
        return item
    parts = [_without_batch(part) for part in item]
    return type(item)(*parts) if hasattr(item, "_fields") else tuple(parts)
