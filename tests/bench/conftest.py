"""Cases of a few additions, and figures made by hand."""

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from headlights.bench.cases import Case, Measured, faster, memory_share
from headlights.bench.contestant import Build, Contestants, Out, Place
from headlights.bench.running import Outcome, Setting
from headlights.bench.timing import Timing

PLACE = Place(torch.device("cpu"), torch.float32)


def returns(*numbers: float) -> Build:
    """A contestant that returns one tensor of these numbers."""
    found: Tensor = torch.tensor(numbers)
    return lambda: lambda: (found,)


def case_of(contestants: Mapping[str, Build | Out], baseline: str = "theirs") -> Case:
    """A case with these contestants that asks for twice the speed and half the memory."""

    def drawn(_place: Place) -> Contestants:
        return contestants

    return Case("row", "name", "the work", drawn, baseline, {"headlights": (faster(2), memory_share(0.5))})


def timed(seconds: float, peak: int | None = None) -> Measured:
    """A measurement without spread."""
    return Measured(Timing(seconds, seconds, seconds, 3), 0.0, peak)


@pytest.fixture
def setting() -> Setting:
    """One thread of the CPU, toy sizes."""
    return Setting(PLACE, 1, quick=True, seconds=0.0)


@pytest.fixture
def outcome() -> Outcome:
    """Ours takes 2 ms and 3 MiB, theirs 6 ms and 4 MiB, and another is not installed."""
    measured = {
        "theirs": timed(6e-3, 4 * 2**20),
        "headlights": timed(2e-3, 3 * 2**20),
        "another": Measured(note="another is not installed"),
    }
    return Outcome(case_of({}), PLACE, measured)
