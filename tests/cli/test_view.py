"""`headlights view`: from a model or a file to the terminal, a page, a picture and a file of weights."""

import json
import math
import os
import subprocess
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headlights import view
from headlights.translation.translator import Translator
from tests.cli.conftest import NAN, Command
from tests.cli.test_app import program

CPU = ("--device", "cpu")


def test_sentence_is_drawn_and_written_in_every_form(
    headlights: Command, model: Path, tmp_path: Path
) -> None:
    page, picture, weights = tmp_path / "a.html", tmp_path / "a.svg", tmp_path / "a.json"
    outputs = ("--html", page, "--svg", picture, "--save", weights)
    status, output, errors = headlights("view", model, "red cat", "--target", "rosso gatto", *outputs, *CPU)
    assert (status, errors) == (0, "")
    for word in (
        "red",
        "cat",
        "rosso",
        "gatto",
        f"page: {page}",
        f"picture: {picture}",
        f"weights: {weights}",
    ):
        assert word in output
    assert "\x1b" not in output
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert "<svg" in picture.read_text()
    attention = view.load_attention(weights)
    assert (attention.source, attention.target) == (("red", "cat"), ("rosso", "gatto"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "a.json", "a.svg"]

    again = headlights("view", weights)
    assert again.status == 0
    assert output.startswith(again.output.rstrip("\n"))
    assert headlights("view", model, "red cat", *CPU).status == 0


@pytest.mark.parametrize("shape", ["dense", "top"])
def test_heads_of_a_file_are_averaged(headlights: Command, tmp_path: Path, shape: str) -> None:
    file = {"format": "headlights-attention", "version": 1, "source": ["a", "b"], "target": ["c"]}
    if shape == "dense":
        file["weights"] = [[[[1.0, 0.0]], [[0.5, 0.5]]]]  # one layer of two heads
    else:
        file |= {"values": [[[[1.0, 0.0]], [[0.5, 0.5]]]], "indices": [[[[0, -1]], [[1, 0]]]]}
    (tmp_path / "a.json").write_text(json.dumps(file))
    assert headlights("view", tmp_path / "a.json", "--svg", tmp_path / "a.svg").status == 0
    assert ">0.75<" in (tmp_path / "a.svg").read_text()  # (1 + 0.5) / 2


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "view needs a sentence to translate: headlights view MODEL 'A sentence.'"),
        (["\u200b "], "view needs a sentence to translate: "),
        (["red", "--target", " "], "--target is blank: expected a translation of the sentence"),
        (
            ["red", "--target", "rosso", "--beam", "1"],
            "--beam 1: changes nothing beside --target, with which ",
        ),
        (["r\udcff"], "TEXT: is not UTF-8 at character 2; set the terminal to UTF-8"),
        (["red", "--target", "\udcff"], "--target: is not UTF-8 at character 1"),
        (["red", "--save", "a.txt"], "--save a.txt: expected a name that ends in .json, .npz, .safetensors"),
        (["red", "--html", "none/a.html"], "--html none/a.html: there is no folder none; make it first"),
        (["red", "--svg", "a.html"], "--svg a.html: expected a name that ends in .svg"),
        (["red", "--html", "a.png"], "--html a.png: expected a name that ends in .html or .htm"),
        (["red", "--png", "a.svg"], "--png a.svg: expected a name that ends in .png"),
        (["red", "--svg", "."], "--svg .: is a folder; expected a file to write"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    headlights: Command, model: Path, arguments: list[str], expected: str
) -> None:
    assert headlights("view", model, *arguments, *CPU).error.startswith(expected)


def test_broken_file_and_sentence_beside_a_file_are_refused(headlights: Command, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"format"')
    assert headlights("view", path).error.startswith(f"{path}: expected JSON in UTF-8, got ")
    assert headlights("view", path, "red").error == (
        f"{path} is a file of weights: TEXT needs a model folder instead"
    )
    assert (
        "expected a name that ends in .json, .npz, .safetensors" in headlights("view", Path(__file__)).error
    )
    assert headlights("view", tmp_path / "none", "red").error.startswith(f"{tmp_path}/none does not exist; ")
    for name in ("none.json", "none.npz", "none.safetensors"):
        assert headlights("view", tmp_path / name).error == (
            f"{tmp_path}/{name} does not exist; expected a file of weights or a model folder"
        )


def write_lines(path: Path, count: int, blank: tuple[int, ...] = ()) -> Path:
    """A file of maps of the words w1 …, from line 1; some lines are blank."""
    maps = [
        view.AttentionMap([], [], weights=np.zeros((0, 0)))
        if number in blank
        else view.AttentionMap([f"w{number}"], [f"v{number}"], weights=[[1.0]])
        for number in range(1, count + 1)
    ]
    path.write_text("".join(f"{view.attention_line(each)}\n" for each in maps))
    return path


def test_a_line_of_many_is_chosen(headlights: Command, tmp_path: Path) -> None:
    path, page = write_lines(tmp_path / "a.jsonl", 4, blank=(1, 3)), tmp_path / "a.html"
    result = headlights("view", path, "--sentence", "4", "--html", page, "--save", tmp_path / "a.json")
    assert (result.status, result.errors) == (0, "")
    assert "w4" in result.output
    assert "w4" in page.read_text()
    assert "w2" not in result.output + page.read_text()
    assert view.load_attention(tmp_path / "a.json").source == ("w4",)
    result = headlights("view", path, "--html", page)  # of all lines, a page has all
    assert result.errors == "line 2 is drawn here; choose another with --sentence\n"
    assert "w2" in result.output
    assert "w4" not in result.output
    assert headlights("view", path, "--layer", "2").error == "--layer 2: there are 1, counted from 1"
    assert all(word in page.read_text() for word in ("w2", "w4"))
    one = write_lines(tmp_path / "one.jsonl", 1)
    assert headlights("view", one).errors == ""


def test_lines_that_are_not_there_or_blank_are_refused(headlights: Command, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", 51, blank=(2,))
    assert headlights("view", path, "--sentence", "51").status == 0
    assert headlights("view", path, "--sentence", "52").error == f"{path} has no line 52"
    assert headlights("view", path, "--sentence", "2").error == (
        f"{path}: line 2 is blank: there is nothing to view"
    )
    assert headlights("view", path).error == (
        f"{path} has more than 50 lines: choose one with --sentence, from 1"
    )
    assert headlights("view", write_lines(path, 50)).status == 0
    assert headlights("view", write_lines(path, 2, blank=(1, 2))).error == (
        f"{path}: all lines are blank: there is nothing to view"
    )
    assert headlights("view", write_lines(path, 0)).error == f"{path} has no line 1"
    path.write_text("{}\n")
    assert headlights("view", path).error.startswith(f"{path}:1: expected format ")
    assert headlights("view", path, "red").error == (
        f"{path} is a file of weights: TEXT needs a model folder instead"
    )
    assert headlights("view", tmp_path / "none.jsonl").error == (
        f"{tmp_path}/none.jsonl does not exist; expected a file of weights or a model folder"
    )
    for other in (tmp_path / "a.json", tmp_path):
        assert headlights("view", other, "red", "--sentence", "1").error == (
            f"--sentence: is for files that end in .jsonl or .jsonl.gz; {other} does not"
        )
    write_lines(path, 2)
    assert headlights("view", path, "--part", "cross").error.startswith(f"--part cross: {path} is no ")


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["--target", "red"], "--target"),
        (["--beam", "2"], "--beam"),
        (["--top", "2"], "--top"),
        (["--all"], "--all"),
        (["--truncate"], "--truncate"),
        (["--device", "cpu"], "--device"),
        (["--threads", "1"], "--threads"),
    ],
)
def test_options_for_models_are_refused_beside_a_file(
    headlights: Command, tmp_path: Path, arguments: list[str], option: str
) -> None:
    path = tmp_path / "a.json"
    path.write_text("{}")
    assert headlights("view", path, *arguments).error == (
        f"{path} is a file of weights: {option} needs a model folder instead"
    )


def test_options_for_hugging_face_models_are_refused_beside_a_translator(
    headlights: Command, model: Path
) -> None:
    for option, name in ((("--all",), "--all"), (("--top", "2"), "--top"), (("--truncate",), "--truncate")):
        assert headlights("view", model, "red", *option, *CPU).error == (
            f"{name}: is for Hugging Face models; {model} is none"
        )
    assert headlights("view", model, "red", "--part", "cross", *CPU).error == (
        f"--part cross: {model} is no encoder–decoder model of Hugging Face's"
    )


def test_translator_reads_one_sentence_from_a_file(headlights: Command, model: Path, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("\ufeffred cat\r\n", encoding="utf-8")  # with a byte order mark
    result = headlights("view", model, "--text-file", text, *CPU)
    assert result.output == headlights("view", model, "red cat", *CPU).output != ""
    text.write_text("red cat\nred cat\n", encoding="utf-8")
    assert headlights("view", model, "--text-file", text, *CPU).error == (
        f"TEXT has 2 lines: {model} translates one sentence at a time"
    )


def test_long_kept_weights_take_no_memory_of_whole_maps(
    headlights: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    N, shape = 20_011, (1, 2, 20_011, 1)  # whole, the two maps would take 3 GB in float32
    places = np.broadcast_to(np.arange(N)[:, None] // 2, shape)
    values = np.broadcast_to(np.array([0.25, 0.75], dtype=np.float32)[:, None, None], shape)
    words = [str(number) for number in range(N)]
    view.save_attention(tmp_path / "a.npz", view.AttentionMap(words, words, values=values, indices=places))
    monkeypatch.setenv("COLUMNS", "80")
    tracemalloc.start()
    status, output, errors = headlights("view", tmp_path / "a.npz")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1e8
    assert (status, errors) == (0, "")
    assert output == (
        "20011 × 20011 words in 1 × 2 heads: too many to draw here; a page shows them: --html FILE\n"
        "the largest weight of a row, its mean in each head, in %\n"
        "layer    h1    h2\n"
        "1      25.0  75.0\n"
    )


def test_word_and_disk_that_take_no_weights_are_one_line(
    headlights: Command, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("view", model, "red cat", "--save", tmp_path / "a.npz", *CPU)
    for error, expected in (
        (OSError(28, "No space left on device"), "cannot be written: No space left on device"),
        (ValueError("NPZ cannot hold it"), "NPZ cannot hold it"),
    ):

        def refuse(*_: object, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(view, "save_attention", refuse)
        result = headlights(*arguments)
        assert result.status == 2
        assert result.errors == f"headlights: --save {tmp_path}/a.npz: {expected}\n"


def test_a_broken_model_is_one_line(
    headlights: Command, model: Path, broken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for options in ((), ("--target", "rosso gatto")):
        assert headlights("view", broken, "red cat", *options, *CPU).error == NAN
    (found,) = Translator.load(model, device="cpu").align(["red cat"], ["rosso gatto"])
    assert found.weights is not None
    nan = replace(found, weights=found.weights * math.nan)
    monkeypatch.setattr(Translator, "align", lambda *_: [nan])
    assert headlights("view", model, "red cat", "--target", "rosso gatto", *CPU).error == (
        f"{model}: its attention cannot be drawn: weights: expected finite numbers of at least 0, got nan"
    )


def test_output_is_utf_8_in_any_locale(tmp_path: Path) -> None:
    file = {"format": "headlights-attention", "version": 1, "source": ["caffè"], "target": ["più"]}
    (tmp_path / "a.json").write_text(json.dumps(file | {"weights": [[1.0]]}))
    done = subprocess.run(
        program("view", tmp_path / "a.json"),
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert "caffè" in done.stdout.decode("utf-8")


def test_model_without_attention_has_nothing_to_view(
    headlights: Command, recipe: Path, tmp_path: Path
) -> None:
    out = tmp_path / "plain"
    options = ("--set", "model.score=none", "--updates", "2", *CPU)
    assert headlights("train", "--recipe", recipe, "--out", out, *options).status == 0
    assert headlights("view", out, "red cat", *CPU).error == (
        f"{out} was trained without attention: there is nothing to view"
    )
