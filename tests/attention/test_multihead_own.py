"""What `MultiHeadAttention` does beyond torch's, against plain loops over float64 numbers."""

import os
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from headlights import KeyValueCache, MultiHeadAttention, masks, observations, scores

from .multihead_tools import arranged, gradients, oracle, scrambled, summed
from .oracle import close, dot

FULL = os.environ.get("HEADLIGHTS_FULL") == "1"


def made(*args: Any, **options: Any) -> MultiHeadAttention:
    return scrambled(MultiHeadAttention(*args, **{"dtype": torch.float64, "batch_first": True, **options}))


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


@st.composite
def calls(draw: st.DrawFn) -> dict[str, Any]:
    sizes = st.sampled_from([1, 2, 3, 5])
    booleans = st.booleans()
    groups, sharing = draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 2, 3]))
    parts = ["none", "2-D", "3-D", "4-D", "per sentence", "one for all"]
    return {
        "args": (draw(sizes), groups * sharing),
        "options": {
            "bias": draw(booleans),
            "add_bias_kv": draw(booleans),
            "add_zero_attn": draw(booleans),
            "kdim": draw(st.none() | sizes),
            "vdim": draw(st.none() | sizes),
            "batch_first": draw(booleans),
            "query_dim": draw(st.none() | sizes),
            "head_dim": draw(sizes),
            "value_head_dim": draw(st.none() | sizes),
            "out_dim": draw(st.none() | sizes),
            "num_kv_heads": groups,
        },
        "lengths": (draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(0, 4))),
        "batched": draw(booleans),
        "attn_mask": (draw(st.sampled_from(parts)), draw(booleans)),
        "padding": draw(st.sampled_from(["none", "bool", "float"])),
        "is_causal": draw(booleans),
        "own": draw(st.sampled_from(["none", "keep 2", "hide 3", "bias 3", "lengths", "causal", "window"])),
        "need_weights": draw(booleans),
        "average": draw(booleans),
        "observe": draw(booleans),
        "seed": draw(st.integers(0, 2**16)),
    }


def torch_mask(kind: str, is_bool: bool, sizes: tuple[int, int, int, int]) -> tuple[Tensor | None, Tensor]:
    """Return an `attn_mask` and what it adds, (B, H, N, M), with rows that see nothing now and then."""
    B, H, N, M = sizes
    shape = {
        "none": (1, 1, 1, 1),
        "2-D": (N, M),
        "3-D": (B * H, N, M),
        "4-D": (B, H, N, M),
        "per sentence": (B, 1, N, M),
        "one for all": (1, N, M),
    }[kind]
    hidden = torch.rand(shape) < 0.4
    added = torch.zeros(shape, dtype=torch.float64) if is_bool else drawn(*shape)
    added = added.masked_fill(hidden, -torch.inf)
    full = added.view(B, H, N, M) if kind == "3-D" else added
    if kind == "none":
        return None, torch.zeros(sizes, dtype=torch.float64)
    return (hidden if is_bool else added), full.expand(sizes)


def own_mask(kind: str, sizes: tuple[int, int, int, int]) -> tuple[masks.Mask | None, Tensor]:
    """Return one of our masks and what it adds, (B, H, N, M)."""
    B, _, N, M = sizes
    added = torch.zeros(B, 1, N, M, dtype=torch.float64)
    i, j = torch.arange(N)[:, None] + M - N, torch.arange(M)[None]
    mask: masks.Mask | None = None
    if kind == "keep 2":
        visible = torch.rand(N, M) < 0.7
        mask, added = masks.keep(visible), added.masked_fill(~visible, -torch.inf)
    elif kind == "hide 3":
        hidden = torch.rand(B, N, M) < 0.3
        mask, added = masks.hide(hidden), added.masked_fill(hidden[:, None], -torch.inf)
    elif kind == "bias 3":
        bias = drawn(B, N, M)
        mask, added = masks.bias(bias), bias[:, None]
    elif kind == "lengths":
        lengths = torch.randint(0, M + 1, (B,))
        mask, added = masks.lengths(lengths), added.masked_fill(j >= lengths[:, None, None, None], -torch.inf)
    elif kind == "causal":
        mask, added = masks.causal(), added.masked_fill(j > i, -torch.inf)
    elif kind == "window":
        mask, added = masks.window(1, 1), added.masked_fill((j > i + 1) | (j < i - 1), -torch.inf)
    return mask, added.expand(sizes)


@settings(max_examples=10_000 if FULL else 200, deadline=None)
@given(calls())
def test_any_call_equals_plain_loops(call: dict[str, Any]) -> None:
    torch.manual_seed(call["seed"])
    module = made(*call["args"], **call["options"])
    batched, (B, N, M) = call["batched"], call["lengths"]
    B = B if batched else 1
    sizes = (B, module.num_heads, N, M)
    inputs = [
        drawn(B, n, width).requires_grad_()
        for n, width in ((N, module.query_dim), (M, module.kdim), (M, module.vdim))
    ]
    kind, is_bool = call["attn_mask"]
    attn_mask, added = torch_mask(kind if batched or kind != "3-D" else "one for all", is_bool, sizes)
    padding = None
    if call["padding"] != "none":
        padding = torch.rand(B, M) < 0.4
        hidden = torch.zeros(B, M, dtype=torch.float64).masked_fill(padding, -torch.inf)
        added = added + hidden[:, None, None]
        padding = padding if call["padding"] == "bool" else hidden
        padding = padding if batched else padding[0]
    if call["is_causal"]:
        first = max(M - N, 0)
        future = torch.arange(M)[None] > torch.arange(N)[:, None] + first
        added = added.masked_fill(future, -torch.inf)
    mask, own = own_mask(call["own"], sizes)
    kept = (observations.Weights(), observations.Entropy())
    result = module(
        *(arranged(x, module, batched) for x in inputs),
        padding,
        call["need_weights"],
        attn_mask,
        call["average"],
        call["is_causal"],
        mask=mask,
        observe=kept if call["observe"] else None,
    )
    expected, weights = oracle(module, inputs[0], inputs[1], inputs[2], bias=added + own)
    assert close(result[0], arranged(expected, module, batched))
    shown = weights.mean(1) if call["average"] else weights
    shown = shown if batched else shown[0]
    if call["need_weights"]:
        assert close(result[1], shown)
    else:
        assert result[1] is None
    if call["observe"]:
        assert close(result[2][0], weights if batched else weights[0])
        assert result[2][1].shape == result[2][0].shape[:-1]
    tensors = [*inputs, *module.parameters()]
    found = gradients(summed(result[0], result[1]), tensors)
    right = gradients(
        summed(arranged(expected, module, batched), shown if call["need_weights"] else None), tensors
    )
    for one, other in zip(found, right, strict=True):
        assert bool(one.isfinite().all())
        bound = 1e-11 * float(other.abs().amax().clamp_min(1)) if other.numel() else 0.0
        assert bool(((one - other).abs() <= bound).all())


@pytest.mark.parametrize("need_weights", [True, False])
def test_s50_every_width_is_a_different_prime(need_weights: bool) -> None:
    module = made(
        2, 3, kdim=5, vdim=7, query_dim=11, head_dim=13, value_head_dim=17, out_dim=19, add_bias_kv=True
    )
    shapes = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    assert shapes == {
        "q_proj_weight": (39, 11),
        "k_proj_weight": (39, 5),
        "v_proj_weight": (51, 7),
        "in_proj_bias": (39 + 39 + 51,),
        "bias_k": (1, 1, 39),
        "bias_v": (1, 1, 51),
        "out_proj.weight": (19, 51),
        "out_proj.bias": (19,),
    }
    inputs = [drawn(2, 3, 11), drawn(2, 23, 5), drawn(2, 23, 7)]
    output, weights = module(*inputs, need_weights=need_weights)
    assert output.shape == (2, 3, 19)
    assert weights is None or weights.shape == (2, 3, 24)
    assert close(output, oracle(module, inputs[0], inputs[1], inputs[2])[0])


def test_grouped_queries_equal_repeated_key_heads() -> None:
    grouped = made(12, 6, num_kv_heads=2)
    q, k, v = grouped.separate_weights()
    assert (k.shape, v.shape) == ((4, 12), (4, 12))
    full = made(12, 6)
    biases = grouped.separate_biases()
    assert biases is not None
    bq, bk, bv = biases
    with torch.no_grad():
        repeat = torch.tensor([0, 1] * 3 + [2, 3] * 3)  # heads 0..2 read key head 0, heads 3..5 key head 1
        full.in_proj_weight.copy_(torch.cat((q, k[repeat], v[repeat])))  # type: ignore[union-attr]
        full.in_proj_bias.copy_(torch.cat((bq, bk[repeat], bv[repeat])))  # type: ignore[union-attr]
        full.out_proj.load_state_dict(grouped.out_proj.state_dict())
    x = drawn(2, 5, 12)
    for found, expected in zip(grouped(x, x, x), full(x, x, x), strict=True):
        assert close(found, expected)


@pytest.mark.parametrize(
    ("score", "pair_score"),
    [
        (scores.Dot(0.3), dot(0.3)),
        (scores.Dot(0.5, learned=True).double(), dot(0.5)),
        (lambda q, k: 2 * q @ k.mT, dot(2.0)),
    ],
    ids=["fixed", "learned", "callable"],
)
def test_s31_any_score_serves_all_heads(score: Any, pair_score: Any) -> None:
    module = made(6, 3, score=score)
    if "score.scale" in module.state_dict():
        torch.nn.init.constant_(module.get_parameter("score.scale"), 0.5)
    x = drawn(2, 5, 6)
    padding = torch.tensor([[False] * 5, [False, False, True, False, True]])
    for need_weights in (True, False):
        output, weights = module(x, x, x, padding, average_attn_weights=False, need_weights=need_weights)
        expected = oracle(module, x, x, x, ~padding[:, None, None], pair_score=pair_score)
        assert close(output, expected[0])
        assert weights is None or close(weights, expected[1])


def test_a_score_gets_heads_and_shares_its_parameters() -> None:
    seen = []

    def score(query: Tensor, key: Tensor) -> Tensor:
        seen.append((query.shape, key.shape))
        return query @ key.mT

    x = drawn(2, 5, 12)
    made(12, 3, score=score)(x, x, x)
    assert seen == [((2, 3, 5, 4), (2, 3, 5, 4))]
    module = made(12, 3, head_dim=2, score=scores.Additive(2, 2, 7, dtype=torch.float64))
    names = [name for name in module.state_dict() if name.startswith("score.")]
    assert names == ["score.W1", "score.W2", "score.b"]
    module(x, x, x)[0].sum().backward()
    assert all(bool((parameter.grad != 0).any()) for parameter in module.score.parameters())  # type: ignore[union-attr]


def test_observations_are_clean_and_weights_are_applied() -> None:
    module = made(6, 3, dropout=0.5).train()
    x = drawn(2, 7, 6)
    asked = (observations.Weights(), observations.MeanWeights(), observations.TopWeights(2))
    output, applied, seen = module(x, x, x, average_attn_weights=False, observe=asked)
    clean, mean, top = seen
    assert close(clean, oracle(module, x, x, x)[1])
    assert close(clean.sum(-1), torch.ones(2, 3, 7).double())
    assert close(mean, clean.mean(1))
    assert torch.equal(top.values, clean.topk(2).values)
    kept = applied != 0
    assert 0.2 < kept.double().mean() < 0.8
    assert close(applied, torch.where(kept, clean * 2, 0.0))  # survivors are divided by 1 - 0.5
    biases = module.separate_biases()
    assert biases is not None
    values = (x @ module.separate_weights()[2].T + biases[2]).view(2, 7, 3, 2).transpose(1, 2)
    assert close(output, module.out_proj((applied @ values).transpose(1, 2).flatten(2)))


def test_one_observation_comes_alone_and_several_as_a_tuple() -> None:
    module = made(6, 3)
    x = drawn(2, 5, 6)
    assert module(x, x, x, observe=observations.Entropy())[2].shape == (2, 3, 5)
    assert isinstance(module(x, x, x, observe=(observations.Entropy(),))[2], tuple)
    assert module(x, x, x, need_weights=False, observe=observations.Entropy())[1] is None
    top = module(x[0], x[0], x[0], observe=observations.TopWeights(2))[2]
    assert (top.values.shape, top.indices.shape) == ((3, 5, 2), (3, 5, 2))


@pytest.mark.parametrize("need_weights", [True, False])
def test_differentiable_observations_reach_the_parameters(need_weights: bool) -> None:
    module = made(6, 3)
    x = drawn(2, 5, 6)
    kept = observations.MeanWeights(differentiable=True)
    module(x, x, x, need_weights=need_weights, observe=kept)[2][..., 0].sum().backward()
    assert bool((module.in_proj_weight.grad != 0).any())  # type: ignore[union-attr]


@pytest.mark.parametrize("slots", [False, True])
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_chunks_with_a_cache_equal_one_pass(
    batch_first: bool, grad: bool, dtype: torch.dtype, groups: int, slots: bool
) -> None:
    options = {"num_kv_heads": groups, "add_bias_kv": slots, "add_zero_attn": slots, "dtype": dtype}
    module = made(6, 3, batch_first=batch_first, **options)
    x = torch.randn(2, 11, 6, dtype=dtype)
    with torch.set_grad_enabled(grad):
        whole, _ = module(*[arranged(x, module)] * 3, is_causal=True)
        cache, parts = KeyValueCache(), []
        for size in (5, 1, 1, 3, 1):
            chunk = arranged(x[:, cache.length : cache.length + size], module)
            output, weights, cache = module(chunk, chunk, chunk, is_causal=True, cache=cache)
            assert weights.shape == (2, size, cache.length + 2 * slots)
            parts.append(output)
    joined = torch.cat(parts, 1 if batch_first else 0)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    assert (joined - whole).abs().max() <= tolerance


def test_cached_decoding_copies_nothing_along_one_line() -> None:
    module = made(6, 3)
    x = drawn(2, 64, 6)
    cache, places = KeyValueCache(), set()
    with torch.no_grad():
        for step in range(64):
            word = x[:, step : step + 1]
            *_, cache = module(word, word, word, need_weights=False, cache=cache)
            assert cache.key is not None
            places.add(cache.key.data_ptr())
    assert len(places) <= 7  # 1, 2, 4, ..., 64 rows


def test_a_cache_serves_as_a_memory_that_is_projected_once() -> None:
    module = made(6, 3)
    memory, target = drawn(2, 7, 6), drawn(2, 5, 6)
    nothing = memory[:, :0]
    expected, _ = module(target, memory, memory)
    _, _, cache = module(target[:, :0], memory, memory, cache=KeyValueCache())
    output, weights, after = module(target, nothing, nothing, cache=cache)
    assert (after.length, weights.shape) == (7, (2, 5, 7))
    assert close(output, expected)


def test_cache_comes_last_and_goes_with_observations_and_unbatched_input() -> None:
    module = made(6, 3)
    x = drawn(5, 6)
    result = module(x, x, x, observe=observations.Entropy(), cache=KeyValueCache())
    assert len(result) == 4
    assert result[2].shape == (3, 5)
    assert result[3].length == 5
    padding = torch.tensor([False] * 4 + [True] * 2)
    again = module(x[:1], x[:1], x[:1], key_padding_mask=padding, cache=result[3])
    assert again[1].shape == (1, 6)
    assert bool((again[1][:, 4:] == 0).all())


@pytest.mark.parametrize("zero", [False, True])
def test_rotary_positions_count_real_keys_only_and_go_on_in_a_cache(zero: bool) -> None:
    module = made(12, 3, score=scores.Rotary(scores.ScaledDot()), add_zero_attn=zero)
    x = drawn(2, 7, 12)
    whole, weights = module(x, x, x, is_causal=True, average_attn_weights=False)
    with torch.no_grad():
        _, _, cache = module(x[:, :4], x[:, :4], x[:, :4], is_causal=True, cache=KeyValueCache())
        output, _, _ = module(x[:, 4:], x[:, 4:], x[:, 4:], is_causal=True, cache=cache)
    assert close(output, whole[:, 4:])
    module.add_zero_attn = False
    plain = module(x, x, x, is_causal=True, average_attn_weights=False)[1]
    assert close(weights[..., :7] / weights[..., :7].sum(-1, keepdim=True), plain)


def test_a_learned_slot_has_no_position() -> None:
    with pytest.raises(ValueError, match="add_bias_kv: a learned slot has no position, which Rotary needs"):
        MultiHeadAttention(12, 3, add_bias_kv=True, score=scores.Rotary(scores.ScaledDot()))


def test_a_decoding_step_copies_no_cache_and_costs_one_row() -> None:
    """Along one line of continuation only a full storage is copied; nothing else grows like the keys."""
    attention = MultiHeadAttention(16, 2, batch_first=True).eval()
    cache = KeyValueCache()
    places: list[int] = []
    made: list[int] = []

    class Made(TorchDispatchMode):  # type: ignore[no-untyped-call]
        """Notes the largest tensor that an operation makes in a step."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if isinstance(result, Tensor) and not (func.is_view or func._schema.is_mutable):
                made[-1] = max(made[-1], result.numel())
            return result

    with torch.no_grad():
        for _ in range(200):
            made.append(0)
            word = torch.randn(1, 1, 16)
            with Made():  # type: ignore[no-untyped-call]
                _, _, cache = attention(word, word, word, need_weights=False, is_causal=True, cache=cache)
            assert cache.key is not None
            places.append(cache.key.data_ptr())
    moves = {step for step in range(1, 200) if places[step] != places[step - 1]}
    assert moves == {1, 2, 4, 8, 16, 32, 64, 128}  # steps, 0-based, that find the room full
    # Elsewhere nothing but the projected row, 3 * 16 numbers, and a row of 2 * M weights: not M * 16 keys.
    assert all(made[step] <= max(3 * 16, 2 * (step + 1)) for step in range(200) if step not in moves)
