"""What translations must begin with, and how long they may become."""

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from headlights.translation.corpus import is_blank
from headlights.translation.tokenizer import Encoded, Tokenizer

MOST_RATIO, MOST_EXTRA = 1000, 1_000_000  # nothing is that much longer; a step more is a slip of the hand


class Prefixes:
    """The tokens that each translation of a batch begins with.

    Args:
        prefixes: Tokens for each of the B sentences, perhaps none; None: no sentence has any.
        count: B.
        barred: Tokens that no translation may hold: the end mark and what is never written.
        device: Where the search computes.

    Raises:
        ValueError: There are not as many prefixes as sentences, or one holds a barred token.
    """

    def __init__(
        self,
        prefixes: Sequence[Sequence[int]] | None,
        *,
        count: int,
        barred: Collection[int],
        device: torch.device,
    ) -> None:
        prefixes = [()] * count if prefixes is None else prefixes
        if len(prefixes) != count:
            raise ValueError(f"prefixes must be one per sentence, got {len(prefixes)} for {count} sentences")
        for sentence, prefix in enumerate(prefixes):
            if wrong := sorted(set(prefix) & set(barred)):
                raise ValueError(
                    "prefixes must not hold a token that ends a sentence or is never written, got "
                    f"{wrong[0]} for sentence {sentence}"
                )
        self._lengths = [len(prefix) for prefix in prefixes]
        longest = max(self._lengths, default=0)
        padded = [[*prefix, *[-1] * (longest - len(prefix))] for prefix in prefixes]
        self._tokens = torch.tensor(padded, dtype=torch.long, device=device).view(count, longest)

    def limits(self, lengths: Sequence[int], *, max_ratio: float, max_extra: int) -> list[int]:
        """The most tokens that each translation may have, end mark counted.

        Args:
            lengths: Source tokens of the sentences, end marks counted.
            max_ratio: Target tokens per source token.
            max_extra: Tokens allowed beyond that.

        Returns:
            One limit per sentence: `max_ratio` times its length and `max_extra`, but always a token more than
            its prefix.
        """
        sizes = zip(lengths, self._lengths, strict=True)
        return [max(int(max_ratio * length) + max_extra, prefix + 1) for length, prefix in sizes]

    def wanted(self, step: int, sentences: Sequence[int], rows: int) -> Tensor | None:
        """The token that each row must write.

        Args:
            step: Number of the step, from 0.
            sentences: Those that the rows belong to, in order, each with as many rows as any other.
            rows: How many rows there are.

        Returns:
            Tokens, int64, shape (rows,), -1 behind a prefix; None if all are behind theirs.
        """
        if step >= self._tokens.size(1):
            return None
        return self._tokens[list(sentences), step].repeat_interleave(rows // len(sentences))

    def force(self, log_probabilities: Tensor, step: int, sentences: Sequence[int]) -> Tensor:
        """Leave rows that are still inside their prefix no choice.

        Args:
            log_probabilities: Of the next token, float, shape (rows, V).
            step: Number of the step, from 0.
            sentences: Those that the rows belong to, in order, each with as many rows as any other.

        Returns:
            The same, where a prefix goes on with -inf for every other token than its next: that one keeps the
            probability that the model gives it.
        """
        wanted = self.wanted(step, sentences, len(log_probabilities))
        if wanted is None:
            return log_probabilities
        wanted = wanted.unsqueeze(1)  # (rows, 1)
        place = wanted.clamp(min=0)
        only = torch.full_like(log_probabilities, -torch.inf)
        only = only.scatter(1, place, log_probabilities.gather(1, place))
        return torch.where(wanted < 0, log_probabilities, only)


def encode_prefixes(texts: Sequence[str] | None, count: int, tokenizer: Tokenizer) -> list[Encoded]:
    """Turn the texts that translations must begin with into tokens.

    The tokenizer's pieces never cross words, and a prefix is taken as whole words. White space around it is
    left out: behind it a token of its own would come to stand before that of the next word.

    Args:
        texts: One per line, blank for none; None: no line has any.
        count: How many lines there are.
        tokenizer: Of the target side.

    Returns:
        The tokens of each prefix, and its words; empty for none.

    Raises:
        ValueError: There are not as many prefixes as lines.
    """
    if texts is None:
        return [Encoded((), (), ())] * count
    if len(texts) != count:
        raise ValueError(f"translate needs one prefix per line, got {len(texts)} for {count} lines")
    return tokenizer.encode_batch("" if is_blank(text) else text.strip() for text in texts)


def check_limits(max_ratio: float, max_extra: int) -> None:
    """Refuse limits that would leave no room for a token, or are past all use and arithmetic.

    Args:
        max_ratio: Longest output, in target tokens per source token.
        max_extra: Tokens allowed beyond that.

    Raises:
        ValueError: One is out of its range.
    """
    if not 0 <= max_ratio <= MOST_RATIO:
        raise ValueError(f"max_ratio must be between 0 and {MOST_RATIO}, got {max_ratio}")
    if not 1 <= max_extra <= MOST_EXTRA:
        raise ValueError(f"max_extra must be between 1 and {MOST_EXTRA}, got {max_extra}")
