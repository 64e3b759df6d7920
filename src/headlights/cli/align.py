"""`headlights align`: which word translates which, in text that is translated already."""

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headlights.cli.allocator import keep_freed_memory
from headlights.cli.common import (
    CHUNK,
    AlignHead,
    Device,
    Model,
    Pairs,
    Source,
    Target,
    Threads,
    UsageError,
    check_device,
    check_output,
    chunks,
    note,
    read_head,
    read_pairs,
    set_threads,
    text_output,
)

if TYPE_CHECKING:
    from headlights.translation.alignment import Links
    from headlights.translation.corpus import GoldLinks, Pair


def command(
    model: Model,
    source: Source = None,
    target: Target = None,
    pairs: Pairs = None,
    reverse: Annotated[
        Path | None, typer.Option(help="A model that translates the other way; its links are joined in.")
    ] = None,
    symmetrise: Annotated[
        str | None,
        typer.Option(
            help="How to join them: intersection, union, or grow[-diag[-final[-and]]]. Default: the last."
        ),
    ] = None,
    align_head: AlignHead = None,
    reverse_align_head: Annotated[
        str | None, typer.Option(metavar="LAYER.HEAD", help="The same for --reverse.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Default: standard output (.gz too).")
    ] = None,
    gold: Annotated[
        Path | None, typer.Option(help="True links, 0-0 sure and 0p0 possible: print the error rate.")
    ] = None,
    gold_first: Annotated[
        int | None, typer.Option(min=0, max=1, help="What --gold calls the first word. Default: 0.")
    ] = None,
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Align the words of sentences and their translations.

    Writes a line for each pair, as 0-0 1-2, source word first. For example:
    headlights align run --source test.de --target test.en --reverse run-back -o test.links
    """
    from headlights.translation.symmetrisation import METHODS

    set_threads(threads)
    keep_freed_memory()
    check_output(output, "--output", source, target, pairs, gold)
    if symmetrise is not None and symmetrise not in METHODS:
        raise UsageError(f"--symmetrise {symmetrise}: expected one of {', '.join(METHODS)}")
    for option, value, needed, beside in (
        ("--symmetrise", symmetrise, "--reverse", reverse),
        ("--reverse-align-head", reverse_align_head, "--reverse", reverse),
        ("--gold-first", gold_first, "--gold", gold),
    ):
        if value is not None and beside is None:
            raise UsageError(f"{option} {value}: needs {needed} beside it")
    text = read_pairs(source, target, pairs, "align")
    forward = _Aligner(model, check_device(device), align_head, "--align-head")
    backward = None
    if reverse is not None:
        backward = _Aligner(reverse, device, reverse_align_head, "--reverse-align-head")
    found = _aligned(text, forward, backward, symmetrise or "grow-diag-final-and")
    lines = _judged(found, gold, gold_first or 0) if gold else (_line(links) for _, links in found)
    with text_output(output) as file:
        file.writelines(lines)


class _Aligner:
    """A model, and the head of it that alignments are read from."""

    def __init__(self, model: Path, device: str | None, head: str | None, option: str) -> None:
        from headlights.translation.translator import Translator

        self._translator = Translator.load(model, device=device)
        if not any(self._translator.attention_shape):
            raise UsageError(f"{model} was trained without attention: it aligns nothing")
        self._head = read_head(head, self._translator, option)

    def align(self, sources: list[str], targets: list[str]) -> list["Links"]:
        found = self._translator.align(sources, targets, align_head=self._head)
        return [each.alignment for each in found]


def _aligned(
    pairs: Iterator["Pair"], forward: _Aligner, backward: _Aligner | None, method: str
) -> Iterator[tuple["Pair", "Links"]]:
    """Each pair with its links, in order."""
    from headlights.translation.symmetrisation import symmetrise

    for chunk in chunks(pairs, CHUNK):
        sources, targets = [pair.source for pair in chunk], [pair.target for pair in chunk]
        ahead = forward.align(sources, targets)
        if backward is None:
            yield from zip(chunk, ahead, strict=True)
            continue
        for pair, there, back in zip(chunk, ahead, backward.align(targets, sources), strict=True):
            turned = [(source, target) for target, source in back]
            yield pair, symmetrise(there, turned, method)  # type: ignore[arg-type]  # checked above


def _judged(aligned: Iterator[tuple["Pair", "Links"]], gold: Path, first: int) -> Iterator[str]:
    """The lines to write; at their end the error rate is said."""
    from headlights.translation.alignment import AlignmentCounts, count_links
    from headlights.translation.corpus import read_links

    counts, number = AlignmentCounts(), 0
    for number, (found, truth) in enumerate(zip_longest(aligned, read_links(gold, first=first)), start=1):
        if found is None or truth is None:
            short, long = ("the text", gold) if found is None else (gold, "the text")
            raise UsageError(f"--gold {gold}: {short} ends after line {number - 1}, {long} goes on")
        pair, links = found
        _check_inside(pair, truth, f"{gold}:{number}", first)
        counts += count_links(links, truth.sure, truth.possible)
        yield _line(links)
    note(f"alignment error rate {100 * counts.error_rate:.1f} % on {number:,} pairs")


def _check_inside(pair: "Pair", gold: "GoldLinks", place: str, first: int) -> None:
    """Refuse links to words that a pair has not: the error rate would count them as missed."""
    from headlights.translation.words import words

    sizes = len(words(pair.source)), len(words(pair.target))
    for source, target in (*gold.sure, *gold.possible):
        if source >= sizes[0] or target >= sizes[1]:
            raise UsageError(
                f"{place}: link {source + first}-{target + first} is outside the pair, which has {sizes[0]} "
                f"source words and {sizes[1]} target words, counted from {first} (--gold-first)"
            )


def _line(links: "Links") -> str:
    from headlights.translation.alignment import pharaoh

    return f"{pharaoh(links)}\n"
