"""`headlights prepare` and training on what it wrote."""

import os
import signal
from pathlib import Path

import pytest

from headlights.cli.app import run
from headlights.translation import encoding

PAIRS = "".join(f"row {i} of it\triga {i}\n" for i in range(60))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "train.tsv"
    path.write_text(PAIRS + "row 1 of it\triga 1\n", encoding="utf-8")
    return path


def test_prepare_then_train(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "prepared"
    options = ["--set", "tokenizer.kind=word", "--set", "tokenizer.vocab_size=300", "--workers", "1"]
    assert run(["prepare", "--pairs", str(table), "--out", str(out), *options]) == 0
    said = capsys.readouterr().out
    assert "left out: came before      1" in said
    assert f"came before, for example: {table}:61" in said
    assert said.endswith(f"prepared: {out}\n")
    small = ["--set", "model.embed_dim=16", "--set", "model.encoder_dim=16", "--set", "model.hidden_dim=16"]
    run_folder = str(tmp_path / "run")
    code = run(["train", "--prepared", str(out), "--out", run_folder, "--updates", "2", *small])
    assert code == 0, capsys.readouterr().err
    assert run(["train", "--resume", "--out", run_folder, "--updates", "3"]) == 0
    assert "going on at update 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "x"], "prepare needs sentence pairs: give --source and --target, or --pairs"),
        (["--out", "x", "--pairs", "no.tsv"], "no.tsv: cannot be read: No such file or directory"),
        (
            ["--out", "x", "--pairs", "no.tsv", "--max-ratio", "0.5"],
            "--max-ratio: expected 1 or more, got 0.5",
        ),
        (
            ["--out", "x", "--pairs", "no.tsv", "--set", "data.max_length=50"],
            "--set data.max_length: changes nothing here, prepare reads tokenizer.* and data.held_out",
        ),
        (
            ["--out", "x", "--pairs", os.fsdecode(b"\xff.tsv")],
            "\\udcff.tsv': the name is not UTF-8, as recipes are; rename it or its folder",
        ),
        (
            ["--out", os.fsdecode(b"\xff"), "--pairs", "no.tsv"],
            "\\udcff': the name is not UTF-8, as recipes are; rename it or its folder",
        ),
        (["--pairs", "no.tsv"], "Missing option '--out'"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["prepare", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error
    assert not list(tmp_path.iterdir())


def die(_texts: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_is_killed_is_one_line(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "_encode_in_worker", die)
    out = tmp_path / "prepared"
    options = ["--set", "tokenizer.kind=word", "--set", "tokenizer.vocab_size=300", "--workers", "2"]
    assert run(["prepare", "--pairs", str(table), "--out", str(out), *options]) == 2
    assert capsys.readouterr().err == (
        "headlights: a worker process was ended from outside, most often because the memory did not suffice; "
        "give fewer --workers\n"
    )
    assert not out.exists()


def test_training_on_what_is_no_prepared_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "--prepared", str(tmp_path), "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert "there is no prepared.json; expected a folder written by `headlights prepare`" in error


def test_training_on_a_folder_whose_name_is_not_utf_8(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "prepared"
    assert run(["prepare", "--pairs", str(table), "--out", str(out), "--workers", "1"]) == 0
    renamed = out.rename(tmp_path / os.fsdecode(b"\xff"))
    capsys.readouterr()
    assert run(["train", "--prepared", str(renamed), "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "\\udcff': the name is not UTF-8, as recipes are; rename it or its folder" in error
    assert not (tmp_path / "run").exists()
