"""`headlights compare`: what attention adds, rung by rung, on your own text or the built-in corpus."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headlights.cli.allocator import keep_freed_memory, keep_prepared_products
from headlights.cli.common import (
    Beam,
    Device,
    Pairs,
    Source,
    Target,
    Threads,
    UsageError,
    changed_by_options,
    check_device,
    check_output,
    note,
    paths_of,
    set_threads,
)

if TYPE_CHECKING:
    from headlights.translation.corpus import Pair
    from headlights.translation.evaluation import Evaluation


_PICTURES = (".png", ".svg", ".pdf")


_OPTIONS = {
    "training.max_minutes": "--minutes",
    "data.train": "--source and --target, or --pairs",
    "data.valid": "--valid-source and --valid-target, or --valid-pairs",
    "tokenizer.lowercase": "--lowercase",
}
"""Options by the keys of a recipe that they set."""


def command(
    source: Source = None,
    target: Target = None,
    pairs: Pairs = None,
    valid_source: Annotated[Path | None, typer.Option(help="Source text to validate with.")] = None,
    valid_target: Annotated[Path | None, typer.Option(help="Its translation.")] = None,
    valid_pairs: Annotated[Path | None, typer.Option(help="Both in one file.")] = None,
    test_source: Annotated[Path | None, typer.Option(help="Source text to judge on.")] = None,
    test_target: Annotated[Path | None, typer.Option(help="Its translation.")] = None,
    test_pairs: Annotated[Path | None, typer.Option(help="Both in one file.")] = None,
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("headlights-compare"),
    recipe: Annotated[str, typer.Option(help="A recurrent recipe's name or a TOML file.")] = "compare",
    minutes: Annotated[float, typer.Option(min=0.01, help="Training time of each rung.")] = 10.0,
    rungs: Annotated[
        str | None, typer.Option(help="Some of them, separated by commas. Default: all five.")
    ] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Lower-case all text.")] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any key of the recipe, e.g. model.layers=2."),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw BLEU by source length: .png, .svg or .pdf.")] = None,
    beam: Beam = 5,
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Train five models for the same time, from no attention to nothing but attention, and compare them.

    no attention; context in every cell; u + u'; additive; transformer. Prints BLEU by length of the source.
    Without files, on the built-in corpus. Stopped, the same command goes on.
    """
    from headlights.translation.comparing import RUNGS, compare
    from headlights.translation.corpus import grammar
    from headlights.translation.recipe import load_recipe

    set_threads(threads)
    keep_freed_memory()
    keep_prepared_products()
    _check_plot(plot)
    train = paths_of(source, target, pairs)
    valid = paths_of(valid_source, valid_target, valid_pairs, "--valid-")
    judged = paths_of(test_source, test_target, test_pairs, "--test-")
    overrides = {
        "training.max_minutes": minutes,
        "data.train": train or None,
        "data.valid": valid or None,
        "tokenizer.lowercase": True if lowercase else None,
    }
    given = {key: value for key, value in overrides.items() if value is not None}
    chosen = changed_by_options(load_recipe(recipe), given, set_ or [], _OPTIONS)
    if bool(chosen.data.train or chosen.data.prepared) != bool(judged):
        raise UsageError(
            "compare needs text to train on and text to judge on: give --source and --target, and "
            "--test-source and --test-target"
        )
    test = _test_pairs(judged) if judged else list(grammar.splits().test)
    results: dict[str, Evaluation] = {}
    for name, evaluation in compare(
        chosen,
        test,
        out,
        rungs=RUNGS if rungs is None else [name.strip() for name in rungs.split(",")],
        device=check_device(device),
        beam=beam,
        lowercase=lowercase,
    ):
        results[name] = evaluation
        note(f"{name}: BLEU {evaluation.whole.bleu:.2f}")
    _print(results)
    if plot is not None:
        _plot(results, plot)
        print(f"picture: {plot}")


def _check_plot(path: Path | None) -> None:
    if path is None:
        return
    check_output(path, "--plot")
    if path.suffix not in _PICTURES:
        raise UsageError(f"--plot {path}: expected a name that ends in .png, .svg or .pdf")
    if find_spec("matplotlib") is None:
        raise UsageError("--plot draws with matplotlib: pip install 'headlights[view]'")


def _test_pairs(paths: tuple[str, ...]) -> list["Pair"]:
    from headlights.translation.corpus import NonBlank, read

    test = list(NonBlank(read(paths)))
    if not test:
        raise UsageError(f"{' and '.join(paths)}: no sentence pairs to judge on")
    return test


def _print(results: Mapping[str, "Evaluation"]) -> None:
    """A row for each length, a column for each rung."""
    from headlights.cli.tables import percent, print_table, span

    evaluations = list(results.values())
    rows = [("source words", "sentences", *results)]
    rows += [
        (span(part), str(part.sentences), *(f"{each.buckets[row].bleu:.1f}" for each in evaluations))
        for row, part in enumerate(evaluations[0].buckets)
    ]
    whole = evaluations[0].whole
    rows.append(("all", str(whole.sentences), *(f"{each.whole.bleu:.2f}" for each in evaluations)))
    rows.append(("chrF", "", *(f"{each.whole.chrf:.2f}" for each in evaluations)))
    if any(each.whole.alignment_error_rate is not None for each in evaluations):
        rates = (percent(each.whole.alignment_error_rate) for each in evaluations)
        rows.append(("alignment errors", "", *rates))
    print_table(rows)
    print(f"BLEU  {evaluations[0].bleu_signature}")


def _plot(results: Mapping[str, "Evaluation"], path: Path) -> None:
    from headlights import view
    from headlights.translation.folders import replace_file

    curves = {
        name: [((part.shortest + part.longest) / 2, part.bleu) for part in each.buckets]
        for name, each in results.items()
    }
    with replace_file(path) as file:
        view.curves(curves, x="source length, words", y="BLEU").savefig(file.buffer, format=path.suffix[1:])
