"""Multi-head attention as the two source documents describe it: S49 to S60, S61 to S87, S88 to S96."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headlights import MultiHeadAttention, attend, multi_head_attention
from headlights.attention import HeadWeights, from_einsum, stack_heads, to_einsum, unstack_heads

from .multihead_tools import oracle, pair, scrambled
from .oracle import close


def made(*args: Any, **options: Any) -> MultiHeadAttention:
    options = {"batch_first": True, "dtype": torch.float64, **options}
    return scrambled(MultiHeadAttention(*args, **options))


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def test_s49_s58_equals_an_explicit_loop_over_heads() -> None:
    module = made(12, 3)
    x = drawn(2, 5, 12)
    output, weights = module(x, x, x, average_attn_weights=False)
    expected = oracle(module, x, x, x)
    assert close(output, expected[0])
    assert close(weights, expected[1])


def test_s51_s72_s75_parameter_shapes_are_torchs() -> None:
    shapes = {name: tuple(p.shape) for name, p in MultiHeadAttention(100, 10).state_dict().items()}
    assert shapes == {
        "in_proj_weight": (300, 100),
        "in_proj_bias": (300,),
        "out_proj.weight": (100, 100),
        "out_proj.bias": (100,),
    }


@pytest.mark.parametrize("head", [0, 1, 2])
def test_s52_a_heads_columns_change_only_that_head(head: int) -> None:
    module = made(12, 3)
    x = drawn(2, 5, 12)
    before = module(x, x, x, average_attn_weights=False)[1]
    with torch.no_grad():
        module.separate_weights()[0][head * 4 : (head + 1) * 4] += 1
    changed = (module(x, x, x, average_attn_weights=False)[1] != before).flatten(2).any(-1).any(0)
    assert changed.tolist() == [h == head for h in range(3)]


@pytest.mark.parametrize("num_heads", [1, 2, 10])
def test_s53_scores_are_divided_by_the_root_of_the_head_width(num_heads: int) -> None:
    torchs, ours = pair(20, num_heads, batch_first=True, dtype=torch.float64)
    x = drawn(2, 5, 20)
    assert close(ours(x, x, x)[1], torchs(x, x, x)[1])
    biases = ours.separate_biases()
    assert biases is not None
    q, k = (x @ ours.separate_weights()[i].T + biases[i] for i in range(2))
    D = 20 // num_heads
    by_hand = torch.softmax(q[..., :D] @ k[..., :D].mT / math.sqrt(D), -1)
    assert close(ours(x, x, x, average_attn_weights=False)[1][:, 0], by_hand)


@pytest.mark.parametrize("num_heads", [1, 2, 4, 5, 10, 20, 25, 50, 100])
def test_s54_the_number_of_parameters_does_not_depend_on_heads(num_heads: int) -> None:
    module = MultiHeadAttention(100, num_heads)
    # 3 * 100 * 100 + 300 going in, 100 * 100 + 100 going out
    assert sum(p.numel() for p in module.parameters()) == module.parameter_report().total == 40_400


def test_s55_two_factors_hold_less_than_their_product_from_three_heads_on() -> None:
    reports = {H: MultiHeadAttention(100, H, bias=False).parameter_report() for H in (1, 2, 4, 10)}
    held = {H: (report.factors_per_head, report.product_per_head) for H, report in reports.items()}
    # 2 E^2 / H against E^2
    assert held == {1: (20_000, 10_000), 2: (10_000, 10_000), 4: (5_000, 10_000), 10: (2_000, 10_000)}
    odd = MultiHeadAttention(100, 3, head_dim=33, kdim=50, add_bias_kv=True).parameter_report()
    assert (odd.factors_per_head, odd.product_per_head) == (150 * 33, 100 * 50)
    assert (odd.query, odd.key, odd.value) == (99 * 101, 99 * 51, 99 * 101)
    assert (odd.output, odd.other) == (100 * 100, 2 * 99)


def test_s55_only_the_product_of_the_factors_matters() -> None:
    module = made(12, 3, bias=False)
    x = drawn(2, 5, 12)
    expected = module(x, x, x, average_attn_weights=False)
    q, k, _ = module.separate_weights()
    with torch.no_grad():
        for h in range(3):
            rows = slice(4 * h, 4 * h + 4)
            R = drawn(4, 4) + 3 * torch.eye(4)
            q[rows] = R.T @ q[rows]  # W^Q R; torch stores W^Q transposed
            k[rows] = torch.linalg.inv(R) @ k[rows]  # W^K R^-T
    found = module(x, x, x, average_attn_weights=False)
    for one, other in zip(found, expected, strict=True):
        assert (one - other).abs().max() < 1e-10


@pytest.mark.parametrize("num_heads", [2, 4, 8, 16])
def test_s56_every_heads_matrices_are_their_own_and_learn(num_heads: int) -> None:
    module = MultiHeadAttention(16, num_heads, batch_first=True)
    heads = stack_heads(module.separate_weights()[0], num_heads)
    assert len({tuple(head.flatten().tolist()) for head in heads}) == num_heads
    x = torch.randn(2, 5, 16)
    module(x, x, x)[0].square().sum().backward()
    assert module.in_proj_weight is not None
    assert module.in_proj_weight.grad is not None
    assert bool((module.in_proj_weight.grad.view(3 * num_heads, -1) != 0).any(-1).all())


def test_s56_s60_two_heads_are_two_single_heads_merged() -> None:
    both = made(8, 2, bias=False)
    x = drawn(2, 5, 8)
    contexts = []
    for h in range(2):
        q, k, v = (x @ weight[4 * h : 4 * h + 4].T for weight in both.separate_weights())
        contexts.append(attend(q, k, v))
    assert close(both(x, x, x)[0], torch.cat(contexts, -1) @ both.out_proj.weight.T)


def test_s57_s58_s59_heads_as_stacked_tensors() -> None:
    tokens, stacked = drawn(5, 16), drawn(4, 16, 4)
    queries = torch.einsum("sd,hde->hse", tokens, stacked)
    assert queries.shape == (4, 5, 4)
    assert torch.equal(stack_heads(unstack_heads(stacked), 4), stacked)
    weights = HeadWeights(stacked, drawn(4, 16, 4), drawn(4, 16, 4), drawn(16, 16))
    module = from_einsum(weights)
    keys, values = (torch.einsum("sd,hde->hse", tokens, w) for w in (weights.key, weights.value))
    scores = torch.einsum("hse,hke->hsk", queries, keys) / 4**0.5
    assert scores.shape == (4, 5, 5)
    heads = torch.softmax(scores, -1) @ values  # (4, 5, 4)
    first = torch.cat(list(heads[:, 0])) @ weights.output  # token 1: 16 numbers times (16, 16)
    output, shown = module(tokens, tokens, tokens, average_attn_weights=False)
    assert close(output[0], first)
    assert close(shown, torch.softmax(scores, -1))


@pytest.mark.parametrize("bias", [True, False])
def test_s57_einsum_layout_goes_both_ways(bias: bool) -> None:
    sizes = {"kdim": 5, "vdim": 7, "query_dim": 11, "head_dim": 13, "value_head_dim": 17, "out_dim": 19}
    module = made(2, 6, bias=bias, num_kv_heads=3, **sizes)
    weights = to_einsum(module)
    assert [tuple(w.shape) for w in weights[:4]] == [(6, 11, 13), (3, 5, 13), (3, 7, 17), (102, 19)]
    again = from_einsum(weights, dropout=0.1, batch_first=True).eval()
    inputs = [drawn(2, 3, 11), drawn(2, 5, 5), drawn(2, 5, 7)]
    assert torch.equal(again(*inputs)[0], module(*inputs)[0])
    for one, other in zip(to_einsum(again), weights, strict=True):
        assert one is other or torch.equal(one, other)  # type: ignore[arg-type]


def test_einsum_weights_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="weight: 10 rows cannot be cut into num_heads = 3 equal heads"):
        stack_heads(torch.zeros(10, 2), 3)
    weights = HeadWeights(*(torch.zeros(2, 3, 5),) * 3, torch.zeros(10, 3), key_bias=torch.zeros(2, 5))
    with pytest.raises(ValueError, match="weights: expected all four biases or none, got 1"):
        from_einsum(weights)


def test_s62_the_width_must_be_a_multiple_of_the_heads() -> None:
    with pytest.raises(AssertionError, match=r"^embed_dim must be divisible by num_heads$"):
        MultiHeadAttention(10, 3)
    assert MultiHeadAttention(10, 3, head_dim=4).out_proj.in_features == 12


@pytest.mark.parametrize(
    ("args", "options", "text"),
    [
        ((0, 1), {}, "embed_dim and num_heads must be greater than 0, got embed_dim=0 and num_heads=1"),
        ((4, -1), {}, "embed_dim and num_heads must be greater than 0, got embed_dim=4 and num_heads=-1"),
        ((4, 2), {"head_dim": 0}, "head_dim must be greater than 0, got 0"),
        ((4, 2), {"out_dim": -3}, "out_dim must be greater than 0, got -3"),
        ((4, 2), {"num_kv_heads": 0}, "num_kv_heads must be greater than 0, got 0"),
        (
            (12, 4),
            {"num_kv_heads": 3},
            "num_kv_heads must divide num_heads, got num_kv_heads=3 and num_heads=4",
        ),
    ],
)
def test_impossible_sizes_are_refused(args: Any, options: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        MultiHeadAttention(*args, **options)


def test_a_score_that_is_none_is_refused() -> None:
    with pytest.raises(TypeError, match="score: expected a Score or a callable"):
        MultiHeadAttention(4, 2, score="dot")  # type: ignore[arg-type]


def test_s63_s64_defaults_and_absent_biases() -> None:
    module = MultiHeadAttention(6, 2, bias=False)
    assert (module.kdim, module.vdim) == (6, 6)
    assert list(module.state_dict()) == ["in_proj_weight", "out_proj.weight"]
    assert module.in_proj_bias is None
    assert module.out_proj.bias is None


@pytest.mark.parametrize(("slots", "extra"), [((True, False), 1), ((False, True), 1), ((True, True), 2)])
def test_s65_s66_slots_widen_the_weights(slots: tuple[bool, bool], extra: int) -> None:
    module = made(6, 2, add_bias_kv=slots[0], add_zero_attn=slots[1])
    x = drawn(2, 3, 6)
    assert module(x, x, x)[1].shape == (2, 3, 3 + extra)
    assert module(x, x, x, need_weights=False)[0].shape == (2, 3, 6)


def test_s69_a_pair_comes_back_always() -> None:
    x = torch.randn(3, 2, 6)
    module = MultiHeadAttention(6, 2)
    assert [type(item) for item in module(x, x, x)] == [Tensor, Tensor]
    output, weights = module(x, x, x, None, False)  # S68: torch's positional order
    assert weights is None
    assert close(output, module(x, x, x)[0].double())


def test_s70_s71_three_layouts_agree() -> None:
    torch.manual_seed(3)
    module = MultiHeadAttention(100, 10, kdim=100, vdim=100)
    query, memory = torch.rand(3, 1, 100), torch.rand(3, 1, 100)
    output, weights = module(query, memory, memory)
    assert (tuple(output.shape), tuple(weights.shape)) == ((3, 1, 100), (1, 3, 3))
    first = MultiHeadAttention(100, 10, batch_first=True)
    first.load_state_dict(module.state_dict())
    swapped = first(query.transpose(0, 1), memory.transpose(0, 1), memory.transpose(0, 1))
    assert close(swapped[0].transpose(0, 1), output.double())
    assert close(swapped[1], weights.double())
    for layout in (module, first):
        alone = layout(query[:, 0], memory[:, 0], memory[:, 0])
        assert close(alone[0], output[:, 0].double())
        assert close(alone[1], weights[0].double())


@pytest.mark.parametrize(("kdim", "vdim"), [(None, None), (6, 6), (5, None), (None, 5), (5, 7)])
def test_s73_s74_packed_only_if_all_widths_agree(kdim: Any, vdim: Any) -> None:
    ours = {k: tuple(v.shape) for k, v in MultiHeadAttention(6, 2, kdim=kdim, vdim=vdim).state_dict().items()}
    torchs = {
        k: tuple(v.shape) for k, v in nn.MultiheadAttention(6, 2, kdim=kdim, vdim=vdim).state_dict().items()
    }
    assert ours == torchs
    assert ours["in_proj_bias"] == (18,)


def test_s76_slices_of_the_packed_matrix_are_query_key_and_value() -> None:
    packed, x = made(6, 2), drawn(2, 5, 6)
    apart = MultiHeadAttention(6, 2, kdim=5, vdim=5, batch_first=True, dtype=torch.float64)
    state = packed.state_dict()
    matrix = state["in_proj_weight"]
    assert torch.equal(packed.separate_weights()[1], matrix[6:12])
    # kdim = 5 cuts off the last column; with a zero there nothing changes
    with torch.no_grad():
        packed.separate_weights()[1][:, 5:] = 0
        packed.separate_weights()[2][:, 5:] = 0
    apart.load_state_dict(
        {
            "q_proj_weight": matrix[:6],
            "k_proj_weight": matrix[6:12, :5],
            "v_proj_weight": matrix[12:, :5],
            **{name: state[name] for name in ("in_proj_bias", "out_proj.weight", "out_proj.bias")},
        },
        strict=True,
    )
    assert close(apart(x, x[..., :5], x[..., :5])[0], packed(x, x, x)[0])


def test_s77_weights_are_averaged_over_heads() -> None:
    module, x = made(6, 3), drawn(2, 5, 6)
    each = module(x, x, x, average_attn_weights=False)[1]
    assert each.shape == (2, 3, 5, 5)
    assert close(module(x, x, x)[1], each.sum(1) / 3)


def test_s78_s80_padded_columns_are_zero_and_rows_sum_to_one() -> None:
    module = MultiHeadAttention(8, 4)
    query, memory = torch.rand(3, 1, 8), torch.rand(4, 1, 8)
    _, weights = module(query, memory, memory, key_padding_mask=torch.tensor([[False, True, False, True]]))
    assert bool((weights[..., [1, 3]] == 0).all())
    assert bool((weights[..., [0, 2]] > 0).all())
    assert close(weights.sum(-1), torch.ones(1, 3).double())


def test_s79_s81_real_masks_remove_corners_and_bias_the_rest() -> None:
    module = MultiHeadAttention(8, 4)
    query, memory = torch.rand(3, 1, 8), torch.rand(4, 1, 8)
    inf = -math.inf
    corners = torch.tensor([[inf, 0, 0, inf], [0, 0, 0, 0], [inf, 0, 0, inf]])
    weights = module(query, memory, memory, attn_mask=corners)[1]
    assert (weights[0] == 0).tolist() == [[True, False, False, True], [False] * 4, [True, False, False, True]]
    assert close(weights.sum(-1), torch.ones(1, 3).double())
    bias = torch.randn(3, 4)
    plain = module(query, memory, memory, average_attn_weights=False)[1]
    tilted = module(query, memory, memory, attn_mask=bias, average_attn_weights=False)[1]
    assert close(tilted, torch.softmax(plain.double().log() + bias, -1))  # softmax(s + m)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("kdim", "vdim"), [(None, None), (5, 7), (6, 7)])
def test_s83_s86_s87_the_sources_function_equals_the_module(
    kdim: Any, vdim: Any, bias: bool, masked: bool
) -> None:
    torchs, module = pair(6, 3, kdim=kdim, vdim=vdim, bias=bias, dtype=torch.float64)
    Q, K, V = drawn(3, 2, 6), drawn(5, 2, module.kdim), drawn(5, 2, module.vdim)
    Wq, Wk, Wv = module.separate_weights()
    Bq, Bk, Bv = module.separate_biases() or (None, None, None)
    key_mask = torch.tensor([[False] * 5, [False, True, False, False, True]]) if masked else None
    attn_mask = drawn(3, 5) if masked else None
    before = None if attn_mask is None else attn_mask.clone()
    A, W = multi_head_attention(
        Q,
        K,
        V,
        Wq,
        Wk,
        Wv,
        module.out_proj.weight,
        Bq,
        Bk,
        Bv,
        module.out_proj.bias,
        key_mask,
        attn_mask,
        num_heads=3,
    )
    assert before is attn_mask or torch.equal(before, attn_mask)  # type: ignore[arg-type]
    for other in (module, torchs):
        if masked and other is torchs:
            continue  # torch warns of the two kinds of mask
        A1, W1 = other(Q, K, V, key_padding_mask=key_mask, attn_mask=attn_mask)
        assert torch.linalg.norm(A - A1) < 1e-6
        assert torch.linalg.norm(W - W1) < 1e-6
    assert A.shape == (3, 2, 6)
    assert W.shape == (2, 3, 5)


def test_s83_general_sizes_and_refusals() -> None:
    Q, K, V = drawn(3, 2, 11), drawn(5, 2, 7), drawn(5, 2, 2)
    Wq, Wk, Wv, Wo = drawn(6, 11), drawn(6, 7), drawn(9, 2), drawn(13, 9)
    A, W = multi_head_attention(Q, K, V, Wq, Wk, Wv, Wo, num_heads=3)
    assert (A.shape, W.shape) == ((3, 2, 13), (2, 3, 5))
    with pytest.raises(ValueError, match="Wv: 9 rows cannot be cut into num_heads = 2 equal heads"):
        multi_head_attention(Q, K, V, Wq, Wk, Wv, Wo, num_heads=2)
    with pytest.raises(AssertionError, match="only bool and floating types of attn_mask are supported"):
        multi_head_attention(
            Q, K, V, Wq, Wk, Wv, Wo, attn_mask=torch.ones(3, 5, dtype=torch.long), num_heads=3
        )
    with pytest.raises(RuntimeError, match=r"2D attn_mask is \(3, 4\), but should be \(3, 5\)"):
        multi_head_attention(Q, K, V, Wq, Wk, Wv, Wo, attn_mask=drawn(3, 4), num_heads=3)
    with pytest.warns(UserWarning, match="attn_mask: .* only 0 and 1") as caught:
        multi_head_attention(Q, K, V, Wq, Wk, Wv, Wo, attn_mask=torch.ones(3, 5).double(), num_heads=3)
    assert caught[0].filename == __file__


def test_s88_one_module_serves_cross_and_self_attention() -> None:
    module = made(6, 3)
    source, target = drawn(2, 7, 6), drawn(2, 5, 6)
    cross, weights = module(target, source, source)
    assert (cross.shape, weights.shape) == ((2, 5, 6), (2, 5, 7))
    itself, weights = module(source, source, source)
    assert (itself.shape, weights.shape) == ((2, 7, 6), (2, 7, 7))


def test_s90_s91_s93_s94_s95_from_five_words_to_new_vectors() -> None:
    vocabulary = ["<pad>", "politi", "my", "marcello", "to", "the", "name", "cat", "is"]
    ids = torch.tensor([vocabulary.index(word) for word in ["my", "name", "is", "marcello", "politi"]])
    assert ids.tolist() == [2, 6, 8, 3, 1]
    embedding = drawn(9, 16)
    sentence = nn.functional.one_hot(ids, 9).double() @ embedding
    assert torch.equal(sentence, embedding[ids])
    module = made(16, 1, bias=False)
    w_query, w_key, w_value = (weight.T for weight in module.separate_weights())
    assert torch.equal(
        torch.stack([token @ w_key for token in sentence]).round(decimals=12),
        (sentence @ w_key).round(decimals=12),
    )
    a_1 = torch.softmax(torch.stack([sentence[0] @ w_query @ (token @ w_key) / 4 for token in sentence]), 0)
    z_1 = sum(weight * (token @ w_value) for weight, token in zip(a_1, sentence, strict=True))  # a_11 v_1 too
    output, weights = module(sentence, sentence, sentence)
    assert close(weights[0], a_1)
    assert close(output[0], module.out_proj(z_1))
    assert weights.shape == (5, 5)  # S96: the picture of all pairs


def test_s92_a_key_decides_where_and_a_value_what() -> None:
    module = made(6, 2)
    query, key, value = drawn(1, 3, 6), drawn(1, 5, 6), drawn(1, 5, 6)
    weights = module(query, key, value)[1]
    assert torch.equal(module(query, key, 2 * value)[1], weights)
    assert not close(module(query, 2 * key, value)[1], weights)
