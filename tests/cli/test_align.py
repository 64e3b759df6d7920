"""`headlights align`: a line of links for each pair, joined with those of a second model, and judged."""

import gzip
import re
from pathlib import Path

import pytest

from headlights.translation.alignment import pharaoh
from headlights.translation.corpus import read
from headlights.translation.symmetrisation import symmetrise
from headlights.translation.translator import Translator
from tests.cli.conftest import Command


@pytest.fixture
def text(recipe: Path, tmp_path: Path) -> tuple[list[tuple[str, str]], Path]:
    pairs = [(pair.source, pair.target) for pair in read([recipe.parent / "valid.tsv"])][:7]
    pairs.insert(3, ("", ""))
    path = tmp_path / "text.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return pairs, path


def test_a_line_for_each_pair(
    headlights: Command, model: Path, text: tuple[list[tuple[str, str]], Path], tmp_path: Path
) -> None:
    pairs, path = text
    found = Translator.load(model, device="cpu").align([s for s, _ in pairs], [t for _, t in pairs])
    expected = [pharaoh(each.alignment) for each in found]
    assert expected[3] == ""
    assert all(expected[:3])
    result = headlights("align", model, "--pairs", path)
    assert (result.status, result.output.split("\n")) == (0, [*expected, ""])
    out = tmp_path / "links"
    assert headlights("align", model, "--pairs", path, "-o", out).output == ""
    assert out.read_text() == result.output
    packed = tmp_path / "links.gz"
    assert headlights("align", model, "--pairs", path, "-o", packed).output == ""
    assert gzip.decompress(packed.read_bytes()).decode() == result.output
    assert "standard output (.gz too)" in " ".join(headlights("align", "-h").output.split())


def test_two_models_are_joined(
    headlights: Command, model: Path, text: tuple[list[tuple[str, str]], Path]
) -> None:
    pairs, path = text
    translator = Translator.load(model, device="cpu")
    ahead = translator.align([s for s, _ in pairs], [t for _, t in pairs])
    back = translator.align([t for _, t in pairs], [s for s, _ in pairs])
    for method in ("union", "grow-diag"):
        joined = [
            pharaoh(symmetrise(a.alignment, [(s, t) for t, s in b.alignment], method))
            for a, b in zip(ahead, back, strict=True)
        ]
        result = headlights("align", model, "--pairs", path, "--reverse", model, "--symmetrise", method)
        assert result.output.split("\n") == [*joined, ""]


def test_the_error_rate_is_said(
    headlights: Command, model: Path, text: tuple[list[tuple[str, str]], Path], tmp_path: Path
) -> None:
    _, path = text
    lines = headlights("align", model, "--pairs", path).output.splitlines()
    gold = tmp_path / "gold"
    gold.write_text("\n".join(lines) + "\n")
    result = headlights("align", model, "--pairs", path, "--gold", gold)
    assert "alignment error rate 0.0 % on 8 pairs" in result.errors
    from_one = [re.sub(r"\d+", lambda match: str(int(match[0]) + 1), line) for line in lines]
    gold.write_text("\n".join(from_one) + "\n")
    result = headlights("align", model, "--pairs", path, "--gold", gold, "--gold-first", "1")
    assert "alignment error rate 0.0 % on 8 pairs" in result.errors


def test_mistakes_are_one_line(
    headlights: Command, model: Path, text: tuple[list[tuple[str, str]], Path], tmp_path: Path
) -> None:
    _, path = text
    error = headlights("align", model).error
    assert error == "align needs sentence pairs: give --source and --target, or --pairs"
    error = headlights("align", model, "--pairs", path, "--symmetrise", "both").error
    assert error.startswith("--symmetrise both: expected one of intersection, union, grow,")
    gold = tmp_path / "gold"
    gold.write_text("0-0\n")
    out = tmp_path / "out"
    error = headlights("align", model, "--pairs", path, "--gold", gold, "-o", out).error
    assert error == f"--gold {gold}: {gold} ends after line 1, the text goes on"
    nine = [*["0-0"] * 3, "", *["0-0"] * 5]  # the fourth pair is blank
    gold.write_text("\n".join(nine) + "\n")
    error = headlights("align", model, "--pairs", path, "--gold", gold, "-o", out).error
    assert error == f"--gold {gold}: the text ends after line 8, {gold} goes on"
    gold.write_text("\n".join([*nine[:7], "0-0 1p9"]) + "\n")
    error = headlights("align", model, "--pairs", path, "--gold", gold, "-o", out).error
    assert error.startswith(f"{gold}:8: link 1-9 is outside the pair, which has ")
    assert error.endswith(" target words, counted from 0 (--gold-first)")
    assert not out.exists()
    for option, value, needed in (("--symmetrise", "union", "--reverse"), ("--gold-first", "1", "--gold")):
        error = headlights("align", model, "--pairs", path, option, value).error
        assert error == f"{option} {value}: needs {needed} beside it"


def test_a_model_without_attention_aligns_nothing(
    headlights: Command, recipe: Path, text: tuple[list[tuple[str, str]], Path], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    options = ("--recipe", recipe, "--out", out, "--updates", "1", "--set", "model.score=none")
    assert headlights("train", *options).status == 0
    error = headlights("align", out, "--pairs", text[1]).error
    assert error == f"{out} was trained without attention: it aligns nothing"
