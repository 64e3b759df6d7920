"""`headlights compare`: every rung trained once, judged, drawn, and not trained again."""

import signal
from pathlib import Path

import pytest

from headlights.translation import comparing
from headlights.translation.training import Interrupted
from tests.cli.conftest import Command

SMALL = ("--set", "model.hidden_dim=16", "--set", "model.encoder_dim=8", "--set", "model.embed_dim=8")


def test_the_ladder_is_trained_judged_and_drawn(headlights: Command, recipe: Path, tmp_path: Path) -> None:
    files = ("--pairs", recipe.parent / "train.tsv", "--valid-pairs", recipe.parent / "valid.tsv")
    judged = ("--test-pairs", recipe.parent / "valid.tsv")
    out, plot = tmp_path / "out", tmp_path / "plot.svg"
    options = ("--recipe", recipe, "--out", out, "--plot", plot, "--device", "cpu", *SMALL)
    limits = ("--set", "training.max_updates=3")
    result = headlights("compare", *files, *judged, *options, *limits)
    assert result.status == 0, result.errors
    head, *rows = result.output.splitlines()
    assert head.split("  ")[-1].strip() == "transformer"
    assert "u + u'" in head
    assert [row for row in rows if row.startswith("all ")]
    assert plot.read_text(encoding="utf-8").startswith("<?xml")
    folders = ["additive", "context-in-every-cell", "no-attention", "sum", "transformer"]
    assert sorted(path.name for path in out.iterdir()) == folders
    written = [out / name / "best" / "model.safetensors" for name in folders]
    before = [path.stat().st_mtime_ns for path in written]
    again = headlights("compare", *files, *judged, *options, *limits)
    assert again.output == result.output
    assert before == [path.stat().st_mtime_ns for path in written]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--pairs", "a.tsv"), "compare needs text to train on and text to judge on: give "),
        (("--set", "data.prepared=some"), "compare needs text to train on and text to judge on: give "),
        (("--valid-pairs", "a.tsv"), "recipe: data: valid: needs train beside it"),
        (("--rungs", "additive,some"), "rung 'some': expected one of no attention, "),
        (("--recipe", "transformer-tiny"), "model.architecture: the ladder needs the sizes of a recurrent"),
        (("--plot", "none/plot.svg"), "--plot none/plot.svg: there is no folder none; make it first"),
        (("--plot", "plot.gif"), "--plot plot.gif: expected a name that ends in .png, .svg or .pdf"),
    ],
)
def test_mistakes_are_one_line(headlights: Command, options: tuple[str, ...], message: str) -> None:
    assert headlights("compare", *options).error.startswith(message)


def test_stopped_it_says_how_to_go_on(
    headlights: Command, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "train", lambda *_, **given: stop(given["out"]))
    files = ("--recipe", recipe, "--test-pairs", recipe.parent / "valid.tsv", "--out", tmp_path)
    status, _, errors = headlights("compare", *files)
    assert status == 130
    assert errors.endswith("no-attention; go on with: the same comparison\n")


def stop(out: Path) -> None:
    raise Interrupted(signal.SIGINT, out, 7)
