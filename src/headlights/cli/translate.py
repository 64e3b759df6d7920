"""`headlights translate`: lines in, lines out."""

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, BinaryIO, TextIO

import typer

from headlights.cli.common import Beam, Device, Model, Threads, check_device, set_threads

CHUNK = 2000  # lines that are sorted by length and translated together


def command(
    model: Model,
    input: Annotated[
        Path | None, typer.Argument(help="Text, a sentence a line (.gz too). Default: standard input.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Default: standard output.")] = None,
    beam: Beam = 5,
    length_penalty: Annotated[
        float, typer.Option(min=0.0, help="Power of the length that divides scores.")
    ] = 1.0,
    alignment: Annotated[
        bool, typer.Option("--alignment", help="Add a tab and the word alignment, as 0-0 1-2, source first.")
    ] = False,
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Translate text line by line; blank lines stay blank, and the order is kept."""
    from headlights.translation.alignment import pharaoh
    from headlights.translation.corpus import read_lines
    from headlights.translation.translator import Translator

    set_threads(threads)
    translator = Translator.load(model, device=check_device(device))
    source: Path | BinaryIO = sys.stdin.buffer if input is None else input
    lines = read_lines(source)
    # A person at a terminal waits for an answer to each line.
    size = 1 if input is None and sys.stdin.isatty() else CHUNK

    def answers() -> Iterator[str]:
        while chunk := list(islice(lines, size)):
            for found in translator.translate(chunk, beam=beam, length_penalty=length_penalty):
                text = " ".join(found.text.split("\n"))
                yield f"{text}\t{pharaoh(found.alignment)}" if alignment else text

    if output is None:
        _write(answers(), sys.stdout)
        return
    beside = output.with_name(f".{output.name}.part")
    try:
        with beside.open("w", encoding="utf-8", newline="\n") as file:
            _write(answers(), file)
        beside.replace(output)
    finally:
        beside.unlink(missing_ok=True)


def _write(lines: Iterable[str], file: TextIO) -> None:
    for line in lines:
        file.write(line + "\n")
        if file is sys.stdout and sys.stdin.isatty():
            file.flush()
    file.flush()
