"""What the library's own observations keep: they take any tile of the weights, and cost what it holds."""

from abc import abstractmethod
from bisect import bisect_left

import torch
from torch import Tensor
from torch.nn import functional as F

from headlights.attention._collectors import Pieces, Tensors
from headlights.attention._mask_shapes import Grid
from headlights.attention._tiles import Tile, folded


class Kept(Pieces):
    """A collector that can take its weights in tiles: some examples, heads, rows and keys at a time.

    Whatever is outside the tiles has weight 0. Results are joined as (P, H, ...), as `Tile` has it.

    Args:
        shape: Shape (*leading, N, M) of all weights.
    """

    adds = False
    """Whether tiles of the same place are added up."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.leading, (self.queries, self.keys) = shape[:-2], shape[-2:]
        grid = Grid(self.leading, self.queries, self.keys, torch.device("cpu"))
        self.outer, self.heads = folded(grid)
        self._joined: Tensors | None = None

    @abstractmethod
    def of(self, weights: Tensor, tile: Tile) -> Tensors:
        """Compute what is kept of a tile.

        Args:
            weights: Float, shape (..., n, m); may carry a graph.
            tile: Which they are.

        Returns:
            One tensor for each that is kept.
        """

    @abstractmethod
    def place(self, joined: Tensor, tile: Tile) -> Tensor:
        """Return the view of a joined tensor that belongs to a tile."""

    @abstractmethod
    def blank(self, like: Tensor) -> Tensors:
        """Return the joined tensors before anything was seen; type and device as `like`."""

    def begin(self, like: Tensor) -> None:
        """Make room for the results, of the type and on the device of `like`."""
        self._joined = self.blank(like)

    def keep(self, tile: Tile, weights: Tensor) -> None:
        """Take a tile's weights, shape (p, h, n, m), without a graph."""
        if self._joined is None:
            self.begin(weights)
        assert self._joined is not None
        for joined, found in zip(self._joined, self.of(weights, tile), strict=True):
            place = self.place(joined, tile)
            place.add_(found) if self.adds else place.copy_(found)

    def grad(self, tile: Tile, weights: Tensor, grads: list[Tensor | None]) -> Tensor | None:
        """Pull the gradients of the joined tensors back to a tile's weights.

        Args:
            tile: Which they are.
            weights: Shape (p, h, n, m).
            grads: One for each joined tensor, shaped as `take` returned it, or None.

        Returns:
            Shape (p, h, n, m), or None if there is no gradient.
        """
        leaf = weights.detach().requires_grad_()
        with torch.enable_grad():
            found = self.of(leaf, tile)
        pairs = [
            (tensor, self.place(self._fold(grad), tile))
            for tensor, grad in zip(found, grads, strict=True)
            if grad is not None and tensor.requires_grad
        ]
        if not pairs:
            return None
        outputs, upstream = zip(*pairs, strict=True)
        return torch.autograd.grad(outputs, leaf, upstream)[0]

    def whole(self, rows: slice) -> Tile:
        """Return the tile of some rows with all keys and all leading dimensions."""
        return Tile(slice(0, self.outer), slice(0, self.heads), rows, slice(0, self.keys))

    def piece(self, rows: slice, weights: Tensor) -> Tensors:
        return self.of(weights, self.whole(rows))

    def update(self, rows: slice, weights: Tensor) -> None:
        if rows.start == 0 and rows.stop == self.queries:
            self._pieces = [self.piece(rows, weights)]
            self.width = len(self._pieces[0])
        else:
            self.keep(self.whole(rows), weights.reshape(self.outer, self.heads, *weights.shape[-2:]))

    def take(self) -> Tensors:
        if self._joined is None:
            return super().take()
        joined, self._joined = self._joined, None
        self.width = len(joined)
        return tuple(self._unfold(tensor) for tensor in joined)

    def _unfold(self, joined: Tensor) -> Tensor:
        return joined.reshape(*self.leading, *joined.shape[2:])

    def _fold(self, tensor: Tensor) -> Tensor:
        return tensor.reshape(self.outer, self.heads, *tensor.shape[len(self.leading) :])


class All(Kept):
    """All weights, (P, H, N, M)."""

    def of(self, weights: Tensor, tile: Tile) -> Tensors:  # noqa: ARG002
        return (weights,)

    def place(self, joined: Tensor, tile: Tile) -> Tensor:
        return joined[tile]

    def blank(self, like: Tensor) -> Tensors:
        return (like.new_zeros(self.outer, self.heads, self.queries, self.keys),)


class Mean(Kept):
    """Weights averaged over heads, (P, N, M)."""

    adds = True

    def of(self, weights: Tensor, tile: Tile) -> Tensors:  # noqa: ARG002
        all_heads = weights.shape[-3] == self.heads
        return (weights.mean(-3) if all_heads else weights.sum(-3) / self.heads,)

    def place(self, joined: Tensor, tile: Tile) -> Tensor:
        return joined[tile.outer, tile.rows, tile.keys]

    def blank(self, like: Tensor) -> Tensors:
        return (like.new_zeros(self.outer, self.queries, self.keys),)

    def keep(self, tile: Tile, weights: Tensor) -> None:
        if self._joined is None:
            self.begin(weights)
        assert self._joined is not None
        place = self.place(self._joined[0], tile)
        for head in weights.unbind(1):
            place.add_(head, alpha=1 / self.heads)

    def _unfold(self, joined: Tensor) -> Tensor:
        return joined.reshape(*self.leading[:-1], *joined.shape[1:])

    def _fold(self, tensor: Tensor) -> Tensor:
        return tensor.reshape(self.outer, *tensor.shape[-2:])


class Disorder(Kept):
    """The entropy of each row in nats, (P, H, N)."""

    row_dim = -1

    def of(self, weights: Tensor, tile: Tile) -> Tensors:  # noqa: ARG002
        # The clamp makes 0 log 0 = 0 and its gradient finite; entr and xlogy have an infinite one.
        return ((weights * -weights.clamp_min(torch.finfo(weights.dtype).tiny).log()).sum(-1),)

    def place(self, joined: Tensor, tile: Tile) -> Tensor:
        return joined[tile[:3]]

    def blank(self, like: Tensor) -> Tensors:
        return (like.new_zeros(self.outer, self.heads, self.queries),)


class Largest(Kept):
    """The k largest weights of each row and where they are, twice (P, H, N, k).

    Args:
        shape: As in `Kept`.
        k: How many.
    """

    def __init__(self, shape: tuple[int, ...], k: int) -> None:
        super().__init__(shape)
        self.k = k

    def of(self, weights: Tensor, tile: Tile) -> Tensors:
        values, indices = top(weights, min(self.k, weights.shape[-1]))
        indices = (indices + tile.keys.start).masked_fill(values == 0, -1)
        missing = (0, self.k - values.shape[-1])
        return F.pad(values, missing), F.pad(indices, missing, value=-1)

    def place(self, joined: Tensor, tile: Tile) -> Tensor:
        return joined[tile[:3]]

    def blank(self, like: Tensor) -> Tensors:
        shape = (self.outer, self.heads, self.queries, self.k)
        return like.new_zeros(shape), like.new_full(shape, -1, dtype=torch.long)


class Column(Kept):
    """What each key receives, (P, H, M)."""

    adds = True
    row_dim = None

    def of(self, weights: Tensor, tile: Tile) -> Tensors:  # noqa: ARG002
        return (weights.sum(-2),)

    def place(self, joined: Tensor, tile: Tile) -> Tensor:
        return joined[tile.outer, tile.heads, tile.keys]

    def blank(self, like: Tensor) -> Tensors:
        return (like.new_zeros(self.outer, self.heads, self.keys),)


class Chosen(Kept):
    """Some rows, (P, H, R, M), joined in ascending order and returned in the order asked for.

    Args:
        shape: As in `Kept`.
        indices: Which rows, 0-based.
    """

    def __init__(self, shape: tuple[int, ...], indices: tuple[int, ...]) -> None:
        super().__init__(shape)
        self._order = sorted(range(len(indices)), key=indices.__getitem__)
        self._rows = [indices[place] for place in self._order]

    def _between(self, rows: slice) -> slice:
        return slice(bisect_left(self._rows, rows.start), bisect_left(self._rows, rows.stop))

    def of(self, weights: Tensor, tile: Tile) -> Tensors:
        local = [row - tile.rows.start for row in self._rows[self._between(tile.rows)]]
        return (weights.index_select(-2, torch.tensor(local, dtype=torch.long, device=weights.device)),)

    def place(self, joined: Tensor, tile: Tile) -> Tensor:
        return joined[tile.outer, tile.heads, self._between(tile.rows), tile.keys]

    def blank(self, like: Tensor) -> Tensors:
        return (like.new_zeros(self.outer, self.heads, len(self._rows), self.keys),)

    def finish(self, joined: Tensors) -> Tensor:
        places = torch.tensor(self._order, dtype=torch.long, device=joined[0].device)
        return joined[0].index_select(-2, places.argsort())


GROUP = 64
"""How many weights `top` compares as one."""


def top(weights: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Find the k largest of each row, faster than `topk` in long rows.

    The k largest lie in the k groups with the largest maxima, so that only those are searched. Which of
    equal weights is taken is left open, as in `topk`.

    Args:
        weights: Shape (..., m), 0 or more.
        k: How many, at most m.

    Returns:
        The values, descending, and their int64 positions, each (..., k).
    """
    groups = weights.shape[-1] // GROUP
    if groups < 2 * k:
        missing = 64 * k - weights.shape[-1]
        if 0 < missing <= 32 * k:  # from 64 k numbers on, `topk` takes a method that is twice as fast
            weights = F.pad(weights, (0, missing), value=-1)
        values, indices = weights.topk(k, -1)
        return values, indices
    end = GROUP * groups
    # Group g holds the keys g, g + groups, g + 2 groups, ...: maxima of whole rows are vectorised.
    members = weights[..., :end].view(*weights.shape[:-1], GROUP, groups)
    best = members.amax(-2).topk(k, -1, sorted=False).indices  # (..., k)
    found = members.gather(-1, best[..., None, :].expand(*best.shape[:-1], GROUP, k)).flatten(-2)
    values, places = torch.cat((found, weights[..., end:]), -1).topk(k, -1)
    within = torch.div(places, k, rounding_mode="floor") * groups + best.gather(-1, places % k)
    return values, torch.where(places < GROUP * k, within, places - GROUP * k + end)
