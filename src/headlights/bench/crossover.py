"""Where `attend` should change its path: the same call on two paths while its size grows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from headlights.attention import Mask, Observation, _blocks, masks, observations
from headlights.bench import attends, report
from headlights.bench.running import Setting
from headlights.bench.timing import time_in_turns

HEADS, HEAD_DIM = 8, 64
LENGTHS, QUICK_LENGTHS = (64, 128, 256, 512, 1024, 2048), (32, 64)


@dataclass(frozen=True)
class Point:
    """One size.

    Attributes:
        size: What the constant counts, at this point.
        what: The call in words.
        small: Seconds on the path for small sizes.
        large: Seconds on the path for large ones.
    """

    size: int
    what: str
    small: float
    large: float


@dataclass(frozen=True)
class Crossover:
    """A constant of the rule and what was measured for it.

    Attributes:
        constant: Its name in the code.
        counts: What it counts.
        paths: The path below it and the path from it on.
        written: Its value in the code.
        points: What was measured, by ascending size.
    """

    constant: str
    counts: str
    paths: tuple[str, str]
    written: int
    points: tuple[Point, ...]

    @property
    def measured(self) -> int | None:
        """The smallest size from which on the path for large sizes always wins; None: it never does."""
        winning = None
        for point in reversed(self.points):
            if point.large > point.small:
                break
            winning = point.size
        return winning


@torch.no_grad()
def measure_crossovers(setting: Setting, say: Callable[[str], None]) -> list[Crossover]:
    """Measure every constant of the rule by which `attend` picks a path.

    Args:
        setting: How to measure.
        say: Told what is being done.

    Returns:
        The crossovers.
    """
    return [
        Crossover(
            "FEWEST_PAIRS",
            "pairs of a query and a key, of which a window hides 7 of 8",
            ("fused", "blocked"),
            _blocks.FEWEST_PAIRS,
            tuple(_windows(setting, say)),
        ),
        Crossover(
            "MANY_SCORES",
            "scores of all heads and examples, where weights are observed",
            ("reference", "blocked"),
            _blocks.MANY_SCORES,
            tuple(_observed(setting, say)),
        ),
    ]


def _windows(setting: Setting, say: Callable[[str], None]) -> Iterator[Point]:
    for length in QUICK_LENGTHS if setting.quick else LENGTHS:
        before = length // 8 - 1
        what = f"N = M = {length}, window({before}, 0)"
        say(what)
        small, large = _both(setting, length, ("fused", "blocked"), mask=masks.window(before, 0))
        yield Point(length**2, what, small, large)


def _observed(setting: Setting, say: Callable[[str], None]) -> Iterator[Point]:
    for length in QUICK_LENGTHS if setting.quick else LENGTHS:
        what = f"N = M = {length}, H = {HEADS}, MeanWeights()"
        say(what)
        paths = ("reference", "blocked")
        small, large = _both(setting, length, paths, observe=observations.MeanWeights())
        yield Point(HEADS * length**2, what, small, large)


def _both(
    setting: Setting,
    length: int,
    paths: tuple[str, str],
    *,
    mask: Mask | None = None,
    observe: Observation | None = None,
) -> tuple[float, float]:
    """Median seconds of one call on both paths."""
    inputs = attends.draw_heads(1, HEADS, length, HEAD_DIM, setting.place)
    calls = {path: attends.ours(inputs, mask=mask, observe=observe, path=path) for path in paths}
    for call in calls.values():
        call()
    rounds = 1 if setting.quick else 5
    timings = time_in_turns(calls, setting.place.device, seconds=setting.seconds / 2, rounds=rounds)
    return timings[paths[0]].median, timings[paths[1]].median


def table(crossovers: Sequence[Crossover]) -> str:
    """What was measured, and the constants as the code has them beside what they should be here.

    Args:
        crossovers: The crossovers.

    Returns:
        Lines of text; those of the constants are Python.
    """
    lines = []
    for each in crossovers:
        lines += [f"{each.constant}: {each.counts}; {each.paths[0]} below, {each.paths[1]} from here on"]
        for point in each.points:
            pair = zip(each.paths, (point.small, point.large), strict=True)
            times = ", ".join(f"{path} {report.seconds(taken)}" for path, taken in pair)
            lines.append(f"  2**{point.size.bit_length() - 1:<3} {point.what}: {times}")
        lines.append("")
    for each in crossovers:
        measured = "never reached" if each.measured is None else f"2**{each.measured.bit_length() - 1}"
        lines.append(
            f"{each.constant} = 2**{each.written.bit_length() - 1}  # measured on this machine: {measured}"
        )
    return "\n".join(lines)
