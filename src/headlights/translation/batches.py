"""Batches of sentence pairs: padded tensors, packed by a budget of tokens, in a resumable order."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from headlights.translation.sentences import Sentences
from headlights.translation.subwords import SubwordDropout

_POOL_BATCHES = 50

Token = TypeVar("Token")


def shift(tokens: Sequence[Token], *, bos: Token, eos: Token) -> tuple[list[Token], list[Token]]:
    """What the decoder reads and what it must answer, for teacher forcing.

    Args:
        tokens: A target sentence without special tokens; ids or strings.
        bos: The token that begins a sentence.
        eos: The token that ends one.

    Returns:
        read: `bos`, then the tokens.
        answer: The tokens, then `eos`; `answer[i]` is what follows `read[i]`.

    Example:
        >>> shift("cat sits on the mat".split(), bos="<BOS>", eos="<EOS>")[0]
        ['<BOS>', 'cat', 'sits', 'on', 'the', 'mat']
    """
    return [bos, *tokens], [*tokens, eos]


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """Sentences to translate.

    Attributes:
        source: Ids with the end mark, padded at the end, int64, shape (B, M).
        source_lengths: Tokens of each row, end mark included, int64, shape (B,).
        indices: Place of each row in the data set, int64, shape (B,).
    """

    source: Tensor
    source_lengths: Tensor
    indices: Tensor

    def to(self, device: torch.device | str) -> "SourceBatch":
        """The same batch on another device.

        Args:
            device: Where the tensors should be.

        Returns:
            A new batch; `indices` moves too.
        """
        return SourceBatch(self.source.to(device), self.source_lengths.to(device), self.indices.to(device))


@dataclass(frozen=True, slots=True)
class Batch:
    """Sentence pairs to train on or to score.

    Attributes:
        source: Source ids with the end mark, padded at the end, int64, shape (B, M).
        source_lengths: Tokens of each source row, end mark included, int64, shape (B,).
        target_in: What the decoder reads, begin mark first, padded at the end, int64, shape (B, T).
        target_out: What it must answer, end mark last, padded at the end, int64, shape (B, T).
        target_lengths: Tokens of each target row, one mark included, int64, shape (B,).
        indices: Place of each row in the data set, int64, shape (B,).
    """

    source: Tensor
    source_lengths: Tensor
    target_in: Tensor
    target_out: Tensor
    target_lengths: Tensor
    indices: Tensor

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device.

        Args:
            device: Where the tensors should be.

        Returns:
            A new batch; `indices` moves too.
        """
        return Batch(
            source=self.source.to(device),
            source_lengths=self.source_lengths.to(device),
            target_in=self.target_in.to(device),
            target_out=self.target_out.to(device),
            target_lengths=self.target_lengths.to(device),
            indices=self.indices.to(device),
        )

    def share(self, rank: int, count: int, *, pad_id: int) -> "Batch":
        """The rows that one of several processes trains on.

        Args:
            rank: Number of the process, from 0.
            count: How many processes there are.
            pad_id: Id of padding.

        Returns:
            Every `count`-th row from `rank` on. Where there is none, the first row with a target of padding
            alone, which has no loss.
        """
        kept = range(rank, len(self.indices), count)
        rows = torch.tensor(kept or [0], device=self.source.device)
        answer = self.target_out[rows]
        return Batch(
            source=self.source[rows],
            source_lengths=self.source_lengths[rows],
            target_in=self.target_in[rows],
            target_out=answer if kept else torch.full_like(answer, pad_id),
            target_lengths=self.target_lengths[rows] if kept else self.target_lengths[rows] * 0,
            indices=self.indices[rows],
        )


class TokenBatches:
    """Sentence pairs in batches that hold about the same number of tokens each.

    A batch of B pairs takes `B * longest` tokens of the budget, where `longest` is the longest row of either
    side with its mark. Every epoch shuffles the pairs, sorts pools of some fifty batches by length so that
    little is padding, cuts them into batches, and shuffles the batches. The order is a function of the seed
    and the epoch alone: a run that was killed goes on from its place in `plan(epoch)` as if it had not been.

    Args:
        source: Ids of the source sentences, without special tokens.
        target: Ids of the target sentences, the same number in the same order.
        max_tokens: The budget. A pair that alone exceeds it is a batch of its own.
        pad_id: Id that fills rows up.
        bos_id: Id that begins what the decoder reads.
        eos_id: Id that ends a sentence of either side.
        seed: Chooses the order; 0 or more.
        max_length: Leaves out pairs with a side of more tokens than this, marks not counted. Default: none.
        changes: What happens to the tokens of either side at random, anew in each epoch; a budget counts what
            was before. Default: nothing.

    Attributes:
        dropped: How many pairs `max_length` left out.

    Raises:
        ValueError: The sides differ in number, nothing is left, or a number is out of range.
    """

    def __init__(
        self,
        source: Sentences | Iterable[Sequence[int]],
        target: Sentences | Iterable[Sequence[int]],
        *,
        max_tokens: int,
        pad_id: int,
        bos_id: int,
        eos_id: int,
        seed: int = 0,
        max_length: int | None = None,
        changes: tuple[SubwordDropout, SubwordDropout] | None = None,
    ) -> None:
        self._changes = changes
        self._source = source if isinstance(source, Sentences) else Sentences.of(source)
        self._target = target if isinstance(target, Sentences) else Sentences.of(target)
        if len(self._source) != len(self._target):
            raise ValueError(
                f"source has {len(self._source)} sentences but target has {len(self._target)}; "
                "sentence n of one must translate sentence n of the other"
            )
        if seed < 0:
            raise ValueError(f"seed must be 0 or more, got {seed}")
        _check_budget(max_tokens)
        self._max_tokens, self._seed = max_tokens, seed
        self._pad_id, self._bos_id, self._eos_id = pad_id, bos_id, eos_id
        self._longest = torch.maximum(self._source.lengths, self._target.lengths)
        fits = (
            self._longest <= max_length
            if max_length is not None
            else torch.ones(len(self._source), dtype=torch.bool)
        )
        self._kept = fits.nonzero().squeeze(1)
        self.dropped = len(self._source) - len(self._kept)
        if not len(self._kept):
            raise ValueError(
                f"no sentence pairs left to batch: {len(self._source)} given, max_length={max_length}"
            )

    def __len__(self) -> int:
        """How many pairs an epoch has."""
        return len(self._kept)

    def fingerprint(self) -> str:
        """What tells these pairs from others: the same for the same ids in the same order."""
        return self._source.fingerprint() + self._target.fingerprint()

    def plan(self, epoch: int) -> list[Tensor]:
        """Which pairs each batch of an epoch holds, in the order of the batches.

        Args:
            epoch: Number of the epoch, 0 or more.

        Returns:
            For each batch the places of its pairs in the data set, int64, shape (B,).

        Raises:
            ValueError: `epoch` is negative.
        """
        if epoch < 0:
            raise ValueError(f"epoch must be 0 or more, got {epoch}")
        generator = torch.Generator().manual_seed((self._seed * 1_000_003 + epoch) % 2**63)
        shuffled = self._kept[torch.randperm(len(self._kept), generator=generator)]
        mean = float((self._longest[self._kept] + 1).double().mean())
        pool_size = max(1, int(_POOL_BATCHES * self._max_tokens / mean))
        pools = [shuffled[begin : begin + pool_size] for begin in range(0, len(shuffled), pool_size)]
        cut = [batch for pool in pools for batch in self._cut(self._by_length(pool))]
        return [cut[k] for k in torch.randperm(len(cut), generator=generator).tolist()]

    def batches(self, epoch: int, *, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch.

        Args:
            epoch: Number of the epoch, 0 or more.
            start: How many batches to skip, because an earlier run has had them.

        Yields:
            Batches, on the CPU.

        Raises:
            ValueError: `epoch` is negative, or `start` is not a place in the epoch.
        """
        plan = self.plan(epoch)
        if not 0 <= start <= len(plan):
            raise ValueError(f"start must be between 0 and the {len(plan)} batches of the epoch, got {start}")
        for rows in plan[start:]:
            yield self.batch(rows, epoch=epoch)

    def ordered(self) -> Iterator[Batch]:
        """The same pairs for evaluation: no shuffling, longest first; `indices` restores the order.

        Yields:
            Batches, on the CPU.
        """
        for rows in self._cut(self._by_length(self._kept).flip(0)):
            yield self.batch(rows)

    def batch(self, rows: Tensor, *, epoch: int | None = None) -> Batch:
        """One batch of chosen pairs.

        Args:
            rows: Their places in the data set, int64, shape (B,), B at least 1.
            epoch: Whose random changes the tokens get. Default: none.

        Returns:
            The batch, on the CPU.
        """
        source, target, chosen = self._source, self._target, rows
        if self._changes is not None and epoch is not None:
            seed = (self._seed * 1_000_003 + epoch) * 1_000_003 + int(rows[0])
            generator = torch.Generator().manual_seed(seed % 2**63)
            pairs = zip(self._changes, (source, target), strict=True)
            source, target = (change(side.taken(rows), generator) for change, side in pairs)
            chosen = torch.arange(len(rows))
        return Batch(
            source=source.padded(chosen, pad_id=self._pad_id, eos_id=self._eos_id),
            source_lengths=source.lengths[chosen] + 1,
            target_in=target.padded(chosen, pad_id=self._pad_id, bos_id=self._bos_id),
            target_out=target.padded(chosen, pad_id=self._pad_id, eos_id=self._eos_id),
            target_lengths=target.lengths[chosen] + 1,
            indices=rows,
        )

    def _by_length(self, rows: Tensor) -> Tensor:
        """Shortest first; equal lengths keep their order, which for a shuffled pool is random."""
        source, target = self._source.lengths[rows], self._target.lengths[rows]
        longest = torch.maximum(source, target)
        return rows[(longest * 2 * (longest.max() + 1) + source + target).argsort(stable=True)]

    def _cut(self, rows: Tensor) -> list[Tensor]:
        return _cut(rows, self._longest[rows] + 1, self._max_tokens)


def source_batches(
    source: Sentences | Iterable[Sequence[int]],
    *,
    max_tokens: int,
    pad_id: int,
    eos_id: int,
    workers: int = 1,
) -> Iterator[SourceBatch]:
    """Batches of sentences to translate: longest first; `indices` restores the order.

    Args:
        source: Ids of the sentences, without special tokens. None at all gives no batches.
        max_tokens: Budget of a batch, as rows times longest row. A longer sentence is a batch of its own.
        pad_id: Id that fills rows up.
        eos_id: Id that ends a sentence.
        workers: How many take batches, one at a time. Of several, the last batches are smaller, down to a
            quarter, so that none works long after the others are done.

    Yields:
        Batches, on the CPU.

    Raises:
        ValueError: `max_tokens` is below 1.
    """
    _check_budget(max_tokens)
    sentences = source if isinstance(source, Sentences) else Sentences.of(source)
    order = sentences.lengths.argsort(descending=True, stable=True)
    for rows in _cut(order, sentences.lengths[order] + 1, max_tokens, workers):
        padded = sentences.padded(rows, pad_id=pad_id, eos_id=eos_id)
        yield SourceBatch(source=padded, source_lengths=sentences.lengths[rows] + 1, indices=rows)


def _cut(rows: Tensor, longest: Tensor, max_tokens: int, workers: int = 1) -> list[Tensor]:
    """Cut rows, in their order, into as few batches as the budget allows; for `workers`, small at the end."""
    sizes: list[int] = []
    size = width = 0
    left = int(longest.sum())
    budget = max_tokens
    for length in longest.tolist():
        width = max(width, length)
        if size and width * (size + 1) > budget:
            sizes.append(size)
            size, width = 0, length
        if not size and workers > 1:  # half of an even share of what is left
            budget = min(max_tokens, max(max_tokens // 4, left // (2 * workers)))
        size += 1
        left -= length
    return list(rows.split_with_sizes([*sizes, size])) if size else []


def _check_budget(max_tokens: int) -> None:
    if max_tokens < 1:
        raise ValueError(f"max_tokens must be 1 or more, got {max_tokens}")
