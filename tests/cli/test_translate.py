"""`headlights translate`: as many lines out as in, in order, whatever is in them and wherever they go."""

import io
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headlights.cli.decoding import n_best_lines
from headlights.cli.streaming import arriving
from headlights.translation.alignment import pharaoh
from headlights.translation.folders import ModelFolder
from headlights.translation.sampling import SamplingOptions
from headlights.translation.translations import Translation
from headlights.translation.translator import Translator
from tests.cli.conftest import Command
from tests.cli.test_app import program
from tests.translation.test_translator import build

CPU = ("--device", "cpu")
ODD = (
    "",
    "   \t ",
    "\u00a0",
    "red\u2028cat",
    "red\u0085cat\x0bdog\x0cruns\x1cold\x1d",
    "old\rdog",
    "🙂 👩‍👩‍👧 \u200b",
    "<pad> </s> <unk>",
    "a\0b",
    "\u202eright to left\u202c",
    "x" * 5000,
)


def test_thousand_odd_lines_stay_in_order(headlights: Command, model: Path, tmp_path: Path) -> None:
    draw = random.Random(5)
    words = ("red", "old", "cat", "dog", "runs", "eats", "unheard")
    lines = [" ".join(draw.choices(words, k=draw.randint(1, 5))) for _ in range(1000)]
    for place, odd in zip(draw.sample(range(1000), 5 * len(ODD)), ODD * 5, strict=True):
        lines[place] = odd
    lines[500] = " ".join(draw.choices(words, k=2000))
    (tmp_path / "text").write_bytes("\n".join(lines).encode())  # the last line has no end
    status, output, errors = headlights("translate", model, tmp_path / "text", "--beam", "1", *CPU)
    assert (status, errors) == (0, "")
    assert output.endswith("\n")
    found = output.removesuffix("\n").split("\n")
    assert len(found) == 1000
    blank = [not line.strip("\u200b\ufeff \t\u00a0") for line in lines]
    assert all(found[place] == "" for place in range(1000) if blank[place])
    translator = Translator.load(model, device="cpu")
    for place in draw.sample(range(1000), 30):
        if len(lines[place]) < 1000:
            assert found[place] == translator.translate([lines[place]], beam=1)[0].text


def test_alignment_stands_behind_a_tab(headlights: Command, model: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("red cat\n\n")
    status, output, _ = headlights("translate", model, tmp_path / "text", "--alignment", *CPU)
    (line, blank) = output.removesuffix("\n").split("\n")
    text, links = line.split("\t")
    assert status == 0
    assert len(links.split()) == len(text.split())
    assert all(int(link.split("-")[0]) in (0, 1) for link in links.split())
    assert blank == "\t"


def test_ends_of_lines_that_a_model_invents_are_blanks(
    headlights: Command, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Translator, "translate", lambda _, lines, **__: [Translation("a\nb\rc\td")] * len(lines)
    )
    (tmp_path / "text").write_text("red\n")
    assert headlights("translate", model, tmp_path / "text", *CPU).output == "a b c\td\n"
    assert headlights("translate", model, tmp_path / "text", "--alignment", *CPU).output == "a b c d\t\n"


def test_standard_input_is_read(headlights: Command, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("red cat\n\nperché".encode())))
    status, output, errors = headlights("translate", model, *CPU)
    assert (status, errors) == (0, "")
    assert [bool(line) for line in output.split("\n")] == [True, False, True, False]


def test_an_answer_does_not_wait_for_the_next_question(model: Path) -> None:
    process = subprocess.Popen(
        program("translate", model, *CPU), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    answers = []
    for question in ("red cat", "", "old dog"):
        process.stdin.write(f"{question}\n")
        process.stdin.flush()
        answers.append(process.stdout.readline())
    process.stdin.close()
    assert (process.stdout.read(), process.wait()) == ("", 0)
    process.stdout.close()
    assert [bool(answer.strip()) for answer in answers] == [True, False, True]


def test_lines_that_are_there_come_together() -> None:
    pieces = iter((b"a\nb\r\nc", b"d\n\ne\xc3", b"\xa9"))

    class Pieces(io.BytesIO):
        def read1(self, _: int | None = -1) -> bytes:
            return next(pieces, b"")

    assert list(arriving(Pieces(), 9)) == [["a", "b"], ["cd", ""], ["eé"]]
    assert list(arriving(io.BytesIO(b"1\n2\n3\n4\n5\n"), 2)) == [["1", "2"], ["3", "4"], ["5"]]


def test_long_work_says_how_far_it_is(
    headlights: Command, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headlights.cli.progress.EVERY", 0.0)
    (tmp_path / "text").write_text("red cat\n" * 3)
    result = headlights("translate", model, tmp_path / "text", "-o", tmp_path / "out", *CPU)
    assert result == (0, "", "translating lines: 3\n")


def test_broken_input_and_model_are_named(headlights: Command, model: Path, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, reason in (("none", "No such file"), ("loop", "Too many levels"), (".", "Is a directory")):
        error = headlights("translate", model, tmp_path / name, *CPU).error
        assert error.startswith(f"{tmp_path / name}: cannot be read: {reason}")
    assert headlights("translate", tmp_path / "none", *CPU).error == (
        f"{tmp_path}/none does not exist; expected a model folder or the run folder of `headlights train`"
    )
    shutil.copytree(model / "best", tmp_path / "model")
    for file in sorted((tmp_path / "model").iterdir()):
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2])
        assert headlights("translate", tmp_path / "model", *CPU).error.startswith(str(file))
        file.write_bytes(whole)


def test_empty_input_gives_empty_output(headlights: Command, model: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"")
    assert headlights("translate", model, tmp_path / "text", *CPU) == (0, "", "")


def test_options_of_the_search_reach_it(headlights: Command, model: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("red unheard cat\nold dog\n")
    options = ("--beam", "3", "--coverage-penalty", "0.4", "--length-penalty", "0.5", "--replace-unknown")
    status, output, _ = headlights("translate", model, tmp_path / "text", *options, *CPU)
    expected = Translator.load(model, device="cpu").translate(
        ["red unheard cat", "old dog"],
        beam=3,
        coverage_penalty=0.4,
        length_penalty=0.5,
        replace_unknown=True,
    )
    assert (status, output) == (0, "".join(f"{each.text}\n" for each in expected))


def test_n_best_is_what_moses_writes(headlights: Command, model: Path, tmp_path: Path) -> None:
    lines = ["red unheard cat", "", "old dog"]
    (tmp_path / "text").write_text("\n".join(lines))
    options = ("--beam", "4", "--n-best", "3", "--max-ratio", "0", "--max-extra", "3")
    status, output, _ = headlights("translate", model, tmp_path / "text", *options, *CPU)
    found = Translator.load(model, device="cpu").translate(lines, beam=4, n_best=3, max_ratio=0, max_extra=3)
    assert all(len(each.tokens) <= 3 for each in found)
    expected = [
        f"{number} ||| {each.text} ||| logprob= {each.score:.6f} ||| {each.normalised_score:.6f}"
        for number, best in enumerate(found)
        for each in (best, *best.alternatives)
    ]
    assert (status, output.splitlines()) == (0, expected)
    assert "1 |||  ||| logprob= 0.000000 ||| 0.000000" in expected
    assert len(expected) == 7
    status, output, _ = headlights("translate", model, tmp_path / "text", *options, "--alignment", *CPU)
    links = [pharaoh(each.alignment) for best in found for each in (best, *best.alternatives)]
    assert output.splitlines() == [f"{line} ||| {each}" for line, each in zip(expected, links, strict=True)]


def test_separators_that_a_model_invents_are_taken_apart() -> None:
    (line,) = n_best_lines(7, Translation("a ||| b\nc", score=-1.25, normalised_score=-0.5), alignment=False)
    assert line == "7 ||| a | | | b c ||| logprob= -1.250000 ||| -0.500000"


def test_draws_depend_on_seed_and_line_and_not_on_chunks(
    headlights: Command, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text").write_text("red cat\n" * 7)
    options = ("--sample", "--temperature", "1.5", "--top-k", "30", "--top-p", "0.95")
    found = {}
    for chunk, seed in ((2000, 0), (3, 0), (3, 1)):
        monkeypatch.setattr("headlights.cli.attention_output.CHUNK", chunk)
        result = headlights("translate", model, tmp_path / "text", *options, "--seed", str(seed), *CPU)
        assert (result.status, result.errors) == (0, "")
        found[chunk, seed] = result.output
    assert found[2000, 0] == found[3, 0] != found[3, 1]
    assert len(set(found[3, 0].splitlines())) > 2
    options_of = SamplingOptions(temperature=1.5, top_k=30, top_p=0.95)
    expected = Translator.load(model, device="cpu").translate(["red cat"] * 7, options=options_of)
    assert found[2000, 0] == "".join(f"{each.text}\n" for each in expected)


def test_translations_begin_with_their_prefix(headlights: Command, model: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("red cat\n\nold dog\n")
    translator = Translator.load(model, device="cpu")
    plain = [each.text for each in translator.translate(["red cat", "old dog"])]
    found = headlights("translate", model, tmp_path / "text", "--prefix", "cane nero ", *CPU).output
    first, blank, second = found.removesuffix("\n").split("\n")
    assert blank == ""
    assert first.startswith("cane nero")
    assert second.startswith("cane nero")
    (tmp_path / "prefixes").write_text(" \nblank lines stay blank\ncane nero")
    found = headlights(
        "translate", model, tmp_path / "text", "--prefix-file", tmp_path / "prefixes", *CPU
    ).output
    assert found == f"{plain[0]}\n\n{second}\n"


def test_prefixes_must_fit_the_lines(
    headlights: Command, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text").write_text("red cat\n" * 5)
    monkeypatch.setattr("headlights.cli.attention_output.CHUNK", 3)
    command = ("translate", model, tmp_path / "text", "-o", tmp_path / "out", *CPU)
    path = tmp_path / "prefixes"
    for count, reason in (
        (
            4,
            "ends after line 4, the text goes on; write a line for each line of text, blank where",
        ),
        (6, "goes on after line 5, where the text ends; write one line for each line of text"),
    ):
        path.write_text("cane\n" * count)
        error = headlights(*command, "--prefix-file", path).error
        assert error.startswith(f"--prefix-file {path}: {reason}")
    assert not (tmp_path / "out").exists()
    assert headlights(*command, "--prefix-file", path, "--prefix", "il").error == (
        "give either --prefix or --prefix-file, not both"
    )


def test_a_dash_is_standard_input(model: Path, tmp_path: Path) -> None:
    command = program("translate", model, "-", "--threads", "1", *CPU)
    found = subprocess.run(command, input="red cat\n\n", capture_output=True, text=True, check=True)
    assert found.stderr == ""
    (translation,) = Translator.load(model, device="cpu").translate(["red cat"])
    assert found.stdout == f"{translation.text}\n\n"


def test_models_that_translate_together(headlights: Command, model: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("red cat\nold dog\n")
    plain = headlights("translate", model, tmp_path / "text", "--n-best", "2", *CPU).output
    together = headlights(
        "translate", model, tmp_path / "text", "--n-best", "2", "--ensemble", model / "best", *CPU
    ).output
    rows = [[line.split(" ||| ") for line in output.splitlines()] for output in (plain, together)]
    for one, other in zip(*rows, strict=True):
        assert one[:2] == other[:2]
        assert float(one[3]) == pytest.approx(float(other[3]), abs=1e-5)
    two = Translator.load([model, model / "last"], device="cpu").translate(["red cat", "old dog"])
    result = headlights("translate", model, tmp_path / "text", "--ensemble", model / "last", *CPU)
    assert result.output == "".join(f"{each.text}\n" for each in two)
    shutil.copytree(model / "best", tmp_path / "other")
    words = tmp_path / "other" / "tokenizer.target.json"
    words.write_text(words.read_text().replace('"gatto"', '"micio"'))
    error = headlights("translate", model, "--ensemble", tmp_path / "other", *CPU).error
    assert error == (
        f"{tmp_path}/other: its target tokenizer is not that of {model}, so they cannot decode together; "
        "train both with the same training and validation files and tokenizer settings"
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--sample", "--beam", "3"), "--sample draws and does not search: leave out --beam"),
        (
            ("--sample", "--coverage-penalty", "0", "--length-penalty", "1"),
            "--sample draws and does not search: leave out --length-penalty and --coverage-penalty",
        ),
        (
            ("--temperature", "0.5", "--seed", "3"),
            "--temperature and --seed: only for translations drawn at random; give --sample too",
        ),
        (("--n-best", "6"), "--n-best must be between 1 and beam (5), got 6; raise the beam for more"),
        (("--sample", "--top-p", "0"), "--top-p must be above 0 and at most 1, got 0.0"),
        (
            ("--sample", "--temperature", "0"),
            "--temperature must be above 0 and finite, got 0.0; "
            "for the most probable tokens search with beam 1",
        ),
        (
            ("--sample", "--max-extra", "99999999999999"),
            "--max-extra must be between 1 and 1000000, got 99999999999999",
        ),
        (("--max-ratio", "inf"), "--max-ratio must be between 0 and 1000, got inf"),
    ],
)
def test_options_that_do_not_go_together_are_one_line(
    headlights: Command, tmp_path: Path, options: tuple[str, ...], expected: str
) -> None:
    assert headlights("translate", tmp_path / "no-model", *options, *CPU).error == expected


def test_there_is_no_unknown_word_to_replace_in_pieces(headlights: Command, tmp_path: Path) -> None:
    built = build("bpe")
    folder = ModelFolder(built.model, built.source_tokenizer, built.target_tokenizer, {})
    folder.save(tmp_path / "model")
    (tmp_path / "text").write_text("The cat sits.\n")
    command = ("translate", tmp_path / "model", tmp_path / "text", "--replace-unknown", *CPU)
    assert headlights(*command).error == (
        "--replace-unknown: changes nothing, a vocabulary of pieces writes any word; leave it out"
    )


def test_what_needs_attention_is_refused_without_it(headlights: Command, tmp_path: Path) -> None:
    built = build("word", score="none")
    folder = ModelFolder(built.model, built.source_tokenizer, built.target_tokenizer, {})
    folder.save(tmp_path / "model")
    (tmp_path / "text").write_text("The cat sits.\n")
    command = ("translate", tmp_path / "model", tmp_path / "text", *CPU)
    for option in (("--coverage-penalty", "0.2"), ("--replace-unknown",), ("--alignment",)):
        assert headlights(*command, *option).error == (
            f"{option[0]}: the model was trained without attention; leave it out"
        )
