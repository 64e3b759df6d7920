"""`headlights train`: its report, its refusals, and signals from outside."""

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headlights.translation import judging, training
from headlights.translation.runs import RunFolder
from tests.cli.conftest import Command
from tests.cli.test_app import program
from tests.translation.toy import fingerprint, write_pairs

LONG = ("--updates", "100000", "--set", "training.validations=5000", "--device", "cpu", "--threads", "1")


def started(recipe: Path, out: Path) -> "subprocess.Popen[str]":
    """A training in a process of its own."""
    return subprocess.Popen(
        program("train", "--recipe", recipe, "--out", out, *LONG),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until(there: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    """Wait until a process has made something."""
    until = time.monotonic() + 120
    while not there():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.01)


def test_training_reports_and_ends_with_the_model(headlights: Command, recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    status, output, errors = headlights(
        "train", "--recipe", recipe, "--out", out, "--updates", "8", "--device", "cpu"
    )
    assert status == 0
    best = json.loads((out / "best" / "training.json").read_text())
    assert output == (
        f"best model: {out}/best (update {best['update']}, validation BLEU {best['validation_bleu']})\n"
    )
    lines = errors.splitlines()
    assert lines[0].startswith("199 training and 7 validation pairs, 10 source and 10 target tokens, ")
    assert lines[0].endswith(" parameters, on cpu")
    assert any("validation loss" in line for line in lines)
    assert "\x1b" not in errors  # lines, not a bar, where nobody sits at a terminal
    for line in (out / "log.jsonl").read_text().splitlines():
        assert isinstance(json.loads(line), dict)

    assert (
        "holds a run already: continue it with --resume, or"
        in headlights("train", "--recipe", recipe, "--out", out).error
    )
    again = headlights("train", "--resume", "--out", out, "--device", "cpu")
    assert (again.status, again.output) == (0, output)
    assert again.errors.splitlines()[-1] == "nothing to do: the run has reached its limit at update 8"


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_saves_and_says_how_to_go_on(
    recipe: Path, tmp_path: Path, sent: signal.Signals, status: int
) -> None:
    out = tmp_path / "a run"
    process = started(recipe, out)
    wait_until((out / "log.jsonl").exists, process)
    process.send_signal(sent)
    output, errors = process.communicate(timeout=120)
    assert (process.returncode, output) == (status, "")
    update = json.loads((out / "resume" / "state.json").read_text())["update"]
    assert errors.splitlines()[-1] == (
        f"headlights: stopped at update {update}, saved in {out}; "
        f"go on with: headlights train --resume --out '{out}'"
    )
    assert {path.name for path in out.iterdir()} <= {"recipe.toml", "log.jsonl", "best", "last", "resume"}


def test_killed_by_the_system_goes_on_with_the_printed_command(
    headlights: Command, recipe: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    process = started(recipe, out)
    wait_until((out / "last").exists, process)
    error = headlights("train", "--resume", "--out", out).error
    assert error.startswith(f"{out} is being trained into by process {process.pid} on ")
    assert error.endswith("; wait until it ends, or choose another folder")
    process.kill()
    process.communicate()
    text = tmp_path / "text"
    text.write_text("red cat\n")
    assert headlights("translate", out, text, "--device", "cpu").status == 0
    update = json.loads((out / "resume" / "state.json").read_text())["update"]
    went_on = headlights("train", "--resume", "--out", out, "--updates", str(update + 3), "--device", "cpu")
    assert went_on.status == 0
    assert went_on.errors.startswith(f"going on at update {update}\n")
    assert json.loads((out / "last" / "training.json").read_text())["update"] == update + 3


def test_interrupted_while_reading_leaves_nothing(
    headlights: Command, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "load_data", lambda *_, **__: signal.raise_signal(signal.SIGINT))
    result = headlights("train", "--recipe", recipe, "--out", tmp_path / "run")
    assert result == (130, "", "headlights: interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_diverged_training_is_one_line(
    headlights: Command, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "validation_loss", lambda *_: float("nan"))
    result = headlights(
        "train", "--recipe", recipe, "--out", tmp_path / "run", "--updates", "1", "--device", "cpu"
    )
    assert result.status == 2
    assert result.errors.splitlines()[-1] == (
        "headlights: the validation loss after update 1 is nan; "
        "train again with a lower training.learning_rate"
    )


def test_one_process_of_many_reports(
    headlights: Command, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    result = headlights("train", "--recipe", recipe, "--out", tmp_path / "run", "--updates", "1")
    assert (result.status, result.output) == (0, "")


def test_same_command_line_gives_the_same_run(headlights: Command, recipe: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert headlights("train", "--recipe", recipe, "--out", tmp_path / name, "--updates", "4").status == 0
    assert fingerprint(tmp_path / "a") == fingerprint(tmp_path / "b")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"", "no sentence pairs in"),
        (b"red cat\trosso gatto\nno tab\n", ":2: expected exactly one tab, between source and target, got 0"),
        (b"red\tros\xffso\n", ":1: byte 8 of the line, 0xff, is not UTF-8; convert the file to UTF-8"),
    ],
    ids=["missing", "empty", "broken", "binary"],
)
def test_broken_pairs_are_named(
    headlights: Command, recipe: Path, tmp_path: Path, content: bytes | None, expected: str
) -> None:
    pairs = tmp_path / "pairs.tsv"
    if content is not None:
        pairs.write_bytes(content)
    error = headlights("train", "--recipe", recipe, "--pairs", pairs, "--out", tmp_path / "run").error
    assert str(pairs) in error
    assert expected in error
    assert not (tmp_path / "run").exists()


def test_folder_and_unreadable_file_as_pairs_are_named(
    headlights: Command, recipe: Path, tmp_path: Path
) -> None:
    (tmp_path / "folder.tsv").mkdir()
    (tmp_path / "loop.tsv").symlink_to(tmp_path / "loop.tsv")
    for name, reason in (("folder.tsv", "Is a directory"), ("loop.tsv", "Too many levels of symbolic links")):
        error = headlights(
            "train", "--recipe", recipe, "--pairs", tmp_path / name, "--out", tmp_path / "run"
        ).error
        assert error == f"{tmp_path / name}: cannot be read: {reason}"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["--source", "a"],
            "--source needs --target beside it: line n of one translates line n of the other",
        ),
        (["--valid-target", "a"], "--valid-target needs --valid-source beside it: "),
        (["--pairs", "a", "--source", "b"], "give either --pairs or --source and --target, not both"),
        (["--recipe", "nun"], "recipe 'nun' is neither a file nor one of compare, "),
        (["--set", "model.layer=2"], "recipe: unknown key model.layer; did you mean model.layers?"),
        (["--set", "layers=2"], "'layers=2': expected SECTION.KEY=VALUE, for example model.layers=2"),
        (
            ["--set", "model.layers=0"],
            "recipe: model.layers: input should be greater than or equal to 1, got 0",
        ),
        (["--minutes", "nan"], "--minutes: input should be"),
        (["--set", "model.score=dot"], "recipe: model: score 'dot' compares vectors of one width, "),
        (
            ["--set", "tokenizer.vocab_size=99"],
            "recipe: tokenizer: vocab_size must be at least 259 with kind 'bpe'",
        ),
        (["--device", "abacus"], "--device abacus: is no device; try --device cpu"),
        (
            ["--updates", "5", "--set", "training.max_updates = 3"],
            "--set training.max_updates: is what --updates set, too; leave one of them out",
        ),
        (
            ["--prepared", "a", "--pairs", "b"],
            "--prepared a brings its own pairs; leave out the files of others",
        ),
        (["--resume"], "headlights-run holds no run to continue: recipe.toml is missing; begin one without"),
        (["--resume", "--recipe", "demo"], "--recipe demo cannot go with --resume: the run has a recipe"),
        (["--resume", "--from", "m"], "--from m cannot go with --resume: the run has begun already; train "),
        (["--seed", str(2**63)], f"--seed: input should be less than {2**63}, got {2**63}"),
    ],
)
def test_options_that_cannot_be_are_named(
    headlights: Command, arguments: list[str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert headlights("train", *arguments).error.startswith(expected)
    assert list(tmp_path.iterdir()) == []


def test_training_goes_on_from_a_model_on_other_data(
    headlights: Command, model: Path, tmp_path: Path
) -> None:
    out, pairs = tmp_path / "run", write_pairs(tmp_path / "other.tsv", 53, skip=2)
    started = headlights("train", "--from", model, "--pairs", pairs, "--out", out, "--updates", "3")
    assert started.status == 0
    # The old validation pairs are of other data, too.
    assert started.errors.startswith(
        "no validation file: held out 5 of the training pairs (seed 1)\n48 training"
    )
    assert json.loads((out / "best" / "training.json").read_text())["start"] == str(model)
    assert RunFolder(out).recipe().model == RunFolder(model).recipe().model
    went_on = headlights("train", "--resume", "--out", out, "--updates", "4")
    assert went_on.status == 0
    assert "going on at update 3\n" in went_on.errors


def test_prepared_text_for_a_model(headlights: Command, model: Path, tmp_path: Path) -> None:
    pairs, prepared = write_pairs(tmp_path / "other.tsv", 53, skip=2), tmp_path / "prepared"
    options = ("--pairs", pairs, "--out", prepared, "--workers", "1", "--from", model)
    assert headlights("prepare", *options).status == 0
    start = ("train", "--from", model, "--prepared", prepared)
    assert headlights(*start, "--updates", "2", "--out", tmp_path / "run").status == 0
    for option in (("--recipe", "demo"), ("--tokenizer-pairs", "9")):
        assert headlights("prepare", *options, *option).error == (
            f"--from cannot go with {option[0]}: the model has its tokenizer; leave {option[0]} out"
        )
    refused = "which training goes on from, has tokenizer.lowercase = False (the recipe says True)"
    assert refused in headlights("prepare", *options, "--lowercase").error


def test_a_start_that_cannot_be_is_named(headlights: Command, model: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "run")
    assert headlights("train", "--from", tmp_path / "none", *out).error.startswith(
        f"{tmp_path / 'none'} does not exist; expected a model folder or the run folder of"
    )
    assert headlights("train", "--from", model, "--set", "model.layers=2", *out).error == (
        f"{model}, which training goes on from, has model.layers = 1 (the recipe says 2); leave that out of "
        "the recipe, or train a new model"
    )
    assert list(tmp_path.iterdir()) == []


def test_what_a_run_rests_on_cannot_change_when_it_goes_on(headlights: Command, model: Path) -> None:
    error = headlights("train", "--resume", "--out", model, "--seed", "2").error
    assert error == (
        f"training.seed cannot change while a run goes on: {model} has 1, got 2; "
        "train into a new folder for that"
    )


def test_full_folder_and_file_as_out_are_refused(headlights: Command, recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("dear")
    assert headlights("train", "--recipe", recipe, "--out", tmp_path).error == (
        f"{tmp_path} is not empty: choose another folder, or empty this one"
    )
    assert headlights("train", "--recipe", recipe, "--out", tmp_path / "letter").error == (
        f"{tmp_path / 'letter'} is a file; expected a folder to write the run into"
    )
    assert (tmp_path / "letter").read_text() == "dear"
