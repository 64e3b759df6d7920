"""`headlights senses`: what an ambiguous word means in its sentence, and which words decide it."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headlights.cli.common import UsageError, check_output, check_text, note

if TYPE_CHECKING:
    from headlights.senses import ContextEncoder, Encoder, Evaluation, Reading, WordScore

_LISTED = 4  # words that decided


def command(
    word: Annotated[str | None, typer.Argument(help="The ambiguous word.")] = None,
    sentences: Annotated[list[str] | None, typer.Argument(help="Sentences that hold it.")] = None,
    encoder: Annotated[
        str,
        typer.Option(metavar="NAME|FOLDER", help="builtin, minilm, or a folder with a Hugging Face model."),
    ] = "builtin",
    sense: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=WORD,WORD",
            help="A sense and what shows it, words or phrases; once for each sense. "
            "Default: the senses that come with headlights.",
        ),
    ] = None,
    evaluate: Annotated[
        bool, typer.Option("--evaluate", help="Measure the encoder on the built-in sentences instead.")
    ] = False,
    html: Annotated[Path | None, typer.Option(help="Write a page to open in a browser, offline.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    color: Annotated[bool | None, typer.Option("--color/--no-color", help="Default: on a terminal.")] = None,
) -> None:
    """Say what an ambiguous word means in each sentence, and which words decide it."""
    check_output(html, "--html")
    if color is not None and (as_json or evaluate):
        option, beside = "--color" if color else "--no-color", "--json" if as_json else "--evaluate"
        raise UsageError(f"{option}: changes nothing beside {beside}; leave it out")
    if evaluate:
        if word is not None or sense or html is not None:
            raise UsageError(
                "--evaluate has sentences and senses of its own: give no word, --sense or --html"
            )
        _evaluate(encoder, as_json)
        return
    if word is None or not sentences:
        raise UsageError("senses needs a word and a sentence: headlights senses table 'The table has data.'")
    for name, texts in (("WORD", [word]), ("SENTENCES", sentences), ("--sense", sense or [])):
        for text in texts:
            check_text(text, name)
    senses = _senses(word, sense or [])
    from headlights.senses import disambiguate

    readings = disambiguate(word, sentences, _encoder(encoder), senses=senses)
    if as_json:
        print(json.dumps([_as_json(*each) for each in zip(readings, sentences, strict=True)], indent=2))
    else:
        for number, (reading, sentence) in enumerate(zip(readings, sentences, strict=True)):
            print("\n" * (number > 0), end="")
            _print(reading, sentence, color)
    if html is not None:
        _write_page(html, readings, sentences)
        note(f"page: {html}") if as_json else print(f"\npage: {html}")


def _encoder(name: str) -> "Encoder | ContextEncoder":
    from headlights import senses

    if name == "builtin":
        return senses.builtin()
    return senses.minilm() if name == "minilm" else senses.HuggingFace(name)


def _senses(word: str, given: Sequence[str]) -> dict[str, list[str]]:
    """Each sense with what shows it."""
    from headlights.senses import known_senses, known_words

    if not given:
        if word.casefold() not in known_words():
            known = ", ".join(known_words())
            raise UsageError(
                f"no senses of {word!r} come with headlights (those of {known} do): give each as "
                "--sense name=word,word"
            )
        return known_senses(word)
    senses: dict[str, list[str]] = {}
    for each in given:
        name, _, rest = (part.strip() for part in each.partition("="))
        items = [item.strip() for item in rest.split(",") if item.strip()]
        if not name or not items:
            raise UsageError(f"--sense {each}: expected name=word,word")
        if name in senses:
            raise UsageError(f"--sense {each}: there is a sense {name!r} already; give each one name")
        senses[name] = items
    if len(senses) < 2:
        raise UsageError(
            f"--sense {given[0]}: expected two senses or more to choose from; give --sense again"
        )
    return senses


def _print(reading: "Reading", sentence: str, color: bool | None) -> None:
    from headlights.cli.tables import print_table

    print(sentence.strip())
    decided = ", ".join(f"{word} {weight:.2f}" for word, weight in reading.decided_by[:_LISTED])
    print(f"{reading.word}: {reading.sense}" + (f"  (by {decided})" if decided else ""))
    print()
    print(reading.text(color=color))
    print()
    rows = [("cosine to", "static", "in context")]
    rows += [(name, f"{reading.before[name]:.2f}", f"{after:.2f}") for name, after in reading.after.items()]
    print_table(rows)


def _as_json(reading: "Reading", sentence: str) -> dict[str, Any]:
    return {
        "sentence": sentence,
        "word": reading.word,
        "position": reading.position,
        "sense": reading.sense,
        "nearest": reading.nearest,
        "before": dict(reading.before),
        "after": dict(reading.after),
        "words": reading.words,
        "weights": reading.weights.tolist(),
        "decided_by": reading.decided_by,
    }


def _write_page(path: Path, readings: Sequence["Reading"], sentences: Sequence[str]) -> None:
    from headlights import view
    from headlights.translation.folders import replace_file

    maps = [
        view.AttentionMap(
            reading.words, [reading.title], weights=reading.weights.unsqueeze(0), title=sentence.strip()
        )
        for reading, sentence in zip(readings, sentences, strict=True)
    ]
    with replace_file(path) as file:
        file.write(view.page(maps).text)


def _evaluate(encoder: str, as_json: bool) -> None:
    from headlights.cli.tables import print_table
    from headlights.senses import evaluate

    found = evaluate(_encoder(encoder))
    if as_json:
        print(json.dumps(_evaluation_as_json(found), indent=2))
        return
    rows = [_row(score) for score in (*found.by_word, found.whole)]
    print_table([("word", "sentences", "sense", "nearest", "static"), *rows])
    if found.skipped:
        print(f"not known to it: {', '.join(found.skipped)}")


def _row(score: "WordScore") -> tuple[str, ...]:
    from headlights.cli.tables import percent

    shares = (score.right, score.right_nearest, score.right_static)
    return score.word, str(score.sentences), *(percent(score.share(right)) for right in shares)


def _evaluation_as_json(found: "Evaluation") -> dict[str, Any]:
    return {
        "whole": asdict(found.whole),
        "by_word": [asdict(score) for score in found.by_word],
        "skipped": found.skipped,
    }
