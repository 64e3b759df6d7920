"""The sweep as a picture: time and memory against N, both axes logarithmic."""

from collections.abc import Callable
from typing import IO, TYPE_CHECKING

from headlights.bench.cases import Measured
from headlights.bench.run import Run
from headlights.bench.sweep import lengths

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STYLES = ("-", "--", ":", "-.")


def plot(run: Run, file: IO[bytes], kind: str) -> None:
    """Draw time and memory of every contestant; ours are thick.

    Args:
        run: A run with a sweep.
        file: Where the picture goes.
        kind: "svg" or "png".
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    time, memory = figure.subplots(1, 2)
    _draw(time, run, "time of a call (s)", _seconds)
    _draw(memory, run, "peak memory (MiB)", _mebibytes)
    handles, names = time.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4, frameon=False, fontsize="small")
    figure.savefig(file, format=kind, metadata={"Date": None} if kind == "svg" else None, dpi=150)


def _draw(axes: "Axes", run: Run, label: str, figure: Callable[[Measured], float | None]) -> None:
    for place, name in enumerate(run.sweep[0].measured):
        points = [
            (length, value)
            for length, outcome in zip(lengths(run.setting.quick), run.sweep, strict=True)
            if (value := figure(outcome.measured[name])) is not None
        ]
        ours = name.startswith("headlights")
        axes.plot(
            [length for length, _ in points],
            [value for _, value in points],
            _STYLES[place % len(_STYLES)],
            color=f"C{place}",
            linewidth=2.5 if ours else 1.2,
            marker="o" if ours else None,
            markersize=3,
            label=name,
        )
    axes.set_xscale("log", base=2)
    if axes.dataLim.height > 0:  # else there is nothing to scale
        axes.set_yscale("log")
    axes.set_xlabel("N, queries and keys")
    axes.set_ylabel(label)
    axes.grid(visible=True, alpha=0.3)


def _seconds(found: Measured) -> float | None:
    return None if found.timing is None else found.timing.median


def _mebibytes(found: Measured) -> float | None:
    """At least 0.1: below, the allocator's pages are all there is to see, and 0 has no logarithm."""
    return None if found.peak is None else max(found.peak / 2**20, 0.1)
