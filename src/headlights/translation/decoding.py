"""What every decoder offers, recurrent or not: search, forcing and training know no more of it."""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from headlights.translation.encoders import Memory


class State(Protocol):
    """What a decoder carries from step to step; others only take rows from it."""

    def select(self, indices: Tensor, *, same_sentences: bool = False) -> Any:
        """The rows `indices`, int64; with `same_sentences`, each replaced by a row of the same sentence."""


class Decoder(Protocol):
    """What search needs of a decoder."""

    def start(self, memory: Memory) -> Any:
        """The state before the first token."""

    def advance(
        self, token_ids: Tensor, state: Any, *, need_weights: bool = False
    ) -> tuple[Tensor, Any, Tensor | None]:
        """What `project` turns into logits after the tokens (B,); the next state; weights (B, L, H, M)."""

    def project(self, states: Tensor) -> Tensor:
        """Logits, of as many rows as given."""


class StepByStep:
    """What a decoder can do that can `advance` and `project`."""

    def step(
        self: Decoder, token_ids: Tensor, state: Any, *, need_weights: bool = False
    ) -> tuple[Tensor, Any, Tensor | None]:
        """Read one token per row and predict the next.

        Args:
            token_ids: The last tokens written, int64, shape (B,); `bos` first.
            state: From `start` or the step before.
            need_weights: Also return where the decoder looked.

        Returns:
            logits: Float, shape (B, V).
            state: For the next step; the one given is left as it is.
            weights: Float in 0..1, shape (B, L, H, M), or None.
        """
        states, state, weights = self.advance(token_ids, state, need_weights=need_weights)
        return self.project(states), state, weights


@dataclass(frozen=True, slots=True)
class Decoded:
    """What a decoder makes of whole target sentences.

    Attributes:
        states: What `project` turns into logits, float, shape (B, T, E).
        weights: Attention per target step, in 0..1, float, shape (B, T, L, H, M); a row sums to 1 over the
            real source tokens and is 0 at padding. None unless asked for, or without attention.
    """

    states: Tensor
    weights: Tensor | None


def owners(rows: Tensor, beam: int) -> tuple[Tensor, int]:
    """Which sentences some rows are of, so that a state holds each sentence once, and not once a row.

    Args:
        rows: Int64, shape (B',); may repeat.
        beam: Rows of each sentence, side by side, before.

    Returns:
        sentences: To be kept, int64, shape (S',).
        beam: Rows of each of them from now on, B' / S'; 1 where sentences have different numbers of rows.
    """
    sentences = rows // beam
    kept, counts = torch.unique_consecutive(sentences, return_counts=True)
    if len(kept) and (counts == counts[0]).all():
        return kept, int(counts[0])
    return sentences, 1
