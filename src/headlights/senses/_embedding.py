"""Word vectors learned from the company that words keep."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import combinations

import torch
from torch import Tensor

from headlights.senses._text import text
from headlights.senses._words import is_mark, split_words


class WordVectors:
    """A vocabulary and its vectors: an encoder of static vectors, capitals aside.

    Args:
        vectors: A vector for each word, all float, of shape (E,).

    Raises:
        ValueError: There is none.
    """

    def __init__(self, vectors: Mapping[str, Tensor]) -> None:
        if not vectors:
            raise ValueError("vectors: expected at least one word")
        self.words = tuple(vectors)
        self.vectors = torch.stack(list(vectors.values()))  # (V, E)
        self._rows = {word.casefold(): row for row, word in enumerate(self.words)}

    def __contains__(self, word: str) -> bool:
        return word.casefold() in self._rows

    def __call__(self, words: Sequence[str]) -> Tensor:
        """Look words up.

        Args:
            words: n words.

        Returns:
            Float, shape (n, E); zero for a word that is not in the vocabulary.
        """
        rows = torch.tensor([self._rows.get(word.casefold(), -1) for word in words], dtype=torch.long)
        return self.vectors[rows] * (rows >= 0).unsqueeze(-1)


def learn_embedding(
    sentences: Iterable[str | Sequence[str]],
    *,
    dim: int = 40,
    shift: float = 1.4,
    max_words: int = 5000,
) -> WordVectors:
    """Learn word vectors by counting which words share a sentence.

    Two words that stand together more often than chance have positive pointwise mutual information, PMI =
    log P(a, b) / P(a) P(b) (Church & Hanks 1990). What exceeds log `shift` fills a matrix, and the vectors
    are its best factors, U √S of its singular value decomposition, so that the dot product of two words is
    about the PMI that is left (Levy & Goldberg 2014, "Neural Word Embedding as Implicit Matrix
    Factorization", sections 3.2 and 3.3; their k is `shift`). A word such as "the" stands beside every
    word alike, so its vector is short. Nothing is random.

    Args:
        sentences: The text: each a string, or its words. Capitals do not matter, punctuation is left out.
        dim: E, the width of the vectors, at most the number of words. Default: 40.
        shift: How many times more often than chance two words must meet to count, at least 1. Default: 1.4.
        max_words: Only that many words, the most frequent, get a vector; memory grows with its square.
            Default: 5000.

    Returns:
        The vectors, float32.

    Raises:
        ValueError: An option is out of range, or no two words ever share a sentence.
    """
    if not shift >= 1:
        raise ValueError(f"shift: expected a number of at least 1, got {shift}")
    for name, number in (("dim", dim), ("max_words", max_words)):
        if number < 1:
            raise ValueError(f"{name}: expected at least 1, got {number}")
    split = [_plain(sentence) for sentence in sentences]
    frequent = Counter(word for words in split for word in words).most_common(max_words)
    vocabulary = sorted(word for word, _ in frequent)
    counts = _counts(split, vocabulary)
    if not counts.any():
        raise ValueError("sentences: no two words share a sentence; expected sentences of several words")
    joint, alone = counts / counts.sum(), counts.sum(-1) / counts.sum()
    information = (joint / (alone.unsqueeze(-1) * alone * shift)).nan_to_num(0).clamp(min=1).log()  # (V, V)
    values, U = torch.linalg.eigh(information)  # symmetric: its singular values are the magnitudes of these
    S, order = values.abs().sort(descending=True, stable=True)
    vectors = (U[:, order[:dim]] * S[:dim].sqrt()).float()
    return WordVectors(dict(zip(vocabulary, vectors, strict=True)))


@cache
def builtin(seed: int = 0) -> WordVectors:
    """The embedding that comes with headlights, learned when first asked for, in about a second.

    Args:
        seed: Decides what the text says. Default: 0.

    Returns:
        Vectors of some 700 English words.
    """
    return learn_embedding(text(seed=seed))


def _plain(sentence: str | Sequence[str]) -> list[str]:
    words = split_words(sentence) if isinstance(sentence, str) else sentence
    return [word.casefold() for word in words if not is_mark(word)]


def _counts(sentences: Iterable[Sequence[str]], vocabulary: Sequence[str]) -> Tensor:
    """How often two places of a sentence hold words a and b, float64, shape (V, V), symmetric."""
    rows = {word: row for row, word in enumerate(vocabulary)}
    pairs: Counter[tuple[int, int]] = Counter()
    for words in sentences:
        pairs.update(combinations([rows[word] for word in words if word in rows], 2))
    counts = torch.zeros(len(rows), len(rows), dtype=torch.float64)
    for (a, b), number in pairs.items():
        counts[a, b] += number
        counts[b, a] += number
    return counts
