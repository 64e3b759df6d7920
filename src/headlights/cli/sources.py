"""Where maps of attention come from: a file of weights, a translator, or a Hugging Face model."""

import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from headlights.cli.common import UsageError, check_text, note
from headlights.cli.pretrained import is_pretrained
from headlights.cli.watching import BEAM, Reading, watch_pretrained

if TYPE_CHECKING:
    from headlights.translation.translations import Translation
    from headlights.view import AttentionMap

FORMATS = (".json", ".npz", ".safetensors")
"""How files of weights end."""

LINES = (".jsonl", ".jsonl.gz")
"""How files of many maps end, one a line."""

MOST_LINES = 50
"""More maps than this are not read at once."""


def find_maps(model: Path, reading: Reading) -> "dict[str, AttentionMap]":
    """Read or compute the maps that a command line asks for.

    Args:
        model: A model or run folder, a Hugging Face model folder, or a file of weights.
        reading: What to run and what to keep.

    Returns:
        Maps by name, the one to look at first at the front.

    Raises:
        UsageError: Options do not go together or do not fit `model`; one line says which.
    """
    many = model.name.endswith(LINES) and not model.is_dir()
    if not many:
        for option in reading.given("sentence"):
            raise UsageError(f"{option}: is for files that end in {' or '.join(LINES)}; {model} does not")
    if model.is_file() or ((many or model.suffix in FORMATS) and not model.exists()):
        return _read_lines(model, reading) if many else {"self": _read_file(model, reading)}
    _check_beam(reading)
    if is_pretrained(model):
        _check_texts(reading, "view needs a text: headlights view MODEL 'Some text.'")
        return watch_pretrained(model, reading)
    for option in reading.given("top", "truncate"):
        raise UsageError(f"{option}: is for Hugging Face models; {model} is none")
    _check_texts(reading, "view needs a sentence to translate: headlights view MODEL 'A sentence.'")
    return {"cross": _translate(model, reading)}


def read_text(text: str | None, path: Path | None) -> str:
    """The text given on the command line, or in a file.

    Args:
        text: From the command line.
        path: A file of UTF-8; "-" is standard input.

    Returns:
        The text without the last line's end; empty if there is neither.

    Raises:
        UsageError: Both are given, or the file is not UTF-8.
    """
    if path is None:
        return text or ""
    if text is not None:
        raise UsageError("give either TEXT or --text-file, not both")
    content = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    try:
        return content.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"--text-file {path}: is not UTF-8 at byte {error.start + 1}") from None


def _check_texts(reading: Reading, needed: str) -> None:
    from headlights.translation.corpus import is_blank

    for text, name in ((reading.text, "TEXT"), (reading.target, "--target")):
        if text is not None:
            check_text(text, name)
    if is_blank(reading.text):
        raise UsageError(needed)
    if reading.target is not None and is_blank(reading.target):
        raise UsageError("--target is blank: expected a translation of the sentence")


def _check_beam(reading: Reading) -> None:
    if reading.target is not None and reading.beam is not None:
        raise UsageError(
            f"--beam {reading.beam}: changes nothing beside --target, with which nothing is searched; leave "
            "one of them out"
        )


def word_map(found: "Translation", sentence: str) -> "AttentionMap":
    """A translation's attention between words, as it is drawn and written.

    Args:
        found: With attention.
        sentence: What was translated.

    Returns:
        Its map, with links and a title.
    """
    from headlights import view

    return view.AttentionMap(
        found.source_words,
        found.words,
        weights=found.weights,
        title=f"{sentence} → {found.text}",
        links=found.alignment,
    )


def _check_file(path: Path, reading: Reading) -> None:
    if not path.exists():
        raise UsageError(f"{path} does not exist; expected a file of weights or a model folder")
    for option in reading.given("text", "target", "beam", "top", "truncate", "device", "threads"):
        raise UsageError(f"{path} is a file of weights: {option} needs a model folder instead")


def _read_file(path: Path, reading: Reading) -> "AttentionMap":
    from headlights import view

    _check_file(path, reading)
    try:
        return view.load_attention(path)
    except ValueError as error:  # one line that names the file
        raise UsageError(str(error)) from None


def _read_lines(path: Path, reading: Reading) -> "dict[str, AttentionMap]":
    """The map of a line, or of all lines, by number; blank lines have none."""
    from headlights import view

    _check_file(path, reading)
    first, most = (1, MOST_LINES + 1) if reading.sentence is None else (reading.sentence, 1)
    try:
        lines = list(islice(view.load_attention_lines(path, first=first), most))
    except ValueError as error:
        raise UsageError(str(error)) from None
    if not lines:
        raise UsageError(f"{path} has no line {first}")
    if len(lines) > MOST_LINES:
        raise UsageError(f"{path} has more than {MOST_LINES} lines: choose one with --sentence, from 1")
    maps = {str(first + n): line for n, line in enumerate(lines) if line.source or line.target}
    if not maps:
        blank = f"line {first} is" if len(lines) == 1 else "all lines are"
        raise UsageError(f"{path}: {blank} blank: there is nothing to view")
    return maps


def say_line(maps: "dict[str, AttentionMap]", reading: Reading) -> None:
    """Say which of many lines is drawn, where nobody chose one.

    Args:
        maps: From `find_maps`.
        reading: What it was asked for.
    """
    first = next(iter(maps))
    if reading.sentence is None and first.isdecimal() and (len(maps), first) != (1, "1"):
        note(f"line {first} is drawn here; choose another with --sentence")


def _translate(model: Path, reading: Reading) -> "AttentionMap":
    """Attention between the words of a sentence and of its translation."""
    from headlights.translation.translator import Translator

    sentence = reading.text
    if "\n" in sentence:
        lines = sentence.count("\n") + 1
        raise UsageError(f"TEXT has {lines} lines: {model} translates one sentence at a time")
    translator = Translator.load(model, device=reading.device)
    if reading.target is None:
        (found,) = translator.translate([sentence], beam=reading.beam or BEAM)
    else:
        (found,) = translator.align([sentence], [reading.target])
    if found.weights is None:
        raise UsageError(f"{model} was trained without attention: there is nothing to view")
    try:
        return word_map(found, sentence)
    except ValueError as error:  # numbers that are no weights
        raise UsageError(f"{model}: its attention cannot be drawn: {error}") from None
