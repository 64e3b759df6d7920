"""`headlights train`: a translator from parallel text."""

from pathlib import Path
from typing import Annotated, Any

import typer

from headlights.cli.allocator import keep_freed_memory, keep_prepared_products
from headlights.cli.common import (
    Device,
    Pairs,
    Source,
    Target,
    Threads,
    UsageError,
    changed_by_options,
    check_device,
    paths_of,
    set_threads,
)

_OPTIONS = {
    "data.train": "--source and --target, or --pairs",
    "data.valid": "--valid-source and --valid-target, or --valid-pairs",
    "data.prepared": "--prepared",
    "training.max_minutes": "--minutes",
    "training.max_epochs": "--epochs",
    "training.max_updates": "--updates",
    "training.seed": "--seed",
    "training.tensorboard": "--tensorboard",
    "training.start": "--from",
    "tokenizer.lowercase": "--lowercase",
}
"""Options by the keys of a recipe that they set."""


def command(
    source: Source = None,
    target: Target = None,
    pairs: Pairs = None,
    valid_source: Annotated[Path | None, typer.Option(help="Source text to validate with.")] = None,
    valid_target: Annotated[Path | None, typer.Option(help="Its translation.")] = None,
    valid_pairs: Annotated[
        Path | None, typer.Option(help="Both in one file. Default: some pairs are held out.")
    ] = None,
    prepared: Annotated[
        Path | None, typer.Option(help="A folder of `headlights prepare`, in the place of all these.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The run folder to write.")] = Path("headlights-run"),
    recipe: Annotated[
        str | None,
        typer.Option(
            help="A recipe's name or a TOML file. Default: rnn-small; with --from, the model's own."
        ),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option("--from", metavar="MODEL", help="Start from a model or run folder, on other data."),
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Train at most that long.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the data at most.")] = None,
    updates: Annotated[int | None, typer.Option(min=1, help="Updates at most.")] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Lower-case all text.")] = False,
    seed: Annotated[int | None, typer.Option(min=0, help="Of everything random.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any key of the recipe, e.g. model.layers=2."),
    ] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write curves for TensorBoard into the run folder.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in --out; limits count the whole run.")
    ] = False,
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Train a translator on your sentence pairs.

    Without any, on the built-in English-Italian corpus. For example:
    headlights train --source train.de --target train.en --out run
    """
    from headlights.translation.prepared import load_prepared
    from headlights.translation.processes import is_main
    from headlights.translation.recipe import load_recipe
    from headlights.translation.runs import RunFolder
    from headlights.translation.starting import recipe_of
    from headlights.translation.training import train

    set_threads(threads)
    keep_freed_memory()
    keep_prepared_products()
    if prepared is not None and (source or target or pairs or valid_source or valid_target or valid_pairs):
        raise UsageError(f"--prepared {prepared} brings its own pairs; leave out the files of others")
    overrides: dict[str, Any] = {
        "data.train": paths_of(source, target, pairs) or None,
        "data.valid": paths_of(valid_source, valid_target, valid_pairs, "--valid-") or None,
        "data.prepared": "".join(paths_of(None, None, prepared)) or None,
        "training.max_minutes": minutes,
        "training.max_epochs": epochs,
        "training.max_updates": updates,
        "training.seed": seed,
        "training.tensorboard": True if tensorboard else None,
        "training.start": None if start is None else str(start.absolute()),
        "tokenizer.lowercase": True if lowercase else None,
    }
    given = {key: value for key, value in overrides.items() if value is not None}
    if resume:
        _check_resume(recipe, start)
        base = RunFolder(out).recipe()
    elif start is not None and recipe is None:
        base = recipe_of(start.absolute())
        if "data.train" in given or "data.prepared" in given:  # in the place of all the model was trained on
            given = {"data.train": (), "data.valid": (), "data.prepared": ""} | given
    else:
        base = load_recipe(recipe or "rnn-small")
    if prepared is not None and not (resume or start or base.training.start):  # those have their tokenizers
        tokenizer = load_prepared(prepared).report["tokenizer"]
        given = {f"tokenizer.{key}": value for key, value in tokenizer.items()} | given
    chosen = changed_by_options(base, given, set_ or [], _OPTIONS)
    translator = train(chosen, out=out, resume=resume, device=check_device(device))
    if not is_main():
        return
    report = translator.training
    print(
        f"best model: {out / 'best'} (update {report['update']}, validation BLEU {report['validation_bleu']})"
    )


def _check_resume(recipe: str | None, start: Path | None) -> None:
    """Refuse what a run that goes on has of its own."""
    if recipe is not None:
        raise UsageError(
            f"--recipe {recipe} cannot go with --resume: the run has a recipe of its own; change limits and "
            "rates with --set"
        )
    if start is not None:
        raise UsageError(
            f"--from {start} cannot go with --resume: the run has begun already; train into a new folder to "
            "start from another model"
        )
