"""`headlights translate --output-attention`: a map a line, whole or not at all; and `--align-head`."""

import gzip
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headlights import view
from headlights.cli.attention_output import AttentionOutput
from headlights.translation.alignment import pharaoh
from headlights.translation.architectures import RecurrentConfig
from headlights.translation.translations import Translation
from headlights.translation.translator import Translator
from tests.cli.conftest import Command
from tests.translation.toy import many_heads, untrained

CPU = ("--device", "cpu")
LINES = ["red cat", "", "old dog runs", "\u00a0", "cat"]


@pytest.fixture(scope="session")
def heads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder of 2 layers of 3 heads; not to be written into."""
    folder = tmp_path_factory.mktemp("heads") / "model"
    many_heads(unknown=1.0).save(folder)
    return folder


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A model folder without attention."""
    config = RecurrentConfig(score="none", embed_dim=3, hidden_dim=5, encoder_dim=2)
    untrained(config).save(tmp_path / "plain")
    return tmp_path / "plain"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text"
    path.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return path


def lines_together(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(AttentionOutput, "lines_at_once", count)


def test_each_line_has_its_map(headlights: Command, model: Path, text: Path, tmp_path: Path) -> None:
    out, maps = tmp_path / "out", tmp_path / "maps.jsonl"
    plain = headlights("translate", model, text, *CPU).output
    result = headlights("translate", model, text, "-o", out, "--output-attention", maps, *CPU)
    assert result == (0, "", "")
    assert out.read_text() == plain
    found = Translator.load(model, device="cpu").translate(LINES)
    written = list(view.load_attention_lines(maps))
    for line, translation, attention in zip(LINES, found, written, strict=True):
        assert attention.source == tuple(line.split())
        assert attention.target == translation.words
        assert attention.links == tuple(sorted(translation.alignment))
        if translation.weights is None:
            assert attention.weights.shape == (0, 0)
            assert attention.title is None
        else:
            assert np.allclose(attention.weights, translation.weights, atol=1e-6)
            assert attention.title == f"{line} → {translation.text}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["maps.jsonl", "out", "text"]
    headlights("translate", model, text, "--output-attention", tmp_path / "maps.jsonl.gz", *CPU)
    assert gzip.decompress((tmp_path / "maps.jsonl.gz").read_bytes()) == maps.read_bytes()


def test_tokens_have_all_layers_and_heads(
    headlights: Command, heads: Path, text: Path, tmp_path: Path
) -> None:
    maps = tmp_path / "maps.jsonl"
    options = ("--output-attention", maps, "--attention-between", "tokens", "--beam", "2")
    assert headlights("translate", heads, text, *options, *CPU).status == 0
    found = Translator.load(heads, device="cpu").translate(LINES, beam=2, attention=True)
    for translation, attention in zip(found, view.load_attention_lines(maps), strict=True):
        assert attention.source == translation.source_tokens
        assert attention.target == translation.tokens
        assert attention.links == ()
        if translation.attention is not None:
            assert attention.source[-1] == "</s>"
            assert attention.weights.shape[:2] == (2, 3)
            assert np.allclose(attention.weights, translation.attention, atol=1e-6)


@pytest.mark.parametrize("suffix", [".json", ".npz", ".safetensors"])
def test_one_line_may_have_a_file_of_one_map(
    headlights: Command, model: Path, text: Path, tmp_path: Path, suffix: str
) -> None:
    one, place = tmp_path / "one", tmp_path / f"map{suffix}"
    one.write_text("red cat")
    result = headlights("translate", model, one, "--output-attention", place, *CPU)
    assert result == (0, headlights("translate", model, one, *CPU).output, "")
    assert view.load_attention(place).source == ("red", "cat")
    one.write_text(" \n")
    assert headlights("translate", model, one, "--output-attention", place, *CPU).output == "\n"
    assert view.load_attention(place).weights.shape == (0, 0)
    before = place.read_bytes()
    for content, came in (("red\n\n", "more"), ("", "none")):
        one.write_text(content)
        out = tmp_path / "out"
        error = headlights("translate", model, one, "-o", out, "--output-attention", place, *CPU).error
        assert error == (
            f"--output-attention {place}: holds the attention of one line, and the text has {came}; for any "
            "number choose a name that ends in .jsonl"
        )
        assert not out.exists()
    assert place.read_bytes() == before


def test_maps_are_written_as_they_are_made(
    headlights: Command, model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[list[int]] = []
    translate = Translator.translate

    def watched(translator: Translator, lines: Sequence[str], **options: Any) -> list[Translation]:
        sizes.append([path.stat().st_size for path in sorted(tmp_path.glob(".*.part"))])
        return translate(translator, lines, **options)

    monkeypatch.setattr(Translator, "translate", watched)
    lines_together(monkeypatch, 2)
    maps, out = tmp_path / "maps.jsonl", tmp_path / "out"
    assert headlights("translate", model, text, "-o", out, "--output-attention", maps, *CPU).status == 0
    assert len(sizes) == 3
    assert sizes[0] == [0, 0]
    for before, after in pairwise(sizes):  # both files have grown between two chunks
        assert all(small < large for small, large in zip(before, after, strict=True))
    assert len(list(view.load_attention_lines(maps))) == len(LINES) == len(out.read_text().splitlines())


def test_both_files_stay_as_they_were_if_a_line_is_broken(
    headlights: Command, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines_together(monkeypatch, 1)
    text, out, maps = tmp_path / "text", tmp_path / "out", tmp_path / "maps.jsonl"
    text.write_bytes(b"red\nr\xff\n")
    out.write_text("old\n")
    maps.write_text("old\n")
    error = headlights("translate", model, text, "-o", out, "--output-attention", maps, *CPU).error
    assert error.startswith(f"{text}:2: byte 2 of the line")
    assert out.read_text() == maps.read_text() == "old\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["maps.jsonl", "out", "text"]


def test_a_word_that_a_format_cannot_hold_is_one_line(
    headlights: Command, model: Path, tmp_path: Path
) -> None:
    text, out, place = tmp_path / "text", tmp_path / "out", tmp_path / "map.npz"
    text.write_bytes(b"red \0\n")
    error = headlights("translate", model, text, "-o", out, "--output-attention", place, *CPU).error
    assert error.startswith(f"--output-attention {place}: NPZ cannot hold a text that ends in NUL")
    assert not out.exists()
    place = tmp_path / "map.jsonl"
    assert headlights("translate", model, text, "-o", out, "--output-attention", place, *CPU).status == 0
    assert next(view.load_attention_lines(place)).source == ("red", "\0")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["--output-attention", "a.txt"],
            "--output-attention a.txt: expected a name that ends in .jsonl, .jsonl.gz, or for one line of "
            "text in .json, .npz, .safetensors",
        ),
        (["--output-attention", "no/a.jsonl"], "--output-attention no/a.jsonl: there is no folder no; "),
        (
            ["--output-attention", "a.jsonl", "-o", "./a.jsonl"],
            "--output-attention a.jsonl: --output writes this file too; give each its own name",
        ),
        (["--attention-between", "words"], "--attention-between words: needs --output-attention beside it"),
        (
            ["--attention-between", "all", "--output-attention", "a.jsonl"],
            "--attention-between all: expected words or tokens",
        ),
        (
            ["--align-head", "0.1"],
            "--align-head 0.1: changes nothing without --alignment, --replace-unknown or --output-attention "
            "between words",
        ),
        (
            ["--align-head", "0.1", "--output-attention", "a.jsonl", "--attention-between", "tokens"],
            "--align-head 0.1: changes nothing without ",
        ),
        (
            ["--align-head", "2.0", "--alignment"],
            "--align-head 2.0: the model has 2 layers of 3 heads, both counted from 0",
        ),
        (
            ["--align-head", "1", "--alignment"],
            "--align-head 1: expected LAYER.HEAD, both counted from 0, such as 0.1, or mean",
        ),
    ],
)
def test_what_cannot_be_written_is_refused(
    headlights: Command,
    heads: Path,
    text: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    expected: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert headlights("translate", heads, text, *arguments, *CPU).error.startswith(expected)
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_a_model_without_attention_has_none_to_write(
    headlights: Command, plain: Path, text: Path, tmp_path: Path
) -> None:
    place = tmp_path / "a.jsonl"
    assert headlights("translate", plain, text, "--output-attention", place, *CPU).error == (
        "--output-attention: the model was trained without attention: it has none to write"
    )
    assert headlights("translate", plain, text, "--alignment", "--align-head", "0.0", *CPU).error == (
        "--align-head 0.0: the model was trained without attention; leave it out"
    )
    assert not place.exists()


def test_alignment_copies_and_maps_go_by_the_head(
    headlights: Command, heads: Path, text: Path, tmp_path: Path
) -> None:
    maps = tmp_path / "maps.jsonl"
    options = ("--alignment", "--replace-unknown", "--output-attention", maps)
    outputs = set()
    for name, head in (("0.2", (0, 2)), ("1.0", (1, 0)), ("mean", None)):
        result = headlights("translate", heads, text, *options, "--align-head", name, *CPU)
        found = Translator.load(heads, device="cpu").translate(LINES, align_head=head, replace_unknown=True)
        assert result.output == "".join(f"{each.text}\t{pharaoh(each.alignment)}\n" for each in found)
        for each, attention in zip(found, view.load_attention_lines(maps), strict=True):
            assert attention.links == tuple(sorted(each.alignment))
            assert attention.target == each.words
        outputs.add(result.output)
    assert len(outputs) == 3
    assert headlights("translate", heads, text, *options, *CPU).output == result.output


def test_align_and_evaluate_go_by_the_head(headlights: Command, heads: Path, tmp_path: Path) -> None:
    sources, targets = ["red old cat", "dog runs"], ["rosso vecchio gatto", "cane corre"]
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{s}\t{t}\n" for s, t in zip(sources, targets, strict=True)))
    translator = Translator.load(heads, device="cpu")

    def links(*options: str | Path) -> list[str]:
        return headlights("align", heads, "--pairs", pairs, *options, *CPU).output.splitlines()

    chosen = [each.alignment for each in translator.align(sources, targets, align_head=(1, 2))]
    assert links("--align-head", "1.2") == [pharaoh(each) for each in chosen]
    back = [each.alignment for each in translator.align(targets, sources, align_head=(0, 1))]
    both = [
        pharaoh({*ahead, *((source, target) for target, source in turned)})
        for ahead, turned in zip(chosen, back, strict=True)
    ]
    reverse = ("--reverse", heads, "--reverse-align-head", "0.1", "--symmetrise", "union")
    assert links("--align-head", "1.2", *reverse) == both
    for options, expected in (
        (("--align-head", "0.3"), "--align-head 0.3: the model has 2 layers of 3 heads"),
        (("--reverse-align-head", "0.1"), "--reverse-align-head 0.1: needs --reverse beside it"),
        (("--reverse", heads, "--reverse-align-head", "9.9"), "--reverse-align-head 9.9: the model has 2 "),
    ):
        assert headlights("align", heads, "--pairs", pairs, *options, *CPU).error.startswith(expected)

    gold = tmp_path / "gold.jsonl"
    gold.write_text(
        "".join(
            f'{{"source": "{s}", "target": "{t}", "alignment": "{pharaoh(found)}"}}\n'
            for s, t, found in zip(sources, targets, chosen, strict=True)
        )
    )
    evaluated = headlights("evaluate", heads, "--pairs", gold, "--align-head", "1.2", *CPU)
    assert evaluated.output.splitlines()[1].split()[-2:] == ["0.0", "%"]
    assert headlights("evaluate", heads, "--pairs", gold, *CPU).output != evaluated.output
    assert headlights("evaluate", heads, "--pairs", pairs, "--align-head", "1.2", *CPU).error == (
        "--align-head 1.2: changes nothing: no pair has gold links"
    )
