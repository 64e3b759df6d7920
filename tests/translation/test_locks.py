"""The lock of a folder: one training, or one preparing, at a time, and a killed one blocks nobody."""

import errno
import fcntl
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headlights.translation import locks
from headlights.translation.folders import FolderError
from headlights.translation.locks import LOCK, locked, locked_beside
from headlights.translation.progress import Reporter
from headlights.translation.runs import RunFolder
from headlights.translation.training import train
from tests.translation.toy import fingerprint, toy_recipe

HOLD = """
import fcntl, os, sys
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print(f"process {os.getpid()} on this machine", file=file, flush=True)
print("held", flush=True)
sys.stdin.read()
"""  # the same by hand, in a process that need not load torch for it


def holder(folder: Path) -> "subprocess.Popen[str]":
    """Another process that holds a folder until it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder / LOCK)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_other_processes_are_kept_out_until_the_holder_is_gone(tmp_path: Path) -> None:
    process = holder(tmp_path)
    expected = (
        f"{tmp_path} is being trained into by process {process.pid} on this machine; wait until it ends, or "
        "choose another folder"
    )
    with pytest.raises(FolderError, match=r"is being trained into by process \d+ on ") as caught:
        locked(tmp_path).__enter__()
    assert str(caught.value) == expected
    process.kill()
    process.communicate()
    assert (tmp_path / LOCK).exists()  # what a killed process leaves, and it is in nobody's way
    with locked(tmp_path):
        assert (tmp_path / LOCK).read_text() == f"process {os.getpid()} on {socket.gethostname()}\n"
        with pytest.raises(FolderError, match=f"process {os.getpid()} on"), locked(tmp_path):
            pass
    assert list(tmp_path.iterdir()) == []


def test_a_holder_that_has_not_said_its_name(tmp_path: Path) -> None:
    with (tmp_path / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(FolderError, match="is being trained into by another process; wait"):
            locked(tmp_path).__enter__()


def test_a_lock_whose_file_was_just_removed_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock
    moved: list[bool] = []

    def late(descriptor: int, operation: int) -> None:
        if len(moved) == 0:  # whoever held it lets go after we have opened the file
            (tmp_path / LOCK).unlink()
        elif len(moved) == 1:  # and another one takes it
            (tmp_path / LOCK).unlink()
            (tmp_path / LOCK).touch()
        moved.append(True)
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with locked(tmp_path):
        assert len(moved) == 3
        assert (tmp_path / LOCK).read_text().startswith(f"process {os.getpid()} ")


def test_without_locks_nobody_is_kept_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    with locked(tmp_path), locked(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(locks, "sys", SimpleNamespace(platform="win32"))
    with locked(tmp_path):
        assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_locked_is_named(tmp_path: Path) -> None:
    (tmp_path / LOCK).mkdir()
    with pytest.raises(FolderError, match=r"\.lock cannot be written: Is a directory$"):
        locked(tmp_path).__enter__()


def test_a_folder_that_need_not_exist_is_locked_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "out"
    with locked_beside(folder):
        assert [path.name for path in folder.parent.iterdir()] == [".out.lock"]
        with pytest.raises(FolderError, match=f"out is being prepared by process {os.getpid()} on .*; wait"):
            locked_beside(folder).__enter__()
        with locked_beside(tmp_path / "deep" / "other"):
            pass
    assert list(folder.parent.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(FolderError, match=r"file/deep cannot be made: Not a directory$"):
        locked_beside(tmp_path / "file" / "deep" / "out").__enter__()


def test_a_folder_made_for_nothing_is_removed(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "deep" / "run")
    with run.held():
        assert [path.name for path in run.path.iterdir()] == [LOCK]
    assert list(tmp_path.iterdir()) == []
    with run.held():
        (run.path / "recipe.toml").touch()
    assert [path.name for path in run.path.iterdir()] == ["recipe.toml"]


def test_two_trainings_into_one_folder(toy_run: Path, tmp_path: Path) -> None:
    recipe, run = toy_recipe(tmp_path / "data"), tmp_path / "run"
    run.mkdir()
    with locked(run), pytest.raises(FolderError, match="run is being trained into by process"):
        train(recipe, out=run, device="cpu", reporter=Reporter())
    assert list(run.iterdir()) == []
    before = fingerprint(toy_run)
    with locked(toy_run), pytest.raises(FolderError, match="run is being trained into by process"):
        train(RunFolder(toy_run).recipe(), out=toy_run, resume=True, device="cpu", reporter=Reporter())
    assert fingerprint(toy_run) == before


def test_only_the_first_of_many_processes_locks(toy_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[Path] = []
    monkeypatch.setattr(RunFolder, "held", lambda self: held.append(self.path))
    monkeypatch.setattr("headlights.translation.training.Processes.main", False)
    monkeypatch.setattr("headlights.translation.training._train", lambda *_, **__: None)
    train(RunFolder(toy_run).recipe(), out=toy_run, resume=True, device="cpu", reporter=Reporter())
    assert held == []
