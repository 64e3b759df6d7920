"""Kills trainings at chosen moments and goes on with what is left; run as a program by test_killed.py.

Every training runs in a fork of this process, which has loaded torch once. "k0.5" is half way through the
calls to the file system on the run folder: that call never happens, because the process kills itself instead.
"l2" is right after the second line of the log, and "s0.5" half a second after the start.
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from headlights.cli.app import run as command
from headlights.translation import trainer, training
from headlights.translation.progress import Reporter
from headlights.translation.recipe import Recipe, load_recipe
from tests.translation.toy import fingerprint

_CALLS = {"open", "os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.chmod"}


def main(folder: Path, moments: list[str]) -> None:
    """Print, as JSON, the whole run's fingerprint, its number of calls, and what came of each moment."""
    torch.set_num_threads(1)
    recipe = load_recipe(folder / "toy.toml")
    trainer.SAVE_EVERY, trainer.SAVE_SHARE = 0.0, 1e9  # save at every update
    setattr(os, "fsync", lambda _: None)  # noqa: B010 - what the machine survives is not the question here, and disks are slow
    whole = folder / "whole"
    _forked(lambda: _train(recipe, whole, count_into=folder / "calls"))
    calls = int((folder / "calls").read_text())
    results = [_one(recipe, folder, moment, calls) for moment in moments]
    print(json.dumps({"whole": fingerprint(whole), "calls": calls, "results": results}))


def _one(recipe: Recipe, folder: Path, moment: str, calls: int) -> dict[str, Any]:
    run = folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    kind, number = moment[0], float(moment[1:])
    if kind == "k":
        status = _forked(lambda: _train(recipe, run, kill_at=1 + round(number * (calls - 1))))
    elif kind == "l":
        status = _forked(lambda: _train(recipe, run, kill_after_line=int(number)))
    else:
        status = _forked(lambda: _train(recipe, run, kill_after=number))
    result: dict[str, Any] = {"moment": moment, "killed": os.WIFSIGNALED(status)}
    if run.exists():
        output, errors = folder / "output", folder / "errors"
        result["translated"] = os.waitstatus_to_exitcode(_forked(lambda: _translate(run, output, errors)))
        result["lines"] = output.read_text("utf-8").splitlines()
        result["errors"] = errors.read_text("utf-8").splitlines()
    resume = (run / "recipe.toml").exists()
    result["status"] = os.waitstatus_to_exitcode(_forked(lambda: _train(recipe, run, resume=resume)))
    result["end"] = fingerprint(run)
    return result


def _train(
    recipe: Recipe,
    run: Path,
    *,
    resume: bool = False,
    kill_at: int = 0,
    kill_after_line: int = 0,
    kill_after: float = 0.0,
    count_into: Path | None = None,
) -> None:
    count = lines = 0
    signal.setitimer(signal.ITIMER_REAL, kill_after)  # at 0 never; the alarm ends a process like a kill

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal count, lines
        if event in _CALLS and str(arguments[0]).startswith(str(run)):
            count += 1
            if count == kill_at or (kill_after_line and lines == kill_after_line):
                os.kill(os.getpid(), signal.SIGKILL)
            lines += str(arguments[0]).endswith("log.jsonl")

    sys.addaudithook(watch)
    training.train(recipe, out=run, resume=resume, device="cpu", reporter=Reporter())
    if count_into is not None:
        count_into.write_text(str(count))


def _translate(run: Path, output: Path, errors: Path) -> None:
    for path, number in ((output, 1), (errors, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    text = run.parent / "text"
    text.write_text("red cat\n\nold dog\n", encoding="utf-8")
    sys.exit(command(["translate", str(run), str(text), "--device", "cpu"]))


def _forked(action: Callable[[], object]) -> int:
    """The status of a child that does something and leaves."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            action()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            sys.stdout.flush()
            os._exit(code)
    return os.waitpid(child, 0)[1]


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
