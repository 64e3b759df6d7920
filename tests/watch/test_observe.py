"""What observe promises around the weights: names, equal outputs, nothing left behind, clear refusals."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules import module as torch_module
from torch.overrides import (
    TorchFunctionMode,
    _get_current_function_mode_stack,
)
from torch.utils.checkpoint import checkpoint

from headlights import masks, observations, observe
from tests.watch.oracle import Calls, EagerAttention, SdpaAttention, SilentAttention, Stack, close

WEIGHTS = observations.Weights()


def _left_behind() -> list[int]:
    hooks: list[dict[int, Any]] = [
        torch_module._global_forward_pre_hooks,
        torch_module._global_forward_hooks,
        torch_module._global_forward_hooks_always_called,
    ]
    modes = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    return [*map(len, hooks), len(modes)]


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    before = _left_behind()
    yield
    assert _left_behind() == before


@pytest.fixture
def x() -> Tensor:
    return torch.randn(2, 5, 6)


@pytest.fixture
def stack() -> Stack:
    return Stack(SdpaAttention(), nn.LayerNorm(6), EagerAttention(heads=3), SdpaAttention(heads=1))


def test_entries_by_name_in_order_of_calls(stack: Stack, x: Tensor) -> None:
    with observe(stack, WEIGHTS) as record:
        stack(x)
        stack(x[:1])
        stack.layers[3](x)
    assert list(record) == ["layers.0", "layers.2", "layers.3"]
    assert [len(record[name]) for name in record] == [2, 2, 3]
    assert repr(record) == "Record(calls: {'layers.0': 2, 'layers.2': 2, 'layers.3': 3})"
    for index, inputs in ((0, x), (1, x[:1])):
        first, norm, second = stack.layers[:3]
        assert isinstance(first, SdpaAttention)
        assert isinstance(second, SdpaAttention)
        assert close(record["layers.0"][index], first.expected(inputs))
        assert close(record["layers.2"][index], second.expected(norm(first(inputs))))
    last = stack.layers[3]
    assert isinstance(last, SdpaAttention)
    assert close(record["layers.3"][2], last.expected(x))


def test_one_observation_gives_its_result_and_a_tuple_gives_tuples(stack: Stack, x: Tensor) -> None:
    with observe(stack, (WEIGHTS, observations.TopWeights(2))) as record:
        stack(x)
    for name in record:
        weights, top = record[name][0]
        assert isinstance(weights, Tensor)
        assert top.values.shape == (*weights.shape[:-1], 2)
        assert torch.equal(weights.gather(-1, top.indices), top.values)
        assert torch.equal(weights.amax(-1), top.values[..., 0])
    with observe(stack, (WEIGHTS,)) as record:
        stack(x)
    assert isinstance(record["layers.0"][0], tuple)


@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])
def test_outputs_gradients_and_random_state_are_equal_bit_for_bit(x: Tensor, grad: bool) -> None:
    model = Stack(SdpaAttention(dropout=0.4), EagerAttention(dropout=0.4), nn.Dropout(0.3)).train()

    def run() -> list[Tensor]:
        torch.manual_seed(3)
        model.zero_grad()
        with torch.set_grad_enabled(grad):
            output = model(x)
        if grad:
            output.square().sum().backward()
        gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        return [output.detach(), *gradients, torch.get_rng_state()]

    plain = run()
    wanted = (WEIGHTS, observations.MeanWeights(), observations.Entropy(), observations.TopWeights(2))
    with observe(model, wanted):
        watched = run()
    assert len(plain) == (6 if grad else 2)
    assert all(torch.equal(one, other) for one, other in zip(plain, watched, strict=True))


def test_recorded_weights_are_clean_although_dropout_hits_those_returned(x: Tensor) -> None:
    model = EagerAttention(dropout=0.5).train()
    with observe(model, WEIGHTS) as record:
        _, applied = model(x)
    assert (applied == 0).any()
    assert close(record[""][0], model.expected(x))


def test_returned_weights_are_copied(x: Tensor) -> None:
    model = EagerAttention().eval()
    with observe(model, WEIGHTS) as record:
        _, weights = model(x)
        weights.data.zero_()
    assert close(record[""][0], model.expected(x))


class ReturnsAttn(nn.Module):
    """Returns what it was made with."""

    def __init__(self, output: Any) -> None:
        super().__init__()
        self.output = output

    def forward(self, x: Tensor) -> Any:
        return self.output


HALF = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
CONTEXT = torch.tensor([[3.0, -1.0], [0.2, 0.1]])


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        pytest.param(HALF, HALF, id="bare"),
        pytest.param((CONTEXT, HALF), HALF, id="second"),
        pytest.param((HALF, CONTEXT), HALF, id="first"),
        pytest.param([CONTEXT, None, HALF, "text"], HALF, id="list"),
        pytest.param({"context": CONTEXT, "weights": HALF}, HALF, id="mapping"),
        pytest.param((HALF, HALF.flip(0)), HALF.flip(0), id="context_of_distributions"),
        pytest.param((CONTEXT, HALF.half()), HALF, id="half_precision"),
        pytest.param((CONTEXT, HALF * 0.7), HALF * 0.7, id="sink_cut_off"),
        pytest.param(
            (CONTEXT, torch.tensor([[torch.nan] * 3, [0.0, 0.0, 1.0]])),
            torch.tensor([[0.0] * 3, [0.0, 0.0, 1.0]]),
            id="dead_row",
        ),
        pytest.param((CONTEXT, torch.zeros(2, 0, 3)), torch.zeros(2, 0, 3), id="empty"),
    ],
)
def test_weights_are_found_among_what_is_returned(output: Any, expected: Tensor, x: Tensor) -> None:
    model = ReturnsAttn(output)
    with observe(model, WEIGHTS) as record:
        model(x)
    assert torch.equal(record[""][0], expected)


@pytest.mark.parametrize(
    "output",
    [
        pytest.param(CONTEXT, id="context"),
        pytest.param((CONTEXT, None), id="none"),
        pytest.param((CONTEXT, HALF * 1.3), id="sums_above_1"),
        pytest.param((HALF * 0.7, CONTEXT), id="first_must_sum_to_1"),
        pytest.param((CONTEXT, HALF - 0.1), id="negative"),
        pytest.param((CONTEXT, HALF.bool()), id="bool"),
        pytest.param((CONTEXT, HALF[0]), id="vector"),
    ],
)
def test_other_things_returned_are_not_taken_for_weights(output: Any, x: Tensor) -> None:
    model = ReturnsAttn(output)
    with (
        pytest.raises(ValueError, match=r"found no attention weights in '' \(ReturnsAttn\)"),
        observe(model, WEIGHTS),
    ):
        model(x)


def test_a_module_that_offers_nothing_is_named_when_the_block_ends(x: Tensor) -> None:
    model = Stack(SdpaAttention(), SilentAttention(), Stack(SilentAttention()))
    expected = (
        r"in 'layers.1' \(SilentAttention\), 'layers.2.layers.0' \(SilentAttention\): no call of anything"
    )
    with pytest.raises(ValueError, match=expected), observe(model, WEIGHTS) as record:
        model(x)
    assert list(record) == ["layers.0"]
    with observe(model, WEIGHTS, modules="layers.0") as record:
        model(x)
    assert list(record) == ["layers.0"]


class OuterAttention(Stack):
    pass


def test_of_nested_attention_modules_the_innermost_is_named(x: Tensor) -> None:
    model = OuterAttention(SilentAttention())
    with pytest.raises(ValueError, match=r"in 'layers.0' \(SilentAttention\): no"), observe(model, WEIGHTS):
        model(x)


class WrapperAttention(nn.Module):
    """Returns the weights that its inner module keeps to itself."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Any:
        return self.inner(x), HALF


def test_the_innermost_module_that_offers_weights_is_recorded_once(x: Tensor) -> None:
    for inner, names in (
        (EagerAttention(), ["inner"]),
        (SdpaAttention(), ["inner"]),
        (SilentAttention(), [""]),
    ):
        model = WrapperAttention(inner)
        with observe(model, WEIGHTS) as record:
            model(x)
        assert list(record) == names
        assert len(record[names[0]]) == 1


def test_a_model_without_attention_is_named(x: Tensor) -> None:
    model = nn.Sequential(nn.Linear(6, 6))
    with (
        pytest.raises(ValueError, match=r"found no attention weights in '' \(Sequential\)"),
        observe(model, WEIGHTS),
    ):
        model(x)
    with pytest.raises(ValueError, match=r"in '0' \(Linear\)"), observe(model, WEIGHTS, modules=["0"]):
        model(x)
    with observe(model, WEIGHTS) as record:
        pass
    assert len(record) == 0


def test_a_picked_module_is_read_whatever_its_class_is_called(x: Tensor) -> None:
    class Aligner(EagerAttention):
        pass

    class Anonymous(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return CONTEXT, HALF

    model = Stack(Aligner(), Anonymous())
    Aligner.__name__ = "Aligner"
    with pytest.raises(ValueError, match=r"in '' \(Stack\)"), observe(model, WEIGHTS):
        model(x)
    with observe(model, WEIGHTS, modules=["layers.0", "layers.1"]) as record:
        model(x)
    assert list(record) == ["layers.0", "layers.1"]


@pytest.mark.parametrize(
    ("pick", "names"),
    [
        pytest.param("layers.3", ["layers.3"], id="name"),
        pytest.param("layers.[03]", ["layers.0", "layers.3"], id="glob"),
        pytest.param("layers", ["layers.0", "layers.2", "layers.3"], id="container"),
        pytest.param("", ["layers.0", "layers.2", "layers.3"], id="model"),
        pytest.param(["layers.3", "*.2"], ["layers.2", "layers.3"], id="several"),
        pytest.param(lambda name, module: isinstance(module, EagerAttention), ["layers.2"], id="predicate"),
        pytest.param(lambda name, module: name.endswith(".0"), ["layers.0"], id="predicate_of_names"),
    ],
)
def test_picked_modules(stack: Stack, x: Tensor, pick: Any, names: list[str]) -> None:
    with observe(stack, WEIGHTS, modules=pick) as record:
        stack(x)
    assert list(record) == names


def test_wrong_picks(stack: Stack) -> None:
    expected = r"modules: 'layer.3' matches no module of the model; nearest names: 'layers.3', "
    with pytest.raises(ValueError, match=expected):
        observe(stack, WEIGHTS, modules="layer.3")
    with pytest.raises(ValueError, match=r"modules: 'self_attn\*' matches no module"):
        observe(stack, WEIGHTS, modules=["layers.0", "self_attn*"])
    with pytest.raises(ValueError, match=r"the predicate is True for none of the model's 10 modules"):
        observe(stack, WEIGHTS, modules=lambda name, module: False)
    for wrong in (7, [7], [stack]):
        with pytest.raises(
            TypeError, match=r"modules: expected names, globs or a predicate .* got (7|Stack)"
        ):
            observe(stack, WEIGHTS, modules=wrong)  # type: ignore[arg-type]


def test_wrong_models_and_observations(stack: Stack) -> None:
    with pytest.raises(TypeError, match=r"model: expected a torch.nn.Module, got function"):
        observe(lambda x: x, WEIGHTS)  # type: ignore[arg-type]
    for wrong in (observations.Weights, (WEIGHTS, masks.causal()), None):
        with pytest.raises(
            TypeError, match=r"observation: expected one such as headlights.observations.Weights\(\)"
        ):
            observe(stack, wrong)  # type: ignore[arg-type]


def test_compiled_models_are_refused_by_name(stack: Stack) -> None:
    stack.layers[0].compile(backend="eager")
    with pytest.raises(ValueError, match=r"'layers.0' is compiled, .* as it was before torch.compile$"):
        observe(stack, WEIGHTS)
    with pytest.raises(ValueError, match=r"'' is compiled, .* before torch.compile \(its _orig_mod\)"):
        observe(torch.compile(SdpaAttention(), backend="eager"), WEIGHTS)  # type: ignore[arg-type]


def test_record_says_what_there_is(stack: Stack, x: Tensor) -> None:
    with observe(stack, WEIGHTS) as record:
        stack(x)
    assert "layers.1" not in record
    with pytest.raises(KeyError, match=r"no attention was recorded under 'layer.0'; nearest: 'layers.0', "):
        record["layer.0"]
    with observe(stack, WEIGHTS) as record:
        stack.forward  # noqa: B018
    with pytest.raises(KeyError, match=r"no module was called as model\(\.\.\.\) or submodule"):
        record["layers.0"]


def test_a_module_shared_under_two_names_is_found_under_both(x: Tensor) -> None:
    shared = SdpaAttention()
    model = Stack(shared, nn.LayerNorm(6), shared)
    with observe(model, WEIGHTS) as record:
        model(x)
    assert list(record) == ["layers.0"]
    assert len(record["layers.0"]) == 2
    assert record["layers.2"] is record["layers.0"]
    with observe(model, WEIGHTS, modules="layers.2") as record:
        model(x)
    assert len(record["layers.2"]) == 2


def test_attention_outside_the_model_is_not_recorded(stack: Stack, x: Tensor) -> None:
    other = SdpaAttention()
    with observe(stack, WEIGHTS) as record:
        other(x)
        F.scaled_dot_product_attention(x, x, x)
    assert len(record) == 0


def test_a_module_made_on_the_fly_counts_as_the_one_that_made_it(x: Tensor) -> None:
    model = Calls(lambda x: Calls(F.scaled_dot_product_attention)(x, x, x))
    with observe(model, WEIGHTS) as record:
        model(x)
    assert record[""][0].shape == (2, 5, 5)


class FailingAttention(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError("on purpose")


def test_an_exception_passes_through_and_nothing_stays(x: Tensor) -> None:
    model = Stack(SdpaAttention(), SilentAttention(), FailingAttention())
    before = _left_behind()
    with pytest.raises(RuntimeError, match="on purpose"), observe(model, WEIGHTS) as record:
        model(x)
    assert _left_behind() == before
    assert len(record["layers.0"]) == 1
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_an_exception_caught_inside_leaves_names_right(x: Tensor) -> None:
    model = Stack(SdpaAttention(), Stack(FailingAttention()), SdpaAttention())
    with observe(model, WEIGHTS) as record:
        with pytest.raises(RuntimeError, match="on purpose"):
            model(x)
        model.layers[2](x)
        F.scaled_dot_product_attention(x, x, x)  # outside again
    assert {name: len(record[name]) for name in record} == {"layers.0": 1, "layers.2": 1}


def test_a_call_broken_off_without_its_hook_leaves_names_right(x: Tensor) -> None:
    class Patient(Stack):
        def forward(self, x: Tensor) -> Tensor:
            with pytest.raises(KeyboardInterrupt):  # torch calls no hook after one
                self.layers[0](x)
            return x

    def interrupt(x: Tensor) -> Tensor:
        raise KeyboardInterrupt

    model = Stack(Patient(Calls(interrupt)), SdpaAttention())
    with observe(model, WEIGHTS) as record:
        model(x)
        F.scaled_dot_product_attention(x, x, x)  # outside, so not recorded
    assert {name: len(record[name]) for name in record} == {"layers.1": 1}


def test_an_observation_that_does_not_fit_raises_through_the_model(x: Tensor) -> None:
    model = Calls(F.scaled_dot_product_attention)
    with pytest.raises(ValueError, match="no head dimension"), observe(model, observations.MeanWeights()):
        model(x[0], x[0], x[0])


def test_nested_watchers_both_record_and_see_only_the_model(stack: Stack, x: Tensor) -> None:
    inner_model = stack.layers[0]
    with observe(stack, WEIGHTS) as outer, observe(inner_model, (WEIGHTS,)) as inner:
        stack(x)
    with observe(stack, WEIGHTS) as alone:
        stack(x)
    assert [len(outer[name]) for name in outer] == [1, 1, 1]
    assert all(torch.equal(outer[name][0], alone[name][0]) for name in alone)
    assert torch.equal(inner[""][0][0], outer["layers.0"][0])
    with observe(stack, WEIGHTS) as outer:
        with observe(stack, WEIGHTS) as inner:
            stack(x)
        stack(x)
    assert [len(outer["layers.0"]), len(inner["layers.0"])] == [2, 1]


def test_enclosing_modes_see_the_model_alone(stack: Stack, x: Tensor) -> None:
    class Sees(TorchFunctionMode):
        def __init__(self) -> None:
            self.seen: list[object] = []

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen.append(func)
            return func(*args, **(kwargs or {}))

    with Sees() as plain:
        stack(x)
    with Sees() as around, observe(stack, (WEIGHTS, observations.TopWeights(2))):
        stack(x)
    assert len(plain.seen) > 10
    assert around.seen == plain.seen


def test_other_threads_are_neither_recorded_nor_disturbed(x: Tensor) -> None:
    model = nn.TransformerEncoderLayer(6, 2, 7, batch_first=True).eval()
    with torch.no_grad():
        expected = model(x)
    outputs: list[Tensor] = []

    def work() -> None:
        with torch.no_grad():
            outputs.extend(model(x) for _ in range(3))

    with observe(model, WEIGHTS) as record, torch.no_grad():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert len(record) == 0
        watched = model(x)
    assert len(record["self_attn"]) == 1
    assert len(outputs) == 3
    # The other thread stays on torch's fused path, bit for bit; the watched one leaves it.
    assert all(torch.equal(output, expected) for output in outputs)
    assert torch.allclose(watched, expected, atol=1e-5)


def test_another_thread_may_run_through_a_module_that_is_being_watched(x: Tensor) -> None:
    class Branches(nn.Module):
        def forward(self, x: Tensor, branch: bool) -> Tensor:
            if branch:
                thread = threading.Thread(target=self, args=(x, False))
                thread.start()
                thread.join()
            return F.scaled_dot_product_attention(x, x, x)

    model = Branches()
    with observe(model, WEIGHTS) as record:
        model(x, True)
    assert len(record[""]) == 1


def test_two_threads_watch_the_same_model_at_once(stack: Stack) -> None:
    barrier = threading.Barrier(2, timeout=20)
    found: dict[int, list[Tensor]] = {}

    def work(size: int) -> None:
        inputs = torch.randn(size, 5, 6)
        barrier.wait()
        with observe(stack, WEIGHTS) as record:
            for _ in range(5):
                stack(inputs)
            barrier.wait()
        found[size] = record["layers.0"]

    threads = [threading.Thread(target=work, args=(size,)) for size in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {size: [len(entry) for entry in entries] for size, entries in found.items()} == {
        2: [2] * 5,
        3: [3] * 5,
    }


@pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "hooks"])
@pytest.mark.parametrize("kind", [SdpaAttention, EagerAttention])
def test_what_checkpointing_computes_again_is_not_recorded(
    kind: type[SdpaAttention], reentrant: bool, x: Tensor
) -> None:
    attention = kind()
    model = Calls(lambda x: checkpoint(attention, x, use_reentrant=reentrant))
    model.attention = attention
    calls: list[nn.Module] = []
    attention.register_forward_pre_hook(lambda module, args: calls.append(module))
    with observe(model, WEIGHTS) as record:
        output = model(x.requires_grad_())
        total = (output[0] if isinstance(output, tuple) else output).sum()
        torch.autograd.backward(total)
        assert len(calls) == 2
        model(x)
    assert {name: len(entries) for name, entries in record.items()} == {"attention": 2}


def test_inference_mode_and_autocast(x: Tensor) -> None:
    model = SdpaAttention()
    with torch.inference_mode(), observe(model, WEIGHTS) as record:
        model(x)
    assert close(record[""][0], model.expected(x))
    with torch.autocast("cpu", dtype=torch.bfloat16), observe(model, WEIGHTS) as record:
        model(x)
    assert record[""][0].dtype == torch.float32
    assert torch.allclose(record[""][0].double(), model.expected(x), atol=2**-6)
