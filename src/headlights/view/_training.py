"""How a training went, as a matplotlib figure: loss, BLEU, speed and learning rate."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from headlights.view._colours import hue_colours
from headlights.view._labels import FAMILY, written
from headlights.view._sheet import FAINT, INK, PAD, RULE, TITLE, nothing_to_draw, place, sheet, write

_HUES = hue_colours(dark=False)
_WIDTH, _HEIGHT = 5.6, 1.35  # inches of a panel
_SMALL = 8.0  # points


@dataclass(frozen=True)
class _Panel:
    """One scale: what it measures, and the keys that are drawn on it with their names."""

    unit: str
    keys: tuple[tuple[str, str], ...]
    from_zero: bool = True


_PANELS = (
    _Panel("loss, nats per target token", (("loss", "training"), ("validation_loss", "validation"))),
    _Panel("BLEU of the validation, 0 to 100", (("validation_bleu", "validation"),)),
    _Panel("speed, target tokens a second", (("tokens_per_second", "training"),)),
    _Panel("learning rate", (("learning_rate", "training"),)),
)
_COLOURS = {"training": _HUES[1], "validation": _HUES[-1]}


def training(rows: Iterable[Mapping[str, Any]], *, title: str | None = None) -> Figure:
    """Draws how a training went as a matplotlib figure: loss, BLEU, speed and learning rate by updates.

    What no row holds has no panel; a row without `update` is left out, and so is a number that is none. The
    best BLEU is ringed.

    Args:
        rows: The entries of a run's `log.jsonl`, each a mapping: `update`, and any of `loss` and
            `validation_loss` (nats per target token), `validation_bleu` (0..100), `tokens_per_second` and
            `learning_rate`. Other keys are left alone.
        title: A line above. Default: none.

    Returns:
        The figure, made without pyplot.

    Raises:
        TypeError: A row is no mapping.
    """
    entries = list(rows)
    for entry in entries:
        if not isinstance(entry, Mapping):
            raise TypeError(
                f"rows: expected mappings, one for each line of log.jsonl, got {type(entry).__name__}; "
                "read each line with json.loads"
            )
    curves = {key: _curve(entries, key) for panel in _PANELS for key, _ in panel.keys}
    panels = [panel for panel in _PANELS if any(curves[key][0] for key, _ in panel.keys)]
    if not panels:
        return nothing_to_draw(f"none of {len(entries)} rows holds update and something to draw", title)
    last = max(max(curves[key][0], default=0.0) for panel in panels for key, _ in panel.keys)
    x, y = 0.75, PAD + (0.34 if title else 0.0)
    figure = sheet(x + _WIDTH + 0.3, y + len(panels) * (_HEIGHT + 0.36) + 0.3)
    if title:
        write(figure, PAD, PAD + 0.08, written(title, TITLE, _WIDTH), va="center")
    for row, panel in enumerate(panels):
        top = y + 0.24 + row * (_HEIGHT + 0.36)
        axes = place(figure, x, top, _WIDTH, _HEIGHT)
        _draw_axes(axes, last, bottom=panel is panels[-1])
        _draw_panel(axes, panel, curves)
        write(figure, x, top - 0.11, written(panel.unit, _SMALL), color=INK, va="center")
    return figure


def _curve(rows: Sequence[Mapping[str, Any]], key: str) -> tuple[list[float], list[float]]:
    """Updates and numbers of the rows that hold both."""
    pairs = [(_number(row.get("update")), _number(row.get(key))) for row in rows]
    kept = [(update, number) for update, number in pairs if update is not None and number is not None]
    return [update for update, _ in kept], [number for _, number in kept]


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _draw_axes(axes: Axes, last: float, *, bottom: bool) -> None:
    axes.set_xlim(0, 1.02 * last or 1.0)
    axes.set_facecolor("white")
    axes.grid(visible=True, axis="y", color=RULE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    axes.spines["bottom"].set(visible=True, color=FAINT, linewidth=0.6)
    axes.tick_params(
        color=FAINT, labelcolor=FAINT, labelsize=_SMALL, labelfontfamily=FAMILY, width=0.6, length=2.5,
        bottom=True, labelbottom=bottom, labelleft=True, top=False, right=False,
    )  # fmt: skip
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(MaxNLocator(7, integer=True, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:,.0f}"))
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:,.6g}"))
    if bottom:
        text = written("updates", _SMALL)
        axes.set_xlabel(text.text, color=FAINT, labelpad=3, **text.style())


def _draw_panel(axes: Axes, panel: _Panel, curves: Mapping[str, tuple[list[float], list[float]]]) -> None:
    """Draws the curves of a panel, from 0 upwards, and names them if there are several."""
    drawn = [(*curves[key], name) for key, name in panel.keys if curves[key][0]]
    for updates, numbers, kind in drawn:
        few = len(updates) <= 40
        axes.plot(
            updates, numbers, color=_COLOURS[kind], linewidth=1.3, linestyle="-", marker="o" if few else "",
            markersize=2.6, label=kind,
        )  # fmt: skip
    axes.set_ylim(0, 1.08 * max(max(numbers) for _, numbers, _ in drawn) or 1.0)
    if len(panel.keys) > 1:
        legend = axes.legend(
            frameon=False, loc="upper right", ncols=2, handlelength=1.4, borderaxespad=0,
            prop={"family": FAMILY, "size": _SMALL},
        )  # fmt: skip
        for name in legend.get_texts():
            name.set_color(INK)
    if panel.keys[0][0] == "validation_bleu":
        updates, numbers, _ = drawn[0]
        best = max(numbers)
        at = updates[numbers.index(best)]
        axes.plot([at], [best], marker="o", markersize=6, markerfacecolor="none", markeredgecolor=INK)
        text = written(f"{best:.1f}", _SMALL)
        axes.annotate(
            text.text, (at, best), (0, -7), textcoords="offset points", ha="center", va="top", color=INK,
            **text.style(),
        )  # fmt: skip
