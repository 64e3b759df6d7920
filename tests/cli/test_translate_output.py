"""Where `headlights translate` writes: all or nothing, never over what it reads, and into pipes."""

import gzip
import os
import stat
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.cli.test_app import BUFFERED, program
from tests.cli.test_train import wait_until

CPU = ("--device", "cpu")


def test_output_is_compressed_by_its_name(headlights: Command, model: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("red cat\nold dog\n")
    plain = headlights("translate", model, tmp_path / "text", *CPU).output
    for _ in range(2):
        assert headlights("translate", model, tmp_path / "text", "-o", tmp_path / "out.gz", *CPU).status == 0
        assert gzip.decompress((tmp_path / "out.gz").read_bytes()).decode() == plain


def test_closed_pipe_is_silent(model: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("red cat\n" * 5000)
    command = program("translate", model, tmp_path / "text", "--beam", "1", *CPU)
    done = subprocess.run(
        ["bash", "-c", 'set -o pipefail; "$@" | head -1', "-", *command],
        capture_output=True,
        text=True,
        env=BUFFERED,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1


def test_output_file_is_whole_with_the_mode_of_any_new_file(
    headlights: Command, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "text").write_text("red cat\nold dog\n")
    before = os.umask(0o027)
    try:
        result = headlights("translate", model, tmp_path / "text", "-o", tmp_path / "out", *CPU)
    finally:
        os.umask(before)
    assert result == (0, "", "")
    assert len((tmp_path / "out").read_text().splitlines()) == 2
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o640
    assert headlights("translate", model, tmp_path / "text", "-o", "/dev/null", *CPU).status == 0
    assert Path("/dev/null").is_char_device()


def test_broken_line_is_named_and_the_old_output_stays(
    headlights: Command, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "text").write_bytes(b"red\n" * 2500 + b"r\xff\n")
    (tmp_path / "out").write_text("old\n")
    error = headlights(
        "translate", model, tmp_path / "text", "-o", tmp_path / "out", "--beam", "1", *CPU
    ).error
    assert (
        error
        == f"{tmp_path / 'text'}:2501: byte 2 of the line, 0xff, is not UTF-8; convert the file to UTF-8"
    )
    assert (tmp_path / "out").read_text() == "old\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "text"]


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="needs /dev/full")
def test_full_disk_is_one_line(headlights: Command, model: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("red cat\n")
    error = headlights("translate", model, tmp_path / "text", "-o", "/dev/full", *CPU).error
    assert error == "/dev/full cannot be written: No space left on device"
    assert Path("/dev/full").is_char_device()


def test_place_that_cannot_be_written_is_refused_before_the_model_is_loaded(
    headlights: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = tmp_path / "no-model"
    error = headlights("translate", missing, "-o", tmp_path / "none" / "out").error
    assert error == f"--output {tmp_path}/none/out: there is no folder {tmp_path}/none; make it first"
    assert headlights("translate", missing, "-o", tmp_path).error == (
        f"--output {tmp_path}: is a folder; expected a file to write"
    )
    (tmp_path / "loose").symlink_to(tmp_path / "none" / "out")
    assert headlights("translate", missing, "-o", tmp_path / "loose").error == (
        f"--output {tmp_path}/loose: leads to the folder {tmp_path}/none, which is not there; make it first"
    )


def test_a_file_is_made_in_its_folder_and_a_pipe_is_opened(
    headlights: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed, free = tmp_path / "closed", tmp_path / "open"
    closed.mkdir()
    free.mkdir()
    (closed / "file").touch()
    (free / "file").touch()
    (free / "link").symlink_to(closed / "file")
    (closed / "link").symlink_to(free / "file")
    os.mkfifo(closed / "pipe")
    os.mkfifo(free / "pipe")
    # Root may write anywhere, so the system is not asked.
    refused = (closed, free / "file", free / "pipe")
    monkeypatch.setattr(os, "access", lambda path, mode: not (mode & os.W_OK and Path(path) in refused))
    missing = tmp_path / "no-model"
    for path in (closed / "new", closed / "file", free / "link"):
        assert headlights("translate", missing, "-o", path).error == (
            f"--output {path}: no file may be made in {closed}, as replacing one needs; choose another place"
        )
    assert headlights("translate", missing, "-o", free / "pipe").error == (
        f"--output {free}/pipe: may not be written; choose another place"
    )
    for path in (free / "new", free / "file", closed / "link", closed / "pipe"):
        assert headlights("translate", missing, "-o", path).error.startswith(f"{missing} does not exist; ")


def test_ended_from_outside_leaves_nothing_behind(model: Path, tmp_path: Path) -> None:
    command = program("translate", model, "-o", tmp_path / "out", "--threads", "1", *CPU)
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **streams) as process:  # type: ignore[call-overload]
        wait_until(lambda: any(tmp_path.iterdir()), process)  # the file that is to become the output
        process.terminate()
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (143, "")
    assert errors.splitlines()[-1] == "headlights: terminated"
    assert list(tmp_path.iterdir()) == []


def test_no_input_is_written_over(headlights: Command, tmp_path: Path) -> None:
    text, link = tmp_path / "text", tmp_path / "link"
    text.write_text("red cat\n")
    link.symlink_to(text)
    for options in ((text, "-o", text), (text, "-o", link), ("--prefix-file", text, "-o", text)):
        assert headlights("translate", tmp_path / "no-model", *options).error == (
            f"--output {options[-1]}: is what is read, and would be lost; choose another name"
        )
    lines = text.rename(tmp_path / "text.jsonl")
    assert headlights("translate", tmp_path / "no-model", lines, "--output-attention", lines).error == (
        f"--output-attention {lines}: is what is read, and would be lost; choose another name"
    )
