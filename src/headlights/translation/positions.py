"""Where a token stands: attention by itself is blind to order, so embeddings are told their places."""

from typing import Literal

import torch
from torch import Tensor, nn

PositionKind = Literal["sinusoidal", "learned", "rotary"]


def sinusoids(start: int, count: int, embed_dim: int, *, device: torch.device | None = None) -> Tensor:
    """Waves of many lengths, read off at some positions.

    Source: Vaswani et al. 2017, arXiv:1706.03762, 3.5: component 2i is sin(pos / 10000^(2i/E)), component
    2i + 1 the cosine of the same; their d_model is E.

    Args:
        start: The first position, 0 or more.
        count: Number of positions.
        embed_dim: E; if it is odd, the last wave has no cosine.
        device: Where to compute. Default: torch's default device.

    Returns:
        Float64, shape (count, E), each component in -1..1.
    """
    positions = torch.arange(start, start + count, dtype=torch.float64, device=device)
    waves = 10000.0 ** (torch.arange(0, embed_dim, 2, dtype=torch.float64, device=device) / -embed_dim)
    angles = positions[:, None] * waves  # (count, E / 2)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)[:, :embed_dim]


class SinusoidalPositions(nn.Module):
    """Adds `sinusoids`: no parameters, and any length."""

    def forward(self, embedded: Tensor, start: int = 0) -> Tensor:
        """Add its position to each embedding.

        Args:
            embedded: Float, shape (B, N, E).
            start: Position of the first.

        Returns:
            The same shape and type.
        """
        count, embed_dim = embedded.shape[1:]
        return embedded + sinusoids(start, count, embed_dim, device=embedded.device).to(embedded.dtype)


class LearnedPositions(nn.Module):
    """Adds a learned vector for each position.

    Positions beyond the last have learned nothing, and share its vector: a longer sentence is still
    translated, if not well.

    Args:
        max_positions: Positions with a vector of their own, at least 1.
        embed_dim: E.
    """

    def __init__(self, max_positions: int, embed_dim: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(max_positions, embed_dim)
        nn.init.normal_(self.embedding.weight, std=embed_dim**-0.5)

    def forward(self, embedded: Tensor, start: int = 0) -> Tensor:
        """Add its position to each embedding.

        Args:
            embedded: Float, shape (B, N, E).
            start: Position of the first.

        Returns:
            The same shape and type.
        """
        positions = torch.arange(start, start + embedded.size(1), device=embedded.device)
        added: Tensor = self.embedding(positions.clamp(max=self.embedding.num_embeddings - 1))
        return embedded + added


class NoPositions(nn.Module):
    """Adds nothing: with rotary positions it is the scores that know them."""

    def forward(self, embedded: Tensor, start: int = 0) -> Tensor:  # noqa: ARG002
        """Give the embeddings back.

        Args:
            embedded: Float, shape (B, N, E).
            start: Position of the first.

        Returns:
            `embedded`.
        """
        return embedded


def make_positions(kind: PositionKind, embed_dim: int, max_positions: int) -> nn.Module:
    """Make the module that adds positions to embeddings.

    Args:
        kind: Which.
        embed_dim: E.
        max_positions: Read by "learned" alone.

    Returns:
        A module called with embeddings (B, N, E) and the position of the first.
    """
    match kind:
        case "sinusoidal":
            return SinusoidalPositions()
        case "learned":
            return LearnedPositions(max_positions, embed_dim)
        case "rotary":
            return NoPositions()
