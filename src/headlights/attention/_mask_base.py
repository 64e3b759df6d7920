"""The base of all masks, and how masks combine."""

import torch
from torch import Tensor

from headlights.attention._mask_explanation import Explanation, explain
from headlights.attention._mask_shapes import Block, Grid, both, broadcast


class Mask:
    """Base of all masks: combine them with `&` (both), `|` (either) and `~` (the opposite).

    `bias & bias` adds the two, `bias & boolean` applies both; `|` and `~` need boolean masks. To add a rule,
    subclass and define `evaluate`; a rule that hides most keys also defines `key_range` and `evaluate_part`,
    so that what is hidden costs nothing.
    """

    bias_dtype: torch.dtype | None = None
    """Type of what the mask adds to the scores, None for a boolean mask."""

    def evaluate(self, grid: Grid, start: int, stop: int) -> Block:
        """Apply the rule to the query rows start..stop-1.

        Args:
            grid: The sizes of the whole.
            start: First row of the block, 0-based.
            stop: One past the last row.

        Returns:
            What is visible and what is added, each broadcastable to (*leading, stop - start, M).

        Raises:
            ValueError: A tensor of the mask does not fit the sizes.
        """
        raise NotImplementedError(f"{type(self).__name__} must define evaluate(grid, start, stop)")

    def key_range(self, grid: Grid, start: int, stop: int) -> slice:  # noqa: ARG002
        """Bound the keys that the rows start..stop-1 may see, from the sizes alone and never from values.

        Args:
            grid: The sizes of the whole.
            start: First row of the block, 0-based.
            stop: One past the last row.

        Returns:
            A slice start..stop within 0..M; every key outside it is hidden from all these rows.
        """
        return slice(0, grid.keys)

    def seen_range(self, grid: Grid, start: int, stop: int) -> slice:
        """Bound the keys that the rows start..stop-1 may see, from values too, so in eager mode only.

        Args:
            grid: The sizes of the whole.
            start: First row of the block, 0-based.
            stop: One past the last row.

        Returns:
            As `key_range`, or a narrower slice.
        """
        return self.key_range(grid, start, stop)

    def shown_share(self, grid: Grid) -> float:
        """Estimate from above which share of the pairs is visible, from values too, so in eager mode only.

        Args:
            grid: The sizes of the whole, none of them 0.

        Returns:
            A number in 0..1: the mean of what `seen_range` leaves to a few rows.
        """
        rows = range(grid.queries // 8, grid.queries, max(grid.queries // 4, 1))
        ranges = [self.seen_range(grid, row, row + 1) for row in rows]
        shown = sum(int(keys.stop - keys.start) for keys in ranges)
        return shown / (len(ranges) * grid.keys)

    def evaluate_part(self, grid: Grid, start: int, stop: int, keys: slice) -> Block:
        """Apply the rule to the query rows start..stop-1 and to some of the keys.

        Args:
            grid: The sizes of the whole.
            start: First row of the block, 0-based.
            stop: One past the last row.
            keys: Which keys, a slice start..stop within 0..M.

        Returns:
            As `evaluate`, with the number of these keys in the place of M.
        """
        block = self.evaluate(grid, start, stop)
        if keys.stop - keys.start == grid.keys:
            return block
        # A last dimension of 1 stands for any number of keys.
        parts = (t if t is None or t.shape[-1] == 1 else t[..., keys] for t in block)
        return Block(*parts)

    def is_plain_causal(self, grid: Grid) -> bool:
        """Tell whether the mask is the lower triangle of a square, which fused kernels know by name.

        Args:
            grid: The sizes of the whole.

        Returns:
            True if query i sees exactly the keys 0..i and N = M; False may also mean "not known".
        """
        del grid
        return False

    def explain(self, queries: int, keys: int, *, leading: tuple[int, ...] | None = None) -> Explanation:
        """Show what the mask does at given sizes: a small drawing, dead rows, what each part hides.

        Args:
            queries: N.
            keys: M.
            leading: Leading dimensions of the inputs, such as (B, H). Default: those of the mask's tensors.

        Returns:
            A value that prints as text and holds the same facts as tensors and numbers.

        Raises:
            ValueError: A tensor of the mask does not fit the sizes.

        Example:
            >>> from headlights import masks
            >>> print((masks.causal() & masks.lengths(2)).explain(3, 3))
            causal() & lengths(2): 3 queries (rows), 3 keys (columns); # may look, . hidden
            #..
            ##.
            ##.
            no dead rows
            causal() hides 3 of 9 pairs, 1 of them alone
            lengths(2) hides 3 of 9 pairs, 1 of them alone
        """
        grid = Grid(self.own_leading() if leading is None else leading, queries, keys, torch.device("cpu"))
        return explain(
            repr(self), grid, [(repr(part), part.evaluate(grid, 0, queries)) for part in self.parts()]
        )

    def own_leading(self) -> tuple[int, ...]:
        """Return the leading dimensions that the mask's tensors have, () for a rule without any."""
        return ()

    def parts(self) -> list["Mask"]:
        """Return the masks that `&` joined, or the mask itself."""
        return [self]

    def __and__(self, other: "Mask") -> "Mask":
        return And(self, other) if isinstance(other, Mask) else NotImplemented

    def __or__(self, other: "Mask") -> "Mask":
        return Or(self, other) if isinstance(other, Mask) else NotImplemented

    def __invert__(self) -> "Mask":
        return Not(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _Pair(Mask):
    """What `And` and `Or` share: two masks and how their blocks join."""

    def __init__(self, left: Mask, right: Mask) -> None:
        self.left = left
        self.right = right

    def _join(self, left: Block, right: Block) -> Block:
        raise NotImplementedError

    def evaluate(self, grid: Grid, start: int, stop: int) -> Block:
        return self._join(self.left.evaluate(grid, start, stop), self.right.evaluate(grid, start, stop))

    def evaluate_part(self, grid: Grid, start: int, stop: int, keys: slice) -> Block:
        left = self.left.evaluate_part(grid, start, stop, keys)
        return self._join(left, self.right.evaluate_part(grid, start, stop, keys))

    def own_leading(self) -> tuple[int, ...]:
        left, right = self.left.own_leading(), self.right.own_leading()
        try:
            return broadcast(left, right)
        except RuntimeError:  # one is aligned from the left; only the caller knows how they meet
            return max(left, right, key=len)


class And(_Pair):
    """Made by `&`."""

    def __init__(self, left: Mask, right: Mask) -> None:
        super().__init__(left, right)
        if left.bias_dtype is None or right.bias_dtype is None:
            self.bias_dtype = left.bias_dtype or right.bias_dtype
        else:
            self.bias_dtype = torch.promote_types(left.bias_dtype, right.bias_dtype)

    def _join(self, left: Block, right: Block) -> Block:
        if left.bias is None or right.bias is None:
            bias = right.bias if left.bias is None else left.bias
        else:
            bias = left.bias + right.bias
        return Block(both(left.visible, right.visible), bias)

    def key_range(self, grid: Grid, start: int, stop: int) -> slice:
        return _common(self.left.key_range(grid, start, stop), self.right.key_range(grid, start, stop))

    def seen_range(self, grid: Grid, start: int, stop: int) -> slice:
        return _common(self.left.seen_range(grid, start, stop), self.right.seen_range(grid, start, stop))

    def shown_share(self, grid: Grid) -> float:
        return min(self.left.shown_share(grid), self.right.shown_share(grid))

    def parts(self) -> list[Mask]:
        return [*self.left.parts(), *self.right.parts()]

    def __repr__(self) -> str:
        return f"{self.left!r} & {self.right!r}"


class Or(_Pair):
    """Made by `|`."""

    def __init__(self, left: Mask, right: Mask) -> None:
        _check_boolean(left, "|")
        _check_boolean(right, "|")
        super().__init__(left, right)

    def _join(self, left: Block, right: Block) -> Block:
        if left.visible is None or right.visible is None:
            return Block(None, None)
        return Block(left.visible | right.visible, None)

    def key_range(self, grid: Grid, start: int, stop: int) -> slice:
        return _hull(self.left.key_range(grid, start, stop), self.right.key_range(grid, start, stop))

    def seen_range(self, grid: Grid, start: int, stop: int) -> slice:
        return _hull(self.left.seen_range(grid, start, stop), self.right.seen_range(grid, start, stop))

    def __repr__(self) -> str:
        return f"({self.left!r} | {self.right!r})"


class Not(Mask):
    """Made by `~`."""

    def __init__(self, mask: Mask) -> None:
        _check_boolean(mask, "~")
        self.mask = mask

    def evaluate(self, grid: Grid, start: int, stop: int) -> Block:
        return self._opposite(self.mask.evaluate(grid, start, stop), grid)

    def evaluate_part(self, grid: Grid, start: int, stop: int, keys: slice) -> Block:
        return self._opposite(self.mask.evaluate_part(grid, start, stop, keys), grid)

    def _opposite(self, block: Block, grid: Grid) -> Block:
        if block.visible is None:
            return Block(torch.zeros(1, 1, dtype=torch.bool, device=grid.device), None)
        return Block(~block.visible, None)

    def own_leading(self) -> tuple[int, ...]:
        return self.mask.own_leading()

    def __repr__(self) -> str:
        return f"~({self.mask!r})" if isinstance(self.mask, And) else f"~{self.mask!r}"


def _common(left: slice, right: slice) -> slice:
    """Return what two ranges share; empty if nothing."""
    begin = max(left.start, right.start)
    return slice(begin, max(min(left.stop, right.stop), begin))


def _hull(left: slice, right: slice) -> slice:
    """Return the smallest range that holds both, one of which may be empty."""
    if left.start == left.stop or right.start == right.stop:
        return right if left.start == left.stop else left
    return slice(min(left.start, right.start), max(left.stop, right.stop))


def check_mask(mask: object) -> None:
    """Refuse anything but a mask or None, a raw tensor with the cure.

    Args:
        mask: What the user passed as `mask=`.

    Raises:
        TypeError: It is neither a mask nor None.
    """
    if mask is None or isinstance(mask, Mask):
        return
    if isinstance(mask, Tensor):
        raise TypeError(
            "mask: a raw tensor does not say what True means; use masks.keep(tensor) if True = may look, "
            "masks.hide(tensor) if True = hidden, masks.bias(tensor) if it is added to the scores"
        )
    raise TypeError(f"mask: expected a mask from headlights.masks, got {type(mask).__name__}")


def _check_boolean(mask: Mask, operator: str) -> None:
    if mask.bias_dtype is not None:
        raise TypeError(
            f"{operator}: a bias has no opposite and no alternative; only & works with masks.bias"
        )
