"""The translation model: an encoder, a decoder, and the loss that trains both."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from headlights.translation.architectures import RecurrentConfig, Tie, TransformerConfig
from headlights.translation.batches import Batch
from headlights.translation.decoders import RecurrentDecoder
from headlights.translation.decoding import Decoded
from headlights.translation.encoders import Memory, RecurrentEncoder
from headlights.translation.losses import smoothed_cross_entropy
from headlights.translation.transformer import TransformerDecoder, TransformerEncoder


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
    """Encoder and decoder; source and target embeddings are separate unless `config.tie` says not (S21).

    Args:
        config: The architecture and its sizes.
        source_vocab: Number of source tokens.
        target_vocab: Number of target tokens.
        pad_id: Padding's id on both sides.

    Raises:
        ValueError: One table is to serve both sides, but they have different numbers of tokens.
    """

    encoder: RecurrentEncoder | TransformerEncoder
    decoder: RecurrentDecoder | TransformerDecoder

    def __init__(
        self,
        config: RecurrentConfig | TransformerConfig,
        source_vocab: int,
        target_vocab: int,
        *,
        pad_id: int = 0,
    ) -> None:
        super().__init__()
        self.config, self.pad_id = config, pad_id
        self.encoder, self.decoder = config.make(source_vocab, target_vocab, pad_id=pad_id)
        self._tie(config.tie)

    @property
    def attention_shape(self) -> tuple[int, int]:
        """Layers of the attention to the source, and heads of each; (0, 0) without attention."""
        return self.config.attention_shape

    def _tie(self, tie: Tie) -> None:
        """Make tables one; drawn with variance 1/E, for logits of a size to begin with.

        Source: Press and Wolf 2017, arXiv:1608.05859.
        """
        if tie == "none":
            return
        table = self.decoder.embedding
        nn.init.normal_(table.weight, std=table.embedding_dim**-0.5)
        with torch.no_grad():
            table.weight[self.pad_id] = 0.0
        self.decoder.output.weight = table.weight
        if tie == "all":
            sizes = self.encoder.embedding.num_embeddings, table.num_embeddings
            if sizes[0] != sizes[1]:
                raise ValueError(
                    f"tie 'all' needs one vocabulary for both sides, got {sizes[0]} source and {sizes[1]} "
                    "target tokens; set tokenizer.joint = true"
                )
            self.encoder.embedding = table

    def forward(self, batch: Batch, *, need_weights: bool = False, forcing: Tensor | None = None) -> Decoded:
        """Encode the sources of a batch and read its targets, each token forced (S16) or only some (S17).

        Args:
            batch: B sentence pairs with T target tokens, padding counted.
            need_weights: Also return where the decoder looked.
            forcing: Bool, shape (B, T); where False, the decoder reads what it writes itself. Default: all
                are read as given.

        Returns:
            One state per target token, for `decoder.project`.
        """
        memory: Memory = self.encoder(batch.source, batch.source_lengths)
        decoded: Decoded = self.decoder(batch.target_in, memory, forcing, need_weights=need_weights)
        return decoded

    def loss(
        self,
        batch: Batch,
        *,
        label_smoothing: float = 0.0,
        coverage: float = 0.0,
        forcing: Tensor | None = None,
        chunk: int = 256,
    ) -> Loss:
        """Cross-entropy of the target, real tokens only (S16).

        Args:
            batch: Sentence pairs.
            label_smoothing: Share of the target probability that is spread over the vocabulary, in [0, 1).
            coverage: Weight of a penalty on each source token, the square of 1 minus all the attention it
                gets: no word is left out, none is looked at for all others (Xu et al. 2015, arXiv:1502.03044,
                4.2.1; their λ).
            forcing: As in `forward`.
            chunk: Tokens projected at a time: no more logits than theirs exist at once.

        Returns:
            The loss, summed over tokens.
        """
        decoded = self(batch, need_weights=coverage > 0, forcing=forcing)
        real = batch.target_out != self.pad_id  # (B, T)
        states, targets = decoded.states[real], batch.target_out[real]  # (tokens, E), (tokens,)
        output = self.decoder.output
        smoothed, cross_entropy = smoothed_cross_entropy(
            states, output.weight, output.bias, targets, smoothing=label_smoothing, chunk=chunk
        )
        if coverage and decoded.weights is not None:
            smoothed = smoothed + coverage * _uncovered(decoded.weights, real, batch.source_lengths)
        return Loss(smoothed, cross_entropy, targets.numel())


def _uncovered(weights: Tensor, real: Tensor, source_lengths: Tensor) -> Tensor:
    """Σ (1 - attention received)² over the source tokens of a batch, for weights (B, T, L, H, M)."""
    received = (weights.mean((2, 3)) * real.unsqueeze(-1)).sum(1)  # (B, M)
    tokens = torch.arange(received.size(1), device=received.device) < source_lengths.unsqueeze(1)
    return ((1.0 - received).square() * tokens).sum()
