"""Contestants at attention itself: query, key and value of shape (B, H, N, D), no layer around them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from headlights.attention import Mask, Observation, attend, masks
from headlights.bench.contestant import Call, Contestants, Place
from headlights.bench.layers import compiled_flex


@dataclass(frozen=True)
class HeadInputs:
    """What every contestant gets, each of shape (B, H, N, D).

    Attributes:
        query: The queries.
        key: The keys.
        value: The values.
    """

    query: Tensor
    key: Tensor
    value: Tensor


def draw_heads(batch: int, heads: int, length: int, head_dim: int, place: Place) -> HeadInputs:
    """Draw the inputs, the same in every process.

    Args:
        batch: B.
        heads: H.
        length: N.
        head_dim: D.
        place: Where and in which type.

    Returns:
        The inputs.
    """
    torch.manual_seed(0)
    query, key, value = (place.draw(batch, heads, length, head_dim) for _ in range(3))
    return HeadInputs(query, key, value)


def plain(inputs: HeadInputs) -> Contestants:
    """The context alone.

    Args:
        inputs: What they get.

    Returns:
        The contestants.
    """
    return {
        "SDPA": lambda: lambda: (F.scaled_dot_product_attention(inputs.query, inputs.key, inputs.value),),
        "headlights": lambda: ours(inputs),
        "FlexAttention": lambda: lambda: (compiled_flex()(inputs.query, inputs.key, inputs.value),),
    }


def observed(inputs: HeadInputs, observation: Observation) -> Contestants:
    """Ours with an observation, against SDPA, which can show nothing.

    Args:
        inputs: What they get.
        observation: What ours keeps.

    Returns:
        The contestants; ours returns what it saw after the context.
    """
    sdpa = plain(inputs)["SDPA"]
    return {"SDPA": sdpa, "headlights": lambda: ours(inputs, observe=observation)}


def windowed(inputs: HeadInputs, before: int) -> Contestants:
    """Every query sees itself and the keys before it, so many.

    Args:
        inputs: What they get.
        before: How many.

    Returns:
        SDPA with a dense Boolean mask, ours with a window, FlexAttention with its block mask.
    """
    return {
        "SDPA, dense mask": lambda: _sdpa_dense(inputs, before),
        "headlights": lambda: ours(inputs, mask=masks.window(before, 0)),
        "FlexAttention, block mask": lambda: _flex_blocks(inputs, before),
    }


def ours(
    inputs: HeadInputs, *, mask: Mask | None = None, observe: Observation | None = None, path: str = "auto"
) -> Call:
    """Our function on these inputs.

    Args:
        inputs: What it gets.
        mask: The mask. Default: none.
        observe: What to keep. Default: nothing.
        path: The path. Default: "auto".

    Returns:
        The call; an observation's tensors follow the context.
    """
    options: dict[str, Any] = {"mask": mask, "observe": observe, "path": path}

    def call() -> tuple[Tensor, ...]:
        if observe is None:
            return (cast("Tensor", attend(inputs.query, inputs.key, inputs.value, **options)),)
        context, seen = attend(inputs.query, inputs.key, inputs.value, **options)
        return (context, *(seen if isinstance(seen, tuple) else (seen,)))

    return call


def _sdpa_dense(inputs: HeadInputs, before: int) -> Call:
    places = torch.arange(inputs.query.shape[-2], device=inputs.query.device)
    distance = places[:, None] - places[None]
    mask = (distance >= 0) & (distance <= before)  # (N, N)
    del distance
    return lambda: (F.scaled_dot_product_attention(inputs.query, inputs.key, inputs.value, attn_mask=mask),)


def _flex_blocks(inputs: HeadInputs, before: int) -> Call:
    from torch.nn.attention.flex_attention import create_block_mask

    def seen(_batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query >= key) & (query - key <= before)

    length = inputs.query.shape[-2]
    build: Callable[..., Any] = create_block_mask
    mask = build(seen, None, None, length, length, device=inputs.query.device.type)
    return lambda: (compiled_flex()(inputs.query, inputs.key, inputs.value, block_mask=mask),)
