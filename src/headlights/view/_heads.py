"""All heads of all layers at once, as small maps beside each other."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from matplotlib.figure import Figure

from headlights.view._labels import Side, columns_side, rows_side, written
from headlights.view._sheet import (
    BAR,
    FAINT,
    FINEST,
    NOTE,
    PAD,
    TITLE,
    bar_height,
    colours,
    draw_bar,
    nothing_to_draw,
    overhang,
    place,
    scale_to,
    sheet,
    tile_notes,
    write,
)
from headlights.view._tiles import Stack, read_stack, tile_step

_PANEL = 2.4  # inches of one map, at most
_CELL = 0.28
_WIDEST = 9.0  # inches of all maps beside each other
_TALLEST = 12.0  # inches of all maps below each other, while each has _LEAST
_LEAST = 0.5
_WRAP = 6  # heads of one layer beside each other, at most
_LABELLED = 0.12  # inches from word to word that a label needs


def heads(
    weights: object,
    source: Sequence[str] | None = None,
    target: Sequence[str] | None = None,
    *,
    title: str | None = None,
) -> Figure:
    """Draws every head of every layer as a small map in one matplotlib figure: layers down, heads across.

    All maps have the same colours, from 0 to the largest weight of all. Words are written where they fit; a
    map finer than the dots is drawn in tiles, each the largest weight in it.

    Args:
        weights: Any array or nested lists, shape (L, H, N, M), (H, N, M) or (N, M), or a list of one array a
            layer, finite and at least 0; or kept largest weights, an object with `values` and `indices` of
            shape (..., N, k), where index -1 marks an unused slot. Those are never made dense.
        source: M words (keys). Default: maps without words; needed with `values` and `indices`.
        target: N words (queries). Default: maps without words.
        title: A line above the maps. Default: none.

    Returns:
        The figure, made without pyplot.

    Raises:
        ValueError: Shape and words do not fit, or a number is negative or not finite.
        TypeError: Words are no strings, or weights no numbers.
    """
    found, stack = read_stack(weights, source, target)
    N, M = len(found.target), len(found.source)
    if not N or not M:
        return nothing_to_draw(f"{M} source words, {N} target words", title)
    grid = _lay_out(stack, found.source if source else (), found.target if target else (), title)
    figure = sheet(*grid.size)
    if title:
        write(figure, PAD, PAD + 0.08, written(title, TITLE, grid.size[0] - 2 * PAD), va="center")
    axes = place(figure, 0, 0, *grid.size)
    axes.set_axis_off()
    norm, step, drawn = scale_to(stack.largest()), grid.step, None
    for panel in range(grid.L * grid.H):
        x, y = grid.corner(panel)
        tiles = stack.tiles(*divmod(panel, grid.H), step)
        right = x + tiles.shape[1] * step[1] * grid.width / M
        bottom = y + tiles.shape[0] * step[0] * grid.height / N
        drawn = axes.imshow(
            tiles, cmap=colours(), norm=norm, interpolation="nearest", interpolation_stage="data",
            aspect="auto", extent=(x, right, bottom, y), origin="upper",
        )  # fmt: skip
    axes.set(xlim=(0, grid.size[0]), ylim=(grid.size[1], 0))
    _write_words(figure, grid)
    _write_names(figure, grid)
    right = grid.x + grid.columns * grid.width + (grid.columns - 1) * grid.gap[0]
    draw_bar(figure, (right, grid.y), grid.panels_height, drawn, "weight")
    if grid.note:
        write(figure, grid.x, grid.bottom + 0.12, written(grid.note, NOTE), color=FAINT, va="center")
    return figure


@dataclass(frozen=True)
class _Grid:
    """Where the maps stand: `columns` beside each other, `width` by `height` inches, the first at (x, y)."""

    L: int
    H: int
    columns: int
    width: float
    height: float
    gap: tuple[float, float]
    x: float
    y: float
    size: tuple[float, float]
    step: tuple[int, int]
    beside: Side | None
    above: Side | None
    note: str

    @property
    def rows(self) -> int:
        return -(-self.L * self.H // self.columns)

    @property
    def panels_height(self) -> float:
        return self.rows * self.height + (self.rows - 1) * self.gap[1]

    @property
    def bottom(self) -> float:
        return self.y + max(self.panels_height, bar_height(self.panels_height))

    def corner(self, panel: int) -> tuple[float, float]:
        row, column = divmod(panel, self.columns)
        return self.x + column * (self.width + self.gap[0]), self.y + row * (self.height + self.gap[1])


def _lay_out(stack: Stack, source: Sequence[str], target: Sequence[str], title: str | None) -> _Grid:
    L, H, N, M = stack.shape
    lines = -(-H // _WRAP) if L == 1 else 1
    columns = -(-H // lines)
    across = 0.12 if columns <= 8 else 0.06
    room = min(_PANEL, (_WIDEST + across) / columns - across)
    room = min(room, max(_TALLEST / (L * lines) - across, _LEAST))
    pitch = min(_CELL, room / max(N, M))
    width, height = max(M * pitch, min(M * 0.15, room / 3)), max(N * pitch, min(N * 0.15, room / 3))
    beside = rows_side(target, height / N) if target and height / N >= _LABELLED else None
    above = columns_side(source, width / M) if source and width / M >= _LABELLED else None
    x = PAD + (0.55 if L > 1 else 0.0) + (beside.room + 0.06 if beside else 0.0)
    y = PAD + (0.3 if title else 0.0) + 0.2 + (above.room + 0.06 if above else 0.0)
    step = tile_step(N, max(1, int(height * FINEST))), tile_step(M, max(1, int(width * FINEST)))
    notes = [] if beside and above else [f"down: {N} target words, across: {M} source words"]
    notes += [note for note, _ in tile_notes(step)]
    gap = (across, across if L > 1 else 0.32)
    grid = _Grid(L, H, columns, width, height, gap, x, y, (0.0, 0.0), step, beside, above, "; ".join(notes))
    right = x + columns * width + (columns - 1) * across
    slant = max(overhang(above, width, M) if above else 0.0, BAR)
    heading = written(title, TITLE, _WIDEST).width + PAD if title else 0.0
    wide = max(right + slant, x + written(grid.note, NOTE).width, heading)
    return replace(grid, size=(wide + PAD, grid.bottom + (0.2 if notes else 0.0) + PAD))


def _write_words(figure: Figure, grid: _Grid) -> None:
    """Words to the left of the first map of each row, and above those of the first row."""
    if grid.beside:
        pitch = grid.height / len(grid.beside.places)
        for row in range(grid.rows):
            y = grid.corner(row * grid.columns)[1]
            for i, each in enumerate(grid.beside.labels):
                write(figure, grid.x - 0.05, y + (i + 0.5) * pitch, each, ha="right", va="center_baseline")
    if grid.above:
        pitch, side = grid.width / len(grid.above.places), grid.above
        for column in range(grid.columns):
            x = grid.corner(column)[0]
            for j, each in enumerate(side.labels):
                write(figure, x + (j + 0.5) * pitch, grid.y - 0.05, each, **side.turn())


def _write_names(figure: Figure, grid: _Grid) -> None:
    """Which head is where."""
    lift = 0.11 + (grid.above.room + 0.06 if grid.above else 0.0)
    for head in range(grid.H):
        x, y = grid.corner(head)
        up = lift if head < grid.columns else 0.1
        name = f"head {head + 1}"
        if written(name, NOTE).width > grid.width:
            name = str(head + 1)
        write(figure, x + grid.width / 2, y - up, written(name, NOTE), color=FAINT, ha="center", va="center")
    for layer in range(grid.L if grid.L > 1 else 0):
        y = grid.corner(layer * grid.H)[1]
        write(figure, PAD, y + grid.height / 2, written(f"layer {layer + 1}", NOTE), color=FAINT, va="center")
