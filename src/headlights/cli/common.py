"""Options and small services that several commands share."""

import gzip
import io
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO, TypeVar

import typer

from headlights._errors import InputError

if TYPE_CHECKING:
    from headlights.translation.alignment import Head
    from headlights.translation.corpus import Pair
    from headlights.translation.recipe import Recipe
    from headlights.translation.translator import Translator

Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model folder, or the run folder of a training.")
]
Device = Annotated[
    str | None, typer.Option(help="Where to compute, e.g. cpu or cuda. Default: a GPU if there is one.")
]
Threads = Annotated[int | None, typer.Option(min=1, help="Processor threads. Default: torch's choice.")]
Beam = Annotated[int, typer.Option(min=1, help="Hypotheses kept per sentence; 1 is greedy.")]
AlignHead = Annotated[
    str | None,
    typer.Option(
        "--align-head",
        metavar="LAYER.HEAD",
        help="Read alignments from this head, both counted from 0. Default: mean, of all.",
    ),
]
Source = Annotated[Path | None, typer.Option("--source", help="Source text, a sentence a line (.gz too).")]
Target = Annotated[Path | None, typer.Option("--target", help="Target text, line by line its translation.")]
Pairs = Annotated[
    Path | None, typer.Option("--pairs", help="Source and target in one file: .tsv or .jsonl (.gz too).")
]

CHUNK = 2000
"""Lines or pairs that are read, sorted by length and worked on together."""

Item = TypeVar("Item")


class UsageError(InputError):
    """Options that do not go together or cannot be used here; the message is one line that names them."""


def note(text: str) -> None:
    """Say something beside the output: a line on standard error, if anybody listens."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def set_threads(threads: int | None) -> None:
    """Limit torch to that many threads, if any number is given."""
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


def check_device(device: str | None) -> str | None:
    """The device as given, if torch knows it and it is there.

    Args:
        device: A name such as "cpu" or "cuda:0"; None: torch's choice.

    Returns:
        The same.

    Raises:
        UsageError: torch does not know it or cannot use it here.
    """
    if device is not None:
        import torch

        try:
            place = torch.device(device)
        except RuntimeError:  # its words list every kind of device there is
            raise UsageError(f"--device {device}: is no device; try --device cpu") from None
        try:
            torch.zeros(1, device=place).item()
        except (RuntimeError, AssertionError) as error:
            reason = str(error).partition("\n")[0]
            raise UsageError(f"--device {device}: cannot be used here ({reason}); try --device cpu") from None
    return device


def paths_of(
    source: Path | None, target: Path | None, pairs: Path | None, prefix: str = "--"
) -> tuple[str, ...]:
    """The files that hold sentence pairs: one of pairs, or a source and a target file, or none.

    Args:
        source: Source text.
        target: Target text.
        pairs: Both in one file.
        prefix: How the options begin, for messages.

    Returns:
        Their names.

    Raises:
        UsageError: Both ways at once, or one side only.
    """
    if pairs is not None and (source is not None or target is not None):
        raise UsageError(f"give either {prefix}pairs or {prefix}source and {prefix}target, not both")
    if (source is None) != (target is None):
        given, missing = ("source", "target") if target is None else ("target", "source")
        raise UsageError(
            f"{prefix}{given} needs {prefix}{missing} beside it: line n of one translates line n of the other"
        )
    paths = [str(path.absolute()) for path in (pairs, source, target) if path is not None]
    for path in paths:
        if not _is_utf8(path):
            raise UsageError(f"{path!a}: the name is not UTF-8, as recipes are; rename it or its folder")
    return tuple(paths)


def read_pairs(source: Path | None, target: Path | None, pairs: Path | None, use: str) -> "Iterator[Pair]":
    """The sentence pairs that a command works on, as they are read.

    Args:
        source: Source text.
        target: Target text.
        pairs: Both in one file.
        use: What the command does.

    Returns:
        At least one pair; a side may be blank.

    Raises:
        UsageError: No file is given, one too many, or there is not a pair in them.
    """
    from headlights.translation.corpus import read

    paths = paths_of(source, target, pairs)
    if not paths:
        raise UsageError(f"{use} needs sentence pairs: give --source and --target, or --pairs")
    found = read(paths)
    first = next(found, None)
    if first is None:
        raise UsageError(f"{' and '.join(paths)}: no sentence pairs to {use}")
    return chain([first], found)


def option_of(name: str) -> str:
    """What the user calls an argument: `max_ratio` is --max-ratio."""
    return f"--{name.replace('_', '-')}"


def changed_by_options(
    base: "Recipe", given: Mapping[str, Any], assignments: Sequence[str], options: Mapping[str, str]
) -> "Recipe":
    """A recipe with what the command line says.

    Args:
        base: The recipe.
        given: Values by `section.key`, of the options that were given.
        assignments: Those of `--set`.
        options: What the user calls the options, by their keys.

    Returns:
        The changed recipe.

    Raises:
        UsageError: A key is set twice, or the value of an option is wrong; the line names the option.
        RecipeError: Another value is wrong.
    """
    from headlights.translation.recipe import RecipeError

    named = {key: options[key] for key in given if key in options}
    for key in (each.partition("=")[0].strip() for each in assignments):
        if key in named:
            raise UsageError(f"--set {key}: is what {named[key]} set, too; leave one of them out")
    try:
        return base.changed(given, assignments)
    except RecipeError as error:
        for key, option in named.items():
            if str(error).startswith(begin := f"recipe: {key}: "):
                raise UsageError(f"{option}: {str(error).removeprefix(begin)}") from None
        raise


def chunks(items: Iterable[Item], most: int) -> Iterator[list[Item]]:
    """Take items together, a number at a time.

    Args:
        items: As they come.
        most: How many to take together.

    Yields:
        The next of them, fewer at the end.
    """
    left = iter(items)
    while chunk := list(islice(left, most)):
        yield chunk


def read_head(text: str | None, translator: "Translator", option: str) -> "Head | None":
    """The attention head that an option names.

    Args:
        text: A layer and a head, as 2.0; "mean" or None: the mean of all.
        translator: Whose head.
        option: What the user calls it.

    Returns:
        Layer and head, from 0; None: the mean of all.

    Raises:
        UsageError: It names no head, or none that the model has.
    """
    from headlights.translation.alignment import check_head

    if text is None or text == "mean":
        return None
    named = re.fullmatch(r"([0-9]{1,9})\.([0-9]{1,9})", text)
    if named is None:
        raise UsageError(f"{option} {text}: expected LAYER.HEAD, both counted from 0, such as 0.1, or mean")
    head = int(named[1]), int(named[2])
    try:
        check_head(head, *translator.attention_shape)
    except ValueError as error:
        raise UsageError(f"{option} {text}: {str(error).partition(': ')[2]}") from None
    return head


def check_output(path: Path | None, option: str, *inputs: Path | None) -> None:
    """Refuse a file that cannot be written, before the work for it is done.

    Args:
        path: The file; None: nothing is to be written.
        option: What the user calls it.
        *inputs: What the command reads, which would be lost.

    Raises:
        UsageError: It is a folder or one of the inputs, or the system would refuse to write it.
    """
    if path is None:
        return
    if path.is_file() and any(each is not None and each.is_file() and path.samefile(each) for each in inputs):
        raise UsageError(f"{option} {path}: is what is read, and would be lost; choose another name")
    if path.is_dir():
        raise UsageError(f"{option} {path}: is a folder; expected a file to write")
    if not path.parent.is_dir():
        raise UsageError(f"{option} {path}: there is no folder {path.parent}; make it first")
    if path.exists() and not path.is_file():  # a pipe or a device, which is opened as it stands
        if not os.access(path, os.W_OK):
            raise UsageError(f"{option} {path}: may not be written; choose another place")
        return
    # All else is written beside what a link leads to and renamed: what counts is not the file but its folder.
    folder = path.resolve().parent
    if not folder.is_dir():
        raise UsageError(f"{option} {path}: leads to the folder {folder}, which is not there; make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(
            f"{option} {path}: no file may be made in {folder}, as replacing one needs; choose another place"
        )


@contextmanager
def text_output(path: Path | None) -> Iterator[TextIO]:
    """Where a command writes its lines: a file, all or nothing of it, or standard output.

    Args:
        path: The file, compressed if its name ends in ".gz"; None: standard output.

    Yields:
        What to write to.
    """
    from headlights.translation.folders import replace_file

    if path is None:
        yield sys.stdout
        return
    with replace_file(path) as file:
        if path.suffix.lower() != ".gz":
            yield file
            return
        with (
            gzip.GzipFile(filename="", mode="wb", fileobj=file.buffer, mtime=0) as packed,
            io.TextIOWrapper(packed, encoding="utf-8", newline="\n") as text,
        ):
            yield text


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_text(text: str, name: str) -> None:
    """Refuse text from the command line that is not UTF-8.

    Args:
        text: As Python decoded it.
        name: What the user calls it.

    Raises:
        UsageError: Some bytes were no UTF-8.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{name}: is not UTF-8 at character {error.start + 1}; set the terminal to UTF-8"
        ) from None
