"""What the attention layer is compared with: plain Python loops over float64 numbers, one query at a time."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

PairScore = Callable[[Tensor, Tensor], Tensor]


def loops(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    pair_score: PairScore,
    visible: Tensor | None = None,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attend with no softmax over hidden keys at all: each query averages the short list of keys it may see.

    Args:
        query: Shape (*leading, N, E_q), all three with the same leading dimensions.
        key: Shape (*leading, M, E_k).
        value: Shape (*leading, M, E_v).
        pair_score: Score of one query vector and one key vector.
        visible: Bool, broadcastable to (*leading, N, M).
        bias: Float, broadcastable to the same; minus infinity hides.

    Returns:
        Context and weights in float64, attached to the graph of the inputs.
    """
    query, key, value = query.double(), key.double(), value.double()
    leading, N, M = query.shape[:-2], query.shape[-2], key.shape[-2]
    shape = (*leading, N, M)
    seen = torch.ones(shape, dtype=torch.bool) if visible is None else visible.expand(shape)
    added = torch.zeros(shape, dtype=torch.float64) if bias is None else bias.double().expand(shape)
    weights, contexts = [], []
    for row in _positions((*leading, N)):
        at = row[:-1]
        keys = [j for j in range(M) if seen[row][j] and added[row][j] != -math.inf]
        scores = [pair_score(query[row], key[at][j]) + added[row][j] for j in keys]
        top = max((float(score.detach()) for score in scores), default=0.0)
        parts = [torch.exp(score - top) for score in scores]
        total = sum(parts, torch.zeros((), dtype=torch.float64))
        context = torch.zeros(value.shape[-1], dtype=torch.float64) + 0 * value.sum()
        weight = [torch.zeros((), dtype=torch.float64) for _ in range(M)]
        for j, part in zip(keys, parts, strict=True):
            weight[j] = part / total
            context = context + weight[j] * value[at][j]
        weights.append(torch.stack(weight) if M else torch.zeros(0, dtype=torch.float64))
        contexts.append(context)
    if not contexts:
        return torch.zeros(*leading, N, value.shape[-1]).double(), torch.zeros(shape).double()
    return torch.stack(contexts).reshape(*leading, N, -1), torch.stack(weights).reshape(shape)


def scaled_dot(query: Tensor, key: Tensor) -> Tensor:
    return (query * key).sum() / math.sqrt(len(query))


def dot(scale: float) -> PairScore:
    return lambda query, key: scale * (query * key).sum()


def _positions(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    positions: list[tuple[int, ...]] = [()]
    for size in sizes:
        positions = [(*position, i) for position in positions for i in range(size)]
    return positions


def close(result: Tensor, expected: Tensor, dtype: torch.dtype | None = None) -> bool:
    """Compare to rounding, relative to the largest number or 1: 1e-12 in float64, 1e-6 in float32.

    Args:
        result: What the library computed.
        expected: The right answer in float64.
        dtype: Whose rounding to allow. Default: that of `result`.

    Returns:
        Whether shapes agree and no element is further off.
    """
    tolerance = {
        torch.float64: 1e-12,
        torch.float32: 1e-6,
        torch.bfloat16: 2**-6,  # its step is 2^-7
        torch.float16: 2**-9,  # its step is 2^-10
    }[dtype or result.dtype]
    if result.shape != expected.shape:
        return False
    if result.numel() == 0:
        return True
    bound = tolerance * max(1.0, float(expected.detach().abs().max()))
    return bool(((result.double() - expected).detach().abs() <= bound).all())
