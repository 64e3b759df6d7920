"""What `MultiHeadAttention` refuses: what torch refuses, with the same exceptions."""

from collections.abc import Callable

import torch
from torch import Tensor


def check_inputs(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    widths: tuple[int, int, int],
    packed: bool,
    batch_first: bool,
) -> bool:
    """Check that query, key and value fit together and the module.

    Args:
        query: Float, (N, E) for one example, (N, B, E), or (B, N, E) if `batch_first`.
        key: Float, the same with M and E_k.
        value: Float, the same with M and E_v.
        widths: E, E_k and E_v of the module.
        packed: The module has one matrix for all three; torch's exceptions depend on it.
        batch_first: Where the batch stands.

    Returns:
        Whether there is a batch dimension.

    Raises:
        AssertionError: Wrong number of dimensions or width, key and value differ, or a NestedTensor came.
        RuntimeError: The batch sizes differ, or the width is wrong where torch leaves it to the product.
    """
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if tensor.is_nested:
            raise AssertionError(
                f"{name}: NestedTensor is not supported; pass a padded tensor and key_padding_mask"
            )
    if query.ndim not in (2, 3):
        raise AssertionError(
            f"query should be unbatched 2D or batched 3D tensor but received {query.ndim}-D query tensor"
        )
    if key.ndim != query.ndim or value.ndim != query.ndim:
        raise AssertionError(
            f"{_kind(query)}, expected `key` and `value` to be {query.ndim}-D "
            f"but found {key.ndim}-D and {value.ndim}-D tensors respectively"
        )
    _check_widths(query, key, value, widths, packed)
    batched = query.ndim == 3
    dim = 0 if batch_first else 1
    if batched and query.shape[dim] != key.shape[dim]:
        raise RuntimeError(
            f"query and key differ in batch size, {query.shape[dim]} and {key.shape[dim]}, "
            f"which is dimension {dim} because batch_first={batch_first}"
        )
    return batched


def _check_widths(
    query: Tensor, key: Tensor, value: Tensor, widths: tuple[int, int, int], packed: bool
) -> None:
    query_dim, kdim, vdim = widths
    if query.shape[-1] != query_dim:
        raise AssertionError(
            f"was expecting embedding dimension of {query_dim}, but got {query.shape[-1]}: "
            f"query has shape {tuple(query.shape)}"
        )
    if key.shape[:-1] != value.shape[:-1] or (packed and key.shape != value.shape):
        raise AssertionError(
            f"key shape {tuple(key.shape)} does not match value shape {tuple(value.shape)}: "
            "there is one value for each key"
        )
    error: Callable[[str], Exception] = RuntimeError if packed else AssertionError
    for name, tensor, letter, width in (("key", key, "kdim", kdim), ("value", value, "vdim", vdim)):
        if tensor.shape[-1] != width:
            raise error(f"{name}: expected a last dimension of {letter} = {width}, got {tuple(tensor.shape)}")


def check_mask_kinds(attn_mask: Tensor | None, key_padding_mask: Tensor | None) -> None:
    """Refuse masks of integers, which have no agreed meaning.

    Args:
        attn_mask: As in `MultiHeadAttention.forward`.
        key_padding_mask: As in `MultiHeadAttention.forward`.

    Raises:
        AssertionError: A mask is neither bool nor float.
        TypeError: A mask is no tensor.
    """
    for name, mask in (("key_padding_mask", key_padding_mask), ("attn_mask", attn_mask)):
        if mask is not None and not isinstance(mask, Tensor):
            raise TypeError(f"{name}: expected a tensor or None, got {type(mask).__name__}")
        if mask is not None and mask.dtype != torch.bool and not mask.dtype.is_floating_point:
            raise AssertionError(
                f"only bool and floating types of {name} are supported, got {mask.dtype}; "
                "a 0/1 mask in which 1 = hidden needs .bool(), one in which 1 = visible needs == 0"
            )


def check_mask_shapes(
    query: Tensor,
    attn_mask: Tensor | None,
    key_padding_mask: Tensor | None,
    *,
    sizes: tuple[int, int, int, int],
) -> None:
    """Check the shapes of torch's two masks.

    Args:
        query: Tells by its dimensions whether there is a batch.
        attn_mask: (N, M), (B*H, N, M), or 3-D with one slice for all, or 4-D broadcasting to (B, H, N, M).
        key_padding_mask: (B, M), or (M,) without a batch.
        sizes: B, H, N and M; M counts stored keys but not the extra slots.

    Raises:
        AssertionError: Wrong number of dimensions, or a padding mask of the wrong size.
        RuntimeError: An `attn_mask` of the wrong size.
    """
    batch, heads, queries, keys = sizes
    batched = query.ndim == 3
    if key_padding_mask is not None:
        expected = (batch, keys) if batched else (keys,)
        if key_padding_mask.ndim != len(expected):
            raise AssertionError(
                f"{_kind(query)}, expected `key_padding_mask` to be `None` or {len(expected)}-D "
                f"but found {key_padding_mask.ndim}-D tensor instead"
            )
        if key_padding_mask.shape != expected:
            raise AssertionError(
                f"Expected key_padding_mask to have shape {expected}, (B, M) or (M,), "
                f"but got {tuple(key_padding_mask.shape)}"
            )
    if attn_mask is None:
        return
    if attn_mask.ndim not in (2, 3, 4):
        raise AssertionError(
            f"{_kind(query)}, expected `attn_mask` to be `None`, 2-D or 3-D "
            f"but found {attn_mask.ndim}-D tensor instead; 4-D ones broadcast to (B, H, N, M)"
        )
    wanted = {
        2: (queries, keys),
        3: (batch * heads, queries, keys),
        4: (batch, heads, queries, keys),
    }[attn_mask.ndim]
    broadcast = {2: (), 3: (0,), 4: (0, 1, 2, 3)}[attn_mask.ndim]
    fits = all(
        size == goal or (size == 1 and dim in broadcast)
        for dim, (size, goal) in enumerate(zip(attn_mask.shape, wanted, strict=True))
    )
    if fits:
        return
    if not batched and attn_mask.ndim == 3:
        raise AssertionError(
            f"Expected `attn_mask` shape to be {wanted}, (H, N, M), but got {tuple(attn_mask.shape)}"
        )
    letters = {2: "(N, M)", 3: "(B * H, N, M)", 4: "(B or 1, H or 1, N or 1, M or 1)"}[attn_mask.ndim]
    cure = f"; one mask per sentence is 4-D, ({batch}, 1, N, M)" if attn_mask.ndim == 3 else ""
    raise RuntimeError(
        f"The shape of the {attn_mask.ndim}D attn_mask is {tuple(attn_mask.shape)}, "
        f"but should be {wanted}, {letters}{cure}"
    )


def _kind(query: Tensor) -> str:
    return "For batched (3-D) `query`" if query.ndim == 3 else "For unbatched (2-D) `query`"
