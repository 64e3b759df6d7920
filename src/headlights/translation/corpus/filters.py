"""Which pairs of a corpus are worth training on, and a count of those that are not."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from headlights.translation.corpus.pair import Pair

Reason = Literal["blank", "duplicate", "short", "long", "ratio"]
EXAMPLES = 3


@dataclass(slots=True)
class Dropped:
    """Pairs that were left out, counted by reason.

    Attributes:
        counts: How many for each reason.
        examples: Where the first few of each came from, "file:line".
    """

    counts: dict[Reason, int] = field(default_factory=dict)
    examples: dict[Reason, list[str]] = field(default_factory=dict)

    def add(self, reason: Reason, origin: str) -> None:
        """Count one pair.

        Args:
            reason: Why it is left out.
            origin: Where it came from.
        """
        self.counts[reason] = self.counts.get(reason, 0) + 1
        kept = self.examples.setdefault(reason, [])
        if len(kept) < EXAMPLES:
            kept.append(origin)


@dataclass(frozen=True, slots=True)
class SizeFilter:
    """Leaves out pairs that are too short, too long, or too unequal to be translations of each other.

    Attributes:
        min_length: Fewest tokens of either side.
        max_length: Most tokens of either side.
        max_ratio: How many times longer one side may be than the other, in tokens.
    """

    min_length: int = 1
    max_length: int = 100
    max_ratio: float = 9.0

    def __post_init__(self) -> None:
        if not 1 <= self.min_length <= self.max_length:
            raise ValueError(
                f"min_length, max_length: expected 1 <= min_length <= max_length, got {self.min_length} "
                f"and {self.max_length}"
            )
        if not self.max_ratio >= 1:
            raise ValueError(f"max_ratio: expected 1 or more, got {self.max_ratio}")

    def reasons(self, source: NDArray[np.int32], target: NDArray[np.int32]) -> list[Reason | None]:
        """Judge pairs by their lengths.

        Args:
            source: Tokens of each source side, shape (pairs,).
            target: Tokens of each target side, shape (pairs,).

        Returns:
            For each pair why it is left out, or None.
        """
        shorter, longer = np.minimum(source, target), np.maximum(source, target)
        unequal = longer > self.max_ratio * shorter
        checks: Sequence[tuple[NDArray[np.bool_], Reason]] = (
            (unequal, "ratio"),
            (longer > self.max_length, "long"),
            (shorter < self.min_length, "short"),
        )
        found: list[Reason | None] = [None] * len(source)
        for wrong, reason in checks:  # the last one that holds counts
            for place in wrong.nonzero()[0].tolist():
                found[place] = reason
        return found


class Seen:
    """Remembers the pairs that it was asked about, in 8 bytes each.

    It keeps a 64-bit hash of each pair in sorted arrays, of which two of like size are merged into one. Any
    two different ones of five million pairs are taken for the same with a chance below one in a million.
    """

    def __init__(self) -> None:
        self._runs: list[NDArray[np.uint64]] = []

    def are_new(self, pairs: Sequence[Pair]) -> NDArray[np.bool_]:
        """Tell which pairs were not seen before, neither in an earlier call nor earlier in this one.

        Args:
            pairs: The next pairs of the corpus.

        Returns:
            Shape (pairs,).
        """
        digests = b"".join(_digest(pair) for pair in pairs)
        hashes = np.frombuffer(digests, dtype=np.uint64)
        sorted_hashes, first = np.unique(hashes, return_index=True)
        known = np.zeros(len(sorted_hashes), dtype=bool)
        for run in self._runs:
            places = np.minimum(run.searchsorted(sorted_hashes), len(run) - 1)
            known |= run[places] == sorted_hashes
        new = np.zeros(len(pairs), dtype=bool)
        new[first[~known]] = True
        self._add(sorted_hashes[~known])
        return new

    def _add(self, run: NDArray[np.uint64]) -> None:
        if not len(run):
            return
        while self._runs and len(self._runs[-1]) <= 2 * len(run):
            run = np.concatenate((self._runs.pop(), run))
            run.sort(kind="stable")  # merges two sorted parts in linear time
        self._runs.append(run)


def _digest(pair: Pair) -> bytes:
    source = pair.source.encode("utf-8", "surrogatepass")
    length = len(source).to_bytes(8, "little")  # keeps ("ab", "c") apart from ("a", "bc")
    return blake2b(length + source + pair.target.encode("utf-8", "surrogatepass"), digest_size=8).digest()
