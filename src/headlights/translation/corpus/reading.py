"""One way in: pairs from files of any known format, and without the blank ones."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Literal

from headlights.translation.corpus.jsonl import read_jsonl
from headlights.translation.corpus.lines import CorpusError
from headlights.translation.corpus.pair import Pair
from headlights.translation.corpus.plain import read_parallel
from headlights.translation.corpus.tsv import read_tsv

Format = Literal["parallel", "tsv", "jsonl"]

_TABLES = {"tsv": read_tsv, "jsonl": read_jsonl}
_BLANK = re.compile(r"[\s\u200b\u2060\ufeff]*")


def read(paths: Sequence[str | Path], *, format: Format | None = None) -> Iterator[Pair]:
    """Read pairs from files: two parallel text files, or any number of tables, one after the other.

    Args:
        paths: The files. Each may be compressed, with a name ending in ".gz".
        format: "parallel" (source file, then target file), "tsv" or "jsonl". Default: by the names, ".tsv" or
            ".jsonl"; two files with other names are parallel.

    Returns:
        The pairs in order, read as they are asked for; a reading error is raised there.

    Raises:
        CorpusError: No file, an unknown format, or one that needs another number of files.
        TypeError: `paths` is a single path.
    """
    if isinstance(paths, str | Path):
        raise TypeError(f"paths must be a list of files, got one path; give [{str(paths)!r}]")
    if not paths:
        raise CorpusError("paths must name at least one file, got none")
    chosen = format or _format_of(paths)
    if chosen in _TABLES:
        return chain.from_iterable(map(_TABLES[chosen], paths))
    if chosen != "parallel":
        raise CorpusError(f"format must be 'parallel', 'tsv' or 'jsonl', got {format!r}")
    if len(paths) != 2:
        raise CorpusError(f"parallel text is two files, source and target, got {len(paths)}")
    return read_parallel(*paths)


def is_blank(text: str) -> bool:
    """Whether a text holds nothing to translate: only white space (no-break spaces too) or zero-width spaces.

    Args:
        text: Any text.

    Returns:
        True for a blank one.
    """
    return _BLANK.fullmatch(text) is not None


def has_blank_side(source: str, target: str) -> bool:
    """Whether nothing can be learned from a pair, nor scored: its source or its target is blank.

    Args:
        source: Any text.
        target: Its translation.

    Returns:
        True if `is_blank` says so of either.
    """
    return is_blank(source) or is_blank(target)


class NonBlank:
    """Pairs without those that have a blank side, counted on the way.

    Args:
        pairs: The pairs, from a reader.

    Attributes:
        dropped: How many pairs have been left out so far.
    """

    def __init__(self, pairs: Iterable[Pair]) -> None:
        self._pairs = pairs
        self.dropped = 0

    def __iter__(self) -> Iterator[Pair]:
        for pair in self._pairs:
            if has_blank_side(pair.source, pair.target):
                self.dropped += 1
            else:
                yield pair


def _format_of(paths: Sequence[str | Path]) -> Format:
    names = [str(path).lower().removesuffix(".gz") for path in paths]
    if all(name.endswith(".tsv") for name in names):
        return "tsv"
    if all(name.endswith(".jsonl") for name in names):
        return "jsonl"
    if len(paths) == 2 and not any(name.endswith((".tsv", ".jsonl")) for name in names):
        return "parallel"
    raise CorpusError(
        f"cannot tell the format of {', '.join(map(str, paths))}: give two text files, or files named .tsv "
        "or .jsonl, or in Python say format="
    )
