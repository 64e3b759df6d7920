"""Cross-entropy straight from states: logits exist for one chunk of tokens at a time, and are made once."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


def smoothed_cross_entropy(
    states: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    *,
    smoothing: float = 0.0,
    chunk: int = 256,
) -> tuple[Tensor, Tensor]:
    """Cross-entropy of logits `states @ weight.T + bias` with label smoothing, summed over tokens.

    With logits z, target y, V words and share s = `smoothing`, a token costs logsumexp(z) - (1 - s) z_y -
    s mean(z), and its gradient by z is softmax(z) - (1 - s) onehot(y) - s / V. Both are made of the same
    softmax, chunk by chunk, so nothing of the size tokens times V is kept for the way back. The last term of
    each is the same for all words, and so needs no pass over them.

    Args:
        states: Float, shape (tokens, E).
        weight: One row a word, float, shape (V, E).
        bias: Float, shape (V,), or None.
        targets: Right words, int64, shape (tokens,).
        smoothing: Share of the target probability that is spread over all words, in [0, 1).
        chunk: Tokens whose logits exist at once.

    Returns:
        smoothed: What to minimise, in nats, with gradient, shape ().
        cross_entropy: Without smoothing, in nats, no gradient, shape ().
    """
    apply: Any = _CrossEntropy.apply  # torch leaves it without types
    smoothed, cross_entropy = apply(states, weight, bias, targets, smoothing, chunk)
    return smoothed, cross_entropy


@torch.no_grad()
def log_probabilities(
    states: Tensor, targets: Tensor, project: Callable[[Tensor], Tensor], *, chunk: int = 256
) -> Tensor:
    """How probable each right word is; without gradient.

    Args:
        states: What `project` turns into logits, float, shape (tokens, E).
        targets: Right words, int64, shape (tokens,).
        project: States (n, E) to logits (n, V), as the decoder's.
        chunk: Tokens whose logits exist at once.

    Returns:
        Natural logarithms, of single precision at least, shape (tokens,).
    """
    found = states.new_empty(len(targets), dtype=torch.promote_types(states.dtype, torch.float32))
    for start in range(0, len(targets), chunk):
        part, target = states[start : start + chunk], targets[start : start + chunk, None]
        logits = project(part).to(found.dtype)  # (chunk, V)
        found[start : start + chunk] = logits.log_softmax(1).gather(1, target).squeeze(1)
    return found


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        chunk: int,
    ) -> tuple[Tensor, Tensor]:
        with_gradient = any(ctx.needs_input_grad[:3])
        gradients = _Gradients(states, weight, bias) if with_gradient else None
        total = states.new_zeros((), dtype=torch.promote_types(states.dtype, torch.float32))
        chosen, even = total.clone(), total.clone()
        mean_weight, mean_bias = weight.mean(0), 0.0 if bias is None else bias.mean()
        for start in range(0, len(targets), chunk):
            part, target = states[start : start + chunk], targets[start : start + chunk, None]
            logits = F.linear(part, weight, bias).to(total.dtype)  # (chunk, V)
            chosen += logits.gather(1, target).sum()
            even += (part @ mean_weight + mean_bias).sum()  # of each token, the mean of its logits
            highest = logits.amax(1)
            probabilities = logits.softmax(1)
            del logits
            total += (highest - probabilities.amax(1).log()).sum()  # logsumexp: the highest has exp(0) / sum
            if gradients is not None:
                probabilities.scatter_add_(1, target, highest.new_full(target.shape, smoothing - 1.0))
                gradients.add(start, part, probabilities)
        if gradients is not None:
            gradients.spread(smoothing, states, mean_weight)
            ctx.save_for_backward(gradients.states, gradients.weight, gradients.bias)
        cross_entropy = total - chosen
        ctx.mark_non_differentiable(cross_entropy)
        return total - (1.0 - smoothing) * chosen - smoothing * even, cross_entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_smoothed: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        found = [None if each is None else each * by_smoothed.to(each.dtype) for each in ctx.saved_tensors]
        return (*found, None, None, None)


class _Gradients:
    """Gradients of the summed loss, chunk by chunk."""

    def __init__(self, states: Tensor, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = weight
        self.states = torch.empty_like(states)
        self.weight = torch.zeros_like(weight)
        self.bias = None if bias is None else torch.zeros_like(bias)

    def add(self, start: int, part: Tensor, by_logits: Tensor) -> None:
        """Count the tokens from `start` on: states (chunk, E) and the gradient of their logits (chunk, V)."""
        self.states[start : start + len(part)] = by_logits.to(self._weight.dtype) @ self._weight
        if part.dtype == self.weight.dtype:
            self.weight.addmm_(by_logits.T, part)
        else:  # autocast: a product of short numbers, added up in long ones
            self.weight += by_logits.T.to(part.dtype) @ part
        if self.bias is not None:
            self.bias += by_logits.sum(0)

    def spread(self, smoothing: float, states: Tensor, mean_weight: Tensor) -> None:
        """Take `smoothing` / V off the gradient of every logit."""
        share = smoothing / len(self.weight)
        self.states -= smoothing * mean_weight
        self.weight -= share * states.sum(0)
        if self.bias is not None:
            self.bias -= share * len(states)
