"""Observations: what to keep of the weights, while they exist.

Weights are observed before dropout, block of query rows by block, so that only `Weights` and `MeanWeights`
need memory for all N*M of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from headlights.attention._collectors import Collector, PerRow, Pieces, Sum
from headlights.attention._kept import All, Chosen, Column, Disorder, Largest, Mean

__all__ = [
    "Collector",
    "Entropy",
    "MeanWeights",
    "Observation",
    "PerRow",
    "Pieces",
    "Received",
    "Rows",
    "Sum",
    "Top",
    "TopWeights",
    "Weights",
]


class Observation(ABC):
    """Base of all observations: a description of what to keep, reusable and without state.

    A subclass defines `start`, which returns a fresh `Collector` for one call: `PerRow` for whatever is
    computed from each query row alone, `Sum` for what adds up over the rows, or a collector of your own. One
    of your own that is differentiable is given all rows at once on every path, and so costs N*M of memory.

    Args:
        differentiable: Keep what is observed attached to the graph, for losses on it such as guided
            alignment. Default: results are detached.

    Example:
        >>> import torch
        >>> from headlights import attend, observations
        >>> class Largest(observations.Observation):
        ...     def start(self, shape):
        ...         return observations.PerRow(lambda weights: weights.amax(-1), row_dim=-1)
        >>> _, largest = attend(torch.zeros(3, 2), torch.ones(4, 2), torch.ones(4, 2), observe=Largest())
        >>> largest.tolist()
        [0.25, 0.25, 0.25]
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


class Weights(Observation):
    """All weights, shape (..., N, M), each in 0..1; float32 for half-precision inputs.

    Args:
        differentiable: Keep them attached to the graph. Default: detached.
    """

    def start(self, shape: tuple[int, ...]) -> Collector:
        return All(shape)


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
        return Mean(shape)


class Entropy(Observation):
    """Entropy of each query's weights in nats, shape (..., N): 0 for one key or none, log M at most.

    Args:
        differentiable: Keep it attached to the graph. Default: detached.
    """

    def start(self, shape: tuple[int, ...]) -> Collector:
        return Disorder(shape)


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

    def start(self, shape: tuple[int, ...]) -> Collector:
        return Ranked(shape, self.k)


class Ranked(Largest):
    """`Largest` as a `Top`."""

    def finish(self, joined: tuple[Tensor, ...]) -> Top:
        return Top(*joined)


class Received(Observation):
    """How much each key receives: its weights summed over the queries, shape (..., M), 0..N each.

    Args:
        differentiable: Keep it attached to the graph. Default: detached.
    """

    def start(self, shape: tuple[int, ...]) -> Collector:
        return Column(shape)


class Rows(Observation):
    """All weights of some queries, shape (..., R, M), in the order asked for.

    Args:
        indices: Positions of R queries, 0-based, in any order; one may come twice.
        differentiable: Keep them attached to the graph. Default: detached.

    Raises:
        ValueError: An index is negative, or N or more; the latter is seen when a call is observed.
    """

    def __init__(self, indices: Sequence[int] | Tensor, *, differentiable: bool = False) -> None:
        super().__init__(differentiable=differentiable)
        listed = indices.tolist() if isinstance(indices, Tensor) else indices
        self.indices = tuple(int(index) for index in listed)
        if min(self.indices, default=0) < 0:
            raise ValueError(f"Rows: expected indices of 0 or more, got {min(self.indices)}")

    def start(self, shape: tuple[int, ...]) -> Collector:
        if max(self.indices, default=-1) >= shape[-2]:
            raise ValueError(f"Rows: there are {shape[-2]} queries and no index {max(self.indices)}")
        return Chosen(shape, self.indices)
