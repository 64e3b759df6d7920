"""Time calls in turns, so that whatever else the machine does falls on all of them alike."""

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import Any

import torch

SHORTEST = 0.02
"""Seconds that one sample should last at least; a shorter call is repeated within it."""
MOST_ROUNDS = 25
LONG_ROUND = 3.0
"""Seconds. Where a round of all contestants takes longer, two samples of each must do."""
LONGEST_ROUND = 20.0
"""Seconds. Where it takes longer still, one sample must do."""


@dataclass(frozen=True)
class Timing:
    """How long one call takes.

    Attributes:
        median: Median over the rounds, seconds.
        low: Lower quartile, seconds.
        high: Upper quartile, seconds.
        rounds: How many samples there are.
    """

    median: float
    low: float
    high: float
    rounds: int


@contextmanager
def without_collector() -> Iterator[None]:
    """Switch Python's garbage collector off for the block, which would else interrupt some calls."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def seconds_of(call: Callable[[], Any], device: torch.device, number: int = 1) -> float:
    """Run a call some times over and return the seconds of one.

    On a GPU, CUDA events take the time; elsewhere the processor's clock does.

    Args:
        call: What to run.
        device: Where it computes.
        number: How many times, at least 1.

    Returns:
        Seconds per call.
    """
    if device.type == "cuda":
        start, end = (torch.Event(device, enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(device)
        start.record()
        for _ in range(number):
            call()
        end.record()
        torch.cuda.synchronize(device)
        return float(start.elapsed_time(end)) / 1000 / number
    started = time.perf_counter()
    for _ in range(number):
        call()
    return (time.perf_counter() - started) / number


def time_in_turns(
    calls: Mapping[str, Callable[[], Any]], device: torch.device, *, seconds: float, rounds: int = 3
) -> dict[str, Timing]:
    """Time calls that have been warmed up, one sample of each a round, every other round in reverse.

    Args:
        calls: The contestants by name.
        device: Where they compute.
        seconds: What all rounds together should take; more if the fewest rounds take longer.
        rounds: The fewest rounds, unless one takes longer than `LONG_ROUND`. Default: 3.

    Returns:
        The timing of each.
    """
    with without_collector():
        first = {name: seconds_of(call, device) for name, call in calls.items()}
        numbers = {name: max(1, ceil(SHORTEST / max(taken, 1e-7))) for name, taken in first.items()}
        once = sum(taken * numbers[name] for name, taken in first.items())
        fewest = 0 if once > LONGEST_ROUND else 1 if once > LONG_ROUND else rounds
        count = min(max(fewest, int(seconds / max(once, 1e-7))), MOST_ROUNDS)
        samples = {
            name: [taken] if numbers[name] == 1 or not count else []  # a call that lasts is a sample already
            for name, taken in first.items()
        }
        for turn in range(count):
            for name in list(calls)[:: -1 if turn % 2 else 1]:
                samples[name].append(seconds_of(calls[name], device, numbers[name]))
    return {name: _timing(found) for name, found in samples.items()}


def _timing(samples: list[float]) -> Timing:
    if len(samples) == 1:
        return Timing(samples[0], samples[0], samples[0], 1)
    low, median, high = statistics.quantiles(samples, n=4, method="inclusive")
    return Timing(median, low, high, len(samples))
