"""Word alignment: from attention between tokens to links between words, and their error rate."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor

from headlights._counted import counted

Links = tuple[tuple[int, int], ...]
Head = tuple[int, int]
"""A layer and a head of it, both counted from 0."""


def check_head(head: Head, layers: int, heads: int) -> None:
    """Refuse a head that a model does not have.

    Args:
        head: Which, as (layer, head).
        layers: Layers that attend to the source.
        heads: Heads of each; 0 for a model without attention.

    Raises:
        TypeError: It is not two whole numbers.
        ValueError: There is no such head; the message says how many there are.
    """
    pair = isinstance(head, tuple | list) and len(head) == 2
    if not pair or not all(hasattr(number, "__index__") for number in head):
        raise TypeError(f"align_head must be (layer, head), both counted from 0, got {head!r}")
    if not layers * heads:
        raise ValueError(f"align_head {head}: the model was trained without attention; leave it out")
    if not (0 <= head[0] < layers and 0 <= head[1] < heads):
        raise ValueError(
            f"align_head {head}: the model has {counted(layers, 'layer')} of {counted(heads, 'head')}, both "
            "counted from 0"
        )


def word_weights(
    weights: Tensor,
    target_words: Sequence[int | None],
    source_words: Sequence[int | None],
    *,
    counts: tuple[int, int] | None = None,
) -> Tensor:
    """Attention between words from attention between tokens.

    A word's share of attention is the sum over its tokens on the source side and the mean over them on the
    target side. Tokens that belong to no word, such as end marks, are left out.

    Args:
        weights: One row per target token, one column per source token, float, shape (N, M).
        target_words: The 0-based word of each target token, N long; None for tokens of no word.
        source_words: The same for source tokens, M long.
        counts: How many target and source words there are: a word may have no token of its own, where one
            token holds most of two words. Default: up to the last word that has a token.

    Returns:
        Shape (target words, source words); rows need not sum to 1, since end marks are left out, and words
        without a token have zeros.

    Raises:
        ValueError: `weights` has not one row per target token and one column per source token.
    """
    if weights.shape != (len(target_words), len(source_words)):
        raise ValueError(
            f"weights must have shape (target tokens, source tokens) = ({len(target_words)}, "
            f"{len(source_words)}), got {tuple(weights.shape)}"
        )
    target_count, source_count = counts or (_words_in(target_words), _words_in(source_words))
    average = _membership(target_words, target_count, weights)
    average = average / average.sum(0).clamp(min=1.0)  # (N, words)
    return average.T @ weights @ _membership(source_words, source_count, weights)


def _words_in(word_of_token: Sequence[int | None]) -> int:
    return max((word for word in word_of_token if word is not None), default=-1) + 1


def _membership(word_of_token: Sequence[int | None], count: int, like: Tensor) -> Tensor:
    """1 where a token (row) belongs to a word (column)."""
    table = like.new_zeros(len(word_of_token), count)
    for token, word in enumerate(word_of_token):
        if word is not None:
            table[token, word] = 1.0
    return table


def strongest_links(weights: Tensor) -> Links:
    """Each target word's strongest source word, as (source word, target word).

    Args:
        weights: Attention between words, shape (target words, source words).

    Returns:
        One link per target word that looks at any source word at all, in the order of target words.
    """
    if 0 in weights.shape:
        return ()
    strongest, source = weights.max(1)
    return tuple(
        (int(word), target) for target, word in enumerate(source.tolist()) if strongest[target] > 0.0
    )


def copy_unknown(
    words: Sequence[str], unknown: Sequence[int], source_words: Sequence[str], weights: Tensor
) -> tuple[str, ...]:
    """Put in the place of unknown words the source words that were looked at most while writing them.

    Source: Luong et al. 2015, arXiv:1410.8206, 3.3, with attention in the place of their pointers; no
    dictionary, only the copy.

    Args:
        words: A translation's words.
        unknown: Which of them are unknown, 0-based.
        source_words: Words of the source sentence as they were typed.
        weights: Attention between the words, end marks and padding left out, shape (target words, source
            words).

    Returns:
        The words; an unknown one stays if it looked at no source word at all.
    """
    found = list(words)
    for target in unknown:
        if source_words and float(weights[target].max()) > 0.0:
            found[target] = source_words[int(weights[target].argmax())]
    return tuple(found)


def pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """Write links in the Pharaoh format.

    Args:
        links: (source word, target word), both counted from 0, in any order.

    Returns:
        The links sorted and separated by spaces, source word first.

    Example:
        >>> pharaoh([(1, 2), (0, 0)])
        '0-0 1-2'
    """
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


@dataclass(frozen=True, slots=True)
class AlignmentCounts:
    """What the alignment error rate is made of; counts of several sentences add up.

    Source: Och and Ney 2003, doi:10.1162/089120103321337421, 4.1. Their A is what a system links, S the sure
    and P the possible gold links, where S is part of P.

    Attributes:
        links: |A|.
        sure: |S|.
        sure_found: |A and S|.
        possible_found: |A and P|.
    """

    links: int = 0
    sure: int = 0
    sure_found: int = 0
    possible_found: int = 0

    def __add__(self, other: "AlignmentCounts") -> "AlignmentCounts":
        """Counts of both together."""
        return AlignmentCounts(
            self.links + other.links,
            self.sure + other.sure,
            self.sure_found + other.sure_found,
            self.possible_found + other.possible_found,
        )

    @property
    def error_rate(self) -> float:
        """1 - (|A and S| + |A and P|) / (|A| + |S|), in 0..1; 0 if nothing was to link and nothing was."""
        total = self.links + self.sure
        return 1.0 - (self.sure_found + self.possible_found) / total if total else 0.0


def count_links(
    links: Iterable[tuple[int, int]],
    sure: Iterable[tuple[int, int]],
    possible: Iterable[tuple[int, int]] = (),
) -> AlignmentCounts:
    """Compare one sentence's links with its gold links.

    Args:
        links: (source word, target word) as a system has them.
        sure: Gold links that must be found.
        possible: Gold links that may be found; sure ones count as possible too.

    Returns:
        Counts to be summed over sentences.
    """
    found, must = set(links), set(sure)
    may = must | set(possible)
    return AlignmentCounts(len(found), len(must), len(found & must), len(found & may))
