"""Two sentences beside each other and ribbons between their words, as a matplotlib figure."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgba_array
from matplotlib.figure import Figure
from matplotlib.path import Path

from headlights.view._colours import blend, hue, hue_colours
from headlights.view._drawing import THINNEST
from headlights.view._labels import Side, rows_side, written
from headlights.view._sheet import FAINT, NOTE, PAD, TITLE, nothing_to_draw, place, sheet, write
from headlights.view._tiles import Stack, read_stack

_PITCH = 0.25  # inches from word to word, at most
_TALLEST = 8.0  # inches of the longer sentence
_FLOW = 2.4  # inches that ribbons cross
_GAP = 0.07
_ENTRY = 0.72  # inches of a head in the legend
_DRAWN = 4000  # ribbons; the strongest of more
_VECTORS = 1500  # ribbons; more are drawn as one picture, so that SVG and PDF stay small
_CURVE = (Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4)


def lines(
    weights: object, source: Sequence[str], target: Sequence[str], *, title: str | None = None
) -> Figure:
    """Draws attention as ribbons from source words to target words, as a matplotlib figure.

    A ribbon is as thick and as opaque as its weight is large, on a scale that ends with the largest of all
    heads; below 1 % of that it is left out. One head has a colour for each target word, several heads have a
    colour each, as in the head view of BertViz. Of more than 4,000 ribbons the strongest are drawn, and a
    line below says so.

    Args:
        weights: Any array or nested lists, shape (N, M), (H, N, M) or (1, H, N, M), finite and at least 0; or
            kept largest weights, an object with `values` and `indices` of shape (..., N, k), where index -1
            marks an unused slot. Those are never made dense.
        source: M words (keys).
        target: N words (queries).
        title: A line above the picture. Default: none.

    Returns:
        The figure, made without pyplot.

    Raises:
        ValueError: Shape and words do not fit, there are several layers, or a number is negative or not
            finite.
        TypeError: Words are no strings, or weights no numbers.
    """
    found, stack = read_stack(weights, source, target)
    L, H, N, M = stack.shape
    if L != 1:
        raise ValueError(f"weights: expected one layer, got {L}; pick one as weights[layer]")
    if not N or not M:
        return nothing_to_draw(f"{M} source words, {N} target words", title)
    pitch = min(_PITCH, _TALLEST / max(N, M))
    left, right = rows_side(found.source, pitch), rows_side(found.target, pitch)
    parts, notes = _strongest(stack), []
    shown = sum(len(rows) for rows, _, _ in parts)
    if any(len(rows) == max(1, _DRAWN // H) for rows, _, _ in parts):
        notes.append(f"the {shown:,} strongest of {stack.values.size:,} weights")
    top = PAD + (0.3 if title else 0.0) + 0.22
    x = PAD + max(left.room, 0.4) + _GAP
    end = x + _FLOW + _GAP + max(right.room, 0.4) + PAD
    legend = _legend_lines(H, end - 2 * PAD) if H > 1 else []
    heading = written(title, TITLE, 8.0) if title else None
    width = max([end, heading.width + 2 * PAD if heading else 0.0])
    width = max([width, *(written(note, NOTE).width + 2 * PAD for note in notes)])
    bottom = top + max(N, M) * pitch + 0.06
    figure = sheet(width, bottom + 0.18 * (len(legend) + len(notes)) + PAD)
    if heading:
        write(figure, PAD, PAD + 0.08, heading, va="center")
    middles = [top + (max(N, M) - count) * pitch / 2 for count in (M, N)]
    _column(figure, left, (x - _GAP, middles[0]), pitch, "source")
    _column(figure, right, (x + _FLOW + _GAP, middles[1]), pitch, "target")
    axes = place(figure, x, 0, _FLOW, bottom)
    axes.set(xlim=(0, _FLOW), ylim=(bottom, 0))
    axes.set_axis_off()
    _draw_ribbons(axes, parts, stack.largest(), (middles[0], middles[1]), pitch, N)
    for line, heads in enumerate(legend):
        _write_heads(figure, heads, bottom + 0.1 + 0.18 * line, H)
    for line, note in enumerate(notes, len(legend)):
        write(figure, PAD, bottom + 0.1 + 0.18 * line, written(note, NOTE), color=FAINT, va="center")
    return figure


def _strongest(stack: Stack) -> list[tuple[Any, Any, Any]]:
    """Rows, columns and weights to draw, for each head."""
    H = stack.shape[1]
    least = THINNEST * stack.largest()
    return [stack.strongest(0, head, max(1, _DRAWN // H), least) for head in range(H)]


def _draw_ribbons(
    axes: Axes,
    parts: Sequence[tuple[Any, Any, Any]],
    largest: float,
    tops: tuple[float, float],
    pitch: float,
    N: int,
) -> None:
    """One collection for all heads, the faintest ribbon first; heads run beside each other at a word."""
    H = len(parts)
    rows, columns, kept = (np.concatenate([part[item] for part in parts]) for item in range(3))
    heads = np.repeat(np.arange(H), [len(part[0]) for part in parts])
    if not len(kept):
        return
    order = np.argsort(kept, kind="stable")
    rows, columns, kept, heads = rows[order], columns[order], kept[order] / largest, heads[order]
    palette = np.array(_head_colours(H) if H > 1 else hue_colours(dark=False))
    colours = to_rgba_array(palette[heads if H > 1 else [hue(row, N) for row in rows]])
    colours[:, 3] = 0.06 + 0.84 * kept
    room = max(pitch * 0.62, 0.012)
    shift = (heads - (H - 1) / 2) * room / H
    y1, y2 = tops[0] + (columns + 0.5) * pitch + shift, tops[1] + (rows + 0.5) * pitch + shift
    middle = _FLOW / 2
    paths = [
        Path([(0, a), (middle, a), (middle, b), (_FLOW, b)], _CURVE) for a, b in zip(y1, y2, strict=True)
    ]
    axes.add_collection(
        PathCollection(
            paths, facecolors="none", edgecolors=colours, linewidths=np.maximum(room / H * 72 * kept, 0.35),
            capstyle="butt", rasterized=len(paths) > _VECTORS,
        ),
        autolim=False,
    )  # fmt: skip


def _column(figure: Figure, side: Side, corner: tuple[float, float], pitch: float, caption: str) -> None:
    """Writes one sentence downwards; numbers, where words were left out, stand next to the ribbons."""
    x, top = corner
    left = caption == "source"
    away, ha = (-1, "right") if left else (1, "left")
    write(figure, x, top - 0.1, written(caption, 7.0), color=FAINT, ha=ha, va="center")
    for place_, each in zip(side.places, side.labels, strict=True):
        y = top + (place_ + 0.5) * pitch
        if side.numbered:
            number = written(str(place_ + 1), each.size)
            write(figure, x, y, number, color=FAINT, ha=ha, va="center_baseline")
        write(figure, x + away * side.number_width(), y, each, ha=ha, va="center_baseline")


def _head_colours(H: int) -> tuple[str, ...]:
    return blend(hue_colours(dark=False)[::2], H)


def _legend_lines(H: int, width: float) -> list[range]:
    """Heads in lines that fit `width` inches."""
    fitting = max(1, int(width / _ENTRY))
    return [range(start, min(start + fitting, H)) for start in range(0, H, fitting)]


def _write_heads(figure: Figure, heads: range, y: float, H: int) -> None:
    colours = _head_colours(H)
    for place_, head in enumerate(heads):
        text = written(f"■ head {head + 1}", NOTE)
        write(figure, PAD + place_ * _ENTRY, y, text, color=colours[head], va="center")
