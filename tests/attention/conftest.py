"""One seed for every test of the attention layer, blocks that fit toy sizes, and a folder for kernels."""

from pathlib import Path

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


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the kernels that a module compiles are kept."""
    return tmp_path_factory.mktemp("cache")
