"""`replace_attention`: our multi-head attention in the place of torch's, in models that exist already."""

import itertools

from torch import nn

from headlights.attention import MultiHeadAttention

_PARTS = {
    *(
        "in_proj_weight",
        "q_proj_weight",
        "k_proj_weight",
        "v_proj_weight",
        "in_proj_bias",
        "bias_k",
        "bias_v",
    ),
    "out_proj",
}


def replace_attention(model: nn.Module) -> nn.Module:
    """Put a `headlights.MultiHeadAttention` in the place of every `nn.MultiheadAttention` of a model.

    The new modules hold the very same parameters and the same `out_proj` module, so that optimizers, tied
    weights, state dicts and adapters on `out_proj` go on working; they keep training mode, device and type.
    A module used in several places stays one module. Nothing is changed if anything must be refused.

    Args:
        model: The model; changed in place, unless it is an `nn.MultiheadAttention` itself. What is ours
            already stays.

    Returns:
        The model, or the new module if the model itself was replaced.

    Raises:
        TypeError: `model` is not a module, or holds a subclass of `nn.MultiheadAttention` or one with a
            `forward` of its own, which may compute something else.
        ValueError: A module to be replaced has hooks, or parts that ours lacks (pruned, normalised or
            parametrised weights); or there is nothing to replace.

    Example:
        >>> import torch
        >>> from headlights import replace_attention
        >>> layer = replace_attention(torch.nn.TransformerEncoderLayer(8, 2))
        >>> type(layer.self_attn)
        <class 'headlights.attention._multihead.MultiHeadAttention'>
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    theirs = {name: part for name, part in model.named_modules() if isinstance(part, nn.MultiheadAttention)}
    if not theirs and not any(isinstance(part, MultiHeadAttention) for part in model.modules()):
        raise ValueError(f"model: {type(model).__name__} holds no nn.MultiheadAttention to replace")
    for name, module in theirs.items():
        _check_replaceable(name, module)
    ours: dict[nn.Module, nn.Module] = {module: _counterpart(module) for module in theirs.values()}
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):  # named_children() hides a second name
            if child in ours:
                setattr(parent, name, ours[child])
    return ours.get(model, model)


def _check_replaceable(name: str, module: nn.MultiheadAttention) -> None:
    kind = type(module)
    if kind is not nn.MultiheadAttention:
        raise TypeError(
            f"model: {name!r} is a {kind.__name__}, a subclass of nn.MultiheadAttention that may compute "
            "something else; replace it by hand"
        )
    if "forward" in vars(module):
        raise TypeError(f"model: {name!r} has a forward of its own; replace it by hand")
    hooks = [attribute for attribute, value in vars(module).items() if attribute.endswith("_hooks") and value]
    if hooks:
        raise ValueError(
            f"model: {name!r} has hooks ({', '.join(hooks)}) that would be lost; remove them first and "
            "register them on the new module"
        )
    held = itertools.chain(module._parameters, module._buffers, module._modules)
    unknown = sorted(set(held) - _PARTS)
    if unknown:
        raise ValueError(f"model: {name!r} holds {', '.join(unknown)}, which ours has no place for")


def _counterpart(module: nn.MultiheadAttention) -> MultiHeadAttention:
    """Build ours without memory or random numbers of its own, then hand it the parameters."""
    ours = MultiHeadAttention(
        module.embed_dim,
        module.num_heads,
        module.dropout,
        bias=module.in_proj_bias is not None,
        add_bias_kv=module.bias_k is not None,
        add_zero_attn=module.add_zero_attn,
        kdim=module.kdim,
        vdim=module.vdim,
        batch_first=module.batch_first,
        device="meta",
    )
    for name, parameter in module._parameters.items():
        if parameter is not None:
            setattr(ours, name, parameter)
    ours.out_proj = module.out_proj
    ours.training = module.training  # not train(): out_proj keeps a mode of its own
    return ours
