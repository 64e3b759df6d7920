"""An associative memory: attention over pairs that were written into it."""

from collections.abc import Callable

import torch
from torch import Tensor

from headlights.attention._attend import attend
from headlights.attention._observations import TopWeights
from headlights.attention._scores import Score, as_score


class AssociativeMemory:
    """Stores key-value pairs and answers a query with the values of the keys that fit it.

    Source: source A, "Attention Function". A query along one key and far from all others brings back that
    key's value; without an exact match the answer is a weighted mean of values in which the most similar
    keys weigh most.

    Args:
        score: How well a query fits a key, as in `attend`. Default: `ScaledDot()`.

    Example:
        >>> import torch
        >>> from headlights import AssociativeMemory
        >>> memory = AssociativeMemory()
        >>> memory.write(torch.tensor([[9.0, 0.0], [0.0, 9.0]]), torch.tensor([[1.0], [2.0]])).length
        2
        >>> memory.read(torch.tensor([0.0, 9.0])).round().tolist()
        [2.0]
    """

    def __init__(self, *, score: Score | Callable[[Tensor, Tensor], Tensor] | None = None) -> None:
        self.score = as_score(score)
        self._key: Tensor | None = None
        self._value: Tensor | None = None

    @property
    def length(self) -> int:
        """Number of stored pairs."""
        return 0 if self._key is None else self._key.shape[0]

    def write(self, key: Tensor, value: Tensor) -> "AssociativeMemory":
        """Store pairs behind those already there; nothing is overwritten.

        Args:
            key: Float, shape (E,) for one pair or (n, E).
            value: Float, shape (E_v,) or (n, E_v).

        Returns:
            The memory itself, so that writes can be chained.

        Raises:
            ValueError: Keys and values differ in number, or in width from those stored.
        """
        if key.ndim != value.ndim or key.ndim not in (1, 2) or key.shape[:-1] != value.shape[:-1]:
            raise ValueError(
                f"write: expected key (E,) and value (E_v,), or (n, E) and (n, E_v), "
                f"got {tuple(key.shape)} and {tuple(value.shape)}"
            )
        keys, values = (key[None], value[None]) if key.ndim == 1 else (key, value)
        if self._key is None or self._value is None:
            self._key, self._value = keys.clone(), values.clone()
            return self
        stored, widths = (self._key.shape[1], self._value.shape[1]), (keys.shape[1], values.shape[1])
        if stored != widths:
            raise ValueError(
                f"write: expected widths (E, E_v) = {stored} as stored, got {widths}; "
                "pairs of other widths need a memory of their own"
            )
        self._key, self._value = torch.cat((self._key, keys)), torch.cat((self._value, values))
        return self

    def read(self, query: Tensor) -> Tensor:
        """Answer each query with the weighted mean of the stored values.

        Args:
            query: Float, shape (..., E).

        Returns:
            Shape (..., E_v).

        Raises:
            ValueError: Nothing is stored.
        """
        key, value = self._pairs()
        return attend(query.reshape(-1, query.shape[-1]), key, value, score=self.score).reshape(
            *query.shape[:-1], value.shape[-1]
        )

    def nearest(self, query: Tensor) -> Tensor:
        """Tell which stored key fits each query best, the one with the largest weight.

        Args:
            query: Float, shape (..., E).

        Returns:
            Int64, shape (...), positions in the order of writing, 0-based.

        Raises:
            ValueError: Nothing is stored.
        """
        key, value = self._pairs()
        rows = query.reshape(-1, query.shape[-1])
        _, top = attend(rows, key, value[:, :0], score=self.score, observe=TopWeights(1))
        nearest: Tensor = top.indices
        return nearest.reshape(query.shape[:-1])

    def _pairs(self) -> tuple[Tensor, Tensor]:
        if self._key is None or self._value is None:
            raise ValueError("memory: nothing is stored; write pairs before reading")
        return self._key, self._value
