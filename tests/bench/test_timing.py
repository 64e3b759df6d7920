"""Turns, repetitions and the garbage collector while calls are timed."""

import gc
import time

import pytest
import torch

from headlights.bench import timing
from headlights.bench.timing import MOST_ROUNDS, SHORTEST, time_in_turns, without_collector

CPU = torch.device("cpu")


def test_contestants_take_turns_and_every_other_round_goes_backwards() -> None:
    order = []

    def call(name: str) -> None:
        order.append(name)
        time.sleep(SHORTEST + 0.002)  # long enough to be called once a sample

    timings = time_in_turns({name: lambda n=name: call(n) for name in "abc"}, CPU, seconds=0, rounds=2)  # type: ignore[misc]
    assert "".join(order) == "abc" + "abc" + "cba"
    assert all(each.rounds == 3 for each in timings.values())  # the first call is a sample too
    assert all(SHORTEST < each.low <= each.median <= each.high < 0.5 for each in timings.values())


def test_short_calls_are_repeated_within_a_sample() -> None:
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1
        time.sleep(0.001)

    found = time_in_turns({"short": call}, CPU, seconds=0, rounds=3)
    assert found["short"].rounds == 3
    assert 3 < calls <= 1 + 3 * SHORTEST / 0.001
    assert 0.001 <= found["short"].median < 0.02


def test_time_to_spend_buys_rounds_up_to_a_limit() -> None:
    found = time_in_turns({"call": lambda: time.sleep(SHORTEST)}, CPU, seconds=60, rounds=3)
    assert found["call"].rounds == MOST_ROUNDS + 1


@pytest.mark.parametrize(("limit", "samples"), [("LONG_ROUND", 2), ("LONGEST_ROUND", 1)])
def test_long_rounds_are_few(limit: str, samples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, limit, 0.001)
    found = time_in_turns({"call": lambda: time.sleep(SHORTEST)}, CPU, seconds=0, rounds=3)
    assert found["call"].rounds == samples


@pytest.mark.parametrize("on", [True, False])
def test_collector_is_off_inside_and_as_before_after(on: bool) -> None:
    was_on = gc.isenabled()
    try:
        (gc.enable if on else gc.disable)()
        with without_collector():
            assert not gc.isenabled()
        assert gc.isenabled() is on
    finally:
        (gc.enable if was_on else gc.disable)()
