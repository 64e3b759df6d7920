"""Transformer encoder and decoder: attention in place of recurrence (S98)."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from headlights.attention import KeyValueCache, masks
from headlights.translation.decoding import Decoded, StepByStep, owners
from headlights.translation.dropout import Dropout, WordDropout
from headlights.translation.encoders import Memory, check_lengths
from headlights.translation.forcing import own_words
from headlights.translation.positions import make_positions
from headlights.translation.transformer_layers import DecoderLayer, EncoderLayer, TransformerShape

_FEW = 16  # tokens of a sentence that are not worth a look at which of them are needed


@dataclass(frozen=True, slots=True)
class TransformerState:
    """Everything a Transformer decoder carries from one step to the next, for B rows of S sentences.

    The rows of a sentence, b = B / S beside each other, share the keys and values of the source, and those of
    what they have written as well: the beams of a sentence have most of their tokens in common, so each token
    is kept once, and a row knows which are its own. Copying them for each row whenever a beam is sorted would
    take longer than the layers do. Tokens that no row has any more are looked for, and let go, when they have
    doubled and whenever sentences leave. Rotary positions are counted in keys; there, each row keeps its own.

    Attributes:
        own: Keys and values of what is written, for each layer; of S sentences, with K tokens of all their
            rows, or of B rows.
        sources: Keys and values of the source, for each layer; of S sentences.
        lengths: Real source tokens, int64, shape (S,).
        written: Which of its sentence's tokens a row has written, bool, shape (B, K); None where each row
            keeps its own.
        steps: Tokens of each row.
        beam: b.
        live: K after they were last looked for.
    """

    own: tuple[KeyValueCache, ...]
    sources: tuple[KeyValueCache, ...]
    lengths: Tensor
    written: Tensor | None
    steps: int = 0
    beam: int = 1
    live: int = 0

    def select(self, indices: Tensor, *, same_sentences: bool = False) -> "TransformerState":
        """The state of the rows `indices`.

        Args:
            indices: Rows to take, int64, shape (B',); may repeat.
            same_sentences: Promise that every row is replaced by a row of the same source sentence (a beam
                that is sorted anew), so the source's keys and values need no copy.

        Returns:
            A new state; this one is left as it is.
        """
        if same_sentences and torch.equal(indices, torch.arange(len(indices), device=indices.device)):
            return self
        sentences, beam = (None, self.beam) if same_sentences else owners(indices, self.beam)
        state = replace(self, beam=beam)
        if sentences is not None:
            sources = tuple(cache.select(sentences) for cache in self.sources)
            state = replace(state, sources=sources, lengths=self.lengths[sentences])
        if self.written is None:
            return replace(state, own=tuple(cache.select(indices) for cache in self.own))
        state = replace(state, written=self.written[indices])
        if sentences is None and self.written.size(1) > 2 * self.live + _FEW:
            sentences = torch.arange(len(self.lengths), device=indices.device)
        return state if sentences is None else state._let_go(sentences)

    def _let_go(self, sentences: Tensor) -> "TransformerState":
        """Keep of the tokens of `sentences` (S,), whose rows `written` is of, those that some row has."""
        assert self.written is not None
        had = self.written.view(len(sentences), self.beam, self.written.size(1)).any(1)  # (S, K)
        live = int(had.sum(1).amax()) if len(had) else 0
        if live == had.size(1):  # so there is nothing to let go but whole sentences
            return replace(self, own=tuple(cache.select(sentences) for cache in self.own), live=live)
        tokens = had.byte().argsort(dim=1, descending=True, stable=True)[:, :live]  # (S, live)
        own = tuple(cache.select(sentences, tokens) for cache in self.own)
        written = self.written.gather(1, tokens.repeat_interleave(self.beam, 0))
        return replace(self, own=own, written=written, live=live)

    def write(self) -> "TransformerState":
        """The state in which each row has one more token, whose keys and values are still to come.

        Returns:
            A new state; this one is left as it is.
        """
        written = self.written
        if written is not None:
            new = torch.eye(self.beam, dtype=torch.bool, device=written.device)
            written = torch.cat([written, new.repeat(len(self.lengths), 1)], 1)
        return replace(self, written=written, steps=self.steps + 1)


class _Side(nn.Module):
    """What encoder and decoder share: embeddings told their positions, and the norm at the end.

    Embeddings are drawn with variance 1/E and multiplied by sqrt(E) when they are read, so that the same
    table can serve as output layer (Vaswani et al. 2017, arXiv:1706.03762, 3.4).
    """

    def __init__(self, vocab_size: int, shape: TransformerShape, pad_id: int) -> None:
        super().__init__()
        embed_dim = shape.embed_dim
        self.embedding = nn.Embedding(vocab_size, embed_dim, padding_idx=pad_id)
        nn.init.normal_(self.embedding.weight, std=embed_dim**-0.5)
        with torch.no_grad():
            self.embedding.weight[pad_id] = 0.0
        self.positions = make_positions(shape.positions, embed_dim, shape.max_positions)
        self.dropout, self.word_dropout = Dropout(shape.dropout), WordDropout(shape.word_dropout)
        # After the last residual of "pre" comes no norm any more, so it gets one here.
        self.norm = nn.LayerNorm(embed_dim) if shape.norm == "pre" else nn.Identity()

    def embed(self, ids: Tensor, start: int = 0) -> Tensor:
        """Token ids (B, N), the first at position `start`, as vectors (B, N, E)."""
        scaled = self.word_dropout(self.embedding(ids)) * self.embedding.embedding_dim**0.5
        embedded: Tensor = self.dropout(self.positions(scaled, start))
        return embedded


class TransformerEncoder(_Side):
    """Layers of self-attention over the source.

    Source: Vaswani et al. 2017, arXiv:1706.03762, 3.1.

    Args:
        vocab_size: Number of source tokens.
        shape: Its sizes.
        pad_id: Token id of padding.

    Attributes:
        output_dim: Width of the states, E.
    """

    def __init__(self, vocab_size: int, shape: TransformerShape, *, pad_id: int = 0) -> None:
        super().__init__(vocab_size, shape, pad_id)
        self.layers = nn.ModuleList(EncoderLayer(shape) for _ in range(shape.layers))
        self.output_dim = shape.embed_dim

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
        check_lengths(lengths)
        x, mask = self.embed(ids), masks.lengths(lengths)
        for layer in self.layers:
            x = layer(x, mask)
        real = torch.arange(ids.size(1), device=lengths.device) < lengths[:, None]  # (B, M)
        states = self.norm(x).masked_fill(~real[..., None], 0.0)
        return Memory(states, lengths, states[torch.arange(len(ids), device=ids.device), lengths - 1])


class TransformerDecoder(StepByStep, _Side):
    """Layers of attention to what is written and to the source.

    Source: Vaswani et al. 2017, arXiv:1706.03762, 3.1.

    Args:
        vocab_size: Number of target tokens.
        shape: Its sizes.
        pad_id: Token id of padding.
    """

    def __init__(self, vocab_size: int, shape: TransformerShape, *, pad_id: int = 0) -> None:
        super().__init__(vocab_size, shape, pad_id)
        self.layers = nn.ModuleList(DecoderLayer(shape) for _ in range(shape.layers))
        self.rotary = shape.positions == "rotary"
        self.output = nn.Linear(shape.embed_dim, vocab_size)
        nn.init.normal_(self.output.weight, std=shape.embed_dim**-0.5)
        nn.init.zeros_(self.output.bias)

    def start(self, memory: Memory) -> TransformerState:
        """Project keys and values of a memory for all steps, once per sentence (S32).

        Args:
            memory: Of B sentences.

        Returns:
            The state before the first token, of B rows.
        """
        sources = tuple(layer.remember(memory.states) for layer in self._decoder_layers())
        own = tuple(KeyValueCache() for _ in sources)
        written = None if self.rotary else memory.lengths.new_empty(len(memory.lengths), 0, dtype=torch.bool)
        return TransformerState(own, sources, memory.lengths, written)

    def advance(
        self, token_ids: Tensor, state: TransformerState, *, need_weights: bool = False
    ) -> tuple[Tensor, TransformerState, Tensor | None]:
        """Read one token per row.

        Args:
            token_ids: The last tokens written, int64, shape (B,); `bos` first.
            state: From `start` or the step before.
            need_weights: Also return where the decoder looked.

        Returns:
            states: What `project` turns into the logits of the next token, float, shape (B, E).
            state: For the next step; the one given is left as it is.
            weights: Float in 0..1, shape (B, L, H, M), or None.
        """
        x = self.embed(token_ids[:, None], state.steps)  # (B, 1, E)
        x = x.view(-1, state.beam, x.size(-1))  # (S, b, E)
        state = state.write()
        written = None if state.written is None else masks.keep(state.written.view(*x.shape[:2], -1))
        mask = masks.lengths(state.lengths)
        own: list[KeyValueCache] = []
        seen: list[Tensor] = []
        for layer, before, source in zip(self._decoder_layers(), state.own, state.sources, strict=True):
            x, now, weights = layer.step(x, before, source, written, mask, need_weights=need_weights)
            own.append(now)
            if weights is not None:
                seen.append(weights.transpose(1, 2).flatten(0, 1))  # (B, H, M)
        states = self.norm(x).flatten(0, 1)
        return states, replace(state, own=tuple(own)), torch.stack(seen, 1) if seen else None

    def forward(
        self, ids: Tensor, memory: Memory, forcing: Tensor | None = None, *, need_weights: bool = False
    ) -> Decoded:
        """Read whole target sentences at once, each token forced (S16) or only some (S17).

        Args:
            ids: Target tokens from `bos` on, int64, shape (B, T).
            memory: Of the same sentences.
            forcing: Bool, shape (B, T); where False, the decoder reads what it writes itself. Default: all
                are read as given.
            need_weights: Also return where the decoder looked.

        Returns:
            One state per token, for `project`; the same numbers as step by step.
        """
        if forcing is not None:
            ids = own_words(self, ids, memory, forcing)
        x, mask = self.embed(ids), masks.lengths(memory.lengths)
        seen: list[Tensor] = []
        for layer in self._decoder_layers():
            x, weights = layer(x, memory.states, mask, need_weights=need_weights)
            if weights is not None:
                seen.append(weights.transpose(1, 2))  # (B, T, H, M)
        return Decoded(self.norm(x), torch.stack(seen, 2) if seen else None)

    def project(self, states: Tensor) -> Tensor:
        """Turn states into logits.

        Args:
            states: From `forward`, all or some of them, float, shape (..., E).

        Returns:
            Logits, float, shape (..., V).
        """
        logits: Tensor = self.output(states)
        return logits

    def _decoder_layers(self) -> list[DecoderLayer]:
        return [layer for layer in self.layers if isinstance(layer, DecoderLayer)]
