"""Where `attend` should change its path: the same call computed in two ways while its size grows.

What is printed at the end has the form of the table in `headlights.attention` by which `attend` chooses.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from headlights.attention import masks, observations
from headlights.bench import attends, report
from headlights.bench.contestant import Call
from headlights.bench.running import Setting
from headlights.bench.timing import time_in_turns

HEADS, HEAD_DIM = 8, 64
LENGTHS, QUICK_LENGTHS = (64, 128, 256, 512, 1024, 2048), (32, 64)
SHARES = (2, 4, 8)
"""Windows that show a half, a quarter and an eighth of the keys."""
EXAMPLES, LONGEST_PADDED = 8, 512


@dataclass(frozen=True)
class Point:
    """One size.

    Attributes:
        size: What is counted, at this point.
        what: The call in words.
        small: Seconds in the way for small sizes.
        large: Seconds in the way for large ones.
    """

    size: int
    what: str
    small: float
    large: float


@dataclass(frozen=True)
class Crossover:
    """A constant and what was measured for it.

    Attributes:
        constant: Its name in the code.
        counts: What it counts.
        ways: How it is computed below, and from there on.
        points: What was measured, by ascending size.
    """

    constant: str
    counts: str
    ways: tuple[str, str]
    points: tuple[Point, ...]

    @property
    def measured(self) -> int | None:
        """The smallest size from which on the way for large sizes always wins; None: it never does."""
        winning = None
        for point in reversed(self.points):
            if point.large > point.small:
                break
            winning = point.size
        return winning

    @property
    def value(self) -> str:
        """The same as the code would have it: rounded down to a power of two, infinity if never reached."""
        return "math.inf" if self.measured is None else f"2**{self.measured.bit_length() - 1}"


@torch.no_grad()
def measure_crossovers(setting: Setting, say: Callable[[str], None]) -> list[Crossover]:
    """Measure every constant of the rule by which `attend` picks a path.

    Args:
        setting: How to measure.
        say: Told what is being done.

    Returns:
        The crossovers.
    """
    found = [
        Crossover(
            "MANY_SCORES",
            "scores of all heads and examples, weights observed",
            ("reference", "blocked"),
            tuple(_observed(setting, say)),
        )
    ]
    for parts in SHARES:
        counts = f"pairs of a query and a key, a window shows 1 / {parts}"
        points = tuple(_windows(setting, say, parts))
        found.append(Crossover(f"SHARES, 1 / {parts}", counts, ("fused", "blocked"), points))
    ways = ("padded batch with a mask", "examples one by one")
    counts = "pairs saved in an example, all heads"
    found.append(Crossover("PADDED_PAIRS", counts, ways, tuple(_padded(setting, say))))
    return found


def _observed(setting: Setting, say: Callable[[str], None]) -> Iterator[Point]:
    observe = observations.MeanWeights()
    for length in QUICK_LENGTHS if setting.quick else LENGTHS:
        what = f"N = M = {length}, H = {HEADS}, MeanWeights()"
        say(what)
        inputs = attends.draw_heads(1, HEADS, length, HEAD_DIM, setting.place)
        calls = [attends.ours(inputs, observe=observe, path=path) for path in ("reference", "blocked")]
        yield Point(HEADS * length**2, what, *_seconds(setting, *calls))


def _windows(setting: Setting, say: Callable[[str], None], parts: int) -> Iterator[Point]:
    for length in QUICK_LENGTHS if setting.quick else LENGTHS:
        side = length // parts // 2
        what = f"N = M = {length}, window({side}, {side})"
        say(what)
        inputs = attends.draw_heads(1, HEADS, length, HEAD_DIM, setting.place)
        mask = masks.window(side, side)
        calls = [attends.ours(inputs, mask=mask, path=path) for path in ("fused", "blocked")]
        yield Point(length**2, what, *_seconds(setting, *calls))


def _padded(setting: Setting, say: Callable[[str], None]) -> Iterator[Point]:
    """Half of the examples are half as long as the others, so that a quarter of the pairs is saved."""
    for length in (16, *(QUICK_LENGTHS if setting.quick else LENGTHS)):
        if length > LONGEST_PADDED:
            break
        what = f"B = {EXAMPLES}, N = M = {length}, every other example half as long"
        say(what)
        inputs = attends.draw_heads(EXAMPLES, HEADS, length, HEAD_DIM, setting.place)
        lengths = [length // (1 + example % 2) for example in range(EXAMPLES)]
        calls = _masked(inputs, lengths), _one_by_one(inputs, lengths)
        yield Point(HEADS * length**2 // 4, what, *_seconds(setting, *calls))


def _masked(inputs: attends.HeadInputs, lengths: Sequence[int]) -> Call:
    query, key, value = inputs.query, inputs.key, inputs.value
    longest = torch.arange(key.shape[2], device=key.device)
    mask = longest < torch.tensor(lengths, device=key.device)[:, None, None, None]  # (B, 1, 1, M)
    return lambda: (F.scaled_dot_product_attention(query, key, value, attn_mask=mask),)


def _one_by_one(inputs: attends.HeadInputs, lengths: Sequence[int]) -> Call:
    query, key, value = inputs.query, inputs.key, inputs.value

    def call() -> tuple[Tensor, ...]:
        context = torch.empty_like(query)
        for i, length in enumerate(lengths):
            one = slice(i, i + 1)
            context[one] = F.scaled_dot_product_attention(
                query[one], key[one, :, :length], value[one, :, :length]
            )
        return (context,)

    return call


def _seconds(setting: Setting, small: Call, large: Call) -> tuple[float, float]:
    """Median seconds of one call in both ways."""
    small(), large()
    rounds = 1 if setting.quick else 5
    calls = {"small": small, "large": large}
    timings = time_in_turns(calls, setting.place.device, seconds=setting.seconds / 3, rounds=rounds)
    return timings["small"].median, timings["large"].median


def table(crossovers: Sequence[Crossover]) -> str:
    """What was measured, and the constants as they should be on this machine.

    Args:
        crossovers: The crossovers.

    Returns:
        Lines of text; the last ones are Python.
    """
    lines = []
    for each in crossovers:
        lines += [f"{each.constant}: {each.counts}; {each.ways[0]} below, {each.ways[1]} from here on"]
        for point in each.points:
            pair = zip(each.ways, (point.small, point.large), strict=True)
            times = ", ".join(f"{way} {report.seconds(taken)}" for way, taken in pair)
            lines.append(f"  2**{point.size.bit_length() - 1:<3} {point.what}: {times}")
        lines.append("")
    shares = [each for each in crossovers if each.constant.startswith("SHARES")]
    pairs = ", ".join(f"({each.value}, {each.constant.partition(', ')[2]})" for each in shares)
    plain = {each.constant: f"{each.constant} = {each.value}" for each in crossovers if each not in shares}
    return "\n".join([*lines, *plain.values(), f"SHARES = ({pairs})"])
