"""Cross-entropy by chunks against torch's own, and its gradients against differences."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from headlights.translation.losses import smoothed_cross_entropy
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
    linear = F.linear

    def watched(*inputs: Tensor) -> Tensor:
        logits = linear(*inputs)
        sizes.append(len(logits))
        return logits

    monkeypatch.setattr(F, "linear", watched)
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
