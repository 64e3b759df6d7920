"""Masks in `MultiHeadAttention`: dead rows, causal hints, extra slots, mixed and wrong kinds."""

import math
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from headlights import MultiHeadAttention, masks

from .multihead_tools import oracle, pair, scrambled
from .oracle import close

WEIGHTS = pytest.mark.parametrize("need_weights", [True, False], ids=["weights", "no-weights"])


def made(*args: Any, **options: Any) -> MultiHeadAttention:
    options = {"batch_first": True, "dtype": torch.float64, **options}
    return scrambled(MultiHeadAttention(*args, **options))


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


@WEIGHTS
@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
@pytest.mark.parametrize("kind", ["bool", "float", "own"])
def test_a_row_that_sees_nothing_is_the_output_bias(kind: str, need_weights: bool) -> None:
    """Case 01: weights 0, output the bias, no NaN in any gradient, the other rows as if it were not there."""
    module = made(6, 3)
    hidden = torch.zeros(5, 7, dtype=torch.bool)
    hidden[3], hidden[1, :4] = True, True
    choices: dict[str, dict[str, Any]] = {
        "bool": {"attn_mask": hidden},
        "float": {"attn_mask": torch.zeros(5, 7).double().masked_fill(hidden, -math.inf)},
        "own": {"mask": masks.hide(hidden)},
    }
    query, memory = drawn(2, 5, 6).requires_grad_(), drawn(2, 7, 6)
    with torch.autograd.detect_anomaly():
        output, weights = module(query, memory, memory, need_weights=need_weights, **choices[kind])
        output.sum().backward()
    assert bool((output[:, 3] == module.out_proj.bias).all())
    assert weights is None or bool((weights[:, 3] == 0).all())
    assert query.grad is not None
    assert bool((query.grad[:, 3] == 0).all())
    assert all(bool(p.grad.isfinite().all()) for p in module.parameters() if p.grad is not None)
    rest = [0, 1, 2, 4]
    alone, _ = module(query[:, rest], memory, memory, attn_mask=hidden[rest], need_weights=need_weights)
    assert close(output[:, rest], alone)


@WEIGHTS
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no-grad"])
@pytest.mark.parametrize("train", [True, False], ids=["train", "eval"])
def test_an_empty_sentence_in_the_batch_gives_the_bias(train: bool, grad: bool, need_weights: bool) -> None:
    """Case 02: in every mode, and the other sentences are what they are alone."""
    module = made(8, 4).train(train)  # an even number of heads: torch's own fast path would run here
    x, lengths = drawn(3, 5, 8), [5, 0, 3]
    padding = torch.arange(5) >= torch.tensor(lengths)[:, None]
    with torch.set_grad_enabled(grad):
        output, weights = module(x, x, x, key_padding_mask=padding, need_weights=need_weights)
        assert bool((output[1] == module.out_proj.bias).all())
        assert weights is None or bool((weights[1] == 0).all())
        for b in (0, 2):
            one = x[b : b + 1, : lengths[b]]
            assert close(output[b, : lengths[b]], module(one, one, one)[0][0])


@WEIGHTS
@pytest.mark.parametrize("N", [1, 7])
def test_the_causal_flag_works_alone(N: int, need_weights: bool) -> None:
    """Case 03."""
    module = made(6, 3)
    x = drawn(2, N, 6)
    future = torch.ones(N, N, dtype=torch.bool).triu(1)
    output, _ = module(x, x, x, is_causal=True, need_weights=need_weights)
    assert close(output, oracle(module, x, x, x, ~future)[0])
    changed = x.clone()
    changed[:, -1] += 3
    assert torch.equal(
        module(changed, changed, changed, is_causal=True)[0][:, :-1],
        module(x, x, x, is_causal=True)[0][:, :-1],
    )


@WEIGHTS
def test_s82_a_causal_flag_never_drops_the_mask(need_weights: bool) -> None:
    """Case 04: hidden is what the mask hides or the future."""
    module = made(6, 3)
    x = drawn(2, 7, 6)
    i, j = torch.arange(7)[:, None], torch.arange(7)
    for hidden in ((j > i) | (j < i - 1), (j < i - 1), torch.rand(7, 7) < 0.3):
        output, _ = module(x, x, x, attn_mask=hidden, is_causal=True, need_weights=need_weights)
        assert close(output, oracle(module, x, x, x, ~(hidden | (j > i)))[0])


@WEIGHTS
@pytest.mark.parametrize("new", [1, 2, 3, 7])
def test_new_queries_stand_at_the_end_of_the_keys(new: int, need_weights: bool) -> None:
    """Case 05."""
    module = made(6, 3)
    x = drawn(2, 7, 6)
    whole = module(x, x, x, is_causal=True)[0]
    for given in ({"is_causal": True}, {"mask": masks.causal()}):
        assert close(module(x[:, -new:], x, x, need_weights=need_weights, **given)[0], whole[:, -new:])


@WEIGHTS
def test_with_more_queries_than_keys_the_first_stands_at_the_first(need_weights: bool) -> None:
    torchs, module = pair(6, 3, batch_first=True, dtype=torch.float64)
    query, memory = drawn(2, 5, 6), drawn(2, 3, 6)
    future = torch.ones(5, 3, dtype=torch.bool).triu(1)
    expected = torchs(query, memory, memory, attn_mask=future, is_causal=True, need_weights=need_weights)[0]
    for given in ({"attn_mask": future}, {}):
        assert close(module(query, memory, memory, is_causal=True, **given)[0], expected)


@WEIGHTS
@pytest.mark.parametrize("given", ["flag", "flag and mask", "own"])
def test_s65_s66_extra_slots_are_open_to_every_query(given: str, need_weights: bool) -> None:
    """Case 06."""
    module = made(6, 3, add_bias_kv=True, add_zero_attn=True)
    x = drawn(2, 5, 6)
    future = torch.ones(5, 5, dtype=torch.bool).triu(1)
    choices: dict[str, dict[str, Any]] = {
        "flag": {"is_causal": True},
        "flag and mask": {"is_causal": True, "attn_mask": future},
        "own": {"mask": masks.causal() & masks.window(4, 0) & masks.bias(torch.zeros(()).double())},
    }
    options = choices[given]
    output, weights = module(x, x, x, need_weights=need_weights, average_attn_weights=False, **options)
    expected = oracle(module, x, x, x, ~future)
    assert close(output, expected[0])
    assert weights is None or close(weights, expected[1])
    assert bool((expected[1][..., 5:] > 0).all())


@WEIGHTS
def test_s66_a_fully_hidden_row_looks_at_the_zero_slot(need_weights: bool) -> None:
    module = made(6, 3, add_zero_attn=True)
    x = drawn(2, 5, 6)
    padding = torch.tensor([[False] * 5, [True] * 5])
    output, weights = module(x, x, x, key_padding_mask=padding, need_weights=need_weights)
    assert bool((output[1] == module.out_proj.bias).all())  # the value there is zero
    if need_weights:
        assert torch.equal(weights[1], torch.tensor([0.0] * 5 + [1.0]).double().expand(5, 6))


@pytest.mark.parametrize("as_float", [False, True])
def test_s84_slice_of_a_3d_mask_is_example_times_heads_plus_head(as_float: bool) -> None:
    """Case 07."""
    module = made(6, 3)
    x = drawn(2, 5, 6)
    hidden = torch.rand(6, 5, 5) < 0.4
    given = torch.zeros(6, 5, 5).double().masked_fill(hidden, -math.inf) if as_float else hidden
    output, weights = module(x, x, x, attn_mask=given, average_attn_weights=False)
    for b in range(2):
        for h in range(3):
            assert torch.equal(weights[b, h] == 0, hidden[b * 3 + h])
    assert close(output, oracle(module, x, x, x, ~hidden.view(2, 3, 5, 5))[0])


@WEIGHTS
@pytest.mark.parametrize(
    "shape", [(1, 5, 7), (2, 1, 5, 7), (1, 3, 5, 7), (2, 1, 1, 7), (2, 3, 5, 1)], ids=str
)
def test_s85_masks_broadcast(shape: tuple[int, ...], need_weights: bool) -> None:
    module = made(6, 3)
    query, memory = drawn(2, 5, 6), drawn(2, 7, 6)
    hidden = torch.rand(shape) < 0.4
    bias = drawn(*shape)
    for given, expected in (
        (hidden, oracle(module, query, memory, memory, ~hidden)),
        (bias, oracle(module, query, memory, memory, bias=bias)),
    ):
        output, weights = module(
            query, memory, memory, attn_mask=given, need_weights=need_weights, average_attn_weights=False
        )
        assert close(output, expected[0])
        assert weights is None or close(weights, expected[1])


def test_s85_masks_broadcast_without_a_batch() -> None:
    module = made(6, 3)
    x = drawn(5, 6)
    hidden = torch.rand(3, 5, 5) < 0.4
    expected = module(x[None], x[None], x[None], attn_mask=hidden)[0][0]
    assert close(module(x, x, x, attn_mask=hidden)[0], expected)
    assert close(module(x, x, x, attn_mask=hidden[None])[0], expected)
    one = module(x[None], x[None], x[None], attn_mask=hidden[0])[0][0]
    assert close(module(x, x, x, attn_mask=hidden[:1])[0], one)


def test_own_3d_masks_are_per_example() -> None:
    module = made(6, 3)
    x = drawn(2, 5, 6)
    visible, bias = torch.rand(2, 5, 5) < 0.6, drawn(2, 5, 5)
    combined = (masks.keep(visible) | ~masks.keep(visible)) & masks.keep(visible) & masks.bias(bias)
    expected = oracle(module, x, x, x, visible[:, None], bias[:, None])[0]
    assert close(module(x, x, x, mask=combined)[0], expected)
    four = masks.keep(visible[:, None]) & masks.bias(bias[:, None])
    assert close(module(x, x, x, mask=four)[0], expected)
    per_example = masks.keep(visible[:, 0], per_example=True)  # (B, M)
    assert close(module(x, x, x, mask=per_example)[0], oracle(module, x, x, x, visible[:, None, :1])[0])


@WEIGHTS
@pytest.mark.parametrize("soft", [False, True], ids=["bool-padding", "float-padding"])
def test_bool_and_float_masks_go_together_without_a_warning(soft: bool, need_weights: bool) -> None:
    """Case 08."""
    module = made(6, 3)
    x = drawn(2, 5, 6)
    i, j = torch.arange(5)[:, None], torch.arange(5)
    distance = (-0.25 * (i - j).abs().double()).masked_fill(j > i, -math.inf)
    padding = torch.tensor([[False] * 5, [False, False, True, False, True]])
    added = torch.zeros(2, 5).double().masked_fill(padding, -math.inf)
    added[0, 1] = -1.5 if soft else 0.0
    for attn_mask, bias in (
        (distance, distance),
        (j > i, torch.zeros(5, 5).double().masked_fill(j > i, -math.inf)),
    ):
        output, _ = module(
            x,
            x,
            x,
            key_padding_mask=added if soft else padding,
            attn_mask=attn_mask,
            need_weights=need_weights,
        )
        assert close(output, oracle(module, x, x, x, bias=bias + added[:, None, None])[0])


@pytest.mark.parametrize("name", ["attn_mask", "key_padding_mask"])
def test_a_float_mask_of_zeros_and_ones_warns_and_is_added(name: str) -> None:
    """Case 09."""
    module = made(6, 3)
    x = drawn(2, 5, 6)
    ones = torch.ones(5, 5).double().tril() if name == "attn_mask" else torch.eye(5)[:2].double()
    with pytest.warns(
        UserWarning, match=rf"{name}: .* only 0 and 1.*{name}.bool\(\) if 1 = hidden"
    ) as caught:
        output, weights = module(x, x, x, **{name: ones})
    assert caught[0].filename == __file__
    assert bool((weights > 0).all())
    bias = ones if name == "attn_mask" else ones[:, None, None]
    assert close(output, oracle(module, x, x, x, bias=bias)[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for harmless in (torch.zeros_like(ones), ones * 0.5, ones.bool()):
            module(x, x, x, **{name: harmless})


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64])
@pytest.mark.parametrize("name", ["attn_mask", "key_padding_mask"])
def test_integer_masks_are_refused(name: str, dtype: torch.dtype) -> None:
    module = made(6, 3)
    x = drawn(2, 5, 6)
    mask = torch.ones((5, 5) if name == "attn_mask" else (2, 5), dtype=dtype)
    with pytest.raises(AssertionError, match=f"only bool and floating types of {name} are supported, got"):
        module(x, x, x, **{name: mask})


@WEIGHTS
def test_what_padding_holds_does_not_matter(need_weights: bool) -> None:
    """Case 12: bit for bit in float64, equal to the unpadded run, and no gradient there."""
    module = made(6, 3)
    x, padding = drawn(2, 7, 6), torch.zeros(2, 7, dtype=torch.bool)
    padding[0, 4:] = True
    rubbish = x.clone()
    rubbish[0, 4:] = 1e4
    options: dict[str, Any] = {"key_padding_mask": padding, "need_weights": need_weights}
    memory = x.clone()  # so that the products have the same shapes
    clean, dirty = module(x, memory, memory, **options)[0], module(x, rubbish, rubbish, **options)[0]
    assert torch.equal(clean, dirty)
    assert close(clean[:1, :4], module(x[:1, :4], x[:1, :4], x[:1, :4])[0])
    key, value = rubbish.clone().requires_grad_(), rubbish.clone().requires_grad_()
    module(x, key, value, **options)[0].sum().backward()
    for leaf in (key, value):
        assert leaf.grad is not None
        assert bool((leaf.grad[0, 4:] == 0).all())
        assert bool((leaf.grad[0, :4] != 0).any())


@pytest.mark.parametrize("sizes", [(0, 3, 5), (2, 0, 5), (2, 3, 0), (0, 0, 0)], ids=str)
@pytest.mark.parametrize("train", [True, False])
def test_empty_inputs_give_empty_weights(sizes: tuple[int, int, int], train: bool) -> None:
    """Case 17."""
    B, N, M = sizes
    module = made(6, 3).train(train)
    query, memory = drawn(B, N, 6), drawn(B, M, 6)
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            for need_weights in (True, False):
                output, weights = module(
                    query, memory, memory, need_weights=need_weights, average_attn_weights=False
                )
                assert torch.equal(output, module.out_proj.bias.expand(B, N, 6))
                assert (weights.shape == (B, 3, N, M)) if need_weights else weights is None
            assert module(query, memory, memory)[1].shape == (B, N, M)


X = torch.zeros(2, 5, 6)  # B = 2, N = M = 5, E = 6, H = 3


@pytest.mark.parametrize(
    ("inputs", "options", "error", "text"),
    [
        (
            (X[None], X, X),
            {},
            AssertionError,
            "query should be unbatched 2D or batched 3D tensor but received 4-D",
        ),
        ((X, X[0], X), {}, AssertionError, "expected `key` and `value` to be 3-D but found 2-D and 3-D"),
        ((X[0], X[0], X), {}, AssertionError, "expected `key` and `value` to be 2-D but found 2-D and 3-D"),
        ((X[..., :5], X, X), {}, AssertionError, "was expecting embedding dimension of 6, but got 5"),
        (
            (X, X[:, :4], X),
            {},
            AssertionError,
            r"key shape \(2, 4, 6\) does not match value shape \(2, 5, 6\)",
        ),
        (
            (X, X[..., :5], X[..., :5]),
            {},
            RuntimeError,
            r"key: expected a last dimension of kdim = 6, got \(2, 5, 5\)",
        ),
        (
            (X, X[:1], X[:1]),
            {},
            RuntimeError,
            "query and key differ in batch size, 2 and 1, .* batch_first=True",
        ),
        (
            (X, X, X),
            {"attn_mask": X[0, 0] > 0},
            AssertionError,
            "`attn_mask` to be `None`, 2-D or 3-D but found 1-D",
        ),
        (
            (X[0],) * 3,
            {"attn_mask": X[0, 0] > 0},
            AssertionError,
            "unbatched .* 2-D or 3-D but found 1-D tensor",
        ),
        (
            (X, X, X),
            {"attn_mask": torch.zeros(5, 4)},
            RuntimeError,
            r"2D attn_mask is \(5, 4\), but should be \(5, 5\)",
        ),
        (
            (X, X, X),
            {"attn_mask": torch.zeros(1, 5)},
            RuntimeError,
            r"2D attn_mask is \(1, 5\), but should be \(5, 5\)",
        ),
        (
            (X, X, X),
            {"attn_mask": torch.zeros(2, 5, 5)},
            RuntimeError,
            r"3D attn_mask is \(2, 5, 5\), but should be \(6, 5, 5\), \(B \* H, N, M\).* 4-D, \(2, 1, N, M\)",
        ),
        ((X, X, X), {"attn_mask": torch.zeros(6, 5, 1)}, RuntimeError, r"should be \(6, 5, 5\)"),
        (
            (X[0],) * 3,
            {"attn_mask": torch.zeros(4, 5, 5)},
            AssertionError,
            r"Expected `attn_mask` shape to be \(3, 5, 5\), \(H, N, M\), but got \(4, 5, 5\)",
        ),
        (
            (X, X, X),
            {"attn_mask": torch.zeros(2, 2, 5, 5)},
            RuntimeError,
            r"4D .* should be \(2, 3, 5, 5\), \(B or 1",
        ),
        (
            (X, X, X),
            {"key_padding_mask": X[0, 0] > 0},
            AssertionError,
            "`key_padding_mask` to be `None` or 2-D but",
        ),
        (
            (X[0],) * 3,
            {"key_padding_mask": X[0] > 0},
            AssertionError,
            "`key_padding_mask` to be `None` or 1-D but",
        ),
        (
            (X, X, X),
            {"key_padding_mask": X[:, 0] > 0},
            AssertionError,
            r"shape \(2, 5\), .* but got \(2, 6\)",
        ),
        ((X, X, X), {"mask": X[0, :, :5] > 0}, TypeError, "mask: a raw tensor does not say what True means"),
        (
            (X, X, X),
            {"mask": masks.keep(torch.ones(3, 5, 5) > 0)},
            ValueError,
            r"mask: .* does not broadcast",
        ),
        ((X, X, X), {"observe": "weights"}, TypeError, "observe: expected an observation"),
    ],
)
@WEIGHTS
def test_misuse_is_refused_in_one_line(
    inputs: Any, options: dict[str, Any], error: type[Exception], text: str, need_weights: bool
) -> None:
    module = MultiHeadAttention(6, 3, batch_first=True)
    with pytest.raises(error, match=text) as caught:
        module(*inputs, need_weights=need_weights, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "shapes"),
    [
        ({}, [(5, 6), (2, 5, 6), (2, 5, 6)]),
        ({}, [(2, 5, 6), (5, 6), (2, 5, 6)]),
        ({}, [(2, 5, 7), (2, 5, 6), (2, 5, 6)]),
        ({}, [(2, 5, 6), (2, 4, 6), (2, 5, 6)]),
        ({}, [(2, 5, 6), (2, 5, 7), (2, 5, 7)]),
        ({}, [(2, 5, 6), (3, 5, 6), (3, 5, 6)]),
        ({"kdim": 4}, [(2, 5, 6), (2, 5, 5), (2, 5, 6)]),
        ({"vdim": 4}, [(2, 5, 6), (2, 5, 6), (2, 5, 5)]),
        ({"vdim": 4}, [(2, 5, 6), (2, 4, 6), (2, 5, 4)]),
    ],
)
def test_the_same_misuse_raises_the_same_type_as_in_torch(options: Any, shapes: Any) -> None:
    torchs, ours = pair(6, 3, batch_first=True, **options)
    inputs = [torch.zeros(shape) for shape in shapes]
    with pytest.raises((AssertionError, RuntimeError)) as expected:
        torchs(*inputs)
    with pytest.raises(expected.type):
        ours(*inputs)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_nested_tensors_are_refused(layout: torch.layout) -> None:
    nested = torch.nested.nested_tensor([torch.zeros(2, 6), torch.zeros(3, 6)], layout=layout)
    with pytest.raises(AssertionError, match="query: NestedTensor is not supported; pass a padded tensor"):
        MultiHeadAttention(6, 3, batch_first=True).eval()(nested, nested, nested)
