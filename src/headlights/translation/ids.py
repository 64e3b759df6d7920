"""Token ids of many sentences as two plain arrays, to hand from process to process and to write."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Ids:
    """Token ids of some sentences.

    Attributes:
        flat: All ids, one sentence after the other, int32, shape (total,).
        lengths: Tokens of each sentence, int32, shape (sentences,).
    """

    flat: NDArray[np.int32]
    lengths: NDArray[np.int32]

    @classmethod
    def of(cls, sentences: Iterable[tuple[int, ...]]) -> Self:
        """Gather sentences given one by one."""
        kept = list(sentences)
        flat = np.fromiter(chain.from_iterable(kept), dtype=np.int32)
        return cls(flat, np.fromiter(map(len, kept), dtype=np.int32, count=len(kept)))

    def keep(self, chosen: NDArray[np.bool_]) -> "Ids":
        """Only some of the sentences; `chosen` has shape (sentences,)."""
        return Ids(self.flat[chosen.repeat(self.lengths)], self.lengths[chosen])
