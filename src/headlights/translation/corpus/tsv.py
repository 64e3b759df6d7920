"""Tab-separated pairs: source, one tab, target on every line. Quotation marks are ordinary characters."""

from collections.abc import Iterator
from pathlib import Path

from headlights.translation.corpus.lines import CorpusError, numbered_lines
from headlights.translation.corpus.pair import Pair


def read_tsv(path: str | Path) -> Iterator[Pair]:
    """Read tab-separated pairs.

    Args:
        path: The file, compressed if its name ends in ".gz".

    Yields:
        A pair for every line; a side may be blank.

    Raises:
        CorpusError: The file cannot be read, or a line does not have exactly one tab.
    """
    for number, line in numbered_lines(path):
        cells = line.split("\t")
        if len(cells) != 2:
            raise CorpusError(
                f"{path}:{number}: expected exactly one tab, between source and target, got {len(cells) - 1}"
            )
        yield Pair(cells[0], cells[1], origin=f"{path}:{number}")
