"""Cross-entropy straight from states: logits exist for one chunk of tokens at a time, and are made once."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


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
        layer = _OutputLayer(states, weight, bias, chunk)
        gradients = _Gradients(layer, smoothing) if any(ctx.needs_input_grad[:3]) else None
        total = states.new_zeros((), dtype=layer.long)
        chosen = total.clone()
        for start in range(0, len(targets), chunk):
            rows, target = slice(start, start + chunk), targets[start : start + chunk, None]
            logits = layer.logits(rows)  # (chunk, V)
            chosen += logits.gather(1, target).sum()
            probabilities = layer.softmax(logits)
            # logsumexp: the most probable word has logit h and probability exp(h) / sum.
            total += (logits.amax(1) - probabilities.amax(1).log_()).sum()
            if gradients is not None:
                gradients.add(rows, probabilities, target)
        if gradients is not None:
            ctx.save_for_backward(gradients.states, gradients.weight, gradients.bias)
        cross_entropy = total - chosen
        ctx.mark_non_differentiable(cross_entropy)
        return total - (1.0 - smoothing) * chosen - smoothing * layer.mean_logits(), cross_entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_smoothed: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        found = [None if each is None else each * by_smoothed.to(each.dtype) for each in ctx.saved_tensors]
        return (*found, None, None, None)


class _OutputLayer:
    """States and the table of words in the type of their products, and the memory that the chunks share.

    For memory of its own, each chunk would wait longer than for its softmax.
    """

    def __init__(self, states: Tensor, weight: Tensor, bias: Tensor | None, chunk: int) -> None:
        kind = states.device.type
        self.short = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
        self.long = torch.promote_types(self.short, torch.float32)
        self.given = states, weight, bias
        self.states, self.weight = states.to(self.short), weight.to(self.short)
        self.bias = None if bias is None else bias.to(self.short)
        shape = min(chunk, len(states)), len(weight)
        self.scratch = states.new_empty(shape, dtype=self.short)  # the logits, then their gradient
        self._logits = self.scratch if self.long == self.short else states.new_empty(shape, dtype=self.long)
        self._probabilities = states.new_empty(shape, dtype=self.long)

    def logits(self, rows: slice) -> Tensor:
        part = self.states[rows]
        out = self.scratch[: len(part)]
        with torch.autocast(part.device.type, enabled=False):
            if self.bias is None:
                torch.mm(part, self.weight.T, out=out)
            else:
                torch.addmm(self.bias, part, self.weight.T, out=out)
        return out if self._logits is self.scratch else self._logits[: len(part)].copy_(out)

    def softmax(self, logits: Tensor) -> Tensor:
        return torch.softmax(logits, 1, out=self._probabilities[: len(logits)])

    def mean_logits(self) -> Tensor:
        """Of each token, the mean of its logits; their sum."""
        states, weight, bias = self.given
        of_words = (states.sum(0, dtype=self.long) * weight.mean(0)).sum()
        return of_words if bias is None else of_words + len(states) * bias.mean()


class _Gradients:
    """Gradients of the summed loss, chunk by chunk."""

    def __init__(self, layer: _OutputLayer, smoothing: float) -> None:
        self._layer, self._smoothing = layer, smoothing
        states, weight, bias = layer.given
        # Taking `smoothing` / V off the gradient of every logit comes to this.
        share = smoothing / len(weight)
        self.states = (-smoothing * weight.mean(0)).to(states.dtype).repeat(len(states), 1)
        self.weight = (-share * states.sum(0, dtype=layer.long)).to(weight.dtype).repeat(len(weight), 1)
        self.bias = None if bias is None else torch.full_like(bias, -share * len(states))

    def add(self, rows: slice, probabilities: Tensor, target: Tensor) -> None:
        """Count the tokens `rows`, whose words (chunk, V) are so probable; overwrites that."""
        layer = self._layer
        certain = probabilities.new_full(target.shape, self._smoothing - 1.0)
        by_logits = probabilities.scatter_add_(1, target, certain)
        if self.bias is not None:
            self.bias += by_logits.sum(0)
        short = by_logits if layer.short == layer.long else layer.scratch[: len(target)].copy_(by_logits)
        with torch.autocast(short.device.type, enabled=False):
            self.states[rows] += short @ layer.weight
            if layer.short == self.weight.dtype:
                self.weight.addmm_(short.T, layer.states[rows])
            else:  # a product of short numbers, added up in long ones
                self.weight += short.T @ layer.states[rows]
