"""Additive scores without a tanh for each pair: exponentials once per query and once per key.

With r = 1 / (1 + e^(2q) e^(2k)), tanh(q + k) = 1 - 2r and its derivative is 4 r (1 - r). So each term of
sum_a b_a tanh(q_a + k_a) is a product and a division, forward and backward, and nothing of size N*M*A is
held. Where the keys' range would overflow an exponential, the tanh is taken, in blocks as small.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from headlights.attention._compiled import Kernels, kernels_after
from headlights.attention._mask_shapes import broadcast
from headlights.attention._score_base import PreparedKey, eager_obstacle, full_precision, wide

KEY_RANGE = 34.0
"""Keys stay within ± this, so that e^(2k) is neither 0 nor infinite. Then e^(2q) may be either, or have lost
digits: in float32 that is beyond ± 43.6, where q + k is beyond ± 9.6 and the tanh is ±1 in any case."""
QUERY_BLOCK = 2**17
"""How many numbers of projected queries are made at once where no gradient is asked for: they stay in a CPU's
cache, and such memory is used again where a large tensor is new at every call."""
CPU_BLOCK, OTHER_BLOCK = 2**18, 2**24
"""How many terms the kernels without a compiler hold at once: what a CPU's cache holds; elsewhere each block
is a few launches, so they are larger."""


@dataclass(frozen=True, kw_only=True)
class FactorisedKey(PreparedKey):
    """Projected keys and their exponentials.

    Attributes:
        exponentials: e^(2(k - c)), without a gradient, float32 or float64, shape (..., M, A).
        centre: c, the same for all keys of an example, shape (..., M, A); None if it is 0.
    """

    exponentials: Tensor
    centre: Tensor | None


def factorise(prepared: PreparedKey, visible: Tensor | None) -> PreparedKey:
    """Take the exponentials of projected keys, if their range allows it.

    It does while the visible keys stay within ± `KEY_RANGE`, or can be brought there by subtracting from each
    channel the middle of its range, example by example.

    Args:
        prepared: The projected keys.
        visible: As in `Score.prepare_key`. Other keys decide nothing.

    Returns:
        A `FactorisedKey`; the argument itself if the range is too wide or values cannot be looked at.
    """
    key = prepared.key.detach()
    if eager_obstacle(key) or not key.numel():
        return prepared
    key = key.to(wide(key.dtype))
    low, high = key.aminmax()
    if low >= -KEY_RANGE and high <= KEY_RANGE:
        exponentials, centre = _exponentials(key, None), None
    else:  # out of range, or hidden keys are, or NaN
        low, high = _channel_ranges(key, visible)
        if not (high - low <= 2 * KEY_RANGE).all():
            return prepared
        is_near = (low >= -KEY_RANGE).all() and (high <= KEY_RANGE).all()
        centre = None if is_near else (low / 2 + high / 2).expand_as(key)
        most = math.exp(2 * KEY_RANGE)
        exponentials = _exponentials(key, None if centre is None else -centre)
        # Hidden keys get a finite one too: a gradient of 0 times NaN would reach the queries.
        exponentials = exponentials.nan_to_num_(1).clamp_(1 / most, most)
    return FactorisedKey(prepared.key, prepared.start, exponentials=exponentials, centre=centre)


def _channel_ranges(key: Tensor, visible: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the lowest and highest visible key of each example and channel, (..., 1, A); 0 without any."""
    if visible is None:
        return key.amin(-2, keepdim=True), key.amax(-2, keepdim=True)
    hidden = ~visible[..., None]
    empty = hidden.all(-2, keepdim=True)
    low = key.masked_fill(hidden, torch.inf).amin(-2, keepdim=True).masked_fill(empty, 0)
    high = key.masked_fill(hidden, -torch.inf).amax(-2, keepdim=True).masked_fill(empty, 0)
    return low, high


def _exponentials(vectors: Tensor, shift: Tensor | None, *, out: Tensor | None = None) -> Tensor:
    """Compute e^(2(x + shift)), in the memory of `out` if it can be."""
    if shift is None:
        return torch.mul(vectors, 2, out=out).exp_()
    # A sum near 20 has few digits left in float32, and an exponential shows it.
    return (vectors.double() + shift).mul_(2).exp_().to(vectors.dtype)


def projected_scores(query: Tensor, W1: Tensor, prepared: PreparedKey, b: Tensor) -> Tensor:
    """Compute sum_a b_a tanh((query W1)_a + key_a).

    Args:
        query: Queries as they come, float, shape (..., N, E_q).
        W1: Their projection, shape (E_q, A).
        prepared: As in `additive_scores`.
        b: Shape (A,).

    Returns:
        As `additive_scores` does.
    """
    examples = len(query) if query.dim() == 3 and _may_be_cut(query, W1, prepared, b) else 0
    step = max(QUERY_BLOCK // max(query.shape[-2] * W1.shape[-1], 1), 1) if examples else 0
    if step >= examples:
        return additive_scores(query @ W1, prepared, b, may_overwrite=True)
    parts = []
    for start in range(0, examples, step):
        some = slice(start, start + step)
        parts.append(additive_scores(query[some] @ W1, prepared.examples(some), b, may_overwrite=True))
    return torch.cat(parts)


def _may_be_cut(query: Tensor, W1: Tensor, prepared: PreparedKey, b: Tensor) -> bool:
    """Tell whether examples can go one after the other, with nobody watching and no gradient to come."""
    tensors = (query, W1, prepared.key, b)
    has_gradient = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    if has_gradient or query.device.type != "cpu" or eager_obstacle(query) or has_torch_function(tensors):
        return False
    if torch.get_num_threads() > 1:  # they would start anew, and wait for each other, at every part
        return False
    return isinstance(prepared, FactorisedKey) and prepared.key.shape[:-2] == query.shape[:1]


def additive_scores(
    query: Tensor, prepared: PreparedKey, b: Tensor, *, may_overwrite: bool = False
) -> Tensor:
    """Compute sum_a b_a tanh(query_a + key_a).

    Args:
        query: Projected queries, float, shape (..., N, A).
        prepared: Projected keys, shape (..., M, A); fast if `factorise` took their exponentials.
        b: Shape (A,).
        may_overwrite: The queries may be overwritten, which spares memory where no gradient is asked for.
            Default: they are kept.

    Returns:
        Shape (..., N, M), float32 for half-precision inputs.
    """
    if isinstance(prepared, FactorisedKey):
        return _scores(query, prepared.key, b, prepared.exponentials, prepared.centre, may_overwrite)
    return _scores(query, prepared.key, b, None, None, may_overwrite)


def _scores(
    query: Tensor,
    key: Tensor,
    b: Tensor,
    exponentials: Tensor | None,
    centre: Tensor | None,
    may_overwrite: bool,
) -> Tensor:
    tensors = (query, key, b)
    if has_torch_function(tensors):  # who watches operations would not see an autograd.Function
        return handle_torch_function(_scores, tensors, *tensors, exponentials, centre, may_overwrite)
    dtype = wide(query.dtype)
    with full_precision(query.device.type):
        query, key, b = query.to(dtype), key.to(dtype), b.to(dtype)
        if eager_obstacle(query) or eager_obstacle(key) or not (query.numel() and key.numel()):
            hidden = torch.tanh(query[..., :, None, :] + key[..., None, :, :])
            return hidden @ b  # (..., N, M, A) @ (A,) -> (..., N, M)
        leading: tuple[int, ...] = query.shape[:-2]
        if leading != key.shape[:-2]:
            leading = broadcast(leading, key.shape[:-2])
        centre = None if centre is None else centre[..., :1, :]
        flat = (None if t is None else _flat(t, leading) for t in (query, key, exponentials, centre))
        query, key, exponentials, centre = flat  # type: ignore[assignment]
        inputs = (query, key, b)
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
            scores: Tensor = _Additive.apply(*inputs, exponentials, centre)  # type: ignore[no-untyped-call]
        else:
            memory = query if may_overwrite and query.is_contiguous() else None
            scores, _ = _forward(*inputs, exponentials, centre, out=memory)
        return scores if len(leading) == 1 else scores.view(*leading, *scores.shape[1:])


def _flat(tensor: Tensor, leading: tuple[int, ...]) -> Tensor:
    if tensor.shape[:-2] != leading:
        tensor = tensor.expand(*leading, *tensor.shape[-2:])
    return tensor if len(leading) == 1 else tensor.reshape(-1, *tensor.shape[-2:])


class _Additive(torch.autograd.Function):
    """The scores as one operation on projected queries (B, N, A), keys (B, M, A) and b."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, b: Tensor, exponentials: Tensor | None, centre: Tensor | None
    ) -> Tensor:
        scores, left = _forward(query, key, b, exponentials, centre)
        ctx.save_for_backward(query, key, b, left, exponentials)
        return scores

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, b, left, exponentials = ctx.saved_tensors
        with full_precision(grad.device.type):
            is_batched = torch._C._functorch.is_legacy_batchedtensor(grad)  # is_grads_batched=True
            if torch.is_grad_enabled() or is_batched or eager_obstacle(grad):  # perhaps a second derivative
                return *_plain_gradients(grad, query, key, b), None, None
            return *_gradients(grad, query, key, b, left, exponentials, ctx.needs_input_grad[:3]), None, None


def _forward(
    query: Tensor,
    key: Tensor,
    b: Tensor,
    exponentials: Tensor | None,
    centre: Tensor | None,
    *,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Return the scores and the exponentials of the queries, if that is how they were made.

    The latter may take the memory of `out`.
    """
    if exponentials is None:
        return _block_scores(query, key, b, tanh=True), None
    left = _exponentials(query, centre, out=out).contiguous()
    kernels = _kernels(left, exponentials, times=1)
    if kernels is None:
        return _block_scores(left, exponentials, b, tanh=False), left
    return kernels.forward(left, exponentials.contiguous(), b.contiguous()), left


def _gradients(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    b: Tensor,
    left: Tensor | None,
    right: Tensor | None,
    needs: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of queries, keys and b; `left` and `right` are the exponentials, if there are."""
    if left is None or right is None:
        return _block_gradients(grad, query, key, b, needs, tanh=True)
    kernels = _kernels(left, right, times=2)
    if kernels is None:
        return _block_gradients(grad, left, right, b, needs, tanh=False)
    return kernels.backward(grad.contiguous(), left, right.contiguous(), b.contiguous(), needs)


def _kernels(left: Tensor, right: Tensor, *, times: int) -> Kernels | None:
    if left.device.type != "cpu":
        return None
    return kernels_after(times * left.numel() * right.shape[1])


def _plain_gradients(grad: Tensor, query: Tensor, key: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients as torch's own operations, which can be differentiated again."""
    hidden = torch.tanh(query[:, :, None] + key[:, None])  # (B, N, M, A)
    slope = (1 - hidden * hidden) * b * grad[..., None]
    return slope.sum(2), slope.sum(1), (hidden * grad[..., None]).sum((0, 1, 2))


def _block_scores(left: Tensor, right: Tensor, b: Tensor, *, tanh: bool) -> Tensor:
    scores = left.new_empty(*left.shape[:2], right.shape[1])
    for examples, rows, hidden in _blocks(left, right, tanh=tanh):
        scores[examples, rows] = hidden @ b
    return scores


def _block_gradients(
    grad: Tensor, left: Tensor, right: Tensor, b: Tensor, needs: Sequence[bool], *, tanh: bool
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    query_grad = torch.empty_like(left) if needs[0] else None
    key_grad = torch.zeros_like(right) if needs[1] else None
    b_grad = torch.zeros_like(b) if needs[2] else None
    one = torch.ones_like(b)
    is_step = left.shape[1] == 1  # then the sum over queries is one slope, which takes its place at once
    for examples, rows, hidden in _blocks(left, right, tanh=tanh):
        part = grad[examples, rows]
        if b_grad is not None:
            b_grad += part.reshape(-1) @ hidden.view(-1, b.shape[0])
        slope = torch.addcmul(one, hidden, hidden, value=-1, out=hidden)
        if is_step and key_grad is not None:
            slope = torch.mul(slope, part[..., None], out=key_grad[examples, None])
        else:
            slope.mul_(part[..., None])
        if query_grad is not None:
            query_grad[examples, rows] = slope.sum(2)
        if key_grad is not None and is_step:
            slope.mul_(b)
        elif key_grad is not None:
            key_grad[examples] += slope.sum(1)
    if query_grad is not None:
        query_grad.mul_(b)
    if key_grad is not None and not is_step:
        key_grad.mul_(b)
    return query_grad, key_grad, b_grad


def _blocks(left: Tensor, right: Tensor, *, tanh: bool) -> Iterator[tuple[slice, slice, Tensor]]:
    """Cut the pairs into blocks and compute tanh(q + k) of each, (examples, rows, M, A), in the same memory.

    Args:
        left: Queries (B, N, A), or their exponentials.
        right: Keys (B, M, A), or their exponentials.
        tanh: They are queries and keys, not exponentials.

    Yields:
        Which examples, which rows, and the block; it may be overwritten.
    """
    (B, N, A), M = left.shape, right.shape[1]
    most = CPU_BLOCK if left.device.type == "cpu" else OTHER_BLOCK
    rows = min(max(most // (M * A), 1), N)
    examples = min(max(most // (rows * M * A), 1), B)
    memory = left.new_empty(examples * rows * M * A)
    one = left.new_ones(A)  # of the shape of a row: a single number would not be vectorised
    for first in range(0, B, examples):
        some = slice(first, min(first + examples, B))
        for start in range(0, N, rows):
            place = slice(start, min(start + rows, N))
            q, k = left[some, place, None], right[some, None]
            shape = (q.shape[0], q.shape[1], M, A)
            block = memory[: shape[0] * shape[1] * M * A].view(shape)
            if tanh:
                torch.add(q, k, out=block).tanh_()
            else:
                torch.addcmul(one, q, k, out=block)
                torch.addcdiv(one, one, block, value=-2, out=block)
            yield some, place, block
