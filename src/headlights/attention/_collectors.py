"""How observations gather a call's weights: block of query rows by block, in order, each row once."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Tensors = tuple[Tensor, ...]


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


class Pieces(Collector):
    """A collector that computes a piece from each block alone and joins the pieces.

    Because a piece depends on its block and on nothing else, a differentiable observation of this kind needs
    no more memory than its result: the pieces are computed once more in the backward pass.
    """

    row_dim: int | None = -2
    """Where the query rows stand in a piece, counted from the end; None: the pieces are added up."""

    def __init__(self) -> None:
        self._pieces: list[Tensors] = []
        self.width = 1
        """How many tensors make a piece, known after the first."""

    @abstractmethod
    def piece(self, rows: slice, weights: Tensor) -> Tensor | Tensors:
        """Compute a piece.

        Args:
            rows: Which of the N query rows the block holds.
            weights: Float, shape (..., n, M).

        Returns:
            A tensor, or a tuple of tensors; those of floating type may carry gradients.
        """

    def finish(self, joined: Tensors) -> Any:
        """Turn the joined pieces into the result.

        Args:
            joined: One tensor for each that `piece` returns.

        Returns:
            The result; by default the tensor itself, or the tuple.
        """
        return joined[0] if len(joined) == 1 else joined

    def update(self, rows: slice, weights: Tensor) -> None:
        piece = self.piece(rows, weights)
        piece = (piece,) if isinstance(piece, Tensor) else tuple(piece)
        self.width = len(piece)
        if self.row_dim is None and self._pieces:
            piece = tuple(total + part for total, part in zip(self._pieces.pop(), piece, strict=True))
        self._pieces.append(piece)

    def take(self) -> Tensors:
        """Hand out the joined pieces, one tensor for each that `piece` returns, and keep none of them."""
        pieces, self._pieces = self._pieces, []
        if len(pieces) == 1 or self.row_dim is None:
            return pieces[0]
        dim = self.row_dim
        return tuple(torch.cat(tensors, dim) for tensors in zip(*pieces, strict=True))

    def result(self) -> Any:
        return self.finish(self.take())


class PerRow(Pieces):
    """Applies a function to each block and joins the results along the query rows.

    Args:
        function: Maps weights (..., n, M) to a tensor with n at `row_dim`, or to a (named) tuple of such
            tensors; each row's result depends on that row alone.
        row_dim: Where the query rows stand in what `function` returns, counted from the end.
    """

    def __init__(self, function: Callable[[Tensor], Any], row_dim: int = -2) -> None:
        super().__init__()
        self._function = function
        self.row_dim: int = row_dim
        self._make: Callable[[Tensors], Any] | None = None

    def piece(self, rows: slice, weights: Tensor) -> Tensor | Tensors:  # noqa: ARG002
        piece: Tensor | Tensors = self._function(weights)
        if not isinstance(piece, Tensor):
            self._make = getattr(piece, "_make", tuple)
        return piece

    def finish(self, joined: Tensors) -> Any:
        return joined[0] if self._make is None else self._make(joined)


class Sum(Pieces):
    """Applies a function to each block and adds the results up.

    Args:
        function: Maps weights (..., n, M) to a tensor whose shape does not depend on n.
    """

    row_dim = None

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self._function = function

    def piece(self, rows: slice, weights: Tensor) -> Tensor:  # noqa: ARG002
        return self._function(weights)


class Whole(PerRow):
    """A `PerRow` for results with a row of M for each query: blocks are written into one tensor.

    Joining them at the end would hold everything twice.

    Args:
        function: Maps weights (..., n, M) to (..., n, M).
        rows: N.
    """

    def __init__(self, function: Callable[[Tensor], Tensor], rows: int) -> None:
        super().__init__(function)
        self._rows = rows

    def update(self, rows: slice, weights: Tensor) -> None:
        count = rows.stop - rows.start
        if count == self._rows or weights.requires_grad:
            super().update(rows, weights)
            return
        piece = self._function(weights)
        if not self._pieces:
            self._pieces.append((piece.new_empty(*piece.shape[:-2], self._rows, piece.shape[-1]),))
        self._pieces[0][0][..., rows, :] = piece
