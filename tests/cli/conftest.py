"""One trained toy run for all tests of the command, and the command as a function."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import tomli_w
import torch

from headlights.cli.app import run
from tests.translation.toy import toy_content


class Result(NamedTuple):
    """What came of a command line."""

    status: int
    output: str
    errors: str

    @property
    def error(self) -> str:
        """The one line on standard error, of a command that refused its input."""
        assert self.status == 2
        assert self.output == ""
        (line,) = self.errors.splitlines()
        assert line.startswith("headlights: ")
        return line.removeprefix("headlights: ")


Command = Callable[..., Result]


@pytest.fixture
def headlights(capfd: pytest.CaptureFixture[str]) -> Command:
    """The command, in this process, on one thread of the CPU."""

    def call(*arguments: str | Path) -> Result:
        torch.set_num_threads(1)
        capfd.readouterr()
        status = run([str(argument) for argument in arguments])
        return Result(status, *capfd.readouterr())

    return call


@pytest.fixture(scope="session")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe file over toy pairs, train.tsv and valid.tsv beside it."""
    folder = tmp_path_factory.mktemp("recipe")
    path = folder / "toy.toml"
    path.write_text(tomli_w.dumps(toy_content(folder, max_updates=60)), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def model(recipe: Path) -> Path:
    """The run folder of a finished training; not to be written into."""
    torch.set_num_threads(1)
    out = recipe.parent / "run"
    assert run(["train", "--recipe", str(recipe), "--out", str(out), "--device", "cpu"]) == 0
    return out
