"""Contestants at self-attention as a layer: (B, N, E) to (B, N, E), all with the same parameters.

What is only a function (the formula, SDPA, FlexAttention) gets the same four projections around it. Biases
are zero throughout, as `nn.MultiheadAttention` starts and as x-transformers has it.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headlights.attention import MultiHeadAttention, observations
from headlights.bench.contestant import Build, Call, Contestants, Place, if_installed

Heads = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, ...]]
"""Attention of separate heads, (B, H, N, D) each: to the context, same shape, and perhaps mean weights."""


@dataclass(frozen=True)
class LayerInputs:
    """What every layer gets.

    Attributes:
        x: Shape (B, N, E).
        layer: Torch's layer, whose parameters all others copy.
    """

    x: Tensor
    layer: nn.MultiheadAttention

    @property
    def heads(self) -> int:
        """Number of heads, H."""
        return int(self.layer.num_heads)

    def projections(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """W_q, W_k, W_v and W_o as torch keeps them, each (E, E) and applied as x @ W.T."""
        w_q, w_k, w_v = self.layer.in_proj_weight.detach().chunk(3)
        return w_q, w_k, w_v, self.layer.out_proj.weight.detach()


def draw_inputs(batch: int, length: int, width: int, heads: int, place: Place) -> LayerInputs:
    """Draw the inputs and parameters of a layer, the same in every process.

    Args:
        batch: B.
        length: N.
        width: E.
        heads: H.
        place: Where and in which type.

    Returns:
        The inputs.
    """
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(width, heads, batch_first=True)
    layer = layer.eval().to(device=place.device, dtype=place.dtype)
    return LayerInputs(place.draw(batch, length, width), layer)


def with_weights(inputs: LayerInputs) -> Contestants:
    """Layers that return their output and the mean of the weights over heads, (B, N, N).

    Args:
        inputs: What they get.

    Returns:
        The contestants, torch's first.
    """
    return {
        "nn.MultiheadAttention": partial(_torch, inputs, True),
        "headlights": partial(_ours, inputs, need_weights=True),
        "projections + textbook": partial(_around, inputs, _textbook),
        "x-transformers": if_installed("x_transformers", partial(_x_transformers, inputs, True)),
        "Keras": if_installed("keras", partial(_keras, inputs, True)),
    }


def without_weights(inputs: LayerInputs) -> Contestants:
    """Layers that return their output alone.

    Args:
        inputs: What they get.

    Returns:
        The contestants, torch's first.
    """
    return {
        "nn.MultiheadAttention": partial(_torch, inputs, False),
        "headlights": partial(_ours, inputs, need_weights=False),
        "projections + SDPA": partial(_around, inputs, _sdpa),
        "projections + FlexAttention": partial(_flex, inputs),
        "x-transformers": if_installed("x_transformers", partial(_x_transformers, inputs, False)),
        "Keras": if_installed("keras", partial(_keras, inputs, False)),
    }


def top_weights(inputs: LayerInputs, k: int) -> Build:
    """Our layer, keeping the k largest weights of every query and head.

    Args:
        inputs: What it gets.
        k: How many.

    Returns:
        Builds the call, which returns the output and the weights' values.
    """
    return partial(_ours, inputs, need_weights=False, observe=observations.TopWeights(k))


def training(inputs: LayerInputs) -> Contestants:
    """Layers that return output and mean weights, and then go backward.

    Args:
        inputs: What they get.

    Returns:
        The contestants; each returns its output, weights and the gradient of x.
    """
    return {
        "nn.MultiheadAttention": partial(_step, inputs, inputs.layer),
        "headlights": lambda: _step(inputs, _our_layer(inputs)),
    }


def _torch(inputs: LayerInputs, weights: bool) -> Call:
    def call() -> tuple[Tensor, ...]:
        output, mean = inputs.layer(inputs.x, inputs.x, inputs.x, need_weights=weights)
        return (output, mean) if weights else (output,)

    return call


def _our_layer(inputs: LayerInputs) -> MultiHeadAttention:
    layer = MultiHeadAttention(inputs.x.shape[-1], inputs.heads, batch_first=True)
    layer.load_state_dict(inputs.layer.state_dict())
    return layer.eval().to(inputs.x)


def _ours(inputs: LayerInputs, **options: Any) -> Call:
    layer = _our_layer(inputs)

    def call() -> tuple[Tensor, ...]:
        output, mean, *seen = layer(inputs.x, inputs.x, inputs.x, **options)
        if seen:
            return output, seen[0].values
        return (output,) if mean is None else (output, mean)

    return call


def _around(inputs: LayerInputs, attention: Heads) -> Call:
    w_q, w_k, w_v, w_o = inputs.projections()

    def split(x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], inputs.heads, -1)  # (B, N, H, D)

    def call() -> tuple[Tensor, ...]:
        query, key, value = (
            split(F.linear(inputs.x, weight)).transpose(1, 2)  # (B, H, N, D)
            for weight in (w_q, w_k, w_v)
        )
        context, *rest = attention(query, key, value)
        return F.linear(context.transpose(1, 2).flatten(2), w_o), *rest

    return call


def _textbook(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
    weights = torch.softmax(query @ key.mT / query.shape[-1] ** 0.5, -1)
    return weights @ value, weights.mean(1)


def _sdpa(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
    return (F.scaled_dot_product_attention(query, key, value),)


@cache
def compiled_flex() -> Callable[..., Tensor]:
    """FlexAttention, compiled once for all sizes, as its documentation asks."""
    from torch.nn.attention.flex_attention import flex_attention

    compiled: Callable[..., Tensor] = torch.compile(flex_attention, dynamic=True)
    return compiled


def _flex(inputs: LayerInputs) -> Call:
    return _around(inputs, lambda query, key, value: (compiled_flex()(query, key, value),))


def _x_transformers(inputs: LayerInputs, weights: bool) -> Call:
    from x_transformers.x_transformers import Attention

    w_q, w_k, w_v, w_o = inputs.projections()
    width = inputs.x.shape[-1]
    layer = Attention(dim=width, heads=inputs.heads, dim_head=width // inputs.heads, flash=not weights)
    for linear, weight in ((layer.to_q, w_q), (layer.to_k, w_k), (layer.to_v, w_v), (layer.to_out, w_o)):
        linear.weight.data.copy_(weight)
    layer.eval().to(inputs.x)

    def call() -> tuple[Tensor, ...]:
        if not weights:
            return (layer(inputs.x),)
        output, kept = layer(inputs.x, return_intermediates=True)
        return output, kept.post_softmax_attn.mean(1)

    return call


def _keras(inputs: LayerInputs, weights: bool) -> Call:
    os.environ["KERAS_BACKEND"] = "torch"
    import keras

    if keras.backend.backend() != "torch":
        raise RuntimeError("Keras was imported with another backend than torch in this process")
    width, heads = inputs.x.shape[-1], inputs.heads
    layer = keras.layers.MultiHeadAttention(
        heads, width // heads, use_bias=False, dtype=str(inputs.x.dtype).removeprefix("torch.")
    )
    layer.build(inputs.x.shape, inputs.x.shape)
    w_q, w_k, w_v, w_o = inputs.projections()
    columns = [weight.mT.reshape(width, heads, -1) for weight in (w_q, w_k, w_v)]  # (E, H, D)
    for variable, weight in zip(layer.weights, [*columns, w_o.mT.reshape(heads, -1, width)], strict=True):
        variable.assign(weight)

    def call() -> tuple[Tensor, ...]:
        if not weights:
            return (layer(inputs.x, inputs.x),)
        output, kept = layer(inputs.x, inputs.x, return_attention_scores=True)
        return output, kept.mean(1)

    return call


def _step(inputs: LayerInputs, layer: nn.Module) -> Call:
    layer.train()
    x = inputs.x.clone().requires_grad_()
    leaves = [x, *layer.parameters()]

    def call() -> tuple[Tensor, ...]:
        with torch.enable_grad():
            output, mean = layer(x, x, x)
            gradients = torch.autograd.grad(output.square().mean(), leaves)
        return output.detach(), mean.detach(), gradients[0]

    return call
