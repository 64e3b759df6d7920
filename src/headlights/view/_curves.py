"""Curves that compare several things over one scale, as a matplotlib figure."""

import math
from collections.abc import Iterable, Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from headlights.view._colours import hue, hue_colours
from headlights.view._labels import FAMILY, written
from headlights.view._sheet import FAINT, INK, PAD, RULE, TITLE, nothing_to_draw, place, sheet, write

_HUES = hue_colours(dark=False)
_LEFT, _WIDTH, _HEIGHT = 0.62, 5.0, 3.2  # inches: of the axes, and before them
_SMALL = 8.0  # points
_LINE = 0.15  # inches from name to name
_MARKERS = "os^Dvp"


def curves(
    series: Mapping[str, Iterable[tuple[float, float]]],
    *,
    x: str,
    y: str,
    title: str | None = None,
) -> Figure:
    """Draws one curve for each of several things as a matplotlib figure, each named where it ends.

    Args:
        series: Points (x, y) of each thing by its name, finite; y from 0 upwards.
        x: What the horizontal axis is, with its unit.
        y: What the vertical axis is, with its unit.
        title: A line above. Default: none.

    Returns:
        The figure, made without pyplot.

    Raises:
        ValueError: A number is not finite.
    """
    drawn = {name: sorted(points) for name, points in series.items()}
    drawn = {name: points for name, points in drawn.items() if points}
    for name, points in drawn.items():
        if not all(math.isfinite(number) for point in points for number in point):
            raise ValueError(f"series: expected finite numbers, got {points} for {name!r}")
    if not drawn:
        return nothing_to_draw(f"none of {len(series)} curves has a point", title)
    names = {name: written(name, _SMALL, 2.5) for name in drawn}
    top = PAD + (0.34 if title else 0.0) + 0.24
    side = max(name.width for name in names.values()) + 0.2
    figure = sheet(_LEFT + _WIDTH + side + PAD, top + _HEIGHT + 0.5)
    if title:
        write(figure, PAD, PAD + 0.08, written(title, TITLE, _WIDTH + side), va="center")
    write(figure, _LEFT, top - 0.12, written(y, _SMALL), color=INK, va="center")
    axes = place(figure, _LEFT, top, _WIDTH, _HEIGHT)
    most = max(height for points in drawn.values() for _, height in points)
    axes.set_ylim(0, 1.06 * most or 1.0)
    _dress(axes, x)
    colours = dict(zip(drawn, (_HUES[hue(i, len(drawn))] for i in range(len(drawn))), strict=True))
    for number, (name, points) in enumerate(drawn.items()):
        axes.plot(
            *zip(*points, strict=True), color=colours[name], linewidth=1.4, linestyle="-",
            marker=_MARKERS[number % len(_MARKERS)], markersize=3.5, label=name,
        )  # fmt: skip
    scale = _HEIGHT / axes.get_ylim()[1]
    ends = {name: top + _HEIGHT - scale * points[-1][1] for name, points in drawn.items()}
    for name, at in _apart(ends).items():
        write(figure, _LEFT + _WIDTH + 0.1, at, names[name], color=colours[name], va="center")
    return figure


def _dress(axes: Axes, x: str) -> None:
    axes.set_facecolor("white")
    axes.spines[:].set_visible(False)
    axes.spines["bottom"].set(visible=True, color=FAINT, linewidth=0.6)
    axes.grid(visible=True, axis="y", color=RULE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(
        color=FAINT, labelcolor=FAINT, labelsize=_SMALL, labelfontfamily=FAMILY, width=0.6, length=2.5,
        bottom=True, labelbottom=True, left=False, labelleft=True,
    )  # fmt: skip
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    label = written(x, _SMALL)
    axes.set_xlabel(label.text, color=FAINT, labelpad=3, **label.style())


def _apart(places: Mapping[str, float]) -> dict[str, float]:
    """Moves names down until each has a line of its own."""
    moved: dict[str, float] = {}
    free = -math.inf
    for name in sorted(places, key=places.__getitem__):
        moved[name] = max(places[name], free)
        free = moved[name] + _LINE
    return moved
