"""The layers of a Transformer: attention and a small network at each position, with residuals around both."""

from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor, nn

from headlights.attention import KeyValueCache, Mask, MultiHeadAttention, observations, scores
from headlights.translation.dropout import Dropout
from headlights.translation.encoders import check_choice
from headlights.translation.positions import PositionKind

Norm = Literal["pre", "post"]


@dataclass(frozen=True, slots=True)
class TransformerShape:
    """The sizes and choices that encoder, decoder and all their layers share.

    Source: Vaswani et al. 2017, arXiv:1706.03762, 3; their d_model is `embed_dim`, d_ff `feedforward_dim`, h
    `heads`, N `layers`.

    Attributes:
        embed_dim: E, the width of embeddings and states.
        heads: H, a divisor of E.
        feedforward_dim: Width inside the feed-forward parts.
        layers: Layers of the encoder, and of the decoder, at least 1.
        norm: Layer norm before each part ("pre") or after it ("post").
        positions: How tokens are told their places: "sinusoidal", "learned" or "rotary".
        max_positions: Positions that "learned" ones have vectors for; the other kinds know any.
        dropout: Probability of dropping a component of embeddings and of what a part adds, in [0, 1).
        attention_dropout: Probability of dropping an attention weight, in [0, 1); above 0 it is slower.
        word_dropout: Probability of leaving a token unread in training, in [0, 1).

    Raises:
        ValueError: `norm` or `positions` is not offered, or the widths do not go together.
    """

    embed_dim: int
    heads: int
    feedforward_dim: int
    layers: int = 6
    norm: Norm = "pre"
    positions: PositionKind = "sinusoidal"
    max_positions: int = 512
    dropout: float = 0.0
    attention_dropout: float = 0.0
    word_dropout: float = 0.0

    def __post_init__(self) -> None:
        check_choice("norm", self.norm, get_args(Norm))
        check_choice("positions", self.positions, get_args(PositionKind))
        if self.embed_dim % self.heads:
            raise ValueError(
                f"embed_dim must be a multiple of heads, got embed_dim = {self.embed_dim} and heads = "
                f"{self.heads}"
            )
        if self.positions == "rotary" and self.embed_dim // self.heads % 2:
            raise ValueError(
                f"positions 'rotary' turn pairs of components, so embed_dim / heads must be even, got "
                f"{self.embed_dim} / {self.heads}"
            )


class Residual(nn.Module):
    """What stands around each part of a layer: layer norm, dropout and the way past it.

    Sources: Vaswani et al. 2017, arXiv:1706.03762, 3.1 ("post": the sum is normalised); Xiong et al. 2020,
    arXiv:2002.04745 ("pre": the part's input is, which needs no careful warm-up).

    Args:
        shape: Width, place of the norm and dropout.
    """

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(shape.embed_dim)
        self.dropout = Dropout(shape.dropout)
        self.before = shape.norm == "pre"

    def enter(self, x: Tensor) -> Tensor:
        """What the part reads.

        Args:
            x: Float, shape (..., E).

        Returns:
            The same shape.
        """
        entering: Tensor = self.norm(x) if self.before else x
        return entering

    def leave(self, x: Tensor, change: Tensor) -> Tensor:
        """What the part and the way past it give together.

        Args:
            x: What came to the part, float, shape (..., E).
            change: What the part made of `enter(x)`, of the same shape.

        Returns:
            The same shape.
        """
        added = x + self.dropout(change)
        left: Tensor = added if self.before else self.norm(added)
        return left


class FeedForward(nn.Module):
    """Two linear maps with a ReLU between, at each position alone, and the residual around them.

    Source: Vaswani et al. 2017, arXiv:1706.03762, 3.3.

    Args:
        shape: The widths.
    """

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.residual = Residual(shape)
        self.widen = nn.Linear(shape.embed_dim, shape.feedforward_dim)
        self.narrow = nn.Linear(shape.feedforward_dim, shape.embed_dim)
        for linear in (self.widen, self.narrow):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the part.

        Args:
            x: Float, shape (..., E).

        Returns:
            The same shape.
        """
        return self.residual.leave(x, self.narrow(self.widen(self.residual.enter(x)).relu_()))


class EncoderLayer(nn.Module):
    """Self-attention over the source, then the feed-forward part.

    Args:
        shape: Its sizes.
    """

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.residual = Residual(shape)
        self.self_attention = _attention(shape, rotary=shape.positions == "rotary")
        self.feed_forward = FeedForward(shape)

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        """Apply the layer.

        Args:
            x: Float, shape (B, M, E).
            mask: Shows each sentence its real tokens.

        Returns:
            The same shape.
        """
        read = self.residual.enter(x)
        attended, _ = self.self_attention(read, read, read, need_weights=False, mask=mask)
        fed: Tensor = self.feed_forward(self.residual.leave(x, attended))
        return fed


class DecoderLayer(nn.Module):
    """Self-attention over what is written, attention to the source, then the feed-forward part.

    Args:
        shape: Its sizes.
    """

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.residual = Residual(shape)
        self.self_attention = _attention(shape, rotary=shape.positions == "rotary")
        self.source_residual = Residual(shape)
        self.source_attention = _attention(shape, rotary=False)
        self.feed_forward = FeedForward(shape)

    def forward(
        self, x: Tensor, memory: Tensor, mask: Mask, *, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Apply the layer to whole sentences; no token sees a later one.

        Args:
            x: Float, shape (B, T, E).
            memory: Encoder states, float, shape (B, M, E).
            mask: Shows each sentence its real source tokens.
            need_weights: Also return where it looks in the source.

        Returns:
            The same shape as `x`; weights before dropout, with gradient, shape (B, H, T, M), or None.
        """
        read = self.residual.enter(x)
        attended, _ = self.self_attention(read, read, read, need_weights=False, is_causal=True)
        x = self.residual.leave(x, attended)
        observe = observations.Weights(differentiable=True) if need_weights else None
        looked, _, *seen = self.source_attention(
            self.source_residual.enter(x), memory, memory, need_weights=False, mask=mask, observe=observe
        )
        x = self.feed_forward(self.source_residual.leave(x, looked))
        return x, seen[0] if seen else None

    def remember(self, memory: Tensor) -> KeyValueCache:
        """Project the source's keys and values, once for all steps.

        Args:
            memory: Encoder states, float, shape (B, M, E).

        Returns:
            The keys and values, for `step`.
        """
        _, _, source = self.source_attention(
            memory[:, :0], memory, memory, need_weights=False, cache=KeyValueCache()
        )
        assert isinstance(source, KeyValueCache)
        return source

    def step(
        self,
        x: Tensor,
        own: KeyValueCache,
        source: KeyValueCache,
        written: Mask | None,
        mask: Mask,
        *,
        need_weights: bool,
    ) -> tuple[Tensor, KeyValueCache, Tensor | None]:
        """Apply the layer to one more token of each of b rows of S sentences.

        Args:
            x: Float, shape (S, b, E).
            own: Keys and values of the tokens before: of S sentences, or of S * b rows that share nothing.
            source: From `remember`, for the S sentences.
            written: Shows each row those of its sentence's keys that it has written, the new one among them;
                None if rows share nothing.
            mask: Shows each sentence its real source tokens.
            need_weights: Also return where it looks in the source.

        Returns:
            The same shape as `x`; `own` with these tokens; weights, shape (S, H, b, M), or None.
        """
        read = self.residual.enter(x)
        if written is None:
            read = read.view(-1, 1, read.size(-1))
        attended, _, own = self.self_attention(read, read, read, need_weights=False, mask=written, cache=own)
        x = self.residual.leave(x, attended.view_as(x))
        observe = observations.Weights(differentiable=True) if need_weights else None
        nothing = x[:, :0]  # keys and values are all in `source`
        looked, _, *seen, _ = self.source_attention(
            self.source_residual.enter(x),
            nothing,
            nothing,
            need_weights=False,
            mask=mask,
            observe=observe,
            cache=source,
        )
        x = self.feed_forward(self.source_residual.leave(x, looked))
        return x, own, seen[0] if seen else None


def _attention(shape: TransformerShape, *, rotary: bool) -> MultiHeadAttention:
    score = scores.Rotary(scores.ScaledDot()) if rotary else None
    attention = MultiHeadAttention(
        shape.embed_dim, shape.heads, shape.attention_dropout, batch_first=True, score=score
    )
    nn.init.xavier_uniform_(attention.out_proj.weight)
    return attention
