"""`headlights translate`: lines in, lines out."""

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from headlights.cli.attention_output import BETWEEN, AttentionOutput
from headlights.cli.common import (
    AlignHead,
    Beam,
    Device,
    Model,
    Threads,
    UsageError,
    check_device,
    check_output,
    read_head,
    set_threads,
    text_output,
)
from headlights.cli.progress import Tell, progress


def command(
    model: Model,
    input: Annotated[
        Path | None, typer.Argument(help="Text, a sentence a line (.gz too). Default: standard input.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Default: standard output (.gz too).")
    ] = None,
    beam: Beam = 5,
    length_penalty: Annotated[
        float, typer.Option(min=0.0, help="Power of the length that divides scores.")
    ] = 1.0,
    coverage_penalty: Annotated[
        float, typer.Option(min=0.0, help="Weight of the penalty on source words not looked at.")
    ] = 0.0,
    replace_unknown: Annotated[
        bool, typer.Option("--replace-unknown", help="Copy the source word where the model knows no word.")
    ] = False,
    alignment: Annotated[
        bool, typer.Option("--alignment", help="Add a tab and the word alignment, as 0-0 1-2, source first.")
    ] = False,
    align_head: AlignHead = None,
    output_attention: Annotated[
        Path | None,
        typer.Option(
            help="Write where it looked: .jsonl (.gz too); of a single line .json, .npz or .safetensors."
        ),
    ] = None,
    attention_between: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(BETWEEN),
            help="What that is between: words, or tokens in all layers and heads. Default: words.",
        ),
    ] = None,
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Translate text line by line.

    The order is kept, and blank lines stay blank. For example: headlights translate run text.de -o text.en
    """
    from headlights.translation.alignment import pharaoh
    from headlights.translation.translator import Translator

    set_threads(threads)
    check_output(output, "--output")
    attention = AttentionOutput(output_attention, attention_between)
    attention.check(output)
    if align_head and not (alignment or replace_unknown or attention.needs_words):
        raise UsageError(
            f"--align-head {align_head}: changes nothing without --alignment, --replace-unknown or "
            "--output-attention between words"
        )
    translator = Translator.load(model, device=check_device(device))
    head = read_head(align_head, translator, "--align-head")
    attention.check_model(translator)

    def answers(tell: Tell) -> Iterator[list[str]]:
        done = 0
        for chunk in attention.fitting(_chunks(input, attention.lines_at_once)):
            found = translator.translate(
                chunk,
                beam=beam,
                length_penalty=length_penalty,
                coverage_penalty=coverage_penalty,
                replace_unknown=replace_unknown,
                attention=attention.needs_tokens,
                align_head=head,
            )
            keep(chunk, found)
            if alignment:
                yield [f"{_one_cell(each.text)}\t{pharaoh(each.alignment)}" for each in found]
            else:
                yield [_one_line(each.text) for each in found]
            done += len(chunk)
            tell("translating", done, None)

    bar = output is not None or not sys.stdout.isatty()
    with progress("lines", bar=bar) as tell, text_output(output) as file, attention.opened() as keep:
        for chunk in answers(tell):
            file.writelines(f"{line}\n" for line in chunk)
            file.flush()


def _chunks(input: Path | None, most: int) -> Iterator[list[str]]:
    """Lines that are sorted by length and translated together."""
    from headlights.cli.streaming import arriving
    from headlights.translation.corpus import read_lines

    if input is None:
        yield from arriving(sys.stdin.buffer, most)
        return
    lines = read_lines(input)
    while chunk := list(islice(lines, most)):
        yield chunk


def _one_line(text: str) -> str:
    """A model may invent any character; the ends of lines are ours."""
    return text.replace("\n", " ").replace("\r", " ")


def _one_cell(text: str) -> str:
    return _one_line(text).replace("\t", " ")
