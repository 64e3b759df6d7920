"""What `translation.py` measured, as tables: the pure part, of the standard library alone."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

WITHIN = 1.0
"""BLEU. How far apart two models may be and still be compared by the speed of their decoding."""
OURS, PEER = "headlights", "JoeyNMT"
TITLES = {"rnn": "recurrent", "transformer": "Transformer"}
TRAINING_GOALS = {"rnn": 3.0, "transformer": 2.5}
DECODING_GOALS = {"rnn": 4.0, "transformer": 10.0}
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
PAGE = "translation-benchmarks.md"

Found = Mapping[str, Any]
Row = tuple[str, ...]


def choose(snapshots: Sequence[Found], wanted: float) -> tuple[Found, str]:
    """Pick the model whose decoding is compared.

    Args:
        snapshots: Each with its "update" and its "bleu" on the test set, None where it was not tested.
        wanted: BLEU of the other side.

    Returns:
        snapshot: The first within `WITHIN` of it; else the first above; else the best.
        note: How far it is off where it is not within, else "".

    Raises:
        ValueError: None was tested.
    """
    tested = sorted((each for each in snapshots if each["bleu"] is not None), key=lambda each: each["update"])
    if not tested:
        raise ValueError("no model was tested yet; train ours longer")
    near = [each for each in tested if abs(each["bleu"] - wanted) <= WITHIN]
    above = [each for each in tested if each["bleu"] > wanted]
    chosen = (near or above or [max(tested, key=lambda each: each["bleu"])])[0]
    return chosen, "" if near else f"{chosen['bleu'] - wanted:+.1f} BLEU from {PEER}"


def rates(rounds: Sequence[Found], of: str) -> list[float]:
    """Tokens or sentences per second of each round.

    Args:
        rounds: Each with its "seconds" and how much was done in them.
        of: The name of how much.
    """
    return [each[of] / each["seconds"] for each in rounds]


def spread(values: Sequence[float], digits: int = 0) -> str:
    """Median, least and most."""
    median, low, high = (f"{f(values):,.{digits}f}" for f in (statistics.median, min, max))
    return f"{median} ({low} to {high})" if len(values) > 1 else median


def lengths(texts: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Words of translations: mean, most, and all together against those of the references."""
    counts, wanted = ([len(text.split()) for text in side] for side in (texts, references))
    return {"mean": statistics.mean(counts), "most": max(counts), "ratio": sum(counts) / sum(wanted)}


def speed_rows(model: str, found: Found) -> list[Row]:
    """Training speed and memory of one architecture.

    Args:
        model: "rnn" or "transformer".
        found: For each contestant its "rounds" and "peak_mib"; `PEER` is one of them.
    """
    work = f"training, {TITLES[model]}"
    return [
        *_rows(f"{work}, target tokens/s", found, TRAINING_GOALS[model], of="tokens"),
        *_rows(f"{work}, sentence pairs/s", found, None, of="pairs"),
        *_memory(f"{work}, peak memory", found),
    ]


def decode_rows(model: str, found: Found) -> list[Row]:
    """Decoding speed and memory of one architecture.

    Args:
        model: "rnn" or "transformer".
        found: For each contestant its "rounds" and "peak_mib"; `PEER` is one of them.
    """
    count = found[PEER]["rounds"][0]["sentences"]
    work = f"{count:,} test lines, beam 5, {TITLES[model]}"
    return [
        *_rows(f"{work}, sentences/s", found, DECODING_GOALS[model], of="sentences", digits=1),
        *_memory(f"{work}, peak memory", found),
    ]


def _rows(work: str, found: Found, goal: float | None, *, of: str, digits: int = 0) -> list[Row]:
    theirs = rates(found[PEER]["rounds"], of)
    rows: list[Row] = []
    for name in _ours(found):
        own = rates(found[name]["rounds"], of)
        ratio = statistics.median(own) / statistics.median(theirs)
        verdict = ("", "")
        if name == OURS and goal is not None:
            verdict = (f"≥ {goal:g}×", "yes" if ratio >= goal else "no")
        shown = (spread(own, digits), spread(theirs, digits), f"{ratio:.2f}×")
        rows.append((_named(work, name), *shown, *verdict))
    return rows


def _memory(work: str, found: Found) -> list[Row]:
    theirs, rows = found[PEER]["peak_mib"], list[Row]()
    for name in _ours(found):
        own = found[name]["peak_mib"]
        verdict = ("≤ 1×", "yes" if own <= theirs else "no") if name == OURS else ("", "")
        rows.append(
            (_named(work, name), f"{own:,.0f} MiB", f"{theirs:,.0f} MiB", f"{own / theirs:.2f}×", *verdict)
        )
    return rows


def _ours(found: Found) -> list[str]:
    return [name for name in found if name != PEER]


def _named(work: str, name: str) -> str:
    """The work, and what is not as usual about this contestant of ours."""
    _, _, what = name.partition(", ")
    return f"{work} ({what})" if what else work


def model_rows(model: str, found: Found) -> list[Row]:
    """The models that decoded: how they were trained, how good they are, how much they write.

    Args:
        model: "rnn" or "transformer".
        found: For each contestant its "trained", "bleu", "words" and "parameters".
    """
    rows: list[Row] = []
    for name in (*_ours(found), PEER):
        each = found[name]
        trained, words = each["trained"], each["words"]
        rows.append(
            (
                f"{TITLES[model]}, {name}",
                f"{each['parameters']:,}",
                f"{trained['seconds'] / 60:.1f} min, {trained['updates']:,} updates",
                f"{each['bleu']:.2f}",
                f"{words['mean']:.1f}",
                f"{words['most']}",
                f"{words['ratio']:.2f}",
            )
        )
    return rows


def table(head: Row, rows: Sequence[Row]) -> str:
    """A Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def tables(results: Mapping[str, Found]) -> str:
    """Everything that was measured, as Markdown.

    Args:
        results: By "about" a sentence, and by model its "speed" and "decode", as far as they were measured.
    """
    work_head = ("work", OURS, PEER, "ratio", "to reach", "reached")
    model_head = ("model", "parameters", "trained", "BLEU", "words a line", "most", "of the references'")
    work: list[Row] = []
    models: list[Row] = []
    notes: list[str] = []
    for model, found in ((name, results[name]) for name in TITLES if name in results):
        if "speed" in found:
            work += speed_rows(model, found["speed"])
        if "decode" in found:
            work += decode_rows(model, found["decode"])
            models += model_rows(model, found["decode"])
            if note := found["decode"][OURS]["note"]:
                notes.append(f"The {TITLES[model]} models are not of one quality: ours is {note}.")
    parts = [str(results["about"]), table(work_head, work)]
    if models:
        parts += ["The models that decoded:", table(model_head, models), *notes]
    return "\n\n".join(parts)


def write_page(folder: Path, text: str) -> Path:
    """Put text between the markers of the page.

    Args:
        folder: The docs folder.
        text: Markdown.

    Returns:
        The page.

    Raises:
        ValueError: The page is missing or has not both markers.
    """
    page = folder / PAGE
    content = page.read_text(encoding="utf-8") if page.is_file() else ""
    before, begin, rest = content.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"--docs {folder}: expected {PAGE} in it, with the lines {BEGIN} and {END}")
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")
    return page
