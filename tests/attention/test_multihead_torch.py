"""`MultiHeadAttention` inside torch: its Transformers, hooks, compilers, transforms, types and copies."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune

from headlights import KeyValueCache, MultiHeadAttention, attend, masks, scores

from .multihead_tools import oracle, pair, scrambled
from .oracle import close

PAD = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])


class Counted(MultiHeadAttention):
    """Counts the calls of its forward."""

    calls = 0

    def forward(self, *args: Any, **options: Any) -> tuple[Any, ...]:
        Counted.calls += 1
        return super().forward(*args, **options)


@pytest.fixture(autouse=True)
def _counter() -> None:
    Counted.calls = 0


def swapped(model: nn.Module) -> Any:
    """Return a copy of the model with each of its attentions replaced by ours."""
    model = copy.deepcopy(model)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.MultiheadAttention):
                ours = Counted(child.embed_dim, child.num_heads, child.dropout, batch_first=child.batch_first)
                ours.load_state_dict(child.state_dict())
                setattr(parent, name, ours.train(child.training))
    return model


def inputs(batch_first: bool) -> Tensor:
    x = torch.randn(2, 5, 8)
    return x if batch_first else x.transpose(0, 1)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:enable_nested_tensor is True")
@pytest.mark.parametrize("padding", [None, PAD], ids=["whole", "padded"])
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no-grad"])
@pytest.mark.parametrize("train", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("batch_first", [True, False])
def test_a_whole_transformer_calls_our_forward(
    batch_first: bool, train: bool, grad: bool, padding: Tensor | None
) -> None:
    torchs = nn.Transformer(8, 2, 2, 2, 16, dropout=0.0, batch_first=batch_first)
    ours = swapped(torchs)
    x = inputs(batch_first)
    future = nn.Transformer.generate_square_subsequent_mask(5)
    padded = None if padding is None else torch.zeros(2, 5).masked_fill(padding, -torch.inf)
    options: dict[str, Any] = {
        "tgt_mask": future,
        "tgt_is_causal": True,
        "src_key_padding_mask": padded,
        "memory_key_padding_mask": padded,
    }
    with torch.set_grad_enabled(grad):
        output = ours.train(train)(x, x, **options)
        assert Counted.calls == 6  # two encoder layers with one attention, two decoder layers with two
        expected = torchs.train(train)(x, x, **options)
    assert (output - expected).abs().max() < 1e-5


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("layer", [nn.TransformerEncoderLayer, nn.TransformerDecoderLayer])
def test_a_single_layer_calls_our_forward_when_frozen(layer: Callable[..., Any], batch_first: bool) -> None:
    torchs = layer(8, 2, 16, batch_first=batch_first).eval()
    ours = swapped(torchs)
    x = inputs(batch_first)
    arguments = (x,) if layer is nn.TransformerEncoderLayer else (x, x)
    with torch.no_grad():
        output = ours(*arguments)
    assert Counted.calls == len(arguments)
    assert (output - torchs(*arguments)).abs().max() < 1e-5
    for parameter in ours.parameters():
        parameter.requires_grad_(False)
    ours(*arguments)  # with gradients on, but none asked for
    assert Counted.calls == 2 * len(arguments)


def test_an_encoder_built_from_our_layer_calls_our_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn.modules.transformer, "MultiheadAttention", Counted)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 3).eval()
    x = inputs(True)
    with torch.no_grad():
        encoder(x, src_key_padding_mask=PAD)
        assert Counted.calls == 3
        torch.compile(encoder, fullgraph=True, backend="aot_eager")(x, src_key_padding_mask=PAD)
        torch.compile(encoder.layers[0], fullgraph=True, backend="eager")(x)  # type: ignore[no-untyped-call]
    assert Counted.calls == 7


def test_the_packed_matrix_is_the_parameter_for_everyone_else() -> None:
    module = MultiHeadAttention(8, 2).eval()
    with torch.no_grad():
        assert module.in_proj_weight is dict(module.named_parameters())["in_proj_weight"]
    with pytest.raises(AttributeError, match="no attribute 'in_proj_wait'"):
        _ = module.in_proj_wait


class PlusHundred(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        plus: Tensor = self.inner(x) + 100
        return plus


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("train", [True, False])
def test_the_output_projection_is_called(train: bool, grad: bool, need_weights: bool) -> None:
    """Case 15."""
    torchs, module = pair(8, 2, batch_first=True)
    module.train(train), torchs.train(train)
    x, calls = torch.randn(2, 3, 8), []
    module.out_proj.register_forward_hook(lambda *_: calls.append(1))
    with torch.set_grad_enabled(grad):
        assert close(module(x, x, x, need_weights=need_weights)[0], torchs(x, x, x)[0].double())
        assert len(calls) == 1
        before = module(x, x, x, need_weights=need_weights)[0]
        module.out_proj = PlusHundred(module.out_proj)  # type: ignore[assignment]
        assert torch.equal(module(x, x, x, need_weights=need_weights)[0], before + 100)


@pytest.mark.parametrize("need_weights", [True, False])
def test_float16_scores_beyond_its_range_stay_finite(need_weights: bool) -> None:
    """Case 11: the scores reach 80 000, float16 ends at 65 504."""
    module = MultiHeadAttention(64, 1, bias=False, batch_first=True)
    eye = torch.eye(64)
    module.load_state_dict({"in_proj_weight": torch.cat((eye, eye, eye)), "out_proj.weight": eye})
    x = torch.full((1, 4, 64), 100.0)
    x[0, 1], x[0, 2, :32], x[0, 3, 0] = -100, 50, 99.5
    exact = copy.deepcopy(module).double()(x.half().double(), x.half().double(), x.half().double())
    half = x.half()
    output, weights = module.half()(half, half, half, need_weights=need_weights)
    assert output.dtype == torch.float16
    assert close(output, exact[0])
    if need_weights:
        assert weights.dtype == torch.float16
        assert close(weights, exact[1])


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_near_float64(dtype: torch.dtype, need_weights: bool) -> None:
    torchs, module = pair(8, 2, batch_first=True, dtype=dtype)
    x = torch.randn(2, 5, 8).to(dtype)
    expected = oracle(module, x, x, x)
    output, weights = module(x, x, x, need_weights=need_weights)
    own_error = (torchs(x, x, x, need_weights=need_weights)[0].double() - expected[0]).abs().max()
    assert (output.double() - expected[0]).abs().max() <= 2 * own_error
    assert output.dtype == dtype
    assert weights is None or weights.dtype == dtype


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("slots", [True, False])
def test_autocast_gives_its_type(slots: bool, need_weights: bool) -> None:
    torchs, module = pair(8, 2, add_bias_kv=slots, add_zero_attn=slots, dropout=0.2)
    x, mask = torch.randn(5, 2, 8), torch.randn(5, 5)
    results = []
    for attention in (torchs, module):
        with torch.autocast("cpu", torch.bfloat16):
            attention.train()(x, x, x, attn_mask=mask, need_weights=need_weights)
            results.append(attention.eval()(x, x, x, attn_mask=mask, need_weights=need_weights))
    (expected, expected_weights), (output, weights) = results
    assert output.dtype == expected.dtype == torch.bfloat16
    assert (output - expected).abs().max() < 0.05 * expected.abs().max()
    assert weights is None or weights.dtype == expected_weights.dtype


OPTIONS: list[dict[str, Any]] = [
    {},
    {"need_weights": False},
    {"is_causal": True},
    {"key_padding_mask": PAD, "need_weights": False},
    {"attn_mask": torch.ones(5, 5)},
    {"mask": masks.causal() & masks.window(2, 0)},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(options) or "plain")
def test_compiles_in_one_graph(options: dict[str, Any]) -> None:
    module = scrambled(MultiHeadAttention(8, 2, batch_first=True, add_zero_attn=True, num_kv_heads=1))
    x = torch.randn(2, 5, 8)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    output, weights = compiled(x, x, x, **options)
    if "attn_mask" in options:
        options = {"attn_mask": options["attn_mask"] * 0.999999}  # of ones alone it would warn in eager mode
    expected, expected_weights = module(x, x, x, **options)
    assert (output - expected).abs().max() < 1e-5
    assert (weights is None) == (expected_weights is None)
    output.sum().backward()
    torch._dynamo.reset()


def test_compiles_with_a_cache() -> None:
    module = scrambled(MultiHeadAttention(8, 2, batch_first=True))
    compiled = torch.compile(module, fullgraph=True, backend="eager", dynamic=True)
    x = torch.randn(2, 5, 8)
    with torch.no_grad():
        whole = module(x, x, x, is_causal=True)[0]
        _, _, cache = compiled(x[:, :3], x[:, :3], x[:, :3], is_causal=True, cache=KeyValueCache())
        output, _, cache = compiled(x[:, 3:], x[:, 3:], x[:, 3:], is_causal=True, cache=cache)
    assert cache.length == 5
    assert (output - whole[:, 3:]).abs().max() < 1e-5
    torch._dynamo.reset()


@pytest.mark.parametrize("options", OPTIONS[:4], ids=lambda options: " ".join(options) or "plain")
def test_exports_with_free_batch_and_length(options: dict[str, Any]) -> None:
    module = scrambled(MultiHeadAttention(8, 2, batch_first=True, add_bias_kv=True))
    x = torch.randn(2, 5, 8)
    free = {0: torch.export.Dim("B"), 1: torch.export.Dim("N")}
    shapes = dict.fromkeys(("query", "key", "value"), free)
    shapes |= {name: free if isinstance(value, Tensor) else None for name, value in options.items()}  # type: ignore[misc]
    arguments = {"query": x, "key": x.clone(), "value": x.clone(), **options}
    exported = torch.export.export(module, (), arguments, dynamic_shapes=shapes).module()
    y = torch.randn(3, 11, 8)
    if "key_padding_mask" in options:
        options = {**options, "key_padding_mask": torch.rand(3, 11) < 0.5}
    output = exported(query=y, key=y, value=y, **options)[0]
    assert (output - module(y, y, y, **options)[0]).abs().max() < 1e-5


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's kernel has no batching rule
def test_func_transforms_equal_loops() -> None:
    module = scrambled(MultiHeadAttention(8, 2, batch_first=True, dtype=torch.float64))
    parameters: dict[str, Tensor] = dict(module.named_parameters())
    x = torch.randn(3, 2, 5, 8, dtype=torch.float64)

    def loss(parameters: dict[str, Tensor], x: Tensor, need_weights: bool = True) -> Tensor:
        arguments, options = (x, x, x), {"is_causal": True, "need_weights": need_weights}
        output: Tensor = torch.func.functional_call(module, parameters, arguments, options)[0]
        return output.square().sum()

    for need_weights in (True, False):
        each = torch.func.vmap(lambda x: loss(parameters, x, need_weights))(x)  # noqa: B023
        assert close(each, torch.stack([loss(parameters, one) for one in x]))
    grads = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, x)
    for name, parameter in parameters.items():
        for one, grad in zip(x, grads[name], strict=True):
            expected = torch.autograd.grad(loss(parameters, one), parameter)[0]
            assert (grad - expected).abs().max() <= 1e-12 * expected.abs().max()


def test_gradcheck() -> None:
    module = scrambled(MultiHeadAttention(4, 2, batch_first=True, add_bias_kv=True, dtype=torch.float64))
    query, memory = (torch.randn(1, n, 4, dtype=torch.float64, requires_grad=True) for n in (2, 3))
    hidden = torch.tensor([[True, False, True], [True, True, True]])
    for need_weights in (True, False):
        assert torch.autograd.gradcheck(
            lambda q, k: module(q, k, k, attn_mask=hidden, need_weights=need_weights)[0],  # noqa: B023
            (query, memory),
        )


def test_fake_and_meta_tensors_have_the_right_shapes() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    module = MultiHeadAttention(8, 2, batch_first=True, out_dim=3, device="meta")
    x = torch.randn(2, 5, 8, device="meta")
    mask = torch.ones(5, 5, device="meta")
    assert module(x, x, x, attn_mask=mask, need_weights=False)[0].shape == (2, 5, 3)
    assert module(x, x, x, attn_mask=mask)[1].shape == (2, 5, 5)
    with FakeTensorMode():
        module, x = MultiHeadAttention(8, 2, batch_first=True, out_dim=3), torch.randn(2, 5, 8)
        output, weights = module(x, x, x, attn_mask=torch.ones(5, 5))
        assert (output.shape, weights.shape) == ((2, 5, 3), (2, 5, 5))


def test_copies_and_pickles() -> None:
    module = scrambled(MultiHeadAttention(8, 2, kdim=5, score=scores.Additive(4, 4, 3)))
    x, key = torch.randn(5, 2, 8), torch.randn(7, 2, 5)
    value = torch.randn(7, 2, 8)
    expected = module(x, key, value)[0]
    for again in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(again(x, key, value)[0], expected)
        assert again.q_proj_weight is not module.q_proj_weight
    assert repr(module).startswith("MultiHeadAttention(\n  (score): Additive(4, 4, 3)")


def test_torch_parametrizations_and_pruning_reach_the_forward() -> None:
    module = scrambled(MultiHeadAttention(8, 2, bias=False))
    x = torch.randn(5, 2, 8)

    class Zero(nn.Module):
        def forward(self, weight: Tensor) -> Tensor:
            return torch.zeros_like(weight)

    pruned = copy.deepcopy(module)
    prune.custom_from_mask(pruned, "in_proj_weight", torch.zeros(24, 8))  # type: ignore[no-untyped-call]
    assert bool((pruned(x, x, x)[0] == 0).all())
    parametrize.register_parametrization(module, "in_proj_weight", Zero())
    assert bool((module(x, x, x)[0] == 0).all())


def test_a_bias_of_another_type_is_taken_as_torch_takes_it() -> None:
    torchs, module = pair(4, 4, batch_first=True, dtype=torch.float64)
    x = torch.randn(4, 4, 4, dtype=torch.float64)
    for attention in (torchs, module):
        attention.in_proj_bias = nn.Parameter(attention.in_proj_bias.half())  # type: ignore[union-attr]
    assert close(module(x, x, x)[0], torchs(x, x, x)[0])


def encoder_layer() -> nn.TransformerEncoderLayer:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    layer.self_attn = MultiHeadAttention(8, 2, batch_first=True)  # type: ignore[assignment]
    return layer.eval()


class Wrapped(nn.Module):
    """An adapter that has no weight of its own name."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Any:
        return self.inner(x) + 1.0


class Doubled(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return 2.0 * weight


@pytest.mark.parametrize("change", ["plain", "adapter", "parametrized"])
def test_encoders_in_evaluation_call_our_forward_whatever_was_put_in(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    forward = MultiHeadAttention.forward

    def spy(self: MultiHeadAttention, *args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(MultiHeadAttention, "forward", spy)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
    encoder.layers = nn.ModuleList([encoder_layer(), encoder_layer()])
    for layer in encoder.layers:
        attention: Any = layer.self_attn
        if change == "adapter":
            attention.out_proj = Wrapped(attention.out_proj)
        elif change == "parametrized":
            parametrize.register_parametrization(attention, "in_proj_weight", Doubled())
    encoder.eval()
    x, padding = torch.randn(3, 5, 8), torch.arange(5) >= torch.tensor([[5], [2], [4]])
    with torch.no_grad():
        quick = encoder(x, src_key_padding_mask=padding)
    assert len(calls) == 2
    assert torch.allclose(quick, encoder(x, src_key_padding_mask=padding), atol=1e-6)
    alone = encoder.layers[0]
    with torch.no_grad():
        alone(x, src_key_padding_mask=padding)
    assert len(calls) == 5


@pytest.mark.parametrize("strict", [True, False])
def test_an_encoder_layer_exports_in_evaluation(strict: bool) -> None:
    layer, x = encoder_layer(), torch.randn(3, 5, 8)
    program = torch.export.export(layer, (x,), strict=strict)
    assert torch.allclose(program.module()(x), layer(x), atol=1e-6)


def test_masks_that_are_no_tensors_are_refused_as_torch_does() -> None:
    module, x = MultiHeadAttention(8, 2), torch.randn(3, 1, 8)
    with pytest.raises(TypeError, match=r"attn_mask: expected a tensor or None, got list"):
        module(x, x, x, attn_mask=[[0.0]])


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # by torch itself, once
def test_forward_mode_goes_the_reference_way() -> None:
    x, t = torch.randn(2, 5, 4), torch.randn(2, 5, 4)

    def function(x: Tensor) -> Tensor:
        return attend(x, x, x)

    tangent = torch.func.jvp(function, (x,), (t,))[1]
    numeric = (function(x.double() + 1e-6 * t) - function(x.double() - 1e-6 * t)) / 2e-6
    assert torch.allclose(tangent.double(), numeric, atol=1e-4)
