"""Subword regularisation: while training, tokens fall apart at random into what they were merged from."""

from collections.abc import Sequence

import torch

from headlights.translation.sentences import Sentences


class SubwordDropout:
    """Undoes merges of byte-pair encoding at random, so that a model sees words in more than one spelling.

    Each token is cut, with probability `p`, into the two tokens whose merge made it, and each of these has
    the same chance again. A relative of BPE-dropout (Provilkov et al. 2020, arXiv:1910.13267), which leaves
    merges out on the way up; this one undoes them on the way down, which needs ids alone and no text.

    Args:
        parts: For each of V ids the two ids that were merged into it, or (-1, -1).
        p: Probability of cutting a token, in [0, 1).

    Raises:
        ValueError: `p` is out of range.
    """

    def __init__(self, parts: Sequence[tuple[int, int]], p: float) -> None:
        if not 0.0 <= p < 1.0:
            raise ValueError(f"p must be in [0, 1), got {p}")
        self._parts = torch.tensor(parts)  # (V, 2)
        self._p = p

    def __call__(self, sentences: Sentences, generator: torch.Generator) -> Sentences:
        """Cut tokens of some sentences.

        Args:
            sentences: What to cut.
            generator: Where the random numbers are from, on the CPU.

        Returns:
            The same sentences in the same order, with as many tokens or more.
        """
        ids = sentences.flat.long()
        owner = torch.arange(len(sentences)).repeat_interleave(sentences.lengths)
        fresh = torch.ones(len(ids), dtype=torch.bool)
        while fresh.any():
            drawn = torch.rand(len(ids), generator=generator) < self._p
            cut = fresh & drawn & (self._parts[ids, 0] >= 0)
            counts = cut + 1
            parts = self._parts[ids[cut]]  # (cut tokens, 2)
            first = (counts.cumsum(0) - counts)[cut]
            ids, owner, fresh = (each.repeat_interleave(counts) for each in (ids, owner, cut))
            ids[first], ids[first + 1] = parts.unbind(1)
        lengths = torch.bincount(owner, minlength=len(sentences))
        return Sentences(ids, torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]))
