"""Architectures: which encoder and decoder a model has, and how wide, as a recipe says it."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from headlights.attention import scores
from headlights.translation.decoders import FinalUse, Mix, QueryOrder, RecurrentDecoder
from headlights.translation.encoders import Cell, RecurrentEncoder
from headlights.translation.positions import PositionKind
from headlights.translation.transformer import TransformerDecoder, TransformerEncoder
from headlights.translation.transformer_layers import Norm, TransformerShape

ScoreName = Literal["additive", "bilinear", "dot", "scaled-dot", "none"]
Tie = Literal["none", "target", "all"]


class _Architecture(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class RecurrentConfig(_Architecture):
    """A recurrent encoder and decoder with attention, or without.

    Attributes:
        architecture: "recurrent".
        cell: Recurrent cell of encoder and decoder.
        layers: Recurrent layers on either side.
        embed_dim: Width of source and target embeddings.
        hidden_dim: Width of the decoder's state.
        encoder_dim: Width of the encoder per direction.
        score: How the decoder's state is compared with encoder states; "none" is a model without attention.
        score_dim: Width of the additive score; other scores have no width of their own.
        score_scale: With score "dot" only: the constant that multiplies the product; None means 1 (S28).
        learn_scale: With score "dot" only: learn that constant, from `score_scale` on.
        mix: How the context enters the decoder: beside the input ("concat") or added to the state ("add").
        query: Which decoder state asks: the "previous" one (Bahdanau), the "current" one (Luong), or one
            "between" two cells, the second of which reads the context (conditional GRU).
        final: Where the encoder's final state enters the decoder: it makes the "first" state, or it does and
            enters "every" cell too (S19).
        input_feeding: Show the next step what this one made its word of; for query "current", mix "concat".
        embeddings_in_memory: Attend to the embedding of each source token beside its encoder state.
        tie: Tables that are one (S21): "none", "target" (target embedding and output layer) or "all" (the
            source embedding too).
        dropout: Probability of dropping a component of embeddings, states and outputs, in [0, 1).
        word_dropout: Probability of leaving a source or target token unread in training, in [0, 1).

    Raises:
        ValueError: A value is out of range, `score` cannot compare vectors of these widths, or keys do not
            go together.
    """

    architecture: Literal["recurrent"] = "recurrent"
    cell: Cell = "gru"
    layers: int = Field(1, ge=1, le=16)
    embed_dim: int = Field(256, ge=1)
    hidden_dim: int = Field(256, ge=1)
    encoder_dim: int = Field(256, ge=1)
    score: ScoreName = "additive"
    score_dim: int = Field(256, ge=1)
    score_scale: float | None = None
    learn_scale: bool = False
    mix: Mix = "concat"
    query: QueryOrder = "previous"
    final: FinalUse = "first"
    input_feeding: bool = False
    embeddings_in_memory: bool = False
    tie: Tie = "none"
    dropout: float = Field(0.2, ge=0.0, lt=1.0)
    word_dropout: float = Field(0.0, ge=0.0, lt=1.0)

    @model_validator(mode="after")
    def _comparable(self) -> "RecurrentConfig":
        memory_dim = self.memory_dim
        if self.score in ("dot", "scaled-dot") and memory_dim != self.hidden_dim:
            beside = f", beside embed_dim = {self.embed_dim}" if self.embeddings_in_memory else ""
            raise ValueError(
                f"score {self.score!r} compares vectors of one width, but hidden_dim is {self.hidden_dim} "
                f"and encoder states are {memory_dim} wide (two directions of encoder_dim = "
                f"{self.encoder_dim}{beside}); set hidden_dim to {memory_dim} or choose score 'bilinear'"
            )
        if self.embeddings_in_memory and self.score == "none":
            raise ValueError(
                "embeddings_in_memory needs attention to look at them, got score 'none'; set it to false"
            )
        if (self.score_scale is not None or self.learn_scale) and self.score != "dot":
            raise ValueError(
                f"score_scale and learn_scale belong to score 'dot', got score {self.score!r}; leave them out"
            )
        if self.input_feeding and (self.score == "none" or (self.mix, self.query) != ("concat", "current")):
            raise ValueError(
                "input_feeding needs attention with mix 'concat' and query 'current', got score "
                f"{self.score!r}, mix {self.mix!r} and query {self.query!r}; set it to false"
            )
        if self.query == "between" and (self.score == "none" or self.mix != "concat"):
            raise ValueError(
                f"query 'between' needs attention with mix 'concat', got score {self.score!r} and mix "
                f"{self.mix!r}"
            )
        return self

    @property
    def memory_dim(self) -> int:
        """Width of the encoder states, of both directions, with the embeddings beside them if asked for."""
        return 2 * self.encoder_dim + self.embed_dim * self.embeddings_in_memory

    @property
    def attention_shape(self) -> tuple[int, int]:
        """Layers of attention to the source, and heads of each; (0, 0) without."""
        return (0, 0) if self.score == "none" else (1, 1)

    def make_score(self) -> scores.Score | None:
        """Make the score that this configuration names, with fresh parameters.

        Returns:
            A score between a decoder state and an encoder state; None for a model without attention.
        """
        memory_dim = self.memory_dim
        match self.score:
            case "additive":
                return scores.Additive(self.hidden_dim, memory_dim, self.score_dim)
            case "bilinear":
                return scores.Bilinear(self.hidden_dim, memory_dim)
            case "dot":
                scale = 1.0 if self.score_scale is None else self.score_scale
                return scores.Dot(scale, learned=self.learn_scale)
            case "scaled-dot":
                return scores.ScaledDot()
            case "none":
                return None

    def make(
        self, source_vocab: int, target_vocab: int, *, pad_id: int
    ) -> tuple[RecurrentEncoder, RecurrentDecoder]:
        """Make encoder and decoder with fresh parameters.

        Args:
            source_vocab: Number of source tokens.
            target_vocab: Number of target tokens.
            pad_id: Padding's id on both sides.

        Returns:
            Both.
        """
        encoder = RecurrentEncoder(
            source_vocab,
            self.embed_dim,
            self.encoder_dim,
            cell=self.cell,
            layers=self.layers,
            embeddings=self.embeddings_in_memory,
            dropout=self.dropout,
            word_dropout=self.word_dropout,
            pad_id=pad_id,
        )
        decoder = RecurrentDecoder(
            target_vocab,
            self.embed_dim,
            self.hidden_dim,
            encoder.output_dim,
            score=self.make_score(),
            cell=self.cell,
            layers=self.layers,
            mix=self.mix,
            query=self.query,
            final=self.final,
            input_feeding=self.input_feeding,
            final_dim=encoder.final_dim,
            dropout=self.dropout,
            word_dropout=self.word_dropout,
            pad_id=pad_id,
        )
        return encoder, decoder


class TransformerConfig(_Architecture):
    """A Transformer: attention in place of recurrence.

    Attributes:
        architecture: "transformer".
        layers: Layers of the encoder, and of the decoder.
        embed_dim: Width of embeddings and states.
        heads: Attention heads of each layer; they share `embed_dim`.
        feedforward_dim: Width inside the feed-forward parts.
        norm: Layer norm before each part ("pre") or after it ("post", as published in 2017).
        positions: How tokens are told their places: "sinusoidal", "learned" or "rotary".
        max_positions: With "learned" positions only: how many there are; None means 512. Tokens beyond
            share the last.
        tie: Tables that are one (S21): "none", "target" (target embedding and output layer) or "all" (the
            source embedding too).
        dropout: Probability of dropping a component of embeddings and of what a part adds, in [0, 1).
        attention_dropout: Probability of dropping an attention weight, in [0, 1); above 0 it is slower.
        word_dropout: Probability of leaving a source or target token unread in training, in [0, 1).

    Raises:
        ValueError: A value is out of range, or the widths do not go together.
    """

    architecture: Literal["transformer"] = "transformer"
    layers: int = Field(4, ge=1, le=64)
    embed_dim: int = Field(256, ge=1)
    heads: int = Field(4, ge=1)
    feedforward_dim: int = Field(1024, ge=1)
    norm: Norm = "pre"
    positions: PositionKind = "sinusoidal"
    max_positions: int | None = Field(None, ge=1)
    tie: Tie = "none"
    dropout: float = Field(0.1, ge=0.0, lt=1.0)
    attention_dropout: float = Field(0.0, ge=0.0, lt=1.0)
    word_dropout: float = Field(0.0, ge=0.0, lt=1.0)

    @model_validator(mode="after")
    def _fits(self) -> "TransformerConfig":
        if self.max_positions is not None and self.positions != "learned":
            raise ValueError(
                f"max_positions belongs to positions 'learned', got {self.max_positions} with "
                f"{self.positions!r}, which know any length; leave it out"
            )
        self.shape()
        return self

    @property
    def attention_shape(self) -> tuple[int, int]:
        """Layers of attention to the source, and heads of each."""
        return self.layers, self.heads

    def shape(self) -> TransformerShape:
        """What the layers need to know.

        Returns:
            The sizes, checked.
        """
        return TransformerShape(
            embed_dim=self.embed_dim,
            heads=self.heads,
            feedforward_dim=self.feedforward_dim,
            layers=self.layers,
            norm=self.norm,
            positions=self.positions,
            max_positions=self.max_positions or 512,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            word_dropout=self.word_dropout,
        )

    def make(
        self, source_vocab: int, target_vocab: int, *, pad_id: int
    ) -> tuple[TransformerEncoder, TransformerDecoder]:
        """Make encoder and decoder with fresh parameters.

        Args:
            source_vocab: Number of source tokens.
            target_vocab: Number of target tokens.
            pad_id: Padding's id on both sides.

        Returns:
            Both.
        """
        shape = self.shape()
        encoder = TransformerEncoder(source_vocab, shape, pad_id=pad_id)
        return encoder, TransformerDecoder(target_vocab, shape, pad_id=pad_id)


ARCHITECTURES: dict[str, type[RecurrentConfig] | type[TransformerConfig]] = {
    "recurrent": RecurrentConfig,
    "transformer": TransformerConfig,
}


def _named(content: Any) -> Any:
    """The architecture that a model section names; those from before there was a choice name none."""
    if isinstance(content, dict):
        return content.get("architecture", "recurrent")
    return getattr(content, "architecture", "recurrent")


ModelConfig = Annotated[
    Annotated[RecurrentConfig, Tag("recurrent")] | Annotated[TransformerConfig, Tag("transformer")],
    Discriminator(_named),
]
