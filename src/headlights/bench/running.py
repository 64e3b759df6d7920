"""Measure a case: are the results equal, how long does each take, how much memory in its own process."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headlights.bench.cases import Case, Measured
from headlights.bench.contestant import Call, Contestants, Out, Place
from headlights.bench.timing import time_in_turns
from headlights.bench.worker import Peaks

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float16: 1e-2}
"""How far results may lie apart, relative to the largest number in them."""
OURS = "headlights"
"""How our contestants' names begin."""
WRONG = "wrong result"
"""How the note of a contestant begins that is not timed because it is wrong."""
SLOW_TO_START = ("compiled", "FlexAttention", "FlexAttention, block mask", "x-transformers", "Keras")
"""Contestants that compile or import for seconds; the quick run does without them."""


@dataclass(frozen=True)
class Setting:
    """How to measure.

    Attributes:
        place: Device and type.
        threads: Processor threads.
        quick: Whether the cases have toy sizes.
        seconds: What the timing of a case should take.
    """

    place: Place
    threads: int
    quick: bool = False
    seconds: float = 3.0


@dataclass(frozen=True)
class Outcome:
    """What came of a case.

    Attributes:
        case: The case.
        place: Device and type.
        measured: What was measured, by contestant.
        wrong: Contestants whose result was not the baseline's.
    """

    case: Case
    place: Place
    measured: Mapping[str, Measured]
    wrong: tuple[str, ...] = ()

    def with_memory(self, peaks: Peaks) -> "Outcome":
        """Add what was measured of the memory.

        Args:
            peaks: Peaks by the names of contestant and case.

        Returns:
            The whole outcome.
        """
        measured = dict(self.measured)
        for name, found in self.measured.items():
            peak = peaks.get((name, self.case.name))
            if peak is not None:
                measured[name] = replace(found, peak=peak.peak, note=found.note or peak.note)
        return replace(self, measured=measured)

    def goals(self, name: str) -> list[tuple[str, bool | None]]:
        """Tell what a contestant was to reach.

        Args:
            name: The contestant.

        Returns:
            Each goal's text, and whether it was reached; None: a figure is missing.
        """
        found = self.measured.get(name, Measured())
        baseline = self.measured.get(self.case.baseline, Measured())
        goals = self.case.goals.get(name, ())
        return [(goal.text, goal.reached(found, baseline)) for goal in goals]


@torch.no_grad()
def time_case(case: Case, contestants: Contestants, setting: Setting) -> Outcome:
    """Compare what the contestants return and time those that are right, in turns.

    Args:
        case: The case.
        contestants: Who takes part.
        setting: How to measure.

    Returns:
        The outcome, without memory.
    """
    if setting.quick:
        contestants = {
            name: Out("left out of the quick run") if name.endswith(SLOW_TO_START) else build
            for name, build in contestants.items()
        }
    calls, measured = warm_up(contestants, setting.place, case.baseline)
    wrong = tuple(name for name, found in measured.items() if found.note.startswith(WRONG))
    sound = {name: call for name, call in calls.items() if name not in wrong}
    timings = time_in_turns(
        sound, setting.place.device, seconds=setting.seconds, rounds=1 if setting.quick else 3
    )
    measured = {name: replace(found, timing=timings.get(name)) for name, found in measured.items()}
    return Outcome(case, setting.place, measured, wrong)


def warm_up(
    contestants: Contestants, place: Place, baseline: str
) -> tuple[dict[str, Call], dict[str, Measured]]:
    """Build the contestants, call each once and compare what they return.

    Args:
        contestants: By name.
        place: Device and type.
        baseline: Whose result all others are compared with.

    Returns:
        calls: Those that run, by name.
        measured: The seconds of each one's first call, or a note why it does not run or is wrong.
    """
    calls: dict[str, Call] = {}
    measured: dict[str, Measured] = {}
    expected: tuple[Tensor, ...] | None = None
    order = sorted(contestants, key=lambda name: name != baseline)  # the baseline first
    for name in order:
        build = contestants[name]
        if isinstance(build, Out):
            measured[name] = Measured(note=build.reason)
            continue
        started = time.perf_counter()
        try:
            call = build()
            output = call()
        except (RuntimeError, ImportError) as error:
            if name.startswith(OURS):
                raise
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            measured[name] = Measured(note=f"does not run here: {reason:.80}")
            continue
        seconds = time.perf_counter() - started
        if expected is None:
            expected = output
        measured[name] = Measured(warm_up=seconds, note=difference(output, expected, place.dtype))
        calls[name] = call
    return {name: calls[name] for name in contestants if name in calls}, {
        name: measured[name] for name in contestants
    }


def difference(output: Iterable[Tensor], expected: Iterable[Tensor], dtype: torch.dtype) -> str:
    """Say how a result differs from what is expected.

    Args:
        output: Tensors; those that have no counterpart are not compared.
        expected: Tensors.
        dtype: Type in which they were computed.

    Returns:
        A few words, "" if they agree.
    """
    for found, wanted in zip(output, expected, strict=False):
        if found.shape != wanted.shape:
            return f"{WRONG}: shape {tuple(found.shape)} instead of {tuple(wanted.shape)}"
        largest = float(wanted.abs().max())
        off = float((found - wanted).abs().max())
        if not off <= TOLERANCE[dtype] * largest:
            return f"{WRONG}: off by {off:.2g} where the largest number is {largest:.2g}"
    return ""
