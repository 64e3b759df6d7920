"""The peak of a call, on allocations of a known size."""

import json
import os
import subprocess
import sys

import pytest
import torch

from headlights.bench import memory
from headlights.bench.memory import RETURN_MEMORY, can_reset, how_measured, peak_of

CPU = torch.device("cpu")
# 50 million float32 are 200 MB; the second call has 40 MB only. What a call before it held must not count.
MEASURE = """
import json, torch
from headlights.bench.memory import peak_of
sizes = (50_000_000, 10_000_000)
cpu = torch.device("cpu")
torch.ones(1000)
peaks = [peak_of(lambda: torch.ones(size), cpu) for size in sizes]
steps = iter(sizes)  # the warm-up takes the large one
peaks.append(peak_of(lambda: torch.ones(next(steps)), cpu))
print(json.dumps(peaks))
"""


@pytest.mark.skipif(not can_reset(), reason="needs a system that resets the peak")
def test_allocations_of_200_and_40_megabytes_are_seen_in_a_fresh_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE],
        env={**os.environ, **RETURN_MEMORY},
        capture_output=True,
        text=True,
        check=True,
    )
    large, small, after_large = json.loads(done.stdout)
    assert abs(large - 200e6) < 8e6
    assert abs(small - 40e6) < 8e6
    assert abs(after_large - 40e6) < 8e6


def test_without_a_reset_the_growth_of_the_peak_is_told_and_the_report_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "can_reset", lambda: False)
    calls: list[int] = []
    peak = peak_of(lambda: calls.append(1), CPU)
    assert len(calls) == 1  # a warm-up would count
    if sys.platform == "win32":
        assert peak is None
    else:
        assert peak is not None
        assert peak >= 0
        assert "this system cannot reset the peak" in how_measured(CPU)
    monkeypatch.setattr(sys, "platform", "win32")
    assert peak_of(lambda: None, CPU) is None
    assert how_measured(CPU) == "not measured on Windows"
