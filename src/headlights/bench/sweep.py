"""Time and memory of a self-attention layer while N doubles, everyone who can do the work."""

from collections.abc import Callable, Mapping
from functools import partial

from headlights.bench import layers
from headlights.bench.cases import Case, Measured
from headlights.bench.contestant import Contestants, Out, Place
from headlights.bench.running import Outcome, Setting, time_case
from headlights.bench.worker import Peak, Peaks, peaks_of, too_much

LENGTHS = tuple(2**power for power in range(4, 15))
QUICK_LENGTHS = (16, 32)
GROWTH = 4.0
"""Twice the length is four times the pairs of a query and a key."""


def lengths(quick: bool = False) -> tuple[int, ...]:
    """Every N of the sweep.

    Args:
        quick: Two short ones only. Default: all.

    Returns:
        The lengths, ascending.
    """
    return QUICK_LENGTHS if quick else LENGTHS


def sweep_cases(quick: bool = False) -> list[Case]:
    """A case for every length.

    Args:
        quick: Two short lengths only, of a narrow layer. Default: 16 to 16,384 at E = 512, H = 8.

    Returns:
        The cases, by length.
    """
    width, heads = (24, 3) if quick else (512, 8)
    return [
        Case(
            "sweep",
            f"sweep-{length}",
            f"layer (1, {length}, {width}, {heads})",
            partial(_contestants, length, width, heads),
            "SDPA",
        )
        for length in lengths(quick)
    ]


def _contestants(length: int, width: int, heads: int, place: Place) -> Contestants:
    inputs = layers.draw_inputs(1, length, width, heads, place)
    seen, unseen = layers.with_weights(inputs), layers.without_weights(inputs)
    return {
        "headlights, no weights": unseen["headlights"],
        "headlights, mean weights": seen["headlights"],
        "headlights, top 8 of each head": layers.top_weights(inputs, 8),
        "SDPA": unseen["projections + SDPA"],
        "textbook, mean weights": seen["projections + textbook"],
        "nn.MultiheadAttention, no weights": unseen["nn.MultiheadAttention"],
        "nn.MultiheadAttention, mean weights": seen["nn.MultiheadAttention"],
        "FlexAttention": unseen["projections + FlexAttention"],
        "x-transformers": unseen["x-transformers"],
        "Keras": unseen["Keras"],
    }


def run_sweep(setting: Setting, say: Callable[[str], None], *, memory: bool = True) -> list[Outcome]:
    """Measure every length.

    A contestant is left out from the length on at which, by the length before, it would need more than
    4 GiB or 20 seconds.

    Args:
        setting: How.
        say: Told what is being done.
        memory: Whether to measure memory too. Default: yes.

    Returns:
        An outcome for every length.
    """
    cases = sweep_cases(setting.quick)
    peaks: Peaks = {}
    if memory:
        say(f"memory of {cases[0].work} to {cases[-1].work}")
        peaks = peaks_of(cases, setting, GROWTH)
    outcomes: list[Outcome] = []
    last: Mapping[str, Measured] = {}
    for case in cases:
        say(case.work)
        contestants = {
            name: Out(reason) if (reason := _reason(last.get(name), peaks.get((name, case.name)))) else build
            for name, build in case.contestants(setting.place).items()
        }
        outcome = time_case(case, contestants, setting)
        last = outcome.measured
        outcomes.append(outcome.with_memory(peaks))
    return outcomes


def _reason(last: Measured | None, peak: Peak | None) -> str:
    """Why a contestant stays out: what was found with its memory, or what its last time tells."""
    if peak is not None and peak.note:
        return peak.note
    if last is None:
        return ""
    return last.note or too_much(None, last.timing.median if last.timing else 0.0, GROWTH)
