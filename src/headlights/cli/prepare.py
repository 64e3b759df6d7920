"""`headlights prepare`: a corpus of any size filtered and turned into token ids, once for many trainings."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headlights.cli.common import (
    Pairs,
    Source,
    Target,
    UsageError,
    changed_by_options,
    option_of,
    paths_of,
)
from headlights.cli.progress import progress

if TYPE_CHECKING:
    from headlights.translation.preparing import PrepareReport


def command(
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    source: Source = None,
    target: Target = None,
    pairs: Pairs = None,
    valid_source: Annotated[Path | None, typer.Option(help="Source text to validate with.")] = None,
    valid_target: Annotated[Path | None, typer.Option(help="Its translation.")] = None,
    valid_pairs: Annotated[
        Path | None, typer.Option(help="Both in one file. Default: some pairs are held out.")
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(help="Whose tokenizer to learn: a recipe's name or a TOML file. Default: rnn-small."),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option("--from", metavar="MODEL", help="Take the tokenizer of a model, for `train --from`."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A key of the recipe, e.g. tokenizer.joint=true."),
    ] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Lower-case all text.")] = False,
    min_length: Annotated[int, typer.Option(min=1, help="Fewest tokens of a side.")] = 1,
    max_length: Annotated[int, typer.Option(min=1, help="Most tokens of a side.")] = 100,
    max_ratio: Annotated[float, typer.Option(help="How many times longer one side may be, in tokens.")] = 9.0,
    duplicates: Annotated[bool, typer.Option("--duplicates", help="Keep pairs that came before.")] = False,
    tokenizer_pairs: Annotated[
        int | None,
        typer.Option(min=1, help="Pairs at most to learn the tokenizer from. Default: a million."),
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes. Default: one a core.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of what is held out and learned from.")] = 1,
) -> None:
    """Filter a large corpus and turn it into token ids, once for many trainings.

    Memory does not grow with the corpus but for eight bytes a pair, and training reads from the disk. For
    example: headlights prepare --source train.de.gz --target train.en.gz --out prepared
    headlights train --prepared prepared --out run
    """
    from headlights.translation.corpus.filters import SizeFilter
    from headlights.translation.folders import ModelFolder
    from headlights.translation.preparing import TOKENIZER_PAIRS, PrepareConfig, prepare
    from headlights.translation.recipe import load_recipe
    from headlights.translation.starting import fitted, recipe_of, tokenizer_config

    train = paths_of(source, target, pairs)
    paths_of(None, None, out)  # recipes name the folder, too, and pyarrow takes no other name
    if not train:
        raise UsageError("prepare needs sentence pairs: give --source and --target, or --pairs")
    _check_keys(set_ or [])
    given, options = (
        {"tokenizer.lowercase": True} if lowercase else {},
        {"tokenizer.lowercase": "--lowercase"},
    )
    tokenizers = None
    if start is None:
        chosen = changed_by_options(load_recipe(recipe or "rnn-small"), given, set_ or [], options)
    elif recipe is not None or tokenizer_pairs is not None:
        other = "--recipe" if recipe is not None else "--tokenizer-pairs"
        raise UsageError(f"--from cannot go with {other}: the model has its tokenizer; leave {other} out")
    else:
        model = ModelFolder.load(start)
        tokenizers = model.source_tokenizer, model.target_tokenizer
        changed = changed_by_options(recipe_of(start), given, set_ or [], options)
        chosen = fitted(changed, model.model.config, tokenizer_config(*tokenizers), start)
    try:
        sizes = SizeFilter(min_length, max_length, max_ratio)
    except ValueError as error:  # begins with the names of the values
        names, _, rest = str(error).partition(":")
        raise UsageError(f"{' and '.join(map(option_of, names.split(', ')))}:{rest}") from None
    config = PrepareConfig(
        tokenizer=chosen.tokenizer,
        sizes=sizes,
        duplicates=duplicates,
        held_out=chosen.data.held_out,
        tokenizer_pairs=tokenizer_pairs or TOKENIZER_PAIRS,
        seed=seed,
        workers=workers or os.cpu_count() or 1,
    )
    valid = paths_of(valid_source, valid_target, valid_pairs, "--valid-")
    with progress("pairs") as tell:
        report = prepare(train, out, valid=valid, config=config, tokenizers=tokenizers, on_progress=tell)
    _print(report)
    print(f"prepared: {out}")


def _check_keys(assignments: Sequence[str]) -> None:
    """Refuse keys that preparing does not read."""
    for key in (each.partition("=")[0].strip() for each in assignments):
        if not (key.startswith("tokenizer.") or key == "data.held_out"):
            raise UsageError(
                f"--set {key}: changes nothing here, prepare reads tokenizer.* and data.held_out; lengths "
                "and the seed have options of their own"
            )


def _print(report: "PrepareReport") -> None:
    from headlights.cli.tables import print_table

    losses = sorted(report.dropped.counts.items(), key=lambda item: -item[1])
    rows = [("read", report.read)]
    rows += [(f"left out: {REASONS[reason]}", count) for reason, count in losses]
    rows += [("to train on", report.kept), ("to validate with", report.valid)]
    print_table([("", "pairs"), *((name, f"{count:,}") for name, count in rows)])
    for reason, _ in losses:
        print(f"{REASONS[reason]}, for example: {', '.join(report.dropped.examples[reason])}")
    print(
        f"{report.source_tokens:,} source and {report.target_tokens:,} target tokens, "
        f"{report.seconds:.0f} s, {report.read / max(report.seconds, 0.1):,.0f} pairs/s"
    )


REASONS = {
    "blank": "a side is blank",
    "duplicate": "came before",
    "short": "a side is too short",
    "long": "a side is too long",
    "ratio": "sides too unequal",
}
