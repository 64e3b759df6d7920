"""One seed and one thread for every test of the translation layer, and one trained toy run to look at."""

from pathlib import Path

import pytest
import torch

from headlights.translation.progress import Reporter
from headlights.translation.training import train
from tests.translation.toy import toy_recipe


@pytest.fixture(autouse=True)
def _repeatable() -> None:
    torch.manual_seed(20140901)
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def toy_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of 24 updates; not to be written into."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("toy")
    train(toy_recipe(folder), out=folder / "run", device="cpu", reporter=Reporter())
    return folder / "run"
