"""Rotary positions: a score around another one that turns queries and keys by their positions first."""

import torch
from torch import Tensor

from headlights.attention._score_base import PreparedKey, Score, wide


class Rotary(Score):
    """Turns queries and keys by angles that grow with their positions, then scores them with another score.

    Source: Su et al. 2021, arXiv:2104.09864, eq. 34; their θ_i is base^(-2i/E) with i from 0. Component i is
    paired with component i + E/2, as in most published models, where the source pairs neighbours: the same up
    to the order of the components. A product of a query turned by p and a key turned by q depends on p - q
    alone, so with `Dot` and `ScaledDot` only distances count, not positions.

    Args:
        score: Scores the turned vectors, most often `ScaledDot()`.
        base: Unitless, above 0: the longest wave is about 2π base positions. Default: 10000.

    Raises:
        TypeError: `score` is not a `Score`.
        ValueError: `base` is not above 0.
    """

    def __init__(self, score: Score, *, base: float = 10000.0) -> None:
        super().__init__()
        if not isinstance(score, Score):
            raise TypeError(f"score: expected a Score to wrap, got {type(score).__name__}")
        if not base > 0:
            raise ValueError(f"base: expected a number above 0, got {base}")
        self.score = score
        self.base = float(base)
        self.finite = score.finite
        self.needs_visible = score.needs_visible
        self.pair_width = score.pair_width

    def prepare_key(self, key: Tensor, *, visible: Tensor | None = None, start: int = 0) -> PreparedKey:
        return self.score.prepare_key(self.turn(key, start), visible=visible, start=start)

    def forward(self, query: Tensor, prepared: PreparedKey, *, start: int | None = None) -> Tensor:
        start = prepared.start + prepared.length - query.shape[-2] if start is None else start
        scores: Tensor = self.score(self.turn(query, start), prepared, start=start)
        return scores

    def turn(self, vectors: Tensor, start: int) -> Tensor:
        """Turn vectors by the angles of the positions start, start + 1, ...

        Args:
            vectors: Float, shape (..., N, E), E even.
            start: Position of the first.

        Returns:
            The same shape and type.

        Raises:
            ValueError: E is odd.
        """
        N, E = vectors.shape[-2:]
        if E % 2:
            raise ValueError(f"Rotary: expected vectors of even width, got shape {tuple(vectors.shape)}")
        # In float64, because a position of some thousands leaves float32 few digits of an angle.
        device = vectors.device
        positions = torch.arange(N, device=device, dtype=torch.float64) + start
        waves = self.base ** (torch.arange(0, E, 2, device=device, dtype=torch.float64) / -max(E, 1))
        angles = positions[:, None] * waves  # (N, E / 2)
        dtype = wide(vectors.dtype)
        cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
        left, right = vectors.to(dtype).chunk(2, -1)
        turned = torch.cat((left * cos - right * sin, left * sin + right * cos), -1)
        return turned.to(vectors.dtype)

    def extra_repr(self) -> str:
        return f"base={self.base:g}"
