"""Token ids of many sentences, kept together."""

import hashlib
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Sentences:
    """Token ids of many sentences in one flat tensor, so that a batch is a single gather.

    Args:
        flat: All ids, one sentence after the other, int32 or int64, shape (total,).
        offsets: Where each sentence begins, and at last the total, int64, shape (sentences + 1,).
    """

    def __init__(self, flat: Tensor, offsets: Tensor) -> None:
        self.flat = flat
        self.offsets = offsets
        self.lengths = offsets.diff()

    @classmethod
    def of(cls, sentences: Iterable[Sequence[int]]) -> "Sentences":
        """Gather sentences given one by one.

        Args:
            sentences: Ids of each sentence, without special tokens.

        Returns:
            The sentences in the same order, ids as int32.
        """
        kept = list(sentences)
        lengths = torch.tensor([0, *map(len, kept)], dtype=torch.int64)
        flat = torch.tensor(list(chain.from_iterable(kept)), dtype=torch.int32)
        return cls(flat, lengths.cumsum(0))

    def __len__(self) -> int:
        return len(self.lengths)

    def fingerprint(self) -> str:
        """What tells these sentences from others: the same for the same ids in the same order."""
        found = hashlib.blake2b(self.lengths.numpy().data, digest_size=8)
        for part in self._parts():
            found.update(part.astype(np.int32, copy=False).data)
        return found.hexdigest()

    def _parts(self) -> Iterable[NDArray[Any]]:
        """All ids, in order."""
        return [self.flat.numpy()]

    def taken(self, rows: Tensor) -> "Sentences":
        """Some of the sentences.

        Args:
            rows: Which, int64, shape (B,).

        Returns:
            They alone, in that order.
        """
        lengths = self.lengths[rows]
        return Sentences(self.joined(rows), torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]))

    def joined(self, rows: Tensor) -> Tensor:
        """Some sentences, one after the other.

        Args:
            rows: Which sentences, int64, shape (B,).

        Returns:
            Their ids, shape (total of the B,).
        """
        lengths = self.lengths[rows]
        begins = self.offsets[rows] - lengths.cumsum(0) + lengths  # of each sentence, less its place here
        return self.flat[begins.repeat_interleave(lengths) + torch.arange(int(lengths.sum()))]

    def padded(
        self, rows: Tensor, *, pad_id: int, bos_id: int | None = None, eos_id: int | None = None
    ) -> Tensor:
        """Some sentences, with or without marks, padded at the end.

        Args:
            rows: Which sentences, int64, shape (B,), B at least 1.
            pad_id: Fills what is left of a row.
            bos_id: Put before the first token. Default: nothing is.
            eos_id: Put after the last token. Default: nothing is.

        Returns:
            Ids, int64, shape (B, longest + marks).
        """
        lengths = self.lengths[rows]
        columns = torch.arange(int(lengths.max()))
        before, after = int(bos_id is not None), int(eos_id is not None)
        result = torch.full((len(rows), before + len(columns) + after), pad_id)
        real = columns < lengths[:, None]  # (B, longest)
        result[:, before : before + len(columns)][real] = self.joined(rows).long()
        if bos_id is not None:
            result[:, 0] = bos_id
        if eos_id is not None:
            result[torch.arange(len(rows)), before + lengths] = eos_id
        return result
