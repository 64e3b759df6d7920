"""`headlights translate`: lines in, lines out."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from headlights.cli.allocator import keep_freed_memory
from headlights.cli.attention_output import BETWEEN, AttentionOutput
from headlights.cli.common import (
    AlignHead,
    Device,
    Model,
    Threads,
    UsageError,
    check_device,
    check_output,
    chunks,
    read_head,
    set_threads,
    text_output,
)
from headlights.cli.decoding import (
    Beam,
    CoveragePenalty,
    Ensemble,
    LengthPenalty,
    MaxExtra,
    MaxRatio,
    NBest,
    Patience,
    Prefix,
    PrefixFile,
    PrefixLines,
    Sample,
    Seed,
    Temperature,
    TopK,
    TopP,
    at_line,
    decoding_options,
    n_best_lines,
    one_line,
)
from headlights.cli.progress import Tell, progress

if TYPE_CHECKING:
    from headlights.translation.translations import Translation


def command(
    model: Model,
    input: Annotated[
        Path | None,
        typer.Argument(help="Text, a sentence a line (.gz too). Default or -: standard input."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Default: standard output (.gz too).")
    ] = None,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    coverage_penalty: CoveragePenalty = None,
    patience: Patience = None,
    sample: Sample = False,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = None,
    n_best: NBest = None,
    prefix: Prefix = None,
    prefix_file: PrefixFile = None,
    max_ratio: MaxRatio = None,
    max_extra: MaxExtra = None,
    ensemble: Ensemble = None,
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
    dtype: Annotated[
        Literal["float32", "bfloat16"],
        typer.Option(help="Numbers to compute with; bfloat16 is faster where the processor has it."),
    ] = "float32",
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Translate text line by line.

    The order is kept, and blank lines stay blank. For example: headlights translate run text.de -o text.en
    """
    import torch

    from headlights.translation.side_by_side import fitting_workers
    from headlights.translation.translator import Translator

    set_threads(threads)
    keep_freed_memory()
    check_output(output, "--output", input, prefix_file)
    attention = AttentionOutput(output_attention, attention_between)
    attention.check(output, input, prefix_file)
    if align_head and not (alignment or replace_unknown or attention.needs_words):
        raise UsageError(
            f"--align-head {align_head}: changes nothing without --alignment, --replace-unknown or "
            "--output-attention between words"
        )
    options = decoding_options(
        sampled=sample,
        search={
            "beam": beam,
            "length_penalty": length_penalty,
            "coverage_penalty": coverage_penalty,
            "patience": patience,
        },
        sampling={"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed},
        both={"n_best": n_best, "max_ratio": max_ratio, "max_extra": max_extra},
    )
    prefixes = PrefixLines(prefix, prefix_file)
    translator = Translator.load(
        [model, *(ensemble or [])], device=check_device(device), dtype=getattr(torch, dtype)
    )
    workers = fitting_workers(translator.device)
    head = read_head(align_head, translator, "--align-head")
    attention.check_model(translator)
    looking = {
        "--coverage-penalty": coverage_penalty,
        "--replace-unknown": replace_unknown,
        "--alignment": alignment,
    }
    given = [option for option, value in looking.items() if value]
    if given and not any(translator.attention_shape):
        raise UsageError(f"{' and '.join(given)}: the model was trained without attention; leave it out")

    if replace_unknown and translator.target_tokenizer.unk_id is None:
        raise UsageError(
            "--replace-unknown: changes nothing, a vocabulary of pieces writes any word; leave it out"
        )

    def answers(tell: Tell) -> Iterator[list[str]]:
        done = 0
        for chunk in attention.fitting(_chunks(input, attention.lines_at_once)):
            found = translator.translate(
                chunk,
                options=at_line(done, options),
                prefixes=prefixes.take(len(chunk)),
                replace_unknown=replace_unknown,
                alignment=alignment or replace_unknown or attention.path is not None,
                attention=attention.needs_tokens,
                align_head=head,
                workers=workers,
            )
            keep(chunk, found)
            if n_best is None:
                yield [_line(each, alignment) for each in found]
            else:
                numbered = enumerate(found, start=done)
                yield [line for n, each in numbered for line in n_best_lines(n, each, alignment=alignment)]
            done += len(chunk)
            tell("translating", done, None)
        prefixes.finish()

    bar = output is not None or not sys.stdout.isatty()
    with progress("lines", bar=bar) as tell, text_output(output) as file, attention.opened() as keep:
        for chunk in answers(tell):
            file.writelines(f"{line}\n" for line in chunk)
            file.flush()


def _chunks(input: Path | None, most: int) -> Iterator[list[str]]:
    """Lines that are sorted by length and translated together."""
    from headlights.cli.streaming import arriving
    from headlights.translation.corpus import read_lines

    if input is None or str(input) == "-":
        return arriving(sys.stdin.buffer, most)
    return chunks(read_lines(input), most)


def _line(found: "Translation", alignment: bool) -> str:
    """One translation, with `alignment` a tab and its links behind it."""
    from headlights.translation.alignment import pharaoh

    text = one_line(found.text)
    if not alignment:
        return text
    return "\t".join((text.replace("\t", " "), pharaoh(found.alignment)))
