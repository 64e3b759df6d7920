"""`headlights demo`: what attention does for a translator, in figures and pictures."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headlights.cli.allocator import keep_freed_memory
from headlights.cli.common import Device, Threads, UsageError, check_device, set_threads
from headlights.cli.sources import word_map

if TYPE_CHECKING:
    from headlights.translation.evaluation import Evaluation
    from headlights.translation.recipe import Recipe
    from headlights.translation.translations import Translation
    from headlights.translation.translator import Translator


def command(
    out: Annotated[
        Path, typer.Option(help="Folder for the two runs and the page; the demo's own old one is replaced.")
    ] = Path("headlights-demo"),
    seconds: Annotated[float, typer.Option(min=5.0, help="Training time of each of the two models.")] = 57.0,
    seed: Annotated[int, typer.Option(min=0, help="Of everything random.")] = 1,
    device: Device = None,
    threads: Threads = None,
) -> None:
    """See in two minutes of training what attention does.

    Trains the same small translator with and without attention, compares them, and draws where it looks.
    """
    from headlights import view
    from headlights.cli.tables import percent
    from headlights.translation.corpus import grammar
    from headlights.translation.evaluation import evaluate
    from headlights.translation.recipe import load_recipe

    set_threads(threads)
    keep_freed_memory()
    check_device(device)
    _clear(out)
    recipe = load_recipe("demo").changed({"training.max_minutes": seconds / 60.0, "training.seed": seed})
    test = grammar.splits().test
    results = {}
    translators: dict[str, Translator] = {}
    without = recipe.changed({"model.score": "none", "training.coverage": 0.0})
    for name, chosen in (("with attention", recipe), ("without attention", without)):
        print(f"\nTraining {name}, {seconds:.0f} s, on the built-in English-Italian corpus …", flush=True)
        folder = out / name.replace(" ", "-")
        translators[name] = _train(chosen, folder, device)
        results[name] = evaluate(translators[name], test)
    print(f"\nOn {len(test)} test sentences whose combinations of words were never trained on:\n")
    _compare(*results.values())
    whole = results["with attention"].whole
    print(
        f"\nAlignment error rate with attention: {percent(whole.alignment_error_rate)} "
        "(gold links were never trained on)"
    )
    found = translators["with attention"].translate([example.pair.source for example in grammar.EXAMPLES])
    _show_examples(found)
    maps = [word_map(each, " ".join(each.source_words)) for each in found]
    page = view.page(maps, title="Where the translator looks")
    print(f"\nPictures: {page.save(out / 'attention.html').resolve()}")
    program = "headlights" if shutil.which("headlights") else sys.argv[0]  # not on the path after `make demo`
    print(f'Your turn: echo "The cats sit on the table." | {program} translate {out / "with-attention"}')


def _train(recipe: "Recipe", out: Path, device: str | None) -> "Translator":
    from headlights.translation.training import Interrupted, train

    try:
        return train(recipe, out=out, device=device)
    except Interrupted as stopped:
        stopped.again = "headlights demo, from the start"
        raise


def _clear(out: Path) -> None:
    """Remove an earlier demo, and nothing else."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out}: is a file; expected a folder")
    from headlights.translation.locks import locked

    found = list(out.iterdir()) if out.is_dir() else []
    if {entry.name for entry in found} - {"with-attention", "without-attention", "attention.html"}:
        raise UsageError(f"--out {out}: holds other things than an earlier demo; choose a new folder")
    for entry in found:
        if entry.is_dir() and not entry.is_symlink():
            with locked(entry):  # unless a demo is training there
                shutil.rmtree(entry)
        else:
            entry.unlink()


def _compare(attending: "Evaluation", plain: "Evaluation") -> None:
    from headlights.cli.tables import percent, print_table, span

    rows = [("source words", "sentences", "BLEU with attention", "BLEU without", "alignment errors")]
    named = [("all", attending.whole, plain.whole)]
    named += [
        (span(ours), ours, theirs) for ours, theirs in zip(attending.buckets, plain.buckets, strict=True)
    ]
    for name, ours, theirs in named:
        rate = percent(ours.alignment_error_rate)
        rows.append((name, str(ours.sentences), f"{ours.bleu:.1f}", f"{theirs.bleu:.1f}", rate))
    print_table(rows)


def _show_examples(found: Sequence["Translation"]) -> None:
    from headlights import view
    from headlights.translation.corpus import grammar

    print("\nOne word, two translations: the rest of the sentence decides.")
    for example, translation in zip(grammar.EXAMPLES, found, strict=True):
        word = example.pair.source.split()[example.ambiguous]
        right = example.sense in translation.words
        verdict = f"{word} is {example.sense} ✓" if right else f"{word} should be {example.sense} ✗"
        print(f"\n{example.pair.source}  →  {translation.text}   ({verdict})\n")
        if translation.weights is not None:
            print(view.terminal(translation.weights, translation.source_words, translation.words))
