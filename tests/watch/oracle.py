"""What recorded weights are compared with: plain Python loops over float64 numbers, and small models."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def loop_weights(
    query: Tensor, key: Tensor, *, scale: float, visible: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    """Weights of each query over the short list of keys it may see; no masked softmax, no matrix product.

    Args:
        query: Shape (*leading, N, D).
        key: Shape (*leading, M, D).
        scale: Factor of the products.
        visible: Bool, broadcastable to (*leading, N, M).
        bias: Added, same shapes; minus infinity hides.

    Returns:
        Shape (*leading, N, M), float64.
    """
    query, key = query.detach().double(), key.detach().double()
    shape = (*query.shape[:-1], key.shape[-2])
    seen = torch.ones(shape, dtype=torch.bool) if visible is None else visible.expand(shape)
    added = torch.zeros(shape).double() if bias is None else bias.detach().double().expand(shape)
    weights = torch.zeros(shape, dtype=torch.float64)
    for row in itertools.product(*map(range, shape[:-1])):
        scores = {}
        for j in range(shape[-1]):
            if seen[row][j] and added[row][j] > -math.inf:
                product = math.fsum((query[row] * key[row[:-1]][j]).tolist())
                scores[j] = product * scale + added[row][j].item()
        top = max(scores.values(), default=0.0)
        total = math.fsum(math.exp(score - top) for score in scores.values())
        for j, score in scores.items():
            weights[row][j] = math.exp(score - top) / total
    return weights


def close(result: Tensor, expected: Tensor) -> bool:
    """Compare weights to rounding: 1e-12 in float64, 1e-6 in float32.

    Args:
        result: What was recorded.
        expected: The right answer.

    Returns:
        Whether shapes agree and no element is further off.
    """
    bound = {torch.float64: 1e-12, torch.float32: 1e-6}[result.dtype]
    if result.shape != expected.shape or result.requires_grad:
        return False
    return bool(((result.double() - expected.double()).abs() <= bound).all())


class Calls(nn.Module):
    """A model that is one function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


class SdpaAttention(nn.Module):
    """Hand-written self-attention over torch's fused operation."""

    def __init__(self, width: int = 6, heads: int = 2, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.inner = nn.Linear(width, 3 * width)

    def heads_of(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        B, N, _ = x.shape
        query, key, value = (
            self.inner(x).reshape(B, N, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )  # (B, H, N, D)
        return query, key, value

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.heads_of(x)
        dropout = self.dropout if self.training else 0.0
        context = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
        return context.transpose(1, 2).flatten(2)

    def expected(self, x: Tensor) -> Tensor:
        query, key, _ = self.heads_of(x)
        return loop_weights(query, key, scale=query.shape[-1] ** -0.5)


class EagerAttention(SdpaAttention):
    """The same by hand, returning the weights that it applied."""

    def __init__(self, width: int = 6, heads: int = 2, dropout: float = 0.0) -> None:
        super().__init__(width, heads, dropout)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Any:
        query, key, value = self.heads_of(x)
        weights = self.drop(torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1))
        return (weights @ value).transpose(1, 2).flatten(2), weights


class SilentAttention(EagerAttention):
    """The same by hand, returning the context alone."""

    def forward(self, x: Tensor) -> Any:
        context, _ = super().forward(x)
        return context


class Stack(nn.Module):
    """Layers one after the other; of a tuple the first goes on."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            output = layer(x)
            x = output[0] if isinstance(output, tuple) else output
        return x
