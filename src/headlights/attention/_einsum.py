"""The parameters of multi-head attention as one matrix per head, and back."""

from typing import NamedTuple

import torch
from torch import Tensor

from headlights.attention._multihead import MultiHeadAttention


class HeadWeights(NamedTuple):
    """The matrices of each head, multiplied from the right: `einsum("sd,hde->hse", tokens, weights.query)`.

    Source: source B; its d is E and its e is D, its w_output is `output`.

    Attributes:
        query: Shape (H, E, D).
        key: Shape (H_kv, E_k, D).
        value: Shape (H_kv, E_v, D_v).
        output: Shape (H*D_v, E_a); rows in the order of the heads laid side by side.
        query_bias: Shape (H, D), or None.
        key_bias: Shape (H_kv, D), or None.
        value_bias: Shape (H_kv, D_v), or None.
        output_bias: Shape (E_a,), or None.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor
    query_bias: Tensor | None = None
    key_bias: Tensor | None = None
    value_bias: Tensor | None = None
    output_bias: Tensor | None = None


def stack_heads(weight: Tensor, num_heads: int) -> Tensor:
    """Turn torch's matrix of all heads into one matrix per head.

    Args:
        weight: Shape (H*D, E), multiplied transposed, as `torch.nn.Linear` keeps it.
        num_heads: H.

    Returns:
        Shape (H, E, D), sharing memory with `weight`.

    Raises:
        ValueError: The rows cannot be cut into `num_heads` heads.
    """
    if num_heads < 1 or weight.shape[0] % num_heads:
        raise ValueError(
            f"weight: {weight.shape[0]} rows cannot be cut into num_heads = {num_heads} equal heads"
        )
    return weight.view(num_heads, weight.shape[0] // num_heads, weight.shape[1]).transpose(1, 2)


def unstack_heads(stacked: Tensor) -> Tensor:
    """Turn one matrix per head into torch's matrix of all heads; the opposite of `stack_heads`.

    Args:
        stacked: Shape (H, E, D).

    Returns:
        Shape (H*D, E).
    """
    return stacked.transpose(1, 2).flatten(0, 1)


def to_einsum(module: MultiHeadAttention) -> HeadWeights:
    """Show the parameters of a module as one matrix per head.

    Args:
        module: Any; its learned extra slots and its score are left out.

    Returns:
        The matrices, and the biases if it has them, sharing memory with the parameters.
    """
    counts = (module.num_heads, module.num_kv_heads, module.num_kv_heads)
    weights = zip(module.separate_weights(), counts, strict=True)
    query, key, value = (stack_heads(weight, count) for weight, count in weights)
    output = module.out_proj.weight.T
    biases = module.separate_biases()
    if biases is None:
        return HeadWeights(query, key, value, output)
    q, k, v = (bias.view(count, -1) for bias, count in zip(biases, counts, strict=True))
    return HeadWeights(query, key, value, output, q, k, v, module.out_proj.bias)


def from_einsum(
    weights: HeadWeights, *, dropout: float = 0.0, batch_first: bool = False
) -> MultiHeadAttention:
    """Build a module whose heads use these matrices.

    Args:
        weights: The matrices; all four biases or none.
        dropout: As in `MultiHeadAttention`. Default: 0.
        batch_first: As in `MultiHeadAttention`. Default: no.

    Returns:
        The module, with copies of the matrices, in their type and on their device.

    Raises:
        ValueError: Some biases are given and some are not.
    """
    query, key, value, output = weights[:4]
    biases = [bias for bias in weights[4:] if bias is not None]
    if len(biases) not in (0, 4):
        raise ValueError(f"weights: expected all four biases or none, got {len(biases)}")
    module = MultiHeadAttention(
        query.shape[1],
        query.shape[0],
        dropout,
        bias=bool(biases),
        kdim=key.shape[1],
        vdim=value.shape[1],
        batch_first=batch_first,
        device=query.device,
        dtype=query.dtype,
        head_dim=query.shape[2],
        value_head_dim=value.shape[2],
        out_dim=output.shape[1],
        num_kv_heads=key.shape[0],
    )
    with torch.no_grad():
        for target, stacked in zip(module.separate_weights(), (query, key, value), strict=True):
            target.copy_(unstack_heads(stacked))
        module.out_proj.weight.copy_(output.T)
        for target, bias in zip(
            (*(module.separate_biases() or ()), module.out_proj.bias), biases, strict=False
        ):
            target.copy_(bias.flatten())
    return module
