"""A whole run: the rows, the sweep, and what is written of them."""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from headlights.bench.cases import rows
from headlights.bench.running import Outcome, Setting, time_case
from headlights.bench.sweep import run_sweep
from headlights.bench.worker import peaks_of

SWEEP = "sweep"
QUICK_MEMORY = "training"
"""The row whose memory the quick run measures; a process for every contestant would take a minute."""


@dataclass(frozen=True)
class Run:
    """What one run found.

    Attributes:
        setting: How it measured.
        rows: What came of each case, in the order of the table.
        sweep: What came of each length, empty if the sweep was not asked for.
        seconds: How long it took.
    """

    setting: Setting
    rows: tuple[Outcome, ...]
    sweep: tuple[Outcome, ...]
    seconds: float

    def wrong(self) -> list[str]:
        """Who returned wrong results, and in what."""
        every = [*self.rows, *self.sweep]
        return [f"{name} in {outcome.case.work}" for outcome in every for name in outcome.wrong]


def row_names() -> list[str]:
    """What can be selected, in the order of the table; the sweep is the last."""
    return [*dict.fromkeys(case.row for case in rows()), SWEEP]


def measure(chosen: Collection[str], setting: Setting, say: Callable[[str], None]) -> Run:
    """Measure rows and perhaps the sweep.

    Args:
        chosen: Names from `row_names`.
        setting: How.
        say: Told what is being done.

    Returns:
        The run.
    """
    started = time.perf_counter()
    cases = [case for case in rows(setting.quick) if case.row in chosen]
    weighed = [case for case in cases if not setting.quick or case.row == QUICK_MEMORY]
    if weighed:
        say("memory of all rows")
    peaks = peaks_of(weighed, setting)
    outcomes = []
    for case in cases:
        say(case.work)
        outcome = time_case(case, case.contestants(setting.place), setting)
        outcomes.append(outcome.with_memory(peaks))
    sweep = run_sweep(setting, say, memory=not setting.quick) if SWEEP in chosen else []
    return Run(setting, tuple(outcomes), tuple(sweep), time.perf_counter() - started)
