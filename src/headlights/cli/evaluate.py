"""`headlights evaluate`: BLEU, chrF and alignment error rate, by sentence length."""

from typing import Annotated

import typer

from headlights._counted import counted
from headlights.cli.allocator import keep_freed_memory
from headlights.cli.common import (
    AlignHead,
    Beam,
    Device,
    Model,
    Pairs,
    Source,
    Target,
    Threads,
    UsageError,
    check_device,
    note,
    paths_of,
    read_head,
    set_threads,
)


def command(
    model: Model,
    source: Source = None,
    target: Target = None,
    pairs: Pairs = None,
    beam: Beam = 5,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Judge without regard to case.")] = False,
    align_head: AlignHead = None,
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Translate a test set and judge the result.

    BLEU, chrF and, where gold links are known, alignment error rate, whole and by sentence length. Without
    files, on the test split of the built-in corpus.
    """
    from headlights.cli.tables import print_evaluation
    from headlights.translation.corpus import NonBlank, grammar, read
    from headlights.translation.evaluation import evaluate
    from headlights.translation.translator import Translator

    set_threads(threads)
    keep_freed_memory()
    paths = paths_of(source, target, pairs)
    if paths:
        filled = NonBlank(read(paths))
        test = list(filled)
        if not test:
            raise UsageError(f"{' and '.join(paths)}: no sentence pairs to evaluate on")
        if filled.dropped:
            note(f"left out {counted(filled.dropped, 'pair')} with a blank side")
    else:
        test = list(grammar.splits().test)
    if align_head and all(pair.links is None for pair in test):
        raise UsageError(f"--align-head {align_head}: changes nothing: no pair has gold links")
    translator = Translator.load(model, device=check_device(device))
    head = read_head(align_head, translator, "--align-head")
    print_evaluation(evaluate(translator, test, beam=beam, lowercase=lowercase, align_head=head))
