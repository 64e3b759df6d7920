"""Parallel text: readers, one per format, and what they yield."""

from headlights.translation.corpus.pair import Pair

__all__ = ["Pair"]
