"""The paper of matplotlib figures: made without pyplot, measured in inches, and the frame of a map on it."""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure

from headlights.view._colours import map_colours
from headlights.view._labels import Label, Side, columns_side, rows_side, written
from headlights.view._tiles import tile_step

INK, FAINT, RULE, LINK = "#2b2e36", "#7d796f", "#d8d3c6", "#d1495b"
DPI = 120
FINEST = 100
"""Tiles to the inch: fewer than dots, so that drawing loses none of them."""

PAD = 0.12
TITLE, _CAPTION, NOTE = 11.0, 7.0, 7.5  # points
_WIDEST = 6.6  # inches of a map, and of a title that makes its figure wider
_CELL = 0.42  # inches of a cell, at most
BAR = 0.8  # inches for the colour bar and its numbers
_GAPS = 0.08  # inches of a cell; smaller ones stand side by side
_VECTORS = 1024  # cells; more are drawn as one picture, so that SVG and PDF stay small


class Picture(Figure):
    """A matplotlib figure that a notebook shows without pyplot."""

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()


def sheet(width: float, height: float) -> Picture:
    """An empty figure of a size in inches."""
    figure = Picture(figsize=(width, height), dpi=DPI, facecolor="white")
    figure.set_layout_engine("none")  # whatever the user's settings are
    return figure


def write(figure: Figure, x: float, y: float, text: Label, *, color: str = INK, **more: Any) -> None:
    """Writes at a place in inches from the upper left corner; `more` are properties of a matplotlib text."""
    width, height = figure.get_size_inches()
    figure.text(x / width, 1 - y / height, text.text, color=color, **text.style(), **more)


def place(figure: Figure, x: float, y: float, width: float, height: float) -> Axes:
    """Axes at a place in inches from the upper left corner."""
    across, down = figure.get_size_inches()
    axes = figure.add_axes((x / across, 1 - (y + height) / down, width / across, height / down))
    axes.grid(visible=False)
    axes.minorticks_off()
    return axes


def nothing_to_draw(reason: str, title: str | None) -> Figure:
    """A small figure that says that it is empty, and why."""
    line = written(f"nothing to draw: {reason}", 9.0)
    heading = written(title, TITLE) if title else None
    top = 0.3 if heading else 0.0
    figure = sheet(max(line.width, heading.width if heading else 0.0) + 4 * PAD, 0.5 + top)
    if heading:
        write(figure, 2 * PAD, 0.25, heading, va="center")
    write(figure, 2 * PAD, 0.25 + top, line, va="center", color=FAINT)
    return figure


def colours() -> Colormap:
    """The colour map of the SVG picture, in 256 steps; it is not registered anywhere."""
    return LinearSegmentedColormap.from_list("headlights", map_colours(dark=False), N=256)


@dataclass(frozen=True)
class Frame:
    """Where a map and its words stand, in inches from the upper left corner of a figure.

    Attributes:
        rows: Labels of the rows.
        columns: Labels of the columns.
        x: Left edge of the map.
        y: Upper edge of the map.
        width: Of the map.
        height: Of the map.
        bottom: Where notes begin, below the map and the colour bar.
        size: Width and height of the figure.
        title: The title, or None.
        N: Rows.
        M: Columns.
    """

    rows: Side
    columns: Side
    x: float
    y: float
    width: float
    height: float
    bottom: float
    size: tuple[float, float]
    title: Label | None
    N: int
    M: int

    @property
    def pitch(self) -> float:
        """The shorter side of a cell, in inches."""
        return min(self.width / self.M, self.height / self.N)


def map_size(N: int, M: int) -> tuple[float, float]:
    """Width and height of a map of N rows and M columns, in inches.

    Cells are square where both sides can be: a map of 3 by 3,000 has wider rows than columns.
    """
    pitch = min(_CELL, _WIDEST / max(N, M))
    return max(M * pitch, min(M * 0.2, 2.0)), max(N * pitch, min(N * 0.2, 2.0))


def map_step(N: int, M: int) -> tuple[int, int]:
    """Rows and columns of a tile, so that tiles are not finer than dots."""
    width, height = map_size(N, M)
    return tile_step(N, int(height * FINEST)), tile_step(M, int(width * FINEST))


def frame_map(
    rows: Sequence[str],
    columns: Sequence[str],
    title: str | None,
    *,
    notes: Sequence[tuple[str, str]] = (),
    bar: bool = True,
) -> Frame:
    """Sizes a figure by what is on it.

    Args:
        rows: N words, at least one.
        columns: M words, at least one.
        title: A line above the map, or None.
        notes: Lines to leave room for below the map, as `draw_notes` takes them.
        bar: Whether to leave room for a colour bar.

    Returns:
        The frame.
    """
    N, M = len(rows), len(columns)
    width, height = map_size(N, M)
    beside, above = rows_side(rows, height / N), columns_side(columns, width / M)
    x = PAD + max(beside.room, 0.62) + 0.06
    heading = written(title, TITLE, _WIDEST + 2) if title else None
    y = PAD + (0.3 if heading else 0.0) + max(above.room, 0.24) + 0.06
    slant = max(overhang(above, width, M), BAR if bar else 0.0)
    lines = [written(note, NOTE) for note, _ in notes] + ([heading] if heading else [])
    across = max(x + width + slant, *(line.width + PAD for line in lines), 0.0) + PAD
    bottom = y + max(height, bar_height(height) if bar else 0.0) + 0.08
    down = bottom + (0.06 + 0.17 * len(notes) if notes else 0.0) + PAD / 2
    return Frame(beside, above, x, y, width, height, bottom, (across, down), heading, N, M)


def draw_frame(frame: Frame, captions: tuple[str, str]) -> tuple[Figure, Axes]:
    """Makes the figure, writes title and words, and gives the axes of the map.

    Args:
        frame: Where everything stands.
        captions: What rows and columns are.

    Returns:
        The figure, and axes in which cell (i, j) reaches from (j, i) to (j + 1, i + 1), downwards.
    """
    figure = sheet(*frame.size)
    if frame.title:
        write(figure, PAD, PAD + 0.08, frame.title, va="center")
    for line, caption in enumerate(reversed(captions)):
        arrow = f"{caption} {'→↓'[line]}"
        text = written(arrow, _CAPTION)
        write(
            figure, frame.x - 0.07, frame.y - 0.21 + 0.13 * line, text, color=FAINT, ha="right", va="center"
        )
    axes = place(figure, frame.x, frame.y, frame.width, frame.height)
    axes.set(xlim=(0, frame.M), ylim=(frame.N, 0))
    axes.spines[:].set_visible(False)
    axes.tick_params(
        top=True, labeltop=True, bottom=False, labelbottom=False, left=True, labelleft=True, right=False,
        labelright=False,
    )  # fmt: skip
    for axis, side in ((axes.yaxis, frame.rows), (axes.xaxis, frame.columns)):
        gap = 4 + side.number_width() * 72
        axis.set_ticks([place + 0.5 for place in side.places], labels=[each.text for each in side.labels])
        mark = 2.5 if side.numbered else 0.0
        axis.set_tick_params(length=mark, width=0.6, color=FAINT, pad=gap - mark, labelcolor=INK, labelsize=6)
        for word, each in zip(axis.get_ticklabels(), side.labels, strict=True):
            each.put_on(word)
    for word in axes.get_xticklabels():
        word.set(**frame.columns.turn())
    _number(axes, frame)
    return figure, axes


def draw_cells(axes: Axes, tiles: Any, frame: Frame, norm: Normalize) -> Any:
    """Draws the cells of a map: few as vectors with gaps, many as one picture.

    Args:
        axes: From `draw_frame`.
        tiles: The map in tiles of `map_step`.
        frame: Where it stands.
        norm: The range of the colours.

    Returns:
        What a colour bar needs.
    """
    (down, across), (height, width) = map_step(frame.N, frame.M), tiles.shape
    if frame.N * frame.M <= _VECTORS and frame.pitch >= _GAPS:
        gap = 1.0 if frame.pitch > 0.15 else 0.5
        return axes.pcolormesh(
            np.arange(frame.M + 1), np.arange(frame.N + 1), tiles,
            cmap=colours(), norm=norm, edgecolors="white", linewidth=gap,
        )  # fmt: skip
    image = axes.imshow(
        tiles, cmap=colours(), norm=norm, interpolation="nearest", interpolation_stage="data", aspect="auto",
        extent=(0, width * across, height * down, 0), origin="upper",
    )  # fmt: skip
    axes.set(xlim=(0, frame.M), ylim=(frame.N, 0))
    return image


def draw_bar(figure: Figure, corner: tuple[float, float], height: float, drawn: Any, unit: str) -> Axes:
    """Draws the colour bar to the right of a map.

    Args:
        figure: Where.
        corner: The upper right corner of the map, in inches.
        height: Of the map, in inches.
        drawn: What the colours belong to.
        unit: What is measured, with its unit.

    Returns:
        The axes of the bar.
    """
    (x, y), height = corner, bar_height(height)
    axes = place(figure, x + 0.16, y, 0.09, height)
    bar = figure.colorbar(drawn, cax=axes)
    bar.outline.set_visible(False)
    low, high = drawn.norm.vmin, drawn.norm.vmax
    ticks = [low, (low + high) / 2, high] if height > 0.8 else [low, high]
    numbers = [written(f"{tick:.3g}", 7.0) for tick in ticks]
    bar.set_ticks(ticks, labels=[number.text for number in numbers])
    axes.tick_params(length=2, width=0.6, color=FAINT, labelcolor=FAINT, pad=2)
    for text, number in zip(axes.get_yticklabels(), numbers, strict=True):
        number.put_on(text)
    beside = x + 0.38 + max(number.width for number in numbers)
    write(figure, beside, y + height / 2, written(unit, NOTE), color=FAINT, rotation=90, va="center")
    return axes


def draw_notes(figure: Figure, frame: Frame, notes: Sequence[tuple[str, str]]) -> None:
    """Writes lines, each with its colour, below a map."""
    for line, (note, color) in enumerate(notes):
        x = min(frame.x, max(PAD, frame.size[0] - PAD - written(note, NOTE).width))
        write(figure, x, frame.bottom + 0.1 + 0.17 * line, written(note, NOTE), color=color, va="center")


def scale_to(largest: float) -> Normalize:
    """Colours from 0 to the largest number, or to 1 if all are 0."""
    return Normalize(0.0, largest or 1.0)


def tile_notes(step: tuple[int, int]) -> list[tuple[str, str]]:
    """What a reader must know of a map whose cells are tiles: a line, or none."""
    if step == (1, 1):
        return []
    return [(f"one dot: the largest of {step[0]} × {step[1]} weights", FAINT)]


def bar_height(height: float) -> float:
    """Inches of the colour bar beside a map of a height."""
    return min(max(height, 0.55), 1.8)


def overhang(side: Side, width: float, columns: int) -> float:
    """Inches that slanted labels reach beyond the right edge of a map."""
    if side.angle != 45:
        return 0.0
    pitch = width / columns
    ends = [
        (j + 0.5) * pitch + 0.71 * each.width + 0.08 for j, each in zip(side.places, side.labels, strict=True)
    ]
    return max(ends) - width


def _number(axes: Axes, frame: Frame) -> None:
    """Writes the numbers of the labelled words, counted from 1, between them and the map."""
    if frame.rows.numbered:
        for row in frame.rows.places:
            text = written(str(row + 1), frame.rows.labels[0].size)
            axes.annotate(
                text.text, (0, row + 0.5), (-4, 0), xycoords=axes.get_yaxis_transform(),
                textcoords="offset points", ha="right", va="center_baseline", color=FAINT, **text.style(),
            )  # fmt: skip
    if frame.columns.numbered:
        for column in frame.columns.places:
            text = written(str(column + 1), frame.columns.labels[0].size)
            axes.annotate(
                text.text, (column + 0.5, 1), (0, 4), xycoords=axes.get_xaxis_transform(),
                textcoords="offset points", ha="left", va="center", rotation=90, rotation_mode="anchor",
                color=FAINT, **text.style(),
            )  # fmt: skip
