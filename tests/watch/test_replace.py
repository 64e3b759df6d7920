"""Our attention in the place of torch's: same parameters, same numbers, clear refusals."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune

from headlights import MultiHeadAttention, observations, observe, replace_attention
from tests.watch.oracle import close

B, N, M, E, H = 2, 5, 7, 6, 2
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "batch_first": {"batch_first": True},
    "no_bias": {"bias": False},
    "extras": {"add_bias_kv": True, "add_zero_attn": True},
    "widths": {"kdim": 11, "vdim": 13, "batch_first": True},
    "float64": {"dtype": torch.float64, "dropout": 0.25},
}


def _same(one: Tensor, other: Tensor) -> bool:
    one, other = one.detach(), other.detach()
    bound = {torch.float32: 1e-6, torch.float64: 1e-12}[one.dtype] * max(1.0, float(other.abs().max()))
    return bool(((one - other).abs() <= bound).all())


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_single_module_keeps_parameters_and_numbers(variant: str) -> None:
    theirs = nn.MultiheadAttention(E, H, **VARIANTS[variant])
    for parameter in theirs.parameters():
        nn.init.normal_(parameter)
    before = torch.get_rng_state()
    ours = replace_attention(theirs)
    assert torch.equal(torch.get_rng_state(), before)
    assert isinstance(ours, MultiHeadAttention)
    mine, original = dict(ours.named_parameters()), dict(theirs.named_parameters())
    assert list(mine) == list(original)
    assert all(mine[name] is original[name] for name in mine)
    for name in (
        "embed_dim",
        "num_heads",
        "dropout",
        "batch_first",
        "add_zero_attn",
        "kdim",
        "vdim",
        "training",
    ):
        assert getattr(ours, name) == getattr(theirs, name)
    inputs = [
        torch.randn(
            (B, n, width) if theirs.batch_first else (n, B, width), dtype=theirs.out_proj.weight.dtype
        )
        for n, width in ((N, E), (M, theirs.kdim), (M, theirs.vdim))
    ]
    padding = torch.arange(M) >= torch.tensor([[7], [4]])
    for training in (False, True):
        results = []
        for module in (theirs, ours):
            torch.manual_seed(3)
            results.append(module.train(training)(*inputs, key_padding_mask=padding))
        assert all(_same(one, other) for one, other in zip(*results, strict=True))


def test_a_model_is_changed_in_place_and_trains_on_the_same_parameters() -> None:
    model = nn.Transformer(E, H, 1, 1, 7, dropout=0.0, batch_first=True, dtype=torch.float64)
    original = copy.deepcopy(model)
    parameters = list(model.parameters())
    state = list(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    assert replace_attention(model) is model
    assert not any(isinstance(module, nn.MultiheadAttention) for module in model.modules())
    assert sum(isinstance(module, MultiHeadAttention) for module in model.modules()) == 3
    assert all(one is other for one, other in zip(model.parameters(), parameters, strict=True))
    assert list(model.state_dict()) == state
    source, target, direction = (torch.randn(B, n, E, dtype=torch.float64) for n in (M, N, N))
    assert _same(model(source, target), original(source, target))
    for either in (model, original):
        (either(source, target) * direction).sum().backward()
    assert all(
        one.grad is not None and other.grad is not None and _same(one.grad, other.grad)
        for one, other in zip(model.parameters(), original.parameters(), strict=True)
    )
    before = parameters[0].detach().clone()
    optimizer.step()
    assert not torch.equal(next(model.parameters()), before)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")  # torch's own way, once in a process
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
def test_evaluation_without_gradients_calls_ours(padded: bool) -> None:
    layer = nn.TransformerEncoderLayer(E, H, 7, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).eval()
    x = torch.randn(B, N, E)
    padding = torch.arange(N) >= torch.tensor([[5], [3]]) if padded else None
    with torch.no_grad():
        expected = model(x, src_key_padding_mask=padding)
        replace_attention(model)
        calls: list[str] = []
        for name, module in model.named_modules():
            if isinstance(module, MultiHeadAttention):
                module.register_forward_hook(lambda *_, name=name: calls.append(name))
        output = model(x, src_key_padding_mask=padding)
    real = torch.ones(B, N, dtype=torch.bool) if padding is None else ~padding
    assert torch.allclose(output[real], expected[real], atol=1e-5)
    assert calls == ["layers.0.self_attn", "layers.1.self_attn"]


def test_shared_modules_stay_one_and_modes_stay_as_they_are() -> None:
    shared = nn.MultiheadAttention(E, H)
    model = nn.ModuleDict({"a": shared, "b": shared, "c": nn.MultiheadAttention(E, H).eval()})
    shared.out_proj.eval()
    replace_attention(model)
    assert model["a"] is model["b"]
    assert isinstance(model["a"], MultiHeadAttention)
    assert [model["a"].training, model["a"].out_proj.training, model["c"].training] == [True, False, False]
    ours = model["a"]
    assert replace_attention(model) is model
    assert model["b"] is ours  # what is ours already stays


def test_out_proj_is_the_same_module_with_its_hooks() -> None:
    theirs = nn.MultiheadAttention(E, H)
    seen: list[Tensor] = []
    theirs.out_proj.register_forward_hook(lambda module, args, output: seen.append(output))
    ours = replace_attention(theirs)
    assert isinstance(ours, MultiHeadAttention)
    assert ours.out_proj is theirs.out_proj
    x = torch.randn(N, B, E)
    output, _ = ours(x, x, x)
    assert torch.equal(seen[0].reshape(output.shape), output)


def test_replaced_models_can_be_watched() -> None:
    model = nn.TransformerEncoderLayer(E, H, 7, batch_first=True, dropout=0.0)
    x = torch.randn(B, N, E)
    with observe(model, observations.Weights()) as theirs:
        model(x)
    replace_attention(model)
    for training in (True, False):
        with observe(model.train(training), observations.Weights()) as ours, torch.no_grad():
            model(x)
        assert list(ours) == ["self_attn"]
        assert close(ours["self_attn"][0], theirs["self_attn"][0])


class Special(nn.MultiheadAttention):
    pass


def _refused() -> dict[str, tuple[nn.Module, type[Exception], str]]:
    hooked, own, parametrised, pruned, buffered = (nn.MultiheadAttention(E, H) for _ in range(5))
    hooked.register_forward_pre_hook(lambda module, args: None)
    own.forward = lambda *args: args  # type: ignore[method-assign]
    parametrize.register_parametrization(parametrised, "in_proj_weight", nn.Identity())
    prune.identity(pruned, "in_proj_weight")  # type: ignore[no-untyped-call]
    buffered.register_buffer("scale", torch.ones(1))
    return {
        "subclass": (
            Special(E, H),
            TypeError,
            "'x' is a Special, a subclass of nn.MultiheadAttention that may",
        ),
        "own_forward": (own, TypeError, "'x' has a forward of its own; replace it by hand"),
        "hooks": (
            hooked,
            ValueError,
            r"'x' has hooks \(_forward_pre_hooks\) that would be lost; remove them",
        ),
        "parametrised": (parametrised, TypeError, "'x' is a ParametrizedMultiheadAttention, a subclass"),
        "pruned": (pruned, ValueError, r"'x' has hooks \(_forward_pre_hooks\)"),
        "buffer": (buffered, ValueError, "'x' holds scale, which ours has no place for"),
    }


@pytest.mark.parametrize("case", ["subclass", "own_forward", "hooks", "parametrised", "pruned", "buffer"])
def test_what_cannot_be_replaced_is_refused_and_nothing_changed(case: str) -> None:
    module, error, message = _refused()[case]
    model = nn.ModuleDict({"first": nn.MultiheadAttention(E, H), "x": module})
    with pytest.raises(error, match=f"model: {message}"):
        replace_attention(model)
    assert type(model["first"]) is nn.MultiheadAttention
    assert model["x"] is module


def test_wrong_models_are_refused() -> None:
    with pytest.raises(TypeError, match=r"model: expected a torch.nn.Module, got list"):
        replace_attention([nn.MultiheadAttention(E, H)])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"model: Linear holds no nn.MultiheadAttention to replace"):
        replace_attention(nn.Linear(2, 3))
