"""`observe`: watch the attention of a model that nobody here wrote."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from torch import nn

from headlights.attention import Observation
from headlights.watch._names import ModuleNames, Pick, module_names, pick_modules
from headlights.watch._record import Record
from headlights.watch._recorder import Recorder


def observe(
    model: nn.Module,
    observation: Observation | tuple[Observation, ...],
    *,
    modules: Pick | None = None,
) -> AbstractContextManager[Record]:
    """Record the attention of any PyTorch model while a `with` block runs, leaving the model as it is.

    Seen are `headlights.attend` and what is built on it, `nn.MultiheadAttention`, `nn.Transformer` and its
    layers, and everything else that calls `F.scaled_dot_product_attention` or
    `F.multi_head_attention_forward`. The operation runs unchanged; what is kept is computed beside it, before
    dropout, without gradients and without touching the random state. A module that computes attention by hand
    is read from the weights that it returns, if its class is called ...Attention or ...Attn or it is picked
    by name.

    Outputs are the same bit for bit, unless the model would have taken torch's fused fast path of
    `nn.MultiheadAttention` and `nn.TransformerEncoder` (evaluation without gradients): watching leaves that
    path, outputs then agree to 1e-5 and padded positions may hold values instead of zeros. Only calls in the
    thread that entered the block are recorded.

    Args:
        model: The model. Inside the block call it, or any of its modules, as `model(x)` and not
            `model.forward(x)`.
        observation: What to keep of each call's weights, from `headlights.observations`, or a tuple of them.
        modules: Which modules to watch, each with all that it contains: a name as in `model.named_modules()`,
            a glob such as "decoder.*.self_attn", several of these, or a predicate `(name, module) -> bool`.
            Default: the whole model.

    Returns:
        A context manager that gives the `Record`: `record[name]` is a list with one entry a call, detached.
        The weights observed are (..., N, M) as the operation shapes them, (B, H, N, M) in most models. The
        name is that of the innermost module around the operation, "" for the model itself. At its end the
        block raises ValueError if an attention module gave nothing to record, naming the module.

    Raises:
        TypeError: `model`, `observation` or `modules` is of the wrong kind.
        ValueError: `modules` matches nothing, or the model is compiled.

    Example:
        >>> import torch
        >>> from headlights import observations, observe
        >>> layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
        >>> with observe(layer, observations.Weights()) as record:
        ...     output = layer(torch.zeros(3, 5, 8))
        >>> record["self_attn"][0].shape
        torch.Size([3, 2, 5, 5])
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    single = not isinstance(observation, tuple)
    wanted = observation if isinstance(observation, tuple) else (observation,)
    for part in wanted:
        if not isinstance(part, Observation):
            raise TypeError(
                "observation: expected one such as headlights.observations.Weights(), or a tuple of them, "
                f"got {part!r}"
            )
    names = module_names(model)
    _check_not_compiled(names)
    picked = pick_modules(names, modules)
    recorder = Recorder(wanted, single=single, names=names, picked=picked, by_name=modules is not None)
    return _watching(recorder)


@contextmanager
def _watching(recorder: Recorder) -> Iterator[Record]:
    with recorder:
        yield recorder.record


def _check_not_compiled(names: ModuleNames) -> None:
    for module, name in names.first.items():
        wrapped = type(module).__module__ == "torch._dynamo.eval_frame"
        if wrapped or getattr(module, "_compiled_call_impl", None) is not None:
            raise ValueError(
                f"model: {name!r} is compiled, which hides its operations; observe the module as it was "
                "before torch.compile" + (" (its _orig_mod)" if wrapped else "")
            )
