"""Where a recurrent decoder looks: its attention over the memory, made ready once per sentence."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from headlights.attention import Mask, PreparedKey, Score, attend, masks, observations, scores
from headlights.translation.encoders import Memory
from headlights.translation.unrolled import Repeated


@dataclass(frozen=True, slots=True)
class Sources:
    """The memory made ready for attention, once per sentence (S32).

    Attributes:
        prepared: Keys as the score wants them, shape (B, M, K).
        values: What is averaged, float, shape (B, M, E_v).
        lengths: Real source tokens, int64, shape (B,).
        mask: Shows each sentence its real tokens.
        average: Averages the values with weights (B, N, M); None: the attention does it.
    """

    prepared: PreparedKey
    values: Tensor
    lengths: Tensor
    mask: Mask
    average: Repeated | None = None

    def for_many_steps(self) -> "Sources":
        """The same for queries that come step by step, with one product for the gradient of the values."""
        return replace(self, average=Repeated(self.values))

    def select(self, indices: Tensor) -> "Sources":
        """Take some of the sentences.

        Args:
            indices: Which, int64, shape (B',); may repeat.

        Returns:
            Keys, values and mask of those sentences.
        """
        lengths = self.lengths[indices]
        return Sources(self.prepared.select(indices), self.values[indices], lengths, masks.lengths(lengths))


class Focus(nn.Module):
    """The attention of a recurrent decoder: a score, and values as wide as the decoder needs them.

    Args:
        score: Any score over (query of the decoder's width, key of the memory's width), or a callable
            `(query, key) -> scores`.
        memory_dim: Width of the encoder states.
        value_dim: Width of the context; encoder states of another width are projected (u + u' needs equal
            widths, and a bidirectional encoder has twice the decoder's). Default: as wide as the states.

    Attributes:
        output_dim: Width of the context, E_v.

    Raises:
        TypeError: `score` is neither a score nor a callable.
    """

    def __init__(
        self,
        score: Score | Callable[[Tensor, Tensor], Tensor],
        memory_dim: int,
        value_dim: int | None = None,
    ) -> None:
        super().__init__()
        self.score = scores.as_score(score)
        self.output_dim = value_dim or memory_dim
        self.value_proj = (
            nn.Identity()
            if self.output_dim == memory_dim
            else nn.Linear(memory_dim, self.output_dim, bias=False)
        )

    def prepare(self, memory: Memory) -> Sources:
        """Project keys and values of a memory, once for all steps.

        Args:
            memory: States of shape (B, M, E) and their lengths.

        Returns:
            What `forward` attends to.
        """
        mask = masks.lengths(memory.lengths)
        positions = torch.arange(memory.states.size(1), device=memory.lengths.device)
        visible = positions < memory.lengths[:, None]  # (B, M)
        prepared = self.score.prepare_key(memory.states, visible=visible)
        return Sources(prepared, self.value_proj(memory.states), memory.lengths, mask)

    def forward(self, query: Tensor, sources: Sources, *, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        """Attend to the source.

        Args:
            query: Decoder states, float, shape (B, N, E).
            sources: From `prepare`.
            need_weights: Also return where the queries look.

        Returns:
            context: Float, shape (B, N, E_v).
            weights: Float in 0..1, with gradient, shape (B, N, M), or None.
        """
        average, values = sources.average, sources.values
        if average is None and not need_weights:
            context: Tensor = attend(query, sources.prepared, values, score=self.score, mask=sources.mask)
            return context, None
        values = values if average is None else values[..., :0]  # values without columns cost nothing
        observe = observations.Weights(differentiable=True)
        context, weights = attend(
            query, sources.prepared, values, score=self.score, mask=sources.mask, observe=observe
        )
        return context if average is None else average(weights), weights if need_weights else None
