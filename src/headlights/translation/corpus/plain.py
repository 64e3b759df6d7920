"""Parallel plain text: two files, where line n of one translates line n of the other."""

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path

from headlights.translation.corpus.lines import CorpusError, line_writer, numbered_lines
from headlights.translation.corpus.pair import Pair


def read_parallel(source_path: str | Path, target_path: str | Path) -> Iterator[Pair]:
    """Read two parallel text files.

    Args:
        source_path: The sentences to translate, one a line; compressed if the name ends in ".gz".
        target_path: Their translations, the same number of lines.

    Yields:
        A pair for every line, blank ones too.

    Raises:
        CorpusError: A file cannot be read, or they differ in their number of lines (found at the end).
    """
    count = 0
    sources, targets = numbered_lines(source_path), numbered_lines(target_path)
    for source, target in zip_longest(sources, targets):
        if source is None or target is None:
            more = count + 1 + sum(1 for _ in (sources if target is None else targets))
            source_count, target_count = (more, count) if target is None else (count, more)
            raise CorpusError(
                f"{source_path} has {source_count} lines but {target_path} has {target_count}; "
                "line n of one must translate line n of the other"
            )
        count, text = source
        yield Pair(text, target[1], origin=f"{source_path}:{count}")


def write_parallel(pairs: Iterable[Pair], source_path: str | Path, target_path: str | Path) -> int:
    """Write two parallel text files. Links are not kept; JSON Lines keep them.

    Args:
        pairs: The pairs.
        source_path: File for the source sides, compressed if its name ends in ".gz".
        target_path: File for the target sides, likewise.

    Returns:
        How many pairs there were.

    Raises:
        ValueError: A side cannot be one line of a text file.
    """
    count = 0
    with line_writer(source_path) as write_source, line_writer(target_path) as write_target:
        for pair in pairs:
            write_source(pair.source)
            write_target(pair.target)
            count += 1
    return count
