"""Pairs of modules, inputs for them, and multi-head attention in plain loops over float64 numbers."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headlights import MultiHeadAttention

from .oracle import PairScore, loops, scaled_dot


def pair(*args: Any, **options: Any) -> tuple[nn.MultiheadAttention, MultiHeadAttention]:
    """Return torch's module and ours with the same parameters, none of them zero."""
    torchs = nn.MultiheadAttention(*args, **options)
    _scramble(torchs)
    ours = MultiHeadAttention(*args, **options)
    ours.load_state_dict(torchs.state_dict(), strict=True)
    return torchs, ours


def scrambled(module: MultiHeadAttention) -> MultiHeadAttention:
    """Give every parameter random values, the biases and extra slots too."""
    _scramble(module)
    return module


def _scramble(module: nn.Module) -> None:
    """Keep unit variance through the projections: saturated weights would amplify rounding without bound."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5 if parameter.ndim == 2 else 0.5)


def arranged(batch_first_input: Tensor, module: Any, batched: bool = True) -> Tensor:
    """Bring (B, N, E) into the layout that the module takes."""
    if not batched:
        return batch_first_input[0]
    return batch_first_input if module.batch_first else batch_first_input.transpose(0, 1)


def oracle(
    module: MultiHeadAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    visible: Tensor | None = None,
    bias: Tensor | None = None,
    pair_score: PairScore = scaled_dot,
) -> tuple[Tensor, Tensor]:
    """Compute output and weights head by head and query by query.

    Args:
        module: Any; its parameters are read, none of its methods is called.
        query: Shape (B, N, E), batch first whatever the module says.
        key: Shape (B, M, E_k).
        value: Shape (B, M, E_v).
        visible: Bool, broadcastable to (B, H, N, M).
        bias: Float, broadcastable to (B, H, N, M).
        pair_score: Score of one query vector and one key vector.

    Returns:
        Output (B, N, E_a) and weights (B, H, N, M + slots), float64, attached to the graph.
    """
    q, k, v = query.double(), key.double(), value.double()
    B, N, M, H = q.shape[0], q.shape[1], k.shape[1], module.num_heads
    D, Dv, groups = module.head_dim, module.value_head_dim, module.num_kv_heads
    widths = [H * D, groups * D, groups * Dv]
    if module.in_proj_weight is not None:
        matrices = module.in_proj_weight.double().split(widths)  # type: ignore[no-untyped-call]
    else:
        named = dict(module.named_parameters())
        matrices = [named[f"{letter}_proj_weight"].double() for letter in "qkv"]
    shifts: Sequence[Any] = [0, 0, 0]
    if module.in_proj_bias is not None:
        shifts = module.in_proj_bias.double().split(widths)  # type: ignore[no-untyped-call]
    columns = [x @ matrix.T + shift for x, matrix, shift in zip((q, k, v), matrices, shifts, strict=True)]
    for slot, at in ((module.bias_k, 1), (module.bias_v, 2)):
        if slot is not None:
            columns[at] = torch.cat((columns[at], slot.double().expand(B, 1, widths[at])), 1)
    if module.add_zero_attn:
        columns[1:] = [torch.cat((x, x.new_zeros(B, 1, x.shape[2])), 1) for x in columns[1:]]
    slots = columns[1].shape[1] - M
    shape = (B, H, N, M)
    seen = torch.ones(shape, dtype=torch.bool) if visible is None else visible.expand(shape)
    added = torch.zeros(shape, dtype=torch.float64) if bias is None else bias.double().expand(shape)
    seen, added = nn.functional.pad(seen, (0, slots), value=True), nn.functional.pad(added, (0, slots))
    contexts, weights = [], []
    for h in range(H):
        g = h * groups // H
        context, weight = loops(
            columns[0][..., h * D : (h + 1) * D],
            columns[1][..., g * D : (g + 1) * D],
            columns[2][..., g * Dv : (g + 1) * Dv],
            pair_score,
            seen[:, h],
            added[:, h],
        )
        contexts.append(context)
        weights.append(weight)
    output = torch.cat(contexts, -1) @ module.out_proj.weight.double().T
    if module.out_proj.bias is not None:
        output = output + module.out_proj.bias.double()
    return output, torch.stack(weights, 1)


def gradients(loss: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Differentiate, with zeros where nothing depends."""
    found = torch.autograd.grad(loss, tensors, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(tensors, found, strict=True)]


def summed(*tensors: Tensor | None) -> Tensor:
    """Weigh every element differently, so that the gradient tells them apart."""
    total = torch.zeros((), dtype=torch.float64)
    for tensor in tensors:
        if tensor is not None:
            ramp = torch.linspace(-1, 1, tensor.numel(), dtype=torch.float64).view(tensor.shape)
            total = total + (tensor.double() * ramp).sum()
    return total
