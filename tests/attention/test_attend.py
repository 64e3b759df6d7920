"""The attention function as the source documents describe it, and what it refuses."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import headlights.attention
from headlights import attend, masks, observations, scores
from tests.attention.oracle import close, loops, scaled_dot


def attend_and_weights(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    context, weights = attend(query, key, value, observe=observations.Weights(), **options)
    return context, weights


def test_s1_s3_scores_of_one_word_are_its_dot_products() -> None:
    words = torch.randn(7, 3)
    raw = scores.Dot()(words[1:2], scores.Dot().prepare_key(words))
    assert torch.allclose(raw[0], torch.stack([(words[1] * word).sum() for word in words]), atol=1e-6)
    unit = nn.functional.normalize(words, dim=-1)
    cosine = nn.functional.cosine_similarity(words[1:2], words)
    assert torch.allclose(scores.Dot()(unit[1:2], scores.Dot().prepare_key(unit))[0], cosine, atol=1e-6)


def test_s2_s5_one_vector_becomes_two_in_two_contexts() -> None:
    table, data, plate = torch.randn(3), torch.randn(3), torch.randn(3)
    new = []
    for other in (data, plate):
        words = torch.stack([table, other])
        context, weights = attend_and_weights(words, words, words, score=scores.Dot())
        assert torch.allclose(context[0], weights[0, 0] * table + weights[0, 1] * other, atol=1e-6)
        new.append(context[0])
    assert not torch.allclose(new[0], new[1], atol=1e-3)


def test_s4_softmax_of_a_hand_value() -> None:
    # dot products 0, ln 2, ln 3 give weights 1/6, 2/6, 3/6
    key = torch.tensor([[0.0], [math.log(2)], [math.log(3)]], dtype=torch.float64)
    _, weights = attend_and_weights(torch.ones(1, 1).double(), key, key, score=scores.Dot())
    assert close(weights, torch.tensor([[1 / 6, 2 / 6, 3 / 6]], dtype=torch.float64))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 5), st.integers(1, 7), st.integers(1, 5), st.integers(1, 5), st.integers(0, 2**31))
def test_s6_s38_s39_shapes_row_sums_and_ranking(N: int, M: int, E: int, E_v: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    query, key, value = (
        torch.randn(*size, generator=generator, dtype=torch.float64) for size in ((N, E), (M, E), (M, E_v))
    )
    context, weights = attend_and_weights(query, key, value)
    assert context.shape == (N, E_v)
    assert weights.shape == (N, M)
    assert ((weights >= 0) & (weights <= 1)).all()
    assert close(weights.sum(-1), torch.ones(N, dtype=torch.float64))
    assert close(context, weights @ value)
    by_product = weights.gather(-1, (query @ key.mT).argsort(-1))
    assert (by_product.diff(dim=-1) >= 0).all()
    assert close(attend(query, key, value), loops(query, key, value, scaled_dot)[0])


def test_s23_s24_s33_one_step_over_a_padded_sentence() -> None:
    states, words = torch.randn(2, 1, 5), torch.randn(2, 4, 5)
    context, weights = attend_and_weights(states, words, words, mask=masks.lengths([4, 3]))
    assert context.shape == (2, 1, 5)
    assert weights.shape == (2, 1, 4)
    assert torch.allclose(weights.sum(-1), torch.ones(2, 1))
    assert weights[1, 0, 3] == 0
    for b in range(2):
        assert torch.allclose(
            context[b, 0], sum((weights[b, 0, j] * words[b, j] for j in range(4)), torch.zeros(5)), atol=1e-6
        )


def test_s34_s43_all_queries_at_once_equal_one_by_one() -> None:
    U, V = torch.randn(2, 6, 5, dtype=torch.float64), torch.randn(2, 4, 5, dtype=torch.float64)
    steps = torch.cat([attend(U[:, t : t + 1], V, V) for t in range(6)], 1)
    assert close(attend(U, V, V), steps)


def test_s36_the_sources_own_four_lines() -> None:
    def source_function(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
        E = Q.size(-1)
        W = torch.bmm(Q, K.transpose(-2, -1)) / math.sqrt(E)
        W = nn.functional.softmax(W, dim=-1)
        return torch.bmm(W, V)

    Q, K, V = torch.randn(3, 5, 7), torch.randn(3, 4, 7), torch.randn(3, 4, 2)
    for path in ("auto", "reference", "blocked", "fused"):
        assert torch.allclose(attend(Q, K, V, path=path), source_function(Q, K, V), atol=1e-6)


def test_s37_equals_torch() -> None:
    Q, K, V = torch.randn(3, 2, 5, 7), torch.randn(3, 2, 4, 7), torch.randn(3, 2, 4, 2)
    expected = nn.functional.scaled_dot_product_attention(Q, K, V)
    assert torch.allclose(attend(Q, K, V, path="reference"), expected, atol=1e-6)


def test_s41_no_exact_match_gives_a_mixture_led_by_the_nearest() -> None:
    key = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    value = torch.tensor([[2.0], [3.0], [5.0]])
    context, weights = attend_and_weights(torch.tensor([[0.9, 0.3]]), key, value)
    assert weights.argmax() == 0
    assert 2.0 < context.item() < 5.0


def test_s42_worked_example() -> None:
    q, k = torch.tensor([[2.0, 3.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [5.0, 7.0]])
    assert scores.Dot()(q, scores.Dot().prepare_key(k)).tolist() == [[2.0, 3.0, 31.0]]  # 2*5 + 3*7 = 31


def test_s44_why_the_square_root() -> None:
    q, k = torch.randn(1000, 64, dtype=torch.float64), torch.randn(1000, 64, dtype=torch.float64)
    for score, variance in ((scores.Dot(), 64.0), (scores.ScaledDot(), 1.0)):
        assert score(q, score.prepare_key(k)).var().item() == pytest.approx(variance, rel=0.05)


def test_s45_batch_equals_loop_over_any_leading_dimensions() -> None:
    query, key, value = (torch.randn(2, 3, 5, n, 7, dtype=torch.float64) for n in (4, 6, 6))
    batched = attend(query, key, value)
    for a in range(2):
        for b in range(3):
            for c in range(5):
                assert close(batched[a, b, c], attend(query[a, b, c], key[a, b, c], value[a, b, c]))


def test_s46_gram_matrix() -> None:
    V = nn.functional.normalize(torch.randn(3, 2, dtype=torch.float64), dim=-1)
    gram = scores.Dot()(V, scores.Dot().prepare_key(V))
    for i in range(3):
        for j in range(3):
            assert close(gram[i, j], V[i, 0] * V[j, 0] + V[i, 1] * V[j, 1])
    assert close(gram, gram.mT)
    assert (gram.argmax(-1) == torch.arange(3)).all()


def test_s47_printed_weights_times_values() -> None:
    rows = torch.tensor([[0.8, 0.2, 0.0], [0.3, 0.7, 0.0], [0.1, 0.0, 0.9]], dtype=torch.float64)
    V = torch.randn(3, 2, dtype=torch.float64)
    # scores of ln w give back the weights w, and ln 0 hides
    context, weights = attend_and_weights(torch.zeros(3, 2).double(), V, V, mask=masks.bias(rows.log()))
    assert close(weights, rows)
    assert close(context[0], 0.8 * V[0] + 0.2 * V[1])
    assert close(context[1], 0.3 * V[0] + 0.7 * V[1])
    assert close(context[2], 0.1 * V[0] + 0.9 * V[2])


def test_s48_permuted_words_permute_their_outputs() -> None:
    words, order = torch.randn(5, 3, dtype=torch.float64), torch.randperm(5)
    assert attend(words, words, words).shape == words.shape
    assert close(attend(words[order], words[order], words[order]), attend(words, words, words)[order])


def test_s40_an_exact_match_returns_its_value() -> None:
    key = torch.tensor([[9.0, 0.0], [-9.0, 0.0], [-9.0, 1.0]])
    context, weights = attend_and_weights(key[:1], key, value := torch.randn(3, 4), score=scores.Dot())
    assert weights[0, 0] > 1 - 1e-6
    assert torch.allclose(context[0], value[0], atol=1e-6)


def test_refusals() -> None:
    x = torch.randn(2, 3, 5)
    with pytest.raises(
        ValueError, match=r"expected \(\.\.\., N, E\).* got \(5,\), \(2, 3, 5\) and \(2, 3, 5\)"
    ):
        attend(x[0, 0], x, x)
    with pytest.raises(
        ValueError, match=r"value: expected one row for each of the 3 keys, got shape \(2, 2, 5\)"
    ):
        attend(x, x, x[:, :2])
    with pytest.raises(ValueError, match=r"leading dimensions \(2,\), \(3,\) and \(3,\) do not broadcast"):
        attend(x, torch.randn(3, 4, 5), torch.randn(3, 4, 5))
    with pytest.raises(
        TypeError, match=r"expected one floating type, got .*float32, .*float64 and .*float32"
    ):
        attend(x, x.double(), x)
    for bad in (1.0, -0.1, math.nan):
        with pytest.raises(ValueError, match=f"dropout: expected a probability, 0 <= p < 1, got {bad}"):
            attend(x, x, x, dropout=bad)
    with pytest.raises(ValueError, match="path: expected one of auto, blocked, fused, reference, got 'fast'"):
        attend(x, x, x, path="fast")  # type: ignore[call-overload]
    refused = "use path='auto' or 'reference'"
    with pytest.raises(
        ValueError, match=f"path: 'fused' knows Dot and ScaledDot only, not Additive; {refused}"
    ):
        attend(x, x, x, score=scores.Additive(5, 5, 3), path="fused")
    with pytest.raises(ValueError, match=f"path: 'fused' has no learned scale; {refused}"):
        attend(x, x, x, score=scores.Dot(learned=True), path="fused")
    bias = masks.bias(torch.zeros(3, 3).double())
    with pytest.raises(ValueError, match=r"'fused' adds a bias of the query's type torch\.float32 only"):
        attend(x, x, x, mask=masks.causal() & bias, path="fused")
    assert attend(x, x, x, mask=bias).dtype == torch.float32


def test_public_names_are_sorted_and_there() -> None:
    for module in (headlights.attention, masks, scores, observations):
        assert module.__all__ == sorted(module.__all__)
        assert all(hasattr(module, name) for name in module.__all__)
