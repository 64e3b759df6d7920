"""`MultiHeadAttention` against torch's: parameters, outputs, weights and all gradients."""

import copy
import inspect
import itertools
import os
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from headlights import MultiHeadAttention

from .multihead_tools import arranged, pair, summed
from .oracle import close

FULL = os.environ.get("HEADLIGHTS_FULL") == "1"
RETURNED: tuple[dict[str, bool], ...] = ({"need_weights": False}, {}, {"average_attn_weights": False})
KDIM_VDIM = [(None, None), (5, None), (None, 7), (5, 7), (6, 6)]
pytestmark = pytest.mark.filterwarnings(
    "ignore:Support for mismatched:UserWarning"
)  # torch's, on mixed masks


def mask_for(kind: str | None, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor | None:
    """Draw a mask in torch's sense that leaves the first key of every row visible."""
    if kind is None:
        return None
    hidden = torch.rand(shape) < 0.4
    hidden[..., 0] = False
    if kind == "bool":
        return hidden
    return torch.randn(shape, dtype=dtype).masked_fill(hidden, -torch.inf)


def run(module: Any, inputs: list[Tensor], options: dict[str, Any]) -> dict[str, Tensor | None]:
    """Return everything that a call computes, the random number that follows it included."""
    leaves = {id(x): x.detach().clone().requires_grad_() for x in inputs}  # the same tensor stays the same
    torch.manual_seed(9)
    output, weights = module(*(leaves[id(x)] for x in inputs), **options)
    found: dict[str, Tensor | None] = {"output": output, "weights": weights, "next": torch.rand(1)}
    tensors = {f"input {i}": x for i, x in enumerate(leaves.values())} | dict(module.named_parameters())
    grads = torch.autograd.grad(summed(output, weights), list(tensors.values()), allow_unused=True)
    return found | dict(zip(tensors, grads, strict=True))


def check_equal(torchs: dict[str, Tensor | None], ours: dict[str, Tensor | None]) -> None:
    assert torchs.keys() == ours.keys()
    for name, expected in torchs.items():
        found = ours[name]
        assert (found is None) == (expected is None), name
        if found is not None and expected is not None:
            assert found.dtype == expected.dtype, name
            assert close(found, expected.double()), name


@pytest.mark.parametrize("batch_first", [False, True], ids=["sequence-first", "batch-first"])
@pytest.mark.parametrize(("kdim", "vdim"), KDIM_VDIM)
@pytest.mark.parametrize("slots", [(0, 0), (0, 1), (1, 0), (1, 1)], ids=str)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])
def test_s87_equals_torch_over_the_grid(
    bias: bool, slots: tuple[int, int], kdim: int | None, vdim: int | None, batch_first: bool
) -> None:
    add_bias_kv, add_zero_attn = map(bool, slots)
    torchs, ours = pair(
        6,
        3,
        bias=bias,
        add_bias_kv=add_bias_kv,
        add_zero_attn=add_zero_attn,
        kdim=kdim,
        vdim=vdim,
        batch_first=batch_first,
        dtype=torch.float64,
    )
    B, N, M = 2, 3, 5
    turns = itertools.cycle(RETURNED)
    for batched, kind, padding in itertools.product(
        (True, False), (None, "bool 2", "float 2", "bool 3", "float 3"), (None, "bool", "float")
    ):
        examples = B if batched else 1
        sizes = ((N, 6), (M, torchs.kdim), (M, torchs.vdim))
        inputs = [
            arranged(torch.randn(examples, n, width, dtype=torch.float64), torchs, batched)
            for n, width in sizes
        ]
        shape = (N, M) if kind is None or kind.endswith("2") else (examples * 3, N, M)
        masks = {
            "attn_mask": mask_for(kind and kind.split()[0], shape, torch.float64),
            "key_padding_mask": mask_for(padding, (B, M) if batched else (M,), torch.float64),
        }
        for returned in RETURNED if FULL else (next(turns),):
            options = {**masks, **returned}
            check_equal(run(torchs, inputs, options), run(ours, inputs, options))


def check_rounding(found: Any, expected: Any, exact: Any, largest: float, name: str) -> None:
    """Allow 1e-12 or 1e-6 times the call's largest number, or twice torch's own distance from float64."""
    if expected is None or found is None:
        assert found is None, name
        assert expected is None, name
        return
    assert found.shape == expected.shape, name
    if found.numel() == 0:
        return
    step = 1e-12 if found.dtype == torch.float64 else 1e-6
    own_error = float((expected.double() - exact).detach().abs().max())
    bound = max(step * max(1.0, largest), 2 * own_error)
    assert bool(((found.double() - exact).detach().abs() <= bound).all()), name


@st.composite
def calls(draw: st.DrawFn) -> dict[str, Any]:
    booleans = st.booleans()
    heads = draw(st.sampled_from([1, 2, 3, 5]))
    width = heads * draw(st.sampled_from([1, 2, 3, 7]))
    same = draw(st.sampled_from(["self", "memory", "all differ"]))
    kdim, vdim = (None, None) if same != "all differ" else draw(st.sampled_from(KDIM_VDIM))
    if same == "memory" and draw(booleans):
        kdim = vdim = draw(st.sampled_from([5, 11]))
    batched = draw(booleans)
    N = draw(st.integers(1, 5))
    return {
        "constructor": {
            "dropout": draw(st.sampled_from([0.0, 0.0, 0.3, 1.0])),
            "bias": draw(booleans),
            "add_bias_kv": draw(booleans),
            "add_zero_attn": draw(booleans),
            "kdim": kdim,
            "vdim": vdim,
            "batch_first": draw(booleans),
            "dtype": draw(st.sampled_from([torch.float32, torch.float64])),
        },
        "sizes": (width, heads, draw(st.integers(1, 4)) if batched else 1, N),
        "M": N if same == "self" else draw(st.integers(1, 6)),
        "same": same,
        "batched": batched,
        "train": draw(booleans),
        "attn_mask": draw(st.sampled_from([None, "bool 2", "float 2", "bool 3", "float 3", "causal"])),
        "padding": draw(st.sampled_from([None, "bool", "float"])),
        "hint": draw(booleans),
        "returned": draw(st.sampled_from(RETURNED)),
        "seed": draw(st.integers(0, 2**16)),
    }


@settings(max_examples=10_000 if FULL else 400, deadline=None)
@given(calls())
def test_any_call_equals_torchs(call: dict[str, Any]) -> None:
    torch.manual_seed(call["seed"])
    width, heads, B, N = call["sizes"]
    M, batched, made = call["M"], call["batched"], call["constructor"]
    torchs, ours = pair(width, heads, **made)
    exact = copy.deepcopy(torchs).double()
    for module in (torchs, ours, exact):
        module.train(call["train"])
    dtype = made["dtype"]
    query = arranged(torch.randn(B, N, width, dtype=dtype), torchs, batched)
    key = arranged(torch.randn(B, M, torchs.kdim, dtype=dtype), torchs, batched)
    value = arranged(torch.randn(B, M, torchs.vdim, dtype=dtype), torchs, batched)
    inputs = {"self": [query] * 3, "memory": [query, key, key], "all differ": [query, key, value]}[
        call["same"]
    ]
    if call["same"] == "memory" and torchs.kdim != torchs.vdim:
        inputs = [query, key, value]
    kind = call["attn_mask"]
    if kind == "causal":
        mask: Tensor | None = torch.ones(N, M, dtype=torch.bool).triu(1)
    else:
        shape = (N, M) if kind is None or kind.endswith("2") else (B * heads, N, M)
        mask = mask_for(kind and kind.split()[0], shape, dtype)
    padding = mask_for(call["padding"], (B, M) if batched else (M,), dtype)
    options: dict[str, Any] = {"attn_mask": mask, "key_padding_mask": padding, **call["returned"]}
    # A hint is truthful for a causal mask only; with extra slots torch mistakes even that one.
    slots = made["add_bias_kv"] or made["add_zero_attn"]
    hint = kind == "causal" and call["hint"]
    drops = made["dropout"] > 0 and call["train"]
    if drops and not call["returned"].get("need_weights", True):
        return  # the random stream is promised with weights only
    torch_options = {**options, "is_causal": hint and not slots}
    wide = {
        k: v.double() if isinstance(v, Tensor) and v.is_floating_point() else v
        for k, v in torch_options.items()
    }
    truth = run(exact, _widened(inputs), wide)
    expected = run(torchs, inputs, torch_options)
    found = run(ours, inputs, {**options, "is_causal": hint})
    assert torch.equal(found["next"], expected["next"])  # type: ignore[arg-type]
    largest = max(float(x.detach().abs().max()) for x in truth.values() if x is not None and x.numel())
    for name in truth:
        check_rounding(found[name], expected[name], truth[name], largest, name)


def _widened(inputs: list[Tensor]) -> list[Tensor]:
    wide = {id(x): x.double() for x in inputs}
    return [wide[id(x)] for x in inputs]


def test_s61_s68_signatures_begin_like_torchs() -> None:
    for ours, torchs in (
        (MultiHeadAttention, nn.MultiheadAttention),
        (MultiHeadAttention.forward, nn.MultiheadAttention.forward),
    ):
        theirs = list(inspect.signature(torchs).parameters.values())
        mine = list(inspect.signature(ours).parameters.values())
        assert [(p.name, p.default, p.kind) for p in mine[: len(theirs)]] == [
            (p.name, p.default, p.kind) for p in theirs
        ]
        assert all(p.kind is p.KEYWORD_ONLY for p in mine[len(theirs) :])


def test_every_public_attribute_of_torch_exists() -> None:
    for options in ({}, {"kdim": 5}, {"bias": False}, {"add_bias_kv": True}):
        torchs, ours = pair(6, 3, **options)
        for name in set(dir(torchs)) - {"__constants__"}:
            assert hasattr(ours, name), name
        for name in ("embed_dim", "kdim", "vdim", "num_heads", "head_dim", "dropout", "batch_first"):
            assert getattr(ours, name) == getattr(torchs, name)
        names = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_bias")
        for name in (*names, "bias_k", "bias_v", "add_zero_attn", "_qkv_same_embed_dim"):
            assert isinstance(getattr(ours, name), type(getattr(torchs, name))), name
        assert repr(ours) == repr(torchs).replace("MultiheadAttention", "MultiHeadAttention")


@pytest.mark.parametrize("slots", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("kdim", "vdim"), KDIM_VDIM)
def test_same_seed_draws_the_same_parameters(kdim: Any, vdim: Any, bias: bool, slots: bool) -> None:
    options = {"bias": bias, "add_bias_kv": slots, "kdim": kdim, "vdim": vdim}
    torch.manual_seed(5)
    torchs = nn.MultiheadAttention(6, 2, **options)
    following = torch.rand(1)
    torch.manual_seed(5)
    ours = MultiHeadAttention(6, 2, **options)
    assert torch.equal(torch.rand(1), following)
    assert list(ours.state_dict()) == list(torchs.state_dict())
    for name, parameter in ours.state_dict().items():
        assert torch.equal(parameter, torchs.state_dict()[name]), name


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("kdim", "vdim"), KDIM_VDIM)
def test_s73_checkpoints_load_both_ways(kdim: Any, vdim: Any, bias: bool) -> None:
    options = {"bias": bias, "kdim": kdim, "vdim": vdim, "add_bias_kv": True}
    ours = MultiHeadAttention(6, 2, **options)
    torchs = nn.MultiheadAttention(6, 2, **options)
    torchs.load_state_dict(ours.state_dict(), strict=True)
    back = MultiHeadAttention(6, 2, **options)
    back.load_state_dict(torchs.state_dict(), strict=True)
    inputs = [torch.randn(3, 2, 6), torch.randn(5, 2, ours.kdim), torch.randn(5, 2, ours.vdim)]
    assert torch.equal(back(*inputs)[0], ours(*inputs)[0])
    assert close(torchs(*inputs)[0], ours(*inputs)[0].double())


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_s67_dropout_reproduces_torchs_random_stream(batch_first: bool, average: bool) -> None:
    torchs, ours = pair(6, 3, dropout=0.4, batch_first=batch_first)
    x = torch.randn(5, 7, 6)
    results = []
    for module in (torchs, ours):
        torch.manual_seed(11)
        output, weights = module(x, x, x, average_attn_weights=average)
        results.append((output, weights, weights == 0, torch.rand(3)))
    (expected, expected_weights, dropped, following), found = results
    assert torch.equal(found[2], dropped)
    assert torch.equal(found[3], following)
    assert close(found[0], expected.double())
    assert close(found[1], expected_weights.double())
    torchs.eval(), ours.eval()
    assert close(ours(x, x, x)[0], torchs(x, x, x)[0].double())


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("train", [True, False])
def test_certain_dropout_leaves_the_bias_alone(train: bool, need_weights: bool) -> None:
    _, ours = pair(6, 3, dropout=1.0)
    x = torch.randn(5, 2, 6)
    output, _ = ours.train(train)(x, x, x, need_weights=need_weights)
    assert bool((output == ours.out_proj.bias).all()) is train


def test_merged_masks_equal_torchs() -> None:
    torchs, ours = pair(6, 3)
    query = torch.randn(2, 5, 6)
    for attn_mask in (None, torch.rand(5, 5) < 0.5, torch.rand(6, 5, 5) < 0.5):
        for padding in (None, torch.rand(2, 5) < 0.5):
            expected, kind = torchs.merge_masks(attn_mask, padding, query)
            found, our_kind = ours.merge_masks(attn_mask, padding, query)
            assert our_kind == kind
            assert found is expected or torch.equal(found, expected)  # type: ignore[arg-type]
