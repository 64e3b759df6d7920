"""Cross-entropy by chunks against torch's own, and its gradients against differences."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from headlights.translation.losses import log_probabilities, smoothed_cross_entropy
from tests.attention.oracle import close

TOKENS, WIDTH, WORDS = 7, 3, 5


def drawn(*, bias: bool = True, spread: float = 1.0) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    states = (spread * torch.randn(TOKENS, WIDTH, dtype=torch.float64)).requires_grad_()
    weight = torch.randn(WORDS, WIDTH, dtype=torch.float64, requires_grad=True)
    offsets = torch.randn(WORDS, dtype=torch.float64, requires_grad=True) if bias else None
    return states, weight, offsets, torch.randint(WORDS, (TOKENS,))


def torchs(states: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float) -> Tensor:
    logits = F.linear(states, weight, bias)
    return F.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])
@pytest.mark.parametrize("chunk", [1, 3, 100])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.37])
def test_loss_and_gradients_are_torchs(smoothing: float, chunk: int, bias: bool) -> None:
    inputs = drawn(bias=bias)
    parameters = [each for each in inputs[:3] if each is not None]
    expected = torchs(*inputs, smoothing)
    found, exact = smoothed_cross_entropy(*inputs, smoothing=smoothing, chunk=chunk)
    assert close(found, expected)
    assert close(exact, torchs(*inputs, 0.0))
    assert not exact.requires_grad
    pairs = zip(
        torch.autograd.grad(found * -2.5, parameters), torch.autograd.grad(expected, parameters), strict=True
    )
    assert all(close(ours, -2.5 * theirs) for ours, theirs in pairs)


def test_gradients_are_those_of_differences() -> None:
    states, weight, bias, targets = drawn()
    assert bias is not None

    def loss(states: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return smoothed_cross_entropy(states, weight, bias, targets, smoothing=0.2, chunk=2)[0]

    assert torch.autograd.gradcheck(loss, (states, weight, bias))


@pytest.mark.parametrize("frozen", [0, 1, 2], ids=["states", "weight", "bias"])
def test_what_is_frozen_gets_no_gradient(frozen: int) -> None:
    inputs = drawn()
    inputs[frozen].requires_grad_(False)  # type: ignore[union-attr]
    torch.autograd.backward(smoothed_cross_entropy(*inputs, smoothing=0.1)[0])
    for place, each in enumerate(inputs[:3]):
        assert each is not None
        assert (each.grad is None) == (place == frozen)


def test_large_logits_stay_finite() -> None:
    inputs = drawn(spread=1e4)
    found, exact = smoothed_cross_entropy(*inputs, smoothing=0.1)
    assert math.isfinite(float(found.detach()))
    assert close(exact, torchs(*inputs, 0.0))
    (gradient,) = torch.autograd.grad(found, [inputs[0]])
    assert torch.isfinite(gradient).all()


def test_one_chunk_of_logits_exists_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    addmm = torch.addmm

    def watched(bias: Tensor, part: Tensor, words: Tensor, *, out: Tensor) -> Tensor:
        sizes.append(len(part))
        return addmm(bias, part, words, out=out)

    monkeypatch.setattr(torch, "addmm", watched)
    inputs = drawn()
    found, _ = smoothed_cross_entropy(*inputs, smoothing=0.1, chunk=3)
    assert sizes == [3, 3, 1]
    saved = found.grad_fn.saved_tensors  # type: ignore[union-attr]
    assert max(each.numel() for each in saved) < TOKENS * WORDS
    assert torch.autograd.grad(found, [inputs[0]])[0].shape == (TOKENS, WIDTH)
    assert sizes == [3, 3, 1]  # none is made again on the way back


def test_half_precision_sums_in_single() -> None:
    states, weight, bias, targets = drawn()
    with torch.autocast("cpu", torch.bfloat16):
        single = states.detach().float(), weight.detach().float(), bias.detach().float()  # type: ignore[union-attr]
        found, _ = smoothed_cross_entropy(*single, targets, smoothing=0.1)
    assert found.dtype == torch.float32
    assert float(found) == pytest.approx(float(torchs(states, weight, bias, targets, 0.1).detach()), rel=0.02)


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_log_probabilities_are_those_of_a_loop(chunk: int) -> None:
    states, weight, bias, targets = drawn()
    assert bias is not None
    sizes: list[int] = []

    def project(part: Tensor) -> Tensor:
        sizes.append(len(part))
        return F.linear(part, weight, bias)

    found = log_probabilities(states, targets, project, chunk=chunk)
    expected = []
    for state, target in zip(states.tolist(), targets.tolist(), strict=True):
        logits = [
            sum(w * x for w, x in zip(row, state, strict=True)) + b
            for row, b in zip(weight.tolist(), bias.tolist(), strict=True)
        ]
        expected.append(logits[target] - math.log(sum(map(math.exp, logits))))
    assert close(found, torch.tensor(expected, dtype=torch.float64))
    assert not found.requires_grad
    assert sizes == {1: [1] * 7, 3: [3, 3, 1], 100: [7]}[chunk]


def test_log_probabilities_of_half_precision_are_single() -> None:
    # Two words with logits 0 and 3: log(1 / (1 + e^3)) = -3.0485874, of which bfloat16 holds -3.046875.
    states = torch.tensor([[1.0]], dtype=torch.bfloat16)
    weight = torch.tensor([[0.0], [3.0]], dtype=torch.bfloat16)
    found = log_probabilities(states, torch.tensor([0]), lambda part: part @ weight.T)
    assert found.dtype == torch.float32
    assert float(found) == pytest.approx(-3.0485874, abs=1e-6)
    nothing = log_probabilities(states[:0], torch.tensor([], dtype=torch.int64), lambda part: part @ weight.T)
    assert nothing.shape == (0,)
