"""How close two word vectors are."""

from collections.abc import Sequence

import torch
from torch import Tensor


def cosine(u: Tensor, v: Tensor) -> Tensor:
    """The cosine of the angle between word vectors: u·v / (‖u‖ ‖v‖).

    Source: source A, "Core Idea". For unit vectors it is their dot product.

    Args:
        u: Float, shape (..., E). Leading dimensions broadcast.
        v: Float, shape (..., E).

    Returns:
        Shape (...), each in -1..1; 0 where a vector is zero and so has no direction.

    Raises:
        ValueError: The widths differ.

    Example:
        >>> import torch
        >>> cosine(torch.tensor([3.0, 4.0]), torch.tensor([4.0, 3.0]))  # 24 / (5 * 5)
        tensor(0.9600)
    """
    if u.ndim == 0 or v.ndim == 0 or u.shape[-1] != v.shape[-1]:
        raise ValueError(
            f"cosine: expected vectors of one width, (..., E) and (..., E), got {tuple(u.shape)} and "
            f"{tuple(v.shape)}; two encoders make vectors that cannot be compared"
        )
    return (_unit(u) * _unit(v)).sum(-1).clamp(-1, 1)


def mean_direction(vectors: Sequence[Tensor]) -> Tensor:
    """The mean of vectors, each counted by its direction alone; zero vectors are left out.

    Args:
        vectors: At least one, each float, shape (E,).

    Returns:
        Shape (E,), no longer than 1; zero if all are.
    """
    units = _unit(torch.stack(list(vectors)))  # (n, E)
    return units.sum(0) / units.any(-1).sum().clamp(min=1)


def _unit(vectors: Tensor) -> Tensor:
    """Vectors of length 1, zero for zero; divided by their largest component first: squares may overflow."""
    tiny = torch.finfo(vectors.dtype).tiny
    scaled = vectors / vectors.abs().amax(-1, keepdim=True).clamp(min=tiny)
    length: Tensor = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    return scaled / length.clamp(min=tiny)
