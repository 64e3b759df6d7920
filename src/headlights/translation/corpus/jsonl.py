"""JSON Lines: one object a line with the texts "source" and "target", and perhaps "links".

Links are a list of [source word, target word], counted from 0, or a text such as "0-0 1-2"; "alignment" is
another name for them. "possible" holds links that are neither required nor wrong. Other keys are ignored.
"""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from headlights.translation.corpus.lines import CorpusError, line_writer, numbered_lines
from headlights.translation.corpus.pair import Pair
from headlights.translation.words import words

_LINKS_TEXT = re.compile(r"\s*(?:[0-9]{1,9}-[0-9]{1,9}(?:\s+|$))*")


def read_jsonl(path: str | Path) -> Iterator[Pair]:
    """Read pairs from JSON Lines.

    Args:
        path: The file, compressed if its name ends in ".gz".

    Yields:
        A pair for every line; a side may be blank.

    Raises:
        CorpusError: The file cannot be read, or a line is not such an object.
    """
    for number, line in numbered_lines(path):
        origin = f"{path}:{number}"
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise CorpusError(f"{origin}: is not JSON: {error.msg} at column {error.colno}") from None
        except (ValueError, RecursionError):
            raise CorpusError(f"{origin}: is JSON with too long a number or too many brackets") from None
        if not isinstance(record, dict):
            raise CorpusError(f"{origin}: expected an object with source and target, got {_kind(record)}")
        yield _pair(record, origin)


def write_jsonl(pairs: Iterable[Pair], path: str | Path) -> int:
    """Write pairs as JSON Lines, with their links where they have any.

    Args:
        pairs: The pairs.
        path: The file, compressed if its name ends in ".gz".

    Returns:
        How many pairs there were.
    """
    count = 0
    with line_writer(path) as write:
        for pair in pairs:
            write(json.dumps(_record(pair), ensure_ascii=False))
            count += 1
    return count


def _record(pair: Pair) -> dict[str, Any]:
    record: dict[str, Any] = {"source": pair.source, "target": pair.target}
    if pair.links is not None:
        record["links"] = pair.links
    if pair.possible:
        record["possible"] = pair.possible
    return record


def _pair(record: dict[str, Any], origin: str) -> Pair:
    source, target = (_text(record, key, origin) for key in ("source", "target"))
    if "links" in record and "alignment" in record:
        raise CorpusError(f"{origin}: has both links and alignment, two names for the same thing; keep one")
    key = "alignment" if "alignment" in record else "links"
    links, possible = _links(record, key, origin), _links(record, "possible", origin)
    if links or possible:
        sizes = len(words(source)), len(words(target))
        for i, j in (*(links or ()), *(possible or ())):
            if i >= sizes[0] or j >= sizes[1]:
                raise CorpusError(
                    f"{origin}: link {i}-{j} is outside the pair, which has {sizes[0]} source words and "
                    f"{sizes[1]} target words; links count from 0"
                )
    return Pair(source, target, links, possible or (), origin)


def _text(record: dict[str, Any], key: str, origin: str) -> str:
    if key not in record:
        raise CorpusError(f"{origin}: has no {key!r}; its keys are {_kind(list(record))}")
    text = record[key]
    if not isinstance(text, str):
        raise CorpusError(f"{origin}: {key!r} must be text, got {_kind(text)}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise CorpusError(f"{origin}: {key!r} holds the lone surrogate {text[error.start]!a}") from None
    return text


def _links(record: dict[str, Any], key: str, origin: str) -> tuple[tuple[int, int], ...] | None:
    found = record.get(key)
    if found is None:
        return None
    if isinstance(found, str) and _LINKS_TEXT.fullmatch(found):
        found = [[int(number) for number in link.split("-")] for link in found.split()]
    if not isinstance(found, list) or not all(map(_is_link, found)):
        raise CorpusError(f'{origin}: {key!r} must be like [[0, 0], [1, 2]] or "0-0 1-2", got {_kind(found)}')
    return tuple((i, j) for i, j in found)


def _is_link(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(n) is int and n >= 0 for n in value)


def _kind(value: object) -> str:
    """A JSON value in a few words, for messages."""
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
