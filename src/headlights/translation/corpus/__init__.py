"""Parallel text: readers, one per format, that all yield `Pair`."""

from headlights.translation.corpus.jsonl import read_jsonl, write_jsonl
from headlights.translation.corpus.lines import CorpusError, numbered_lines, read_lines
from headlights.translation.corpus.links import GoldLinks, read_links
from headlights.translation.corpus.pair import Pair
from headlights.translation.corpus.plain import read_parallel, write_parallel
from headlights.translation.corpus.reading import NonBlank, is_blank, read
from headlights.translation.corpus.tsv import read_tsv

__all__ = [
    "CorpusError",
    "GoldLinks",
    "NonBlank",
    "Pair",
    "is_blank",
    "numbered_lines",
    "read",
    "read_jsonl",
    "read_lines",
    "read_links",
    "read_parallel",
    "read_tsv",
    "write_jsonl",
    "write_parallel",
]
