"""`headlights score`: how probable a model finds translations that are there already."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from headlights._counted import counted
from headlights.cli.allocator import keep_freed_memory
from headlights.cli.common import (
    CHUNK,
    Device,
    Model,
    Pairs,
    Source,
    Target,
    Threads,
    check_device,
    check_output,
    chunks,
    note,
    read_pairs,
    set_threads,
    text_output,
)
from headlights.cli.progress import progress


def command(
    model: Model,
    source: Source = None,
    target: Target = None,
    pairs: Pairs = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Default: standard output (.gz too).")
    ] = None,
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Score translations that are given.

    Writes a line for each pair: the natural log-probability of the target, a tab, and its tokens, end mark
    included; of a pair with a blank side the tab alone. At the end the perplexity is said. For example:
    headlights score run --source test.de --target test.en -o test.scores
    """
    from headlights.translation.translator import Translator

    set_threads(threads)
    keep_freed_memory()
    check_output(output, "--output", source, target, pairs)
    text = read_pairs(source, target, pairs, "score")
    translator = Translator.load(model, device=check_device(device))
    scored = tokens = blank = 0
    total = 0.0
    bar = output is not None or not sys.stdout.isatty()
    with progress("pairs", bar=bar) as tell, text_output(output) as file:
        for chunk in chunks(text, CHUNK):
            found = translator.score([pair.source for pair in chunk], [pair.target for pair in chunk])
            file.writelines(f"{s.log_probability:.6f}\t{s.tokens}\n" if s.tokens else "\t\n" for s in found)
            file.flush()
            total += sum(each.log_probability for each in found)
            tokens += sum(each.tokens for each in found)
            blank += sum(not each.tokens for each in found)
            scored += len(found)
            tell("scoring", scored, None)
    if blank:
        note(f"left out {counted(blank, 'pair')} with a blank side")
    if tokens:
        note(
            f"{counted(scored - blank, 'pair')}, {counted(tokens, 'target token')}: perplexity "
            f"{_perplexity(total, tokens):.2f}"
        )


def _perplexity(total: float, tokens: int) -> float:
    import torch

    # Not math.exp, which raises where this is inf.
    return float(torch.tensor(-total / tokens, dtype=torch.float64).exp())
