"""`headlights evaluate` and `headlights demo`: figures, pictures and refusals."""

import dataclasses
import re
from pathlib import Path

import pytest

from headlights.cli import demo
from headlights.translation.corpus import grammar
from headlights.translation.locks import locked
from tests.cli.conftest import Command

CPU = ("--device", "cpu", "--threads", "1")


def test_evaluation_prints_figures_and_signatures(headlights: Command, model: Path, recipe: Path) -> None:
    status, output, errors = headlights(
        "evaluate", model, "--pairs", recipe.parent / "valid.tsv", "--beam", "1", *CPU
    )
    assert (status, errors) == (0, "")
    head, whole, *_ = output.splitlines()
    assert head.split() == ["words", "sentences", "BLEU", "chrF", "alignment", "errors"]
    assert re.fullmatch(r"all +7 +\d+\.\d\d +\d+\.\d\d +–", whole)
    assert "BLEU  nrefs:1|case:mixed|" in output
    assert "chrF  nrefs:1|case:mixed|" in output


def test_two_files_are_evaluated_and_blank_pairs_told(
    headlights: Command, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text("red cat\n\nold dog\n")
    (tmp_path / "b").write_text("rosso gatto\nx\nvecchio cane\n")
    files = ("--source", tmp_path / "a", "--target", tmp_path / "b")
    status, output, errors = headlights("evaluate", model, *files, "--lowercase", *CPU)
    assert (status, errors) == (0, "left out 1 pair with a blank side\n")
    assert output.splitlines()[1].split()[:2] == ["all", "2"]
    assert "case:lc" in output


def test_built_in_test_split_is_evaluated_with_alignment(
    headlights: Command, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        grammar, "splits", lambda: type("Splits", (), {"test": [e.pair for e in grammar.EXAMPLES]})
    )
    status, output, _ = headlights("evaluate", model, *CPU)
    assert status == 0
    assert re.fullmatch(r"all +4 .*\d %", output.splitlines()[1])


def test_evaluation_refuses_empty_uneven_and_missing_files(
    headlights: Command, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text("red cat\n")
    (tmp_path / "b").write_text("")
    (tmp_path / "c.tsv").write_text(" \trosso\n")
    uneven = headlights("evaluate", model, "--source", tmp_path / "a", "--target", tmp_path / "b").error
    assert uneven.startswith(f"{tmp_path}/a has 1 lines but {tmp_path}/b has 0; line n of one must translate")
    blank = headlights("evaluate", model, "--pairs", tmp_path / "c.tsv").error
    assert blank == f"{tmp_path}/c.tsv: no sentence pairs to evaluate on"
    missing = headlights("evaluate", model, "--pairs", tmp_path / "d.tsv").error
    assert missing == f"{tmp_path}/d.tsv: cannot be read: No such file or directory"
    unknown = headlights("evaluate", model, "--pairs", tmp_path / "a").error
    assert unknown.startswith(f"cannot tell the format of {tmp_path}/a: ")


def test_demo_compares_and_draws(
    headlights: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headlights.translation import recipe

    load = recipe.load_recipe

    def smaller(name: str) -> recipe.Recipe:
        small = {"model.hidden_dim": 8, "model.encoder_dim": 4, "model.embed_dim": 8, "model.score_dim": 8}
        return load(name).changed({**small, "data.built_in": 300, "training.validations": 1})

    whole = grammar.splits(train=300)
    few = dataclasses.replace(whole, valid=whole.valid[:20], test=whole.test[:20])
    monkeypatch.setattr(recipe, "load_recipe", smaller)
    monkeypatch.setattr(grammar, "splits", lambda **_: few)
    out = tmp_path / "demo"
    status, output, _ = headlights("demo", "--out", out, "--seconds", "5", *CPU)
    assert status == 0
    assert {path.name for path in out.iterdir()} == {"with-attention", "without-attention", "attention.html"}
    assert "BLEU with attention" in output
    assert "Alignment error rate with attention: " in output
    for example in grammar.EXAMPLES:
        assert f"{example.pair.source}  →  " in output
    assert f"Pictures: {out.resolve()}/attention.html" in output


def test_demo_keeps_what_is_not_its_own(headlights: Command, tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("dear")
    assert headlights("demo", "--out", tmp_path).error == (
        f"--out {tmp_path}: holds other things than an earlier demo; choose a new folder"
    )
    assert headlights("demo", "--out", tmp_path / "letter").error == (
        f"--out {tmp_path}/letter: is a file; expected a folder"
    )
    assert (tmp_path / "letter").read_text() == "dear"
    error = headlights("demo", "--seconds", "1").error
    assert error.startswith("Invalid value for '--seconds'")


def test_earlier_demo_is_cleared_without_its_folder(tmp_path: Path) -> None:
    out, mine = tmp_path / "demo", tmp_path / "mine"
    (out / "with-attention" / "best").mkdir(parents=True)
    mine.mkdir()
    (mine / "letter").write_text("dear")
    (out / "without-attention").symlink_to(mine)
    (out / "attention.html").write_text("page")
    demo._clear(out)
    assert list(out.iterdir()) == []
    assert (mine / "letter").read_text() == "dear"


def test_a_demo_that_is_training_is_not_cleared(headlights: Command, tmp_path: Path) -> None:
    run = tmp_path / "with-attention"
    (run / "last").mkdir(parents=True)
    with locked(run):
        error = headlights("demo", "--out", tmp_path, *CPU).error
    assert error.startswith(f"{run} is being trained into by process ")
    assert (run / "last").is_dir()


def test_a_device_that_holds_no_numbers_is_refused(headlights: Command, model: Path) -> None:
    error = headlights("evaluate", model, "--device", "meta").error
    assert error.startswith("--device meta: cannot be used here (")
    assert error.endswith("; try --device cpu")
