"""Several processes train as one: the same losses, update by update."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch

from headlights._errors import InputError
from headlights.translation.batches import Batch
from headlights.translation.model import TranslationModel
from headlights.translation.processes import Processes, is_main
from headlights.translation.recipe import check_recipe
from headlights.translation.runs import RunFolder
from headlights.translation.updates import Updater
from tests.translation.test_model import SIZES, batch, make
from tests.translation.together import losses_of
from tests.translation.toy import toy_content

ROOT = Path(__file__).parents[2]
FULL = os.environ.get("HEADLIGHTS_FULL") == "1"
UPDATES = 50


def content(folder: Path, updates: int = UPDATES) -> dict[str, Any]:
    """Without dropout; some batches have a single pair, which leaves nothing to the second process."""
    found = toy_content(folder, max_updates=updates, batch_tokens=40, accumulate=2, validations=2)
    found["model"]["dropout"] = 0.0
    return found


def launchers(kind: str) -> list[list[str]]:
    """The commands that begin two processes: one for both, or one on each of two nodes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    if kind == "accelerate":
        options = f"--multi_gpu --num_processes 2 --num_machines 1 --main_process_port {port}"
        plain = "--mixed_precision no --dynamo_backend no"
        return [["accelerate.commands.launch", *options.split(), *plain.split()]]
    count = 1 if kind == "torchrun" else 2
    common = f"--nnodes={count} --nproc-per-node={2 // count} --master-port={port} --master-addr=127.0.0.1"
    return [["torch.distributed.run", *common.split(), f"--node-rank={rank}"] for rank in range(count)]


def launched(launcher: list[str], *arguments: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", *launcher, "-m", "tests.translation.together"]
        + [str(each) for each in arguments],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[float]]:
    """A folder with the recipe and the run of one process, and the losses of that."""
    folder = tmp_path_factory.mktemp("alone")
    (folder / "toy.toml").write_text(tomli_w.dumps(content(folder)), encoding="utf-8")
    return folder, losses_of(folder, folder / "run")


@pytest.mark.parametrize("kind", ["torchrun", "accelerate", *(["two-nodes"] if FULL else [])])
def test_two_processes_train_as_one(alone: tuple[Path, list[float]], tmp_path: Path, kind: str) -> None:
    folder, expected = alone
    run = RunFolder(tmp_path / "run")
    started = [launched(each, folder, run.path, tmp_path / "losses") for each in launchers(kind)]
    for process in started:
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors
    losses = json.loads((tmp_path / "losses").read_text())
    assert len(losses) == len(expected) == UPDATES
    assert max(abs(a - b) / b for a, b in zip(losses, expected, strict=True)) < 1e-5
    assert expected[-1] < 0.8 * expected[0]  # so that the same losses mean the same learning
    assert run.update_of(run.last) == UPDATES
    assert {path.name for path in run.path.iterdir()} == {path.name for path in (folder / "run").iterdir()}


def test_a_share_is_every_second_row_or_nothing() -> None:
    whole = batch([0, 1, 2])
    shares = [whole.share(rank, 2, pad_id=0) for rank in (0, 1)]
    assert [share.indices.tolist() for share in shares] == [[0, 2], [1]]
    for share in shares:
        for name in Batch.__slots__:
            assert torch.equal(getattr(share, name), getattr(whole, name)[share.indices])
    model = make()
    nothing = batch([2]).share(1, 2, pad_id=0)
    loss = model.loss(nothing, label_smoothing=0.1, coverage=0.3)
    assert (loss.tokens, float(loss.cross_entropy)) == (0, 0.0)
    gradients = torch.autograd.grad(loss.smoothed, list(model.parameters()))
    assert not any(gradient.any() for gradient in gradients)


def test_one_process_is_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    processes, values = Processes("cpu"), torch.tensor([1.5, 2.0])
    assert (processes.count, processes.rank, processes.main, is_main()) == (1, 0, True, True)
    assert processes.sum(values) is values
    assert processes.from_main([1.0, 2.0]) == [1.0, 2.0]
    whole = batch([0, 1, 2])
    assert processes.share(whole, pad_id=0) is whole
    state = torch.get_rng_state()
    processes.seed(3, 4)
    processes.wait()
    assert torch.equal(torch.get_rng_state(), state)
    monkeypatch.setenv("RANK", "1")
    assert not is_main()


def test_what_the_launcher_cannot_choose_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "fp16")
    with pytest.raises(InputError, match=r"precision 'fp16' is not for the launcher .* training.precision"):
        Processes("cpu")
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(InputError, match="FSDP is not offered: every process holds the whole model"):
        Processes("cpu")


@pytest.mark.parametrize("architecture", ["recurrent", "transformer"])
def test_bf16_is_close_and_keeps_parameters_in_full(architecture: str) -> None:
    sizes = (
        SIZES if architecture == "recurrent" else {"embed_dim": 8, "heads": 2, "layers": 1, "dropout": 0.0}
    )
    losses = []
    for precision in ("fp32", "bf16"):
        torch.manual_seed(5)
        shape = {"architecture": architecture, **sizes}
        settings = check_recipe(
            {"model": shape, "training": {"max_updates": 7, "precision": precision, "coverage": 0.1}}, "mine"
        )
        model = TranslationModel(settings.model, 11, 13)
        found = Updater(settings, model).update([batch([0, 1, 2, 3])], number=0, done=0.0)
        losses.append(found.cross_entropy)
        assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert losses[1] == pytest.approx(losses[0], rel=0.02)
    assert losses[1] != losses[0]
