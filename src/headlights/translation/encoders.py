"""Encoders read a source sentence once and leave a `Memory` that a decoder attends to."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from headlights.translation.dropout import Dropout, WordDropout

Cell = Literal["gru", "lstm"]
RECURRENT: dict[str, type[nn.GRU] | type[nn.LSTM]] = {"gru": nn.GRU, "lstm": nn.LSTM}


def check_choice(name: str, choice: str, known: Iterable[str]) -> None:
    """Refuse a choice that is not offered.

    Args:
        name: The argument.
        choice: What came.
        known: What is offered.

    Raises:
        ValueError: `choice` is not among `known`.
    """
    if choice not in known:
        raise ValueError(f"{name} must be {' or '.join(map(repr, known))}, got {choice!r}")


def check_lengths(lengths: Tensor) -> Tensor:
    """Refuse sentences without a token.

    Args:
        lengths: Real tokens per sentence, int64, shape (B,).

    Returns:
        The lengths on the CPU.

    Raises:
        ValueError: One is below 1.
    """
    sizes = lengths.cpu()
    if (sizes < 1).any():
        raise ValueError(
            f"lengths must be at least 1, got {sizes.tolist()}; a sentence has at least its end mark"
        )
    return sizes


@dataclass(frozen=True, slots=True)
class Memory:
    """What an encoder leaves of a batch of source sentences.

    Attributes:
        states: One state per source token, float, shape (B, M, E), or with its embedding beside it, shape
            (B, M, E + E_embed); zeros at padding.
        lengths: Real tokens per sentence, int64, shape (B,).
        final: The top layer's last hidden state, float, shape (B, E): after the last token, and beside it,
            from a bidirectional encoder, the backward one after the first token. From a Transformer, the
            state of the last token.
    """

    states: Tensor
    lengths: Tensor
    final: Tensor


def init_recurrent(module: nn.GRU | nn.LSTM) -> None:
    """Start recurrent layers so that signals neither fade nor grow over many steps.

    Hidden-to-hidden matrices begin orthogonal, gate by gate, inputs with equal variance in and out, biases at
    0. Source: Saxe et al. 2014, arXiv:1312.6120; Glorot and Bengio 2010.

    Args:
        module: Its parameters are drawn anew.
    """
    for name, parameter in module.named_parameters():
        gates = parameter.chunk(4 if isinstance(module, nn.LSTM) else 3)
        for gate in gates:
            if name.startswith("weight_hh"):
                nn.init.orthogonal_(gate)
            elif name.startswith("weight_ih"):
                nn.init.xavier_uniform_(gate)
            else:
                nn.init.zeros_(gate)


class RecurrentEncoder(nn.Module):
    """GRU or LSTM over the source, in both directions by default.

    Source: Bahdanau et al. 2015, arXiv:1409.0473, 3.2. Their annotations h_j = [h→_j; h←_j] are
        `Memory.states`. With `embeddings`, a word itself stands beside what its sentence made of it, as
        in Gehring et al. 2017, arXiv:1705.03122, 3.3, where e_j is added to z_j.

    Args:
        vocab_size: Number of source tokens.
        embed_dim: Width of the source embedding.
        hidden_dim: Width per direction; states have twice this width if bidirectional.
        cell: "gru" or "lstm".
        layers: Recurrent layers, at least 1.
        bidirectional: Also read from the end to the start.
        embeddings: Put the embedding of each token beside its state.
        dropout: Probability of dropping an embedding or a state component, in [0, 1).
        word_dropout: Probability of leaving a token unread in training, in [0, 1).
        pad_id: Token id of padding; its embedding stays zero.

    Attributes:
        final_dim: Width of the final state, E.
        output_dim: Width of the states; E, or with embeddings E + E_embed.

    Raises:
        ValueError: `cell` is not offered.
    """

    def __init__(
        self,
        vocab_size: int,
        embed_dim: int,
        hidden_dim: int,
        *,
        cell: Cell = "gru",
        layers: int = 1,
        bidirectional: bool = True,
        embeddings: bool = False,
        dropout: float = 0.0,
        word_dropout: float = 0.0,
        pad_id: int = 0,
    ) -> None:
        super().__init__()
        check_choice("cell", cell, RECURRENT)
        self.embedding = nn.Embedding(vocab_size, embed_dim, padding_idx=pad_id)
        self.dropout, self.word_dropout = Dropout(dropout), WordDropout(word_dropout)
        self.recurrent = RECURRENT[cell](
            embed_dim,
            hidden_dim,
            layers,
            batch_first=True,
            bidirectional=bidirectional,
            dropout=dropout if layers > 1 else 0.0,
        )
        init_recurrent(self.recurrent)
        self.embeddings = embeddings
        self.final_dim = hidden_dim * (2 if bidirectional else 1)
        self.output_dim = self.final_dim + embed_dim * embeddings

    def forward(self, ids: Tensor, lengths: Tensor) -> Memory:
        """Encode a padded batch.

        Args:
            ids: Source token ids, int64, shape (B, M), padded on the right.
            lengths: Real tokens per sentence, int64, shape (B,), each at least 1.

        Returns:
            The memory; what stands in the padding has no influence on it.

        Raises:
            ValueError: A sentence has no token.
        """
        sizes = check_lengths(lengths)
        embedded = self.dropout(self.word_dropout(self.embedding(ids)))
        packed = pack_padded_sequence(embedded, sizes, batch_first=True, enforce_sorted=False)
        output, hidden = self.recurrent(packed)
        if isinstance(hidden, tuple):  # LSTM: (hidden, cell)
            hidden = hidden[0]
        states, _ = pad_packed_sequence(output, batch_first=True, total_length=ids.size(1))
        directions = 2 if self.recurrent.bidirectional else 1
        final = hidden[-directions:].transpose(0, 1).flatten(1)  # (B, E)
        states = self.dropout(states)
        if self.embeddings:
            words, _ = pad_packed_sequence(packed, batch_first=True, total_length=ids.size(1))
            states = torch.cat([states, words.to(states.dtype)], -1)
        return Memory(states, lengths, self.dropout(final))
