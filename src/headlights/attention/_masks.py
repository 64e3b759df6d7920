"""Masks: which keys a query may look at (True = may look), and what is added to its scores.

A mask is a small value that knows its rule, not a tensor: it is evaluated for any block of query rows once
the sizes are known. Masks combine with `&` (both), `|` (either) and `~` (the opposite).
"""

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from headlights.attention._mask_explanation import Explanation
from headlights.attention._mask_rules import Bias, Keep, Lengths, Mask, Segments, Window

__all__ = ["Explanation", "Mask", "bias", "causal", "hide", "keep", "lengths", "segments", "window"]


def keep(tensor: Tensor, *, per_example: bool = False) -> Mask:
    """Let queries look where `tensor` is True.

    Args:
        tensor: Bool, broadcastable to (..., N, M), aligned from the right; True = may look.
        per_example: Align the leading dimensions from the left instead: (B, M) or (B, N, M) then means the
            first leading dimension whatever comes between, say heads. Default: align from the right.

    Returns:
        The mask.

    Raises:
        TypeError: `tensor` is not a bool tensor.
    """
    return Keep(_bool_tensor("keep", tensor), per_example)


def hide(tensor: Tensor, *, per_example: bool = False) -> Mask:
    """Keep queries from looking where `tensor` is True: the polarity of `torch.nn.MultiheadAttention`.

    Args:
        tensor: Bool, broadcastable to (..., N, M), aligned from the right; True = hidden.
        per_example: As in `keep`. Default: align from the right.

    Returns:
        The mask.

    Raises:
        TypeError: `tensor` is not a bool tensor.
    """
    return Keep(~_bool_tensor("hide", tensor), per_example, "hide")


def lengths(lengths: Tensor | Sequence[int] | int) -> Mask:
    """Let the queries of each example look at its first `lengths[i]` keys: padding at the end is hidden.

    Args:
        lengths: Integers in keys, shape (B,), aligned from the left with the first leading dimension; more
            dimensions go with the next ones. 0 hides all keys, M or more hides none.

    Returns:
        The mask.

    Raises:
        TypeError: `lengths` are not integers.
    """
    return Lengths(_integers("lengths", lengths))


def causal(*, query_start: int | None = None) -> Mask:
    """Let a query look at its own position and those before it.

    Args:
        query_start: Position of the first query among the keys, 0-based. Default: the last query stands at
            the last key (M - N), which is right for decoding with stored keys.

    Returns:
        The mask.
    """
    return Window(None, 0, query_start)


def window(before: int, after: int, *, query_start: int | None = None) -> Mask:
    """Let the query at position p look at the keys p - before .. p + after, both ends included.

    Args:
        before: How many positions back, 0 or more.
        after: How many positions ahead, 0 or more.
        query_start: Position of the first query, as in `causal`. Default: the last query stands at the last
            key.

    Returns:
        The mask.

    Raises:
        ValueError: `before` or `after` is negative.
    """
    if before < 0 or after < 0:
        raise ValueError(f"window: before and after must be 0 or more, got {before} and {after}")
    return Window(before, after, query_start)


def segments(query_ids: Tensor, key_ids: Tensor) -> Mask:
    """Let a query look at the keys of its own segment, for several sentences packed in one row.

    Args:
        query_ids: Integer, shape (B, N) or (N,), aligned from the left with the first leading dimension.
        key_ids: Integer, shape (B, M) or (M,); a query sees the keys with its own id.

    Returns:
        The mask.

    Raises:
        TypeError: The ids are not integers.
        ValueError: The ids have no dimension.
    """
    query_ids, key_ids = _integers("query_ids", query_ids), _integers("key_ids", key_ids)
    if not (query_ids.ndim and key_ids.ndim):
        raise ValueError("segments: expected ids of shape (B, N) and (B, M), got a single number")
    return Segments(query_ids, key_ids)


def bias(tensor: Tensor, *, per_example: bool = False) -> Mask:
    """Add `tensor` to the scores; minus infinity hides a key, finite values favour or disfavour it.

    A tensor of only 0 and 1 with at least one 1 is almost always a boolean mask by mistake and warns. It is
    still added.

    Args:
        tensor: Float, broadcastable to (..., N, M), aligned from the right; may require a gradient.
        per_example: As in `keep`. Default: align from the right.

    Returns:
        The mask.

    Raises:
        TypeError: `tensor` is not a float tensor.
    """
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
        raise TypeError(
            f"bias: expected a float tensor to add to the scores, got {_kind(tensor)}; "
            "a bool tensor goes into masks.keep (True = may look) or masks.hide (True = hidden)"
        )
    if is_zero_one(tensor):
        warnings.warn(
            "bias: this float mask holds only 0 and 1, which hides nothing: it is added to the scores. "
            "If 1 = may look, use masks.keep(tensor.bool()); if 1 = hidden, masks.hide(tensor.bool())",
            stacklevel=2,
        )
    return Bias(tensor, per_example)


def _kind(value: object) -> str:
    return f"a {value.dtype} tensor" if isinstance(value, Tensor) else type(value).__name__


def _bool_tensor(name: str, tensor: Tensor) -> Tensor:
    if not isinstance(tensor, Tensor) or tensor.dtype != torch.bool:
        cure = "a float tensor that is added goes into masks.bias, 0/1 integers need .bool()"
        raise TypeError(f"{name}: expected a bool tensor, got {_kind(tensor)}; {cure}")
    return tensor


def _integers(name: str, values: Tensor | Sequence[int] | int) -> Tensor:
    tensor = values if isinstance(values, Tensor) else torch.tensor(values)
    if not isinstance(values, Tensor) and tensor.numel() == 0:
        return tensor.long()  # an empty list has no type of its own, torch takes it for float
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"{name}: expected integers, got {_kind(tensor)}")
    return tensor


def is_zero_one(tensor: Tensor) -> bool:
    """Whether a mask holds only 0 and 1, at least one 1; False where there are no values to look at."""
    if torch.compiler.is_compiling():
        return False
    try:
        ones = tensor == 1
        return bool(ones.any()) and bool((ones | (tensor == 0)).all())
    except RuntimeError:  # a fake, meta or batched tensor has no values to look at
        return False
