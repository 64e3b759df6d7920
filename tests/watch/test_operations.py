"""Recorded weights of each operation, option by option, against loops in float64 or torch's own answer."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from headlights import observations, observe
from headlights.watch import _weights
from tests.watch.oracle import Calls, close, loop_weights

SDPA = Calls(F.scaled_dot_product_attention)
MULTI_HEAD = Calls(F.multi_head_attention_forward)


def _inputs(*leading: int, N: int = 3, M: int = 5, D: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    shapes = ((*leading, N, D), (*leading, M, D), (*leading, M, 7))
    query, key, value = (torch.randn(shape, dtype=torch.float64) for shape in shapes)
    return query, key, value


def _recorded(model: Calls, *args: Any, **kwargs: Any) -> Tensor:
    with observe(model, observations.Weights()) as record:
        model(*args, **kwargs)
    (weights,) = record[""]
    assert isinstance(weights, Tensor)
    return weights


def _visible(*shape: int) -> Tensor:
    visible = torch.rand(shape) > 0.4
    visible[..., 1, :] = False  # a dead row
    return visible


@pytest.mark.parametrize("leading", [(), (2,), (2, 3)], ids=["unbatched", "batch", "heads"])
def test_plain_product(leading: tuple[int, ...]) -> None:
    query, key, value = _inputs(*leading)
    assert close(_recorded(SDPA, query, key, value), loop_weights(query, key, scale=2**-0.5))


@pytest.mark.parametrize("scale", [0.7, -1.3, 0.0])
def test_scale(scale: float) -> None:
    query, key, value = _inputs(2)
    assert close(_recorded(SDPA, query, key, value, scale=scale), loop_weights(query, key, scale=scale))


@pytest.mark.parametrize("shape", [(3, 5), (2, 1, 3, 5), (2, 3, 3, 5)], ids=["shared", "examples", "all"])
def test_bool_mask_true_may_look_dead_rows_zero(shape: tuple[int, ...]) -> None:
    query, key, value = _inputs(2, 3)
    visible = _visible(*shape)
    weights = _recorded(SDPA, query, key, value, attn_mask=visible)
    assert close(weights, loop_weights(query, key, scale=2**-0.5, visible=visible))
    assert weights[:, :, 1].eq(0).all()


def test_float_mask_is_added_and_zero_one_does_not_warn() -> None:
    query, key, value = _inputs(2, 3)
    bias = torch.randn(3, 5).double().masked_fill(~_visible(3, 5), -torch.inf)
    weights = _recorded(SDPA, query, key, value, bias)
    assert close(weights, loop_weights(query, key, scale=2**-0.5, bias=bias))
    zero_one = torch.tensor([0.0, 1.0, 0.0, 1.0, 1.0]).double().expand(3, 5)
    weights = _recorded(SDPA, query, key, value, zero_one)
    assert close(weights, loop_weights(query, key, scale=2**-0.5, bias=zero_one))


@pytest.mark.parametrize(("N", "M"), [(3, 5), (5, 3), (3, 3)])
def test_causal_flag_is_aligned_top_left_as_torch_does_it(N: int, M: int) -> None:
    query, key, value = _inputs(2, 3, N=N, M=M)
    visible = torch.tensor([[j <= i for j in range(M)] for i in range(N)])
    expected = loop_weights(query, key, scale=2**-0.5, visible=visible)
    weights = _recorded(SDPA, query, key, value, is_causal=True)
    assert close(weights, expected)
    assert torch.allclose(expected @ value, SDPA(query, key, value, is_causal=True))


def test_grouped_heads_share_keys() -> None:
    query, _, _ = _inputs(2, 6)
    _, key, value = _inputs(2, 3)
    weights = _recorded(SDPA, query, key, value, enable_gqa=True)
    shared = torch.stack([key[:, head // 2] for head in range(6)], 1)  # heads 0, 1 -> 0; 2, 3 -> 1; 4, 5 -> 2
    assert close(weights, loop_weights(query, shared, scale=2**-0.5))


def test_dropout_leaves_observed_weights_clean_and_output_equal() -> None:
    query, key, value = _inputs(2, 3)
    torch.manual_seed(5)
    expected, after = SDPA(query, key, value, dropout_p=0.5), torch.rand(3)
    torch.manual_seed(5)
    with observe(SDPA, observations.Weights()) as record:
        output = SDPA(query, key, value, dropout_p=0.5)
    assert torch.equal(output, expected)
    assert torch.equal(torch.rand(3), after)
    assert close(record[""][0], loop_weights(query, key, scale=2**-0.5))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gives_float32_weights(dtype: torch.dtype) -> None:
    query, key, value = (tensor.to(dtype) for tensor in _inputs(2, 3))
    weights = _recorded(SDPA, query * 20, key * 20, value)
    assert weights.dtype == torch.float32
    assert close(weights, loop_weights(query * 20, key * 20, scale=2**-0.5))


@pytest.mark.parametrize(("N", "M"), [(0, 3), (3, 0), (0, 0)])
def test_no_queries_or_no_keys(N: int, M: int) -> None:
    query, key, value = _inputs(2, N=N, M=M)
    wanted = (observations.Weights(), observations.TopWeights(2))
    with observe(SDPA, wanted) as record:
        SDPA(query, key, value)
    weights, top = record[""][0]
    assert weights.shape == (2, N, M)
    assert top.values.shape == (2, N, 2)
    assert top.indices.eq(-1).all()


@given(
    N=st.integers(1, 7),
    M=st.integers(1, 7),
    H=st.sampled_from([1, 2, 3]),
    block=st.integers(1, 60),
    data=st.data(),
)
@settings(max_examples=25, deadline=None)
def test_blocks_of_any_size_give_the_same(N: int, M: int, H: int, block: int, data: st.DataObject) -> None:
    query, key, value = _inputs(2, H, N=N, M=M)
    cells = data.draw(st.lists(st.booleans(), min_size=N * M, max_size=N * M))
    visible = torch.tensor(cells).reshape(N, M)
    wanted = (observations.Weights(), observations.TopWeights(3), observations.Entropy())
    results = []
    for size in (_weights.BLOCK_WEIGHTS, block):
        with pytest.MonkeyPatch.context() as patch, observe(SDPA, wanted) as record:
            patch.setattr(_weights, "BLOCK_WEIGHTS", size)
            SDPA(query, key, value, visible)
        results.append(record[""][0])
    (whole, whole_top, whole_entropy), (weights, top, entropy) = results
    assert close(weights, loop_weights(query, key, scale=2**-0.5, visible=visible))
    assert torch.allclose(weights, whole, atol=1e-14)
    assert torch.allclose(top.values, whole_top.values, atol=1e-14)
    found = weights.gather(-1, top.indices.clamp_min(0)).masked_fill(top.indices < 0, 0)
    assert torch.allclose(found, top.values)
    assert torch.allclose(entropy, whole_entropy, atol=1e-13)


def test_no_block_holds_all_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_weights, "BLOCK_WEIGHTS", 2 * 3 * 5 * 2)
    sizes: list[int] = []

    def keep(weights: Tensor) -> Tensor:
        sizes.append(weights.numel())
        return weights.sum(-1)

    class Sizes(observations.Observation):
        def start(self, shape: tuple[int, ...]) -> observations.Collector:
            assert shape == (2, 3, 7, 5)
            return observations.PerRow(keep, row_dim=-1)

    query, key, value = _inputs(2, 3, N=7)
    with observe(SDPA, Sizes()) as record:
        SDPA(query, key, value)
    assert record[""][0].shape == (2, 3, 7)
    assert sizes == [60, 60, 60, 30]  # rows 2 + 2 + 2 + 1, each of 2 * 3 * 5 weights


# what each call of F.multi_head_attention_forward has beyond the plain one
B, N, M, H, D = 2, 3, 5, 3, 2
MULTI_HEAD_CASES = [
    "packed",
    "no_input_bias",
    "separate",
    "bias_kv",
    "zero_attn",
    "both_extras",
    "static_k",
    "static_kv",
    "bool_padding",
    "float_padding",
    "bool_mask",
    "float_mask",
    "mask_per_head",
    "both_masks",
    "everything",
]


def _multi_head_call(case: str, batched: bool) -> dict[str, Any]:
    E = H * D
    everything = case == "everything"

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64)

    batch = (B,) if batched else ()
    call: dict[str, Any] = {
        "query": random(N, *batch, E),
        "key": random(M, *batch, E),
        "embed_dim_to_check": E,
        "num_heads": H,
        "in_proj_weight": random(3 * E, E),
        "in_proj_bias": None if case == "no_input_bias" else random(3 * E),
        "bias_k": None,
        "bias_v": None,
        "add_zero_attn": case in ("zero_attn", "both_extras") or everything,
        "dropout_p": 0.0,
        "out_proj_weight": random(E, E),
        "out_proj_bias": None,
        "average_attn_weights": False,
    }
    call["value"] = call["key"]
    if case == "separate" or everything:
        call |= {"use_separate_proj_weight": True, "in_proj_weight": None}
        call |= {"key": random(M, *batch, 11), "value": random(M, *batch, 13), "q_proj_weight": random(E, E)}
        call |= {"k_proj_weight": random(E, 11), "v_proj_weight": random(E, 13)}
    if case in ("bias_kv", "both_extras") or everything:
        call |= {"bias_k": random(1, 1, E), "bias_v": random(1, 1, E)}
    slots = B * H if batched else H
    if case.startswith("static"):
        call["static_k"] = random(slots, M, D)
    if case == "static_kv":
        call["static_v"] = random(slots, M, D)
    padding = torch.arange(M) >= (torch.tensor([[3], [5]]) if batched else torch.tensor(4))
    future = torch.tensor([[j > i + 1 for j in range(M)] for i in range(N)])
    if case in ("bool_padding", "both_masks") or everything:
        call["key_padding_mask"] = padding
    if case == "float_padding":
        call["key_padding_mask"] = torch.randn(padding.shape).double().masked_fill(padding, -torch.inf)
    if case in ("bool_mask", "both_masks"):
        call["attn_mask"] = future
    if case == "float_mask":
        call["attn_mask"] = random(N, M).masked_fill(future, -torch.inf)
    if case == "mask_per_head" or everything:
        hidden = torch.rand(slots, N, M) > 0.5
        hidden[..., 0] = False
        call["attn_mask"] = hidden
    return call


@pytest.mark.parametrize("batched", [True, False], ids=["batched", "unbatched"])
@pytest.mark.parametrize("case", MULTI_HEAD_CASES)
def test_multi_head_forward_against_the_weights_torch_returns(case: str, batched: bool) -> None:
    call = _multi_head_call(case, batched)
    _, expected = MULTI_HEAD(**call, need_weights=True)
    for need_weights in (True, False):
        weights = _recorded(MULTI_HEAD, **call, need_weights=need_weights)
        assert close(weights, expected)


def test_multi_head_forward_positional_arguments() -> None:
    call = _multi_head_call("packed", batched=True)
    _, expected = MULTI_HEAD(**call)
    order = ["query", "key", "value", "embed_dim_to_check", "num_heads", "in_proj_weight", "in_proj_bias"]
    order += ["bias_k", "bias_v", "add_zero_attn", "dropout_p", "out_proj_weight", "out_proj_bias"]
    assert close(_recorded(MULTI_HEAD, *(call[name] for name in order)), expected)


def test_multi_head_forward_causal_hint_alone_is_read_as_torch_reads_it() -> None:
    call = _multi_head_call("packed", batched=True)
    future = torch.tensor([[j > i for j in range(M)] for i in range(N)])
    _, expected = MULTI_HEAD(**call, attn_mask=future)
    wrong = torch.zeros(N, M, dtype=torch.bool)  # the hint wins: torch never looks at this mask
    hinted = {**call, "attn_mask": wrong, "is_causal": True, "need_weights": False}
    assert close(_recorded(MULTI_HEAD, **hinted), expected)
    _, unmasked = MULTI_HEAD(**call)
    assert close(_recorded(MULTI_HEAD, **{**hinted, "need_weights": True}), unmasked)


def test_multi_head_forward_dead_rows_are_zero_where_torch_has_nan() -> None:
    call = _multi_head_call("packed", batched=True)
    hidden = torch.zeros(N, M, dtype=torch.bool)
    hidden[1] = True
    _, theirs = MULTI_HEAD(**call, attn_mask=hidden)
    assert theirs[:, :, 1].isnan().all()
    assert close(_recorded(MULTI_HEAD, **call, attn_mask=hidden), theirs.nan_to_num(0.0))


def test_multi_head_forward_with_dropout_is_clean() -> None:
    call = _multi_head_call("packed", batched=True)
    _, expected = MULTI_HEAD(**call)
    assert close(_recorded(MULTI_HEAD, **{**call, "dropout_p": 0.5}, training=True), expected)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_refused() -> None:
    heads = torch.nested.nested_tensor([torch.randn(2, 3, 2), torch.randn(2, 5, 2)])  # (B, H, N, D)
    with pytest.raises(TypeError, match="cannot watch attention over a NestedTensor; pad the batch"):
        _recorded(SDPA, heads, heads, heads)
