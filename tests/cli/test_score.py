"""`headlights score`: a line for each pair, in order, and the perplexity of all."""

import gzip
import math
from pathlib import Path

import pytest

from headlights.cli import score as module
from headlights.translation.translator import Translator
from tests.cli.conftest import NAN, Command

CPU = ("--device", "cpu")
SOURCES = ["red cat", "", "old dog runs", "cat", "\u00a0", "red old cat eats"]
TARGETS = ["rosso gatto", "gatto", "vecchio cane corre", " ", "", "gatto"]


@pytest.fixture
def files(tmp_path: Path) -> tuple[str | Path, ...]:
    (tmp_path / "a").write_text("".join(f"{line}\n" for line in SOURCES), encoding="utf-8")
    (tmp_path / "b").write_text("".join(f"{line}\n" for line in TARGETS), encoding="utf-8")
    return "--source", tmp_path / "a", "--target", tmp_path / "b"


@pytest.mark.parametrize("chunk", [1, 4, 2000])
def test_a_line_for_each_pair_and_the_perplexity_of_all(
    headlights: Command,
    model: Path,
    files: tuple[str | Path, ...],
    monkeypatch: pytest.MonkeyPatch,
    chunk: int,
) -> None:
    monkeypatch.setattr(module, "CHUNK", chunk)
    status, output, errors = headlights("score", model, *files, *CPU)
    assert status == 0
    lines = output.removesuffix("\n").split("\n")
    found = Translator.load(model, device="cpu").align(SOURCES, TARGETS)
    assert [place for place, line in enumerate(lines) if line == "\t"] == [1, 3, 4]
    for line, forced in zip(lines, found, strict=True):
        if line != "\t":
            score, tokens = line.split("\t")
            assert float(score) == pytest.approx(forced.score, abs=1e-5)
            assert int(tokens) == len(forced.tokens)
    # Words and end marks: 3 + 4 + 2.
    perplexity = math.exp(-sum(each.score for each in found) / 9)
    assert errors == (
        f"left out 3 pairs with a blank side\n3 pairs, 9 target tokens: perplexity {perplexity:.2f}\n"
    )


def test_scores_go_to_a_file(
    headlights: Command, model: Path, files: tuple[str | Path, ...], tmp_path: Path
) -> None:
    expected = headlights("score", model, *files, *CPU).output
    for name in ("out", "out.gz"):
        assert headlights("score", model, *files, "-o", tmp_path / name, *CPU).output == ""
    assert (tmp_path / "out").read_text() == expected
    assert gzip.decompress((tmp_path / "out.gz").read_bytes()).decode() == expected


def test_blank_pairs_alone_have_no_perplexity(headlights: Command, model: Path, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("\tgatto\nred\t\n")
    result = headlights("score", model, "--pairs", tmp_path / "a.tsv", *CPU)
    assert result == (0, "\t\n\t\n", "left out 2 pairs with a blank side\n")


@pytest.mark.parametrize("use", ["score", "align"])
def test_a_broken_model_is_one_line(
    headlights: Command, broken: Path, files: tuple[str | Path, ...], use: str
) -> None:
    assert headlights(use, broken, *files, *CPU).error == NAN


def test_hopeless_targets_have_infinite_perplexity() -> None:
    assert module._perplexity(-1e6, 2) == math.inf
    assert module._perplexity(2 * math.log(0.125), 2) == pytest.approx(8.0)


@pytest.mark.parametrize("use", ["score", "align"])
def test_files_without_a_pair_are_refused(headlights: Command, model: Path, tmp_path: Path, use: str) -> None:
    a, b, out = tmp_path / "a", tmp_path / "b", tmp_path / "out"
    for path in (a, b, tmp_path / "c.tsv"):
        path.write_text("")
    out.write_text("old")
    error = headlights(use, model, "--pairs", tmp_path / "c.tsv", "-o", out).error
    assert error == f"{tmp_path}/c.tsv: no sentence pairs to {use}"
    error = headlights(use, model, "--source", a, "--target", b, "-o", out).error
    assert error == f"{a} and {b}: no sentence pairs to {use}"
    b.write_text("x\n")
    error = headlights(use, model, "--source", a, "--target", b, "-o", out).error
    assert error.startswith(f"{a} has 0 lines but {b} has 1")
    error = headlights(use, model, "--source", a).error
    assert error.startswith("--source needs --target beside it")
    error = headlights(use, model).error
    assert error == f"{use} needs sentence pairs: give --source and --target, or --pairs"
    error = headlights(use, model, "--pairs", tmp_path / "d.tsv").error
    assert error == f"{tmp_path}/d.tsv: cannot be read: No such file or directory"
    assert out.read_text() == "old"
