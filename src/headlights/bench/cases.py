"""The work that is compared, row by row, and what is to be reached in each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from headlights.attention import observations
from headlights.bench import additive, attends, layers
from headlights.bench.contestant import Contestants, Out, Place
from headlights.bench.timing import Timing

TINY = 0.5e-3
"""Seconds. What SDPA does in less is held to a difference, not to a ratio."""
PLAIN = ((1, 8, 16, 64), (1, 8, 128, 64), (8, 8, 256, 64), (1, 8, 4096, 64))
"""Sizes (B, H, N, D) at which `attend` is held to SDPA, from calls to computation."""


@dataclass(frozen=True)
class Measured:
    """What was measured of one contestant.

    Attributes:
        timing: Its time, None where it was not timed.
        warm_up: Seconds of its first call, compilation included.
        peak: Bytes it held at most beyond its inputs, None where that was not measured.
        note: Why something is missing, in a few words; "" if nothing is.
    """

    timing: Timing | None = None
    warm_up: float | None = None
    peak: int | None = None
    note: str = ""


@dataclass(frozen=True)
class Goal:
    """What ours is to reach.

    Attributes:
        text: The goal as the table shows it.
        reached: Tells from ours and the baseline; None if a figure is missing.
    """

    text: str
    reached: Callable[[Measured, Measured], bool | None]


@dataclass(frozen=True)
class Case:
    """One piece of work and who does it.

    Attributes:
        row: The row it belongs to, what `--rows` selects.
        name: Unique name.
        work: What is done, with sizes.
        contestants: Draws the inputs and gives the contestants.
        baseline: Whom all are compared with; the ratios are to it.
        goals: What is to be reached, by contestant.
    """

    row: str
    name: str
    work: str
    contestants: Callable[[Place], Contestants]
    baseline: str
    goals: Mapping[str, tuple[Goal, ...]] = field(default_factory=dict)


def faster(factor: float) -> Goal:
    """Ours takes at most 1 / factor of the baseline's time.

    Args:
        factor: How many times faster.

    Returns:
        The goal.
    """

    def reached(ours: Measured, baseline: Measured) -> bool | None:
        if ours.timing is None or baseline.timing is None:
            return None
        return baseline.timing.median >= factor * ours.timing.median

    return Goal(f"≥ {factor:g}× as fast", reached)


def time_share(factor: float) -> Goal:
    """Ours takes at most so many times the baseline's time.

    Args:
        factor: How many times.

    Returns:
        The goal.
    """

    def reached(ours: Measured, baseline: Measured) -> bool | None:
        if ours.timing is None or baseline.timing is None:
            return None
        return ours.timing.median <= factor * baseline.timing.median

    return Goal(f"≤ {factor:g}× the time", reached)


def memory_share(share: float) -> Goal:
    """Ours holds at most this share of the baseline's memory.

    Args:
        share: 0..1.

    Returns:
        The goal.
    """

    def reached(ours: Measured, baseline: Measured) -> bool | None:
        if ours.peak is None or baseline.peak is None:
            return None
        return ours.peak <= share * baseline.peak

    return Goal(f"≤ {100 * share:g} % of the memory", reached)


def memory_below(gib: float) -> Goal:
    """Ours holds less than this.

    Args:
        gib: GiB.

    Returns:
        The goal.
    """

    def reached(ours: Measured, _baseline: Measured) -> bool | None:
        return None if ours.peak is None else ours.peak < gib * 2**30

    return Goal(f"< {gib:g} GiB", reached)


def as_fast(share: float, extra: float) -> Goal:
    """Ours loses next to nothing: a share of speed where the work is real, a constant where it is tiny.

    Args:
        share: Least speed relative to the baseline where that takes more than `TINY`.
        extra: Seconds that ours may take longer where it does not.

    Returns:
        The goal.
    """

    def reached(ours: Measured, baseline: Measured) -> bool | None:
        if ours.timing is None or baseline.timing is None:
            return None
        if baseline.timing.median > TINY:
            return baseline.timing.median >= share * ours.timing.median
        return ours.timing.median - baseline.timing.median <= extra

    return Goal(f"≥ {share:g}× as fast, below {1000 * TINY:g} ms at most {1e6 * extra:.0f} µs more", reached)


def rows(quick: bool = False) -> list[Case]:
    """All cases, in the order of the table.

    Args:
        quick: Toy sizes without goals, to try the machinery. Default: the real ones.

    Returns:
        The cases.
    """
    cases = [*_additive(quick), *_layers(quick), *_attends(quick)]
    return [replace(case, goals={}) for case in cases] if quick else cases


def _additive(quick: bool) -> list[Case]:
    cases = []
    for row, shape, forward, both, memory in (
        ("additive", (8, 256, 256, 256), 50, 20, (memory_share(0.05),)),
        ("additive-words", (64, 30, 30, 512), 30, 15, ()),
    ):
        sizes = (2, 5, 7, 11) if quick else shape
        for kind, goals, contestants in (
            ("forward", (faster(forward),), additive.forward),
            ("forward and backward", (faster(both), *memory), additive.forward_backward),
        ):
            cases.append(
                Case(
                    row,
                    f"{row}-{kind.replace(' ', '-')}",
                    f"additive scores {sizes}, {kind}",
                    partial(_drawn_additive, sizes, contestants),
                    "textbook",
                    {"headlights": goals, additive.EAGER: (faster(3),)},
                )
            )
    sizes = (2, 1, 7, 11) if quick else (64, 1, 30, 512)
    cases.append(
        Case(
            "step",
            "step",
            f"a decoder's step {sizes}, keys prepared",
            partial(_drawn_additive, sizes, additive.step),
            "textbook",
            {"headlights": (faster(3),)},
        )
    )
    return cases


def _drawn_additive(
    sizes: Sequence[int], contestants: Callable[[additive.AdditiveInputs], Contestants], place: Place
) -> Contestants:
    batch, queries, keys, hidden = sizes
    return contestants(additive.draw_additive(batch, queries, keys, hidden, place))


def _layers(quick: bool) -> list[Case]:
    cases = []
    for row, sizes, mean, none in (
        ("layer-4096", (1, 4096, 512, 8), 1.2, 1.7),
        ("layer-512", (8, 512, 512, 8), 1.15, 1.15),
        ("layer-32", (32, 32, 512, 8), 0.97, 0.97),
    ):
        used = (2, 17, 24, 3) if quick else sizes
        for kind, factor, contestants in (
            ("mean weights", mean, layers.with_weights),
            ("no weights", none, layers.without_weights),
        ):
            cases.append(
                Case(
                    row,
                    f"{row}-{kind.replace(' ', '-')}",
                    f"layer {used}, {kind}",
                    partial(_drawn_layer, used, contestants),
                    "nn.MultiheadAttention",
                    {"headlights": (faster(factor),)},
                )
            )
    sizes = (1, 19, 24, 3) if quick else (1, 2048, 512, 8)
    cases.append(
        Case(
            "training",
            "training",
            f"training step of a layer {sizes}, mean weights",
            partial(_drawn_layer, sizes, layers.training),
            "nn.MultiheadAttention",
            {"headlights": (faster(1.3), memory_share(0.35))},
        )
    )
    sizes = (1, 23, 24, 3) if quick else (1, 16384, 512, 8)
    cases.append(
        Case(
            "top",
            "top",
            f"layer {sizes}, 8 largest weights of each query and head",
            partial(_drawn_layer, sizes, _top),
            "nn.MultiheadAttention",
            {"headlights": (memory_below(2),)},
        )
    )
    return cases


def _top(inputs: layers.LayerInputs) -> Contestants:
    batch, length, _ = inputs.x.shape
    needed = batch * inputs.heads * length**2 * inputs.x.element_size()
    return {
        "nn.MultiheadAttention": Out(f"all weights of all heads alone take {needed / 2**30:.3g} GiB"),
        "headlights": layers.top_weights(inputs, 8),
    }


def _drawn_layer(
    sizes: Sequence[int], contestants: Callable[[layers.LayerInputs], Contestants], place: Place
) -> Contestants:
    batch, length, width, heads = sizes
    return contestants(layers.draw_inputs(batch, length, width, heads, place))


def _attends(quick: bool) -> list[Case]:
    sizes = (1, 2, 67, 8) if quick else (1, 8, 16384, 64)
    before = 5 if quick else 256
    cases = [
        Case(
            "window",
            "window",
            f"attention {sizes}, window({before}, 0)",
            partial(_drawn_heads, sizes, partial(attends.windowed, before=before)),
            "SDPA, dense mask",
            {"headlights": (faster(15),)},
        )
    ]
    plain = ((1, 2, 3, 8),) if quick else PLAIN
    cases += [
        Case(
            "plain",
            f"plain-{sizes[0]}-{sizes[2]}",
            f"attention {sizes}, nothing observed",
            partial(_drawn_heads, sizes, attends.plain),
            "SDPA",
            {"headlights": (as_fast(0.95, 15e-6),)},
        )
        for sizes in plain
    ]
    sizes = (1, 2, 13, 8) if quick else (1, 8, 4096, 64)
    for name, observation, factor in (
        ("TopWeights(8)", observations.TopWeights(8), 2.0),
        ("MeanWeights()", observations.MeanWeights(), 1.7),
    ):
        cases.append(
            Case(
                "observed",
                f"observed-{name.partition('(')[0]}",
                f"attention {sizes}, {name} kept",
                partial(_drawn_heads, sizes, partial(attends.observed, observation=observation)),
                "SDPA",
                {"headlights": (time_share(factor),)},
            )
        )
    return cases


def _drawn_heads(
    sizes: Sequence[int], contestants: Callable[[attends.HeadInputs], Contestants], place: Place
) -> Contestants:
    batch, heads, length, head_dim = sizes
    return contestants(attends.draw_heads(batch, heads, length, head_dim, place))
