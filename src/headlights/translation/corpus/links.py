"""Word alignments as text: a line for each sentence pair, `0-0 1-2` sure and `3p4` possible links."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from headlights.translation.corpus.lines import CorpusError, numbered_lines

_LINK = re.compile(r"(\d+)([-p])(\d+)")


class GoldLinks(NamedTuple):
    """The links of one sentence pair as (source word, target word), counted from 0.

    Attributes:
        sure: Written with a hyphen.
        possible: Written with a p.
    """

    sure: tuple[tuple[int, int], ...]
    possible: tuple[tuple[int, int], ...]


def read_links(path: str | Path, *, first: int = 0) -> Iterator[GoldLinks]:
    """Read word alignments in the Pharaoh format.

    Args:
        path: The file, compressed if its name ends in ".gz".
        first: What the first word is called in it, 0 or 1.

    Yields:
        The links of each line; a blank line has none.

    Raises:
        CorpusError: The file cannot be read, or something in it is no link.
    """
    for number, line in numbered_lines(path):
        kinds: dict[str, list[tuple[int, int]]] = {"-": [], "p": []}
        for text in line.split():
            match = _LINK.fullmatch(text)
            link = (int(match[1]) - first, int(match[3]) - first) if match else (-1, -1)
            if match is None or min(link) < 0:
                raise CorpusError(
                    f"{path}:{number}: expected links such as {first}-{first} or {first}p{first}, "
                    f"source word first, counted from {first}, got {text!r}"
                )
            kinds[match[2]].append(link)
        yield GoldLinks(tuple(kinds["-"]), tuple(kinds["p"]))
