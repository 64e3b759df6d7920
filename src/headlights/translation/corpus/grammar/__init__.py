"""The built-in corpus: English-Italian pairs from a synchronous grammar, with gold alignments."""

from headlights.translation.corpus.grammar.sampling import EXAMPLES, Example, Splits, generate, senses, splits

__all__ = ["EXAMPLES", "Example", "Splits", "generate", "senses", "splits"]
