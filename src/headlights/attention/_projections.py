"""Into heads and out again: the projections around multi-head attention and the shapes between them."""

import torch
from torch import Tensor
from torch.nn import functional as F

Triple = tuple[Tensor, Tensor, Tensor]


def project(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    weight: Tensor | Triple,
    bias: Tensor | None,
    widths: tuple[int, int, int],
) -> Triple:
    """Map query, key and value to the columns of all heads side by side, with as few products as possible.

    Args:
        query: Float, shape (..., E).
        key: Float, shape (..., E_k).
        value: Float, shape (..., E_v).
        weight: One matrix of shape (sum of widths, E) for E = E_k = E_v, or three of shape (width, E),
            (width, E_k) and (width, E_v).
        bias: Shape (sum of widths,), or None.
        widths: Columns of the projected query, key and value: H*D, H_kv*D and H_kv*D_v.

    Returns:
        The three, shapes (..., width).
    """
    if bias is not None:
        bias = bias.to(query.dtype)
    if isinstance(weight, Tensor):
        if query is key and key is value:
            return cut(F.linear(query, weight, bias), widths, -1)
        if key is value:
            first = widths[0]
            query_bias, pair_bias = (None, None) if bias is None else (bias[:first], bias[first:])
            pair = F.linear(key, weight[first:], pair_bias)
            q = F.linear(query, weight[:first], query_bias)
            return q, pair[..., : widths[1]], pair[..., widths[1] :]
        weight = cut(weight, widths)
    biases = (None, None, None) if bias is None else cut(bias, widths)
    q, k, v = (F.linear(x, w, b) for x, w, b in zip((query, key, value), weight, biases, strict=True))
    return q, k, v


def cut(packed: Tensor, widths: tuple[int, int, int], dim: int = 0) -> Triple:
    """Cut what is packed for query, key and value.

    Args:
        packed: Any shape whose size at `dim` is the sum of the widths.
        widths: Size of each part.
        dim: Where to cut.

    Returns:
        The three parts, sharing memory.
    """
    q, k, v = torch.split(packed, list(widths), dim)
    return q, k, v


def split_heads(columns: Tensor, num_heads: int, *, batch_first: bool) -> Tensor:
    """Cut the columns into heads and bring the batch to the front, without copying.

    Args:
        columns: Shape (N, H*D) for one example, (N, B, H*D), or (B, N, H*D) if `batch_first`.
        num_heads: H.
        batch_first: Where the batch stands.

    Returns:
        Shape (B, H, N, D); B = 1 for one example.
    """
    heads = columns.view(*columns.shape[:-1], num_heads, columns.shape[-1] // num_heads)  # (..., H, D)
    if columns.ndim == 2:
        return heads.transpose(0, 1)[None]
    return heads.transpose(1, 2) if batch_first else heads.permute(1, 2, 0, 3)


def merge_heads(context: Tensor, *, batched: bool, batch_first: bool) -> Tensor:
    """Lay the heads side by side again; the opposite of `split_heads`.

    Args:
        context: Shape (B, H, N, D).
        batched: Whether to keep the batch dimension; B = 1 otherwise.
        batch_first: Where to put it.

    Returns:
        Shape (N, H*D), (N, B, H*D) or (B, N, H*D).
    """
    if not batched:
        return context[0].transpose(0, 1).flatten(1)
    return (context.transpose(1, 2) if batch_first else context.permute(2, 0, 1, 3)).flatten(2)


def repeat_heads(tensor: Tensor, num_heads: int) -> Tensor:
    """Give every query head its key or value head: head h of H reads head h // (H / H_kv).

    Args:
        tensor: Shape (B, H_kv, M, D).
        num_heads: H, a multiple of H_kv.

    Returns:
        Shape (B, H, M, D); copies only if 1 < H_kv < H.
    """
    B, groups, M, D = tensor.shape
    if groups == num_heads:
        return tensor
    return tensor[:, :, None].expand(B, groups, num_heads // groups, M, D).reshape(B, num_heads, M, D)


def append_slots(heads: Tensor, learned: Tensor | None, zero: bool) -> Tensor:
    """Append the extra key or value slots that torch calls `add_bias_kv` and `add_zero_attn`.

    Args:
        heads: Keys or values, shape (B, H_kv, M, D).
        learned: `bias_k` or `bias_v`, shape (1, 1, H_kv*D), or None.
        zero: Whether to append a slot of zeros, after the learned one.

    Returns:
        Shape (B, H_kv, M + 0..2, D).
    """
    B, groups, _, D = heads.shape
    parts = [heads]
    if learned is not None:
        parts.append(learned.to(heads.dtype).view(1, groups, 1, D).expand(B, groups, 1, D))
    if zero:
        parts.append(heads.new_zeros(B, groups, 1, D))
    return torch.cat(parts, -2) if len(parts) > 1 else heads
