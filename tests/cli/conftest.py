"""One trained toy run for all tests of the command, and the command as a function."""

import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import tomli_w
import torch
from safetensors.torch import load_file, save_file

from headlights.cli.app import run
from tests.cli.pretrained_models import Made, save_model
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


def put_nan(path: Path) -> None:
    """Replace all numbers of a file of weights by NaN."""
    tensors = {name: torch.full_like(tensor, torch.nan) for name, tensor in load_file(path).items()}
    save_file(tensors, path, {"format": "pt"})


Command = Callable[..., Result]

NAN = "the decoder's logits are NaN: the model is broken; train it again, with a lower training.learning_rate"
"""What is said of a model whose parameters are NaN."""


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


@pytest.fixture(scope="session")
def broken(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder whose parameters are all NaN, as a training that diverged may leave them."""
    folder = tmp_path_factory.mktemp("broken") / "model"
    shutil.copytree(model / "best", folder)
    put_nan(folder / "model.safetensors")
    return folder


@pytest.fixture(scope="session")
def quiet() -> Iterator[None]:
    """No reports of what the tests themselves save."""
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    yield
    logging.enable_progress_bar()  # type: ignore[no-untyped-call]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory, quiet: None) -> Made:
    """A folder with a model of a kind, made when first asked for; not to be written into."""
    root = tmp_path_factory.mktemp("models")

    def make(kind: str) -> Path:
        folder = root / kind
        return folder if folder.exists() else save_model(kind, folder)

    return make


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
