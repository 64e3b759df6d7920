"""The scoring functions: their formulas, their parameters, prepared keys, and refusals."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headlights import attend, masks, observations, scores
from headlights.attention import PreparedKey, Score
from tests.attention.oracle import close


def weights_for(score: Any, query: Tensor, key: Tensor, **options: Any) -> Tensor:
    weights = attend(query, key, key, score=score, observe=observations.Weights(), **options)[1]
    assert isinstance(weights, Tensor)
    return weights


def test_s27_dot_is_softmax_of_products() -> None:
    U, V = torch.randn(3, 5, dtype=torch.float64), torch.randn(7, 5, dtype=torch.float64)
    assert close(weights_for(scores.Dot(), U, V), torch.softmax(U @ V.mT, -1))


@pytest.mark.parametrize("scale", [0.0, -1.5, 1.0, 2.5])
def test_s28_any_scale(scale: float) -> None:
    U, V = torch.randn(3, 5, dtype=torch.float64), torch.randn(7, 5, dtype=torch.float64)
    expected = torch.exp(scale * U @ V.mT)
    assert close(weights_for(scores.Dot(scale), U, V), expected / expected.sum(-1, keepdim=True))


def test_s28_extreme_scales_and_the_scaled_dot() -> None:
    U, V = torch.randn(3, 5, dtype=torch.float64), torch.randn(7, 5, dtype=torch.float64)
    assert close(weights_for(scores.Dot(0.0), U, V), torch.full((3, 7), 1 / 7, dtype=torch.float64))
    best = nn.functional.one_hot((U @ V.mT).argmax(-1), 7).double()
    assert close(weights_for(scores.Dot(1e5), U, V), best)
    assert close(weights_for(scores.Dot(5**-0.5), U, V), weights_for(scores.ScaledDot(), U, V))


def test_s28_learned_scale_is_a_parameter() -> None:
    score = scores.Dot(0.5, learned=True)
    assert [name for name, _ in score.named_parameters()] == ["scale"]
    assert list(scores.Dot(0.5).parameters()) == []
    torch.autograd.backward(attend(torch.randn(3, 5), key := torch.randn(7, 5), key, score=score).sum())
    assert isinstance(score.scale, nn.Parameter)
    assert score.scale.grad is not None
    assert score.scale.grad != 0


def test_s26_s29_additive_has_exactly_its_three_parameters() -> None:
    score = scores.Additive(5, 3, 7)
    shapes = {name: tuple(p.shape) for name, p in score.named_parameters()}
    assert shapes == {"W1": (5, 7), "W2": (3, 7), "b": (7,)}
    with_bias = scores.Additive(5, 3, 7, bias=True)
    assert {name for name, _ in with_bias.named_parameters()} == {"W1", "W2", "b", "bias"}


@pytest.mark.parametrize("bias", [False, True])
def test_s29_additive_formula_and_gradients(bias: bool) -> None:
    score = scores.Additive(5, 3, 7, bias=bias, dtype=torch.float64)
    if score.bias is not None:
        nn.init.normal_(score.bias)
    u, v = torch.randn(2, 4, 5, dtype=torch.float64), torch.randn(2, 6, 3, dtype=torch.float64)
    got = score(u, score.prepare_key(v))
    for b in range(2):
        for i in range(4):
            for j in range(6):
                inside = u[b, i] @ score.W1 + v[b, j] @ score.W2
                inside = inside if score.bias is None else inside + score.bias
                assert close(got[b, i, j], torch.tanh(inside) @ score.b)
    torch.autograd.backward(attend(u, v, v, score=score).square().sum())
    for name, parameter in score.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


def test_case16_additive_with_padding() -> None:
    score = scores.Additive(5, 3, 6, dtype=torch.float64).requires_grad_(False)
    query, key = torch.randn(4, 2, 5, dtype=torch.float64), torch.randn(4, 4, 3, dtype=torch.float64)
    lengths = [4, 1, 0, 3]
    context, weights = attend(
        query, key, key, score=score, mask=masks.lengths(lengths), observe=observations.Weights()
    )
    for n, length in enumerate(lengths):
        for i in range(2):
            raw = [
                float(torch.tanh(query[n, i] @ score.W1 + key[n, j] @ score.W2) @ score.b)
                for j in range(length)
            ]
            total = sum(math.exp(s) for s in raw)
            expected = torch.tensor([math.exp(s) / total for s in raw] + [0.0] * (4 - length)).double()
            assert torch.allclose(weights[n, i], expected, atol=1e-7)
            assert close(context[n, i], weights[n, i] @ key[n])
    assert (weights[2] == 0).all()
    assert (context[2] == 0).all()


def test_s30_bilinear_formula() -> None:
    score = scores.Bilinear(5, 3, dtype=torch.float64)
    assert {name: tuple(p.shape) for name, p in score.named_parameters()} == {"W": (5, 3)}
    u, v = torch.randn(2, 4, 5, dtype=torch.float64), torch.randn(2, 6, 3, dtype=torch.float64)
    assert close(score(u, score.prepare_key(v)), torch.einsum("bne,ek,bmk->bnm", u, score.W, v))


def test_initial_scores_have_a_sensible_spread() -> None:
    u, v = torch.randn(211, 61), torch.randn(199, 53)
    bilinear, additive = scores.Bilinear(61, 53), scores.Additive(61, 53, 97)
    assert bilinear(u, bilinear.prepare_key(v)).std().item() == pytest.approx(1.0, abs=0.15)
    inside = (u @ additive.W1)[:, None] + (v @ additive.W2)[None]
    assert inside.std().item() == pytest.approx(1.0, abs=0.15)
    assert 0.3 < additive(u, additive.prepare_key(v)).std().item() < 1.0


def test_s31_any_callable_scores_with_masks_and_gradients() -> None:
    temperature = torch.tensor(0.7, requires_grad=True)

    def distance(query: Tensor, key: Tensor) -> Tensor:
        return -torch.cdist(query, key) * temperature

    query, key = torch.randn(2, 3, 5), torch.randn(2, 4, 5)
    context, weights = attend(
        query, key, key, score=distance, mask=masks.lengths([4, 2]), observe=observations.Weights()
    )
    expected = torch.softmax(distance(query, key)[1, :, :2], -1)
    assert torch.allclose(weights[1, :, :2], expected, atol=1e-6)
    assert (weights[1, :, 2:] == 0).all()
    torch.autograd.backward(context.sum())
    assert temperature.grad is not None


def test_s31_a_callable_module_keeps_its_parameters() -> None:
    class Learned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.proj = nn.Linear(5, 5, bias=False)

        def forward(self, query: Tensor, key: Tensor) -> Tensor:
            return self.proj(query) @ key.mT  # type: ignore[no-any-return]

    score = scores.Function(Learned())
    assert [name for name, _ in score.named_parameters()] == ["function.proj.weight"]
    x = torch.randn(3, 5)
    assert torch.equal(attend(x, x, x, score=score), attend(x, x, x, score=score.function))


def test_a_callable_may_hide_keys_itself() -> None:
    raw = torch.tensor([[0.0, -torch.inf, 0.0], [-torch.inf] * 3])
    x = torch.randn(3, 2, requires_grad=True)
    context, weights = attend(
        x[:2], x, x, score=lambda q, k: q @ k.mT * 0 + raw, observe=observations.Weights()
    )
    assert weights.tolist() == [[0.5, 0.0, 0.5], [0.0, 0.0, 0.0]]
    torch.autograd.backward(context.sum())
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()


def test_s32_keys_are_projected_once_a_sentence() -> None:
    class Counting(scores.Additive):
        calls = 0

        def project_key(self, key: Tensor) -> Tensor:
            self.calls += 1
            return super().project_key(key)

    score = Counting(5, 3, 7)
    key, queries = torch.randn(2, 6, 3), torch.randn(2, 4, 5)
    prepared = score.prepare_key(key)
    steps = [attend(queries[:, t : t + 1], prepared, key, score=score) for t in range(4)]
    assert score.calls == 1
    assert torch.allclose(torch.cat(steps, 1), attend(queries, key, key, score=score), atol=1e-6)


def test_prepared_keys_serve_the_fused_path() -> None:
    query, key = torch.randn(2, 3, 5), torch.randn(2, 4, 5)
    for score in (scores.ScaledDot(), scores.Dot(0.3)):
        prepared = score.prepare_key(key)
        assert torch.equal(attend(query, prepared, key, score=score), attend(query, key, key, score=score))


def test_prepared_rows_and_selected_examples() -> None:
    score = scores.Additive(5, 3, 7)
    key = torch.randn(2, 6, 3)
    prepared = score.prepare_key(key, start=10)
    assert prepared.length == 6
    part = prepared.rows(slice(2, 5))
    assert (part.length, part.start) == (3, 12)
    assert torch.allclose(part.key, score.prepare_key(key[:, 2:5]).key, atol=1e-6)
    indices = torch.tensor([1, 1, 0])
    assert torch.equal(prepared.select(indices).key, prepared.key[indices])
    assert prepared.select(indices).start == 10


def test_hidden_keys_count_as_zeros_when_prepared() -> None:
    key = torch.randn(2, 6, 3)
    visible = torch.arange(6) < torch.tensor([[4], [6]])
    dirty = key.masked_fill(~visible[..., None], torch.nan)
    score = scores.Bilinear(5, 3)
    prepared = score.prepare_key(dirty, visible=visible)
    assert torch.isfinite(prepared.key).all()
    assert torch.equal(prepared.key[0, :4], score.prepare_key(key, visible=visible).key[0, :4])


def test_refusals() -> None:
    x = torch.randn(4, 5)
    with pytest.raises(TypeError, match=r"score: expected a Score or a callable .*, got str"):
        attend(x, x, x, score="dot")  # type: ignore[call-overload]
    with pytest.raises(
        ValueError, match=r"score: the callable must return .* = \(\.\.\., 4, 4\), got \(5, 5\)"
    ):
        attend(x, x, x, score=lambda q, k: q.mT @ k)
    with pytest.raises(ValueError, match="scale: expected a finite number, got nan"):
        scores.Dot(math.nan)
    score = scores.Additive(5, 3, 7)
    with pytest.raises(ValueError, match=r"key: expected a last dimension of E_k = 3, got \(4, 5\)"):
        attend(x, x, x, score=score)
    with pytest.raises(ValueError, match=r"query: expected a last dimension of E_q = 5, got \(4, 3\)"):
        attend(x[:, :3], x[:, :3], x, score=score)
    with pytest.raises(ValueError, match=r"query: expected a last dimension of .*width = 3, got \(4, 5\)"):
        attend(x, x[:, :3], x, path="reference")
    with pytest.raises(
        ValueError, match=r"query: expected a last dimension of the key's width = 3, got \(4, 5\)"
    ):
        attend(x, x[:, :3], x)
    with pytest.raises(ValueError, match=r"key: expected a last dimension of E_k = 3"):
        attend(x, x, x, score=scores.Bilinear(5, 3))
    prepared = PreparedKey(x)
    with pytest.raises(ValueError, match="rows: expected a slice with step 1, got step 2"):
        prepared.rows(slice(0, 4, 2))
    with pytest.raises(ValueError, match=r"select: the keys have shape \(4, 5\) and no leading dimension"):
        prepared.select(torch.tensor([0]))
    with pytest.raises(NotImplementedError, match=r"Score must define forward\(query, prepared"):
        Score()(x, prepared)


def test_printed_forms_say_the_sizes() -> None:
    assert repr(scores.Additive(5, 3, 7)) == "Additive(5, 3, 7)"
    assert repr(scores.Additive(5, 3, 7, bias=True)) == "Additive(5, 3, 7, bias=True)"
    assert repr(scores.Bilinear(5, 3)) == "Bilinear(5, 3)"
    assert repr(scores.Dot(2.0)) == "Dot(scale=2.0)"
    assert repr(scores.Dot(2.0, learned=True)) == "Dot(learned)"
