"""Observations: what to keep of the weights, while they exist.

Weights are observed before dropout, block of query rows by block, so that only `Weights` and `MeanWeights`
need memory for all N*M of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = [
    "Collector",
    "Entropy",
    "MeanWeights",
    "Observation",
    "PerRow",
    "Top",
    "TopWeights",
    "Weights",
]


class Collector(ABC):
    """Takes one call's weights block by block; made by `Observation.start`, used once."""

    @abstractmethod
    def update(self, rows: slice, weights: Tensor) -> None:
        """Take the next block of query rows; blocks arrive in order and cover all rows once.

        Args:
            rows: Which of the N query rows these are.
            weights: Float, shape (..., n, M), before dropout; rows sum to 1, or to 0 where no key is visible.
                Attached to the graph only if the observation is differentiable. Not to be changed or kept
                without a copy.
        """

    @abstractmethod
    def result(self) -> Any:
        """Return what was observed: a tensor or a named tuple of tensors."""


class Observation(ABC):
    """Base of all observations: a description of what to keep, reusable and without state.

    A subclass defines `start`, which returns a fresh `Collector` for one call; `PerRow` is a collector for
    whatever is computed from each query row alone.

    Args:
        differentiable: Keep what is observed attached to the graph, for losses on it such as guided
            alignment. Default: results are detached.
    """

    def __init__(self, *, differentiable: bool = False) -> None:
        self.differentiable = differentiable

    @abstractmethod
    def start(self, shape: tuple[int, ...]) -> Collector:
        """Begin to observe one call.

        Args:
            shape: Shape (..., N, M) of all its weights.

        Returns:
            A collector that will be given the blocks.

        Raises:
            ValueError: The observation makes no sense for this shape.
        """

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v}' for k, v in vars(self).items())})"


class PerRow(Collector):
    """Applies a function to each block and joins the results along the query rows.

    Args:
        function: Maps weights (..., n, M) to a tensor with n at `row_dim`.
        row_dim: Where the query rows stand in what `function` returns, counted from the end.
    """

    def __init__(self, function: Callable[[Tensor], Tensor], row_dim: int = -2) -> None:
        self._function = function
        self._row_dim = row_dim
        self._blocks: list[Tensor] = []

    def update(self, rows: slice, weights: Tensor) -> None:  # noqa: ARG002
        self._blocks.append(self._function(weights))

    def result(self) -> Any:
        return self._blocks[0] if len(self._blocks) == 1 else torch.cat(self._blocks, self._row_dim)


class Weights(Observation):
    """All weights, shape (..., N, M), each in 0..1; float32 for half-precision inputs.

    Args:
        differentiable: Keep them attached to the graph. Default: detached.
    """

    def start(self, shape: tuple[int, ...]) -> Collector:  # noqa: ARG002
        return PerRow(lambda weights: weights)


class MeanWeights(Observation):
    """Weights averaged over heads, the last leading dimension: (..., H, N, M) gives (..., N, M).

    Args:
        differentiable: Keep them attached to the graph. Default: detached.
    """

    def start(self, shape: tuple[int, ...]) -> Collector:
        if len(shape) < 3:
            raise ValueError(
                f"MeanWeights: weights of shape {shape} have no head dimension; observe Weights()"
            )
        return PerRow(lambda weights: weights.mean(-3))


class Entropy(Observation):
    """Entropy of each query's weights in nats, shape (..., N): 0 for one key or none, log M at most.

    Args:
        differentiable: Keep it attached to the graph. Default: detached.
    """

    def start(self, shape: tuple[int, ...]) -> Collector:  # noqa: ARG002
        return PerRow(_entropy, row_dim=-1)


class Top(NamedTuple):
    """The largest weights of each query and where they are.

    Attributes:
        values: Float, shape (..., N, k), descending; unused slots hold 0.
        indices: Int64, shape (..., N, k), positions of the keys, 0-based; unused slots hold -1.
    """

    values: Tensor
    indices: Tensor


class TopWeights(Observation):
    """The k largest weights of each query, as `Top(values, indices)`, in memory of N*k.

    A slot is unused if fewer than k keys have a weight above 0.

    Args:
        k: How many, 1 or more; may exceed M.
        differentiable: Keep the values attached to the graph. Default: detached.

    Raises:
        ValueError: `k` is below 1.
    """

    def __init__(self, k: int, *, differentiable: bool = False) -> None:
        super().__init__(differentiable=differentiable)
        if k < 1:
            raise ValueError(f"TopWeights: k must be 1 or more, got {k}")
        self.k = k

    def start(self, shape: tuple[int, ...]) -> Collector:  # noqa: ARG002
        return _TopCollector(self.k)


class _TopCollector(Collector):
    def __init__(self, k: int) -> None:
        self._k = k
        self._blocks: list[Top] = []

    def update(self, rows: slice, weights: Tensor) -> None:  # noqa: ARG002
        values, indices = weights.topk(min(self._k, weights.shape[-1]), dim=-1)
        indices = indices.masked_fill(values == 0, -1)
        missing = (0, self._k - values.shape[-1])
        pad = torch.nn.functional.pad
        self._blocks.append(Top(pad(values, missing), pad(indices, missing, value=-1)))

    def result(self) -> Top:
        values, indices = zip(*self._blocks, strict=True)
        return Top(torch.cat(values, -2), torch.cat(indices, -2))


def _entropy(weights: Tensor) -> Tensor:
    # The clamp makes 0 log 0 = 0 and its gradient finite; entr and xlogy have an infinite one.
    return (weights * -weights.clamp_min(torch.finfo(weights.dtype).tiny).log()).sum(-1)
