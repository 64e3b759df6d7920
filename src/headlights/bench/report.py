"""What came out, as text for the terminal, as Markdown for the docs and the README, and as JSON."""

import importlib.metadata
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from headlights._version import __version__
from headlights.bench.cases import Measured
from headlights.bench.memory import how_measured
from headlights.bench.run import Run
from headlights.bench.running import OURS, Outcome, Setting
from headlights.bench.sweep import lengths

Row = tuple[str, ...]
HEAD: Row = (
    "work",
    "who",
    "time",
    "spread",
    "against baseline",
    "memory",
    "to reach",
    "reached, or why not measured",
)
_PEERS = ("numpy", "x-transformers", "keras")


def about(setting: Setting) -> dict[str, Any]:
    """What a reader needs to judge the figures: machine, versions, how it was measured.

    Args:
        setting: How the run measured.

    Returns:
        Text and numbers by name.
    """
    device = setting.place.device
    cuda = device.type == "cuda"
    return {
        "machine": torch.cuda.get_device_name(device) if cuda else _processor(),
        "threads": setting.threads,
        "versions": {
            "headlights": __version__,
            "Python": platform.python_version(),
            "torch": torch.__version__,
            **{name: version for name in _PEERS if (version := _version(name))},
        },
        "memory": how_measured(device),
    }


def _processor() -> str:
    """The processor's name and what torch uses of it."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def sentence(setting: Setting) -> str:
    """The same in one line of text.

    Args:
        setting: How the run measured.

    Returns:
        The line.
    """
    known = about(setting)
    versions = ", ".join(f"{name} {version}" for name, version in known["versions"].items())
    threads = f"{known['threads']} thread{'s' if known['threads'] > 1 else ''}"
    return f"{known['machine']}, {threads}; {versions}. Memory: {known['memory']}."


def seconds(value: float) -> str:
    """A time with three digits and a unit that suits it.

    Args:
        value: Seconds.

    Returns:
        The text.
    """
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if value * factor >= 1 or unit == "µs":
            return f"{_digits(value * factor)} {unit}"
    raise AssertionError


def mebibytes(value: int) -> str:
    """A size in MiB or GiB.

    Args:
        value: Bytes.

    Returns:
        The text.
    """
    return f"{value / 2**30:.2f} GiB" if value >= 2**30 else f"{value / 2**20:.0f} MiB"


def ratio(value: float) -> str:
    """How many times as fast, with about three digits.

    Args:
        value: Above 0.

    Returns:
        The text.
    """
    return f"{_digits(value)}×"


def _digits(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def rows_of(outcome: Outcome) -> list[Row]:
    """The lines of a table for one case, a contestant a line.

    Args:
        outcome: What came of it.

    Returns:
        The lines; their columns are `HEAD`.
    """
    case, measured = outcome.case, outcome.measured
    baseline = measured.get(case.baseline, Measured())
    lines = []
    for place, (name, found) in enumerate(measured.items()):
        goals = outcome.goals(name)
        work = f"{case.work}, {_type(outcome)}" if place == 0 else ""
        aims = "; ".join(text for text, _ in goals)
        remarks = "; ".join(part for part in (_verdict(goals), found.note) if part)
        lines.append((work, name, *_figures(found, baseline), aims, remarks))
    return lines


def _type(outcome: Outcome) -> str:
    return str(outcome.place.dtype).removeprefix("torch.")


def _figures(found: Measured, baseline: Measured) -> Row:
    memory = "–" if found.peak is None else mebibytes(found.peak)
    if found.timing is None:
        return ("–", "–", "–", memory)
    timing = found.timing
    spread = f"{seconds(timing.low)} to {seconds(timing.high)}"
    against = ratio(baseline.timing.median / timing.median) if baseline.timing is not None else "–"
    return (seconds(timing.median), spread, against, memory)


def _verdict(goals: Sequence[tuple[str, bool | None]]) -> str:
    words = {True: "yes", False: "no", None: "not measured"}
    return "; ".join(words[reached] for _, reached in goals)


def table(outcomes: Sequence[Outcome]) -> str:
    """Everything as columns of text.

    Args:
        outcomes: What came of each case.

    Returns:
        Lines of text.
    """
    lines = [HEAD, *(line for outcome in outcomes for line in rows_of(outcome))]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def markdown(head: Row, lines: Sequence[Row]) -> str:
    """A table in Markdown, the first two columns at the left, the others as they come.

    Args:
        head: Names of the columns.
        lines: The rows.

    Returns:
        Lines of text.
    """
    rule = tuple("---" for _ in head)
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *lines))


def long_table(outcomes: Sequence[Outcome]) -> str:
    """The Markdown table of `docs/benchmarks.md`: every contestant of every case.

    Args:
        outcomes: What came of each case.

    Returns:
        The table.
    """
    return markdown(HEAD, [line for outcome in outcomes for line in rows_of(outcome)])


def short_table(outcomes: Sequence[Outcome]) -> str:
    """The Markdown table of the README: ours against the baseline, a case a line.

    Args:
        outcomes: What came of each case.

    Returns:
        The table.
    """
    head = ("work", "theirs", "headlights", "times as fast", "memory, theirs and ours", "to reach", "reached")
    lines = []
    for outcome in outcomes:
        case = outcome.case
        theirs = outcome.measured.get(case.baseline, Measured())
        their_time, _, _, their_memory = _figures(theirs, theirs)
        shown = f"{case.baseline}: {their_time if theirs.timing else theirs.note}"
        for name, ours in outcome.measured.items():
            if not name.startswith(OURS):
                continue
            time, _, against, memory = _figures(ours, theirs)
            goals = outcome.goals(name)
            goal = "; ".join(text for text, _ in goals)
            work = case.work + name.removeprefix(OURS)
            lines.append((work, shown, time, against, f"{their_memory}, {memory}", goal, _verdict(goals)))
    return markdown(head, lines)


def sweep_table(run: Run, figure: Callable[[Measured], str]) -> str:
    """A Markdown table of the sweep: contestants down, lengths across.

    Args:
        run: A run with a sweep.
        figure: What to show of a measurement.

    Returns:
        The table.
    """
    names = list(run.sweep[0].measured)
    lines = [(name, *(figure(outcome.measured[name]) for outcome in run.sweep)) for name in names]
    return markdown(("N", *(f"{length:,}" for length in lengths(run.setting.quick))), lines)


def time_text(found: Measured) -> str:
    """The time of a measurement, for `sweep_table`."""
    return "–" if found.timing is None else seconds(found.timing.median)


def memory_text(found: Measured) -> str:
    """The memory of a measurement, for `sweep_table`."""
    return "–" if found.peak is None else mebibytes(found.peak)


def content(run: Run) -> dict[str, Any]:
    """Everything as plain data, for JSON.

    Args:
        run: The run.

    Returns:
        Plain data; times in seconds, memory in bytes.
    """
    return {
        "about": about(run.setting),
        "seconds": run.seconds,
        "rows": [_plain(outcome) for outcome in run.rows],
        "sweep": [_plain(outcome) for outcome in run.sweep],
    }


def _plain(outcome: Outcome) -> dict[str, Any]:
    case = outcome.case
    return {
        "row": case.row,
        "name": case.name,
        "work": case.work,
        "dtype": _type(outcome),
        "baseline": case.baseline,
        "goals": {
            name: [{"text": text, "reached": reached} for text, reached in outcome.goals(name)]
            for name in case.goals
        },
        "measured": {name: asdict(found) for name, found in outcome.measured.items()},
        "wrong": list(outcome.wrong),
    }
