"""The translation model: an encoder, a decoder, and the loss that trains both."""

from typing import Literal, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from headlights.attention import scores
from headlights.translation.batches import Batch
from headlights.translation.decoders import Decoded, Mix, QueryOrder, RecurrentDecoder
from headlights.translation.encoders import Cell, Memory, RecurrentEncoder

ScoreName = Literal["additive", "bilinear", "dot", "scaled-dot", "none"]


class ModelConfig(BaseModel):
    """The shape of a model, as it stands in a recipe and in a model folder's `config.json`.

    Attributes:
        cell: Recurrent cell of encoder and decoder.
        layers: Recurrent layers on either side.
        embed_dim: Width of source and target embeddings.
        hidden_dim: Width of the decoder's state.
        encoder_dim: Width of the encoder per direction.
        score: How the decoder's state is compared with encoder states; "none" is a model without attention.
        score_dim: Width of the additive score; other scores have no width of their own.
        mix: How the context enters the decoder: beside the input ("concat") or added to the state ("add").
        query: Which decoder state asks: the "previous" one (Bahdanau) or the "current" one (Luong).
        dropout: Probability of dropping a component of embeddings, states and outputs, in [0, 1).

    Raises:
        ValueError: A value is out of range, or `score` cannot compare vectors of these widths.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    cell: Cell = "gru"
    layers: int = Field(1, ge=1, le=16)
    embed_dim: int = Field(256, ge=1)
    hidden_dim: int = Field(256, ge=1)
    encoder_dim: int = Field(256, ge=1)
    score: ScoreName = "additive"
    score_dim: int = Field(256, ge=1)
    mix: Mix = "concat"
    query: QueryOrder = "previous"
    dropout: float = Field(0.2, ge=0.0, lt=1.0)

    @model_validator(mode="after")
    def _comparable(self) -> "ModelConfig":
        memory_dim = 2 * self.encoder_dim
        if self.score in ("dot", "scaled-dot") and memory_dim != self.hidden_dim:
            raise ValueError(
                f"score {self.score!r} compares vectors of one width, but hidden_dim is {self.hidden_dim} "
                f"and encoder states are {memory_dim} wide (two directions of encoder_dim = "
                f"{self.encoder_dim}); set hidden_dim to {memory_dim} or choose score 'bilinear'"
            )
        return self

    def make_score(self) -> scores.Score | None:
        """Make the score that this configuration names, with fresh parameters.

        Returns:
            A score between a decoder state and an encoder state; None for a model without attention.
        """
        memory_dim = 2 * self.encoder_dim
        match self.score:
            case "additive":
                return scores.Additive(self.hidden_dim, memory_dim, self.score_dim)
            case "bilinear":
                return scores.Bilinear(self.hidden_dim, memory_dim)
            case "dot":
                return scores.Dot()
            case "scaled-dot":
                return scores.ScaledDot()
            case "none":
                return None


class Loss(NamedTuple):
    """Summed over the target tokens of a batch, so that batches add up.

    Attributes:
        smoothed: What is minimised: cross-entropy with label smoothing, in nats, with gradient, shape ().
        cross_entropy: Without smoothing, in nats, detached, shape ().
        tokens: Target tokens, end marks included.
    """

    smoothed: Tensor
    cross_entropy: Tensor
    tokens: int


class TranslationModel(nn.Module):
    """Encoder and decoder; source and target embeddings are separate (S21).

    Args:
        config: The shape.
        source_vocab: Number of source tokens.
        target_vocab: Number of target tokens.
        pad_id: Padding's id on both sides.
    """

    def __init__(self, config: ModelConfig, source_vocab: int, target_vocab: int, *, pad_id: int = 0) -> None:
        super().__init__()
        self.config, self.pad_id = config, pad_id
        self.encoder = RecurrentEncoder(
            source_vocab,
            config.embed_dim,
            config.encoder_dim,
            cell=config.cell,
            layers=config.layers,
            dropout=config.dropout,
            pad_id=pad_id,
        )
        self.decoder = RecurrentDecoder(
            target_vocab,
            config.embed_dim,
            config.hidden_dim,
            self.encoder.output_dim,
            score=config.make_score(),
            cell=config.cell,
            layers=config.layers,
            mix=config.mix,
            query=config.query,
            dropout=config.dropout,
            pad_id=pad_id,
        )

    def forward(self, batch: Batch, *, need_weights: bool = False) -> Decoded:
        """Encode the sources of a batch and read its targets, each token forced (S16).

        Args:
            batch: B sentence pairs with T target tokens, padding counted.
            need_weights: Also return where the decoder looked.

        Returns:
            One state per target token, for `decoder.project`.
        """
        memory: Memory = self.encoder(batch.source, batch.source_lengths)
        decoded: Decoded = self.decoder(batch.target_in, memory, need_weights=need_weights)
        return decoded

    def loss(
        self, batch: Batch, *, label_smoothing: float = 0.0, coverage: float = 0.0, chunk: int = 1024
    ) -> Loss:
        """Cross-entropy of the target, real tokens only (S16).

        Args:
            batch: Sentence pairs.
            label_smoothing: Share of the target probability that is spread over the vocabulary, in [0, 1).
            coverage: Weight of a penalty on each source token, the square of 1 minus all the attention it
                gets: no word is left out, none is looked at for all others (Xu et al. 2015, arXiv:1502.03044,
                4.2.1; their λ).
            chunk: Tokens projected at a time; without gradient, no more logits than theirs exist at once.

        Returns:
            The loss, summed over tokens.
        """
        decoded = self(batch, need_weights=coverage > 0)
        real = batch.target_out != self.pad_id  # (B, T)
        states, targets = decoded.states[real], batch.target_out[real]  # (tokens, E), (tokens,)
        smoothed = states.new_zeros(())
        cross_entropy = states.new_zeros(())
        for start in range(0, len(targets), chunk):
            part, target = states[start : start + chunk], targets[start : start + chunk]
            log_probabilities = self.decoder.project(part).log_softmax(-1)
            exact = F.nll_loss(log_probabilities, target, reduction="sum")
            cross_entropy += exact.detach()
            if label_smoothing:
                even = -log_probabilities.mean(-1).sum()
                exact = (1 - label_smoothing) * exact + label_smoothing * even
            smoothed = smoothed + exact
        if coverage and decoded.weights is not None:
            smoothed = smoothed + coverage * _uncovered(decoded.weights, real, batch.source_lengths)
        return Loss(smoothed, cross_entropy, targets.numel())


def _uncovered(weights: Tensor, real: Tensor, source_lengths: Tensor) -> Tensor:
    """Σ (1 - attention received)² over the source tokens of a batch, for weights (B, T, L, H, M)."""
    received = (weights.mean((2, 3)) * real.unsqueeze(-1)).sum(1)  # (B, M)
    tokens = torch.arange(received.size(1), device=received.device) < source_lengths.unsqueeze(1)
    return ((1.0 - received).square() * tokens).sum()
