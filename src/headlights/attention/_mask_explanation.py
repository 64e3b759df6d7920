"""What a mask does, in words and in a small drawing."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from headlights.attention._mask_shapes import Block, Grid

LARGEST = 32
"""A drawing has at most this many rows and columns; a larger mask is drawn in tiles."""
EXAMPLES = 4
"""At most this many examples are drawn."""


@dataclass(frozen=True)
class Part:
    """One of the masks that `&` joined.

    Attributes:
        name: How it is written.
        hidden: How many (query, key) pairs it hides.
        alone: How many of them no other part hides.
        adds: Whether it also adds to the scores.
    """

    name: str
    hidden: int
    alone: int
    adds: bool


@dataclass(frozen=True, eq=False)
class Explanation:
    """What `Mask.explain` found; `print` it.

    Attributes:
        name: How the mask is written.
        visible: Bool, shape (*leading, N, M), True = may look.
        dead: Bool, shape (*leading, N); True marks queries that see no key and get a zero context.
        parts: What each part hides.
    """

    name: str
    visible: Tensor
    dead: Tensor
    parts: tuple[Part, ...]

    def __str__(self) -> str:
        *leading, N, M = self.visible.shape
        examples = list(_positions(leading))
        tile = max(1, -(-N // LARGEST)), max(1, -(-M // LARGEST))
        key = "# may look, . hidden"
        if max(tile) > 1:
            key += f", / both; one character is {tile[0]} x {tile[1]} pairs"
        lines = [f"{self.name}: {N} queries (rows), {M} keys (columns); {key}"]
        for example in examples[:EXAMPLES]:
            lines += [str(list(example))] * bool(leading) + _drawing(self.visible[example], tile)
        if len(examples) > EXAMPLES:
            lines.append(f"and {len(examples) - EXAMPLES} more examples")
        lines.append(self._dead_rows(examples))
        for part in self.parts:
            text = f"{part.name} hides {part.hidden} of {self.visible.numel()} pairs"
            text += f", {part.alone} of them alone" if len(self.parts) > 1 else ""
            lines.append(text + (" and adds to the scores" if part.adds else ""))
        return "\n".join(lines)

    def _dead_rows(self, examples: list[tuple[int, ...]]) -> str:
        found = []
        for example in examples:
            rows = self.dead[example].nonzero().flatten().tolist()
            if rows:
                found.append(f"{list(example)} " * bool(example) + _ranges(rows))
        return f"dead rows (no key to look at): {'; '.join(found)}" if found else "no dead rows"


def explain(name: str, grid: Grid, blocks: Iterable[tuple[str, Block]]) -> Explanation:
    """Count what each part hides.

    Args:
        name: How the whole mask is written.
        grid: The sizes.
        blocks: Name and evaluation over all rows of each part.

    Returns:
        The explanation.
    """
    shape = (*grid.leading, grid.queries, grid.keys)
    named = [(part, block.bias is not None, _hidden(block, shape)) for part, block in blocks]
    hiders = sum((hidden.int() for _, _, hidden in named), torch.zeros(shape, dtype=torch.int32))
    parts = tuple(
        Part(part, int(hidden.sum()), int((hidden & (hiders == 1)).sum()), adds)
        for part, adds, hidden in named
    )
    visible = hiders == 0
    return Explanation(name, visible, ~visible.any(-1), parts)


def _hidden(block: Block, shape: tuple[int, ...]) -> Tensor:
    hidden = torch.zeros(shape, dtype=torch.bool)
    if block.visible is not None:
        hidden = hidden | ~block.visible.cpu()
    if block.bias is not None:
        hidden = hidden | (block.bias.detach().cpu() == -torch.inf)
    return hidden


def _positions(sizes: list[int]) -> Iterable[tuple[int, ...]]:
    return reduce(lambda found, size: [(*p, i) for p in found for i in range(size)], sizes, [()])


def _drawing(visible: Tensor, tile: tuple[int, int]) -> list[str]:
    def sign(part: Tensor) -> str:
        return "#" if part.all() else "/" if part.any() else "."

    return [
        "".join(sign(part) for part in torch.split(band, tile[1], dim=1)) if band.shape[1] else "(no keys)"
        for band in (torch.split(visible, tile[0], dim=0) if len(visible) else ())
    ]


def _ranges(rows: list[int]) -> str:
    """Write 0, 1, 2, 5 as "0-2, 5"."""
    runs: list[list[int]] = []
    for row in rows:
        if runs and row == runs[-1][-1] + 1:
            runs[-1].append(row)
        else:
            runs.append([row])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
