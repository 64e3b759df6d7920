"""One seed for every test of the attention layer, and blocks that fit toy sizes."""

import pytest
import torch

from headlights.attention import _blocks


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(20140901)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of two rows, so that toy sizes make several."""
    monkeypatch.setattr(_blocks, "FEWEST_ROWS", 2)
    monkeypatch.setattr(_blocks, "MOST_ROWS", 2)
