"""How well a query and a key fit: one number for each pair, before the softmax.

A score works in two steps, so that what depends on the keys alone is computed once per sentence:
`prepare_key` turns keys into an explicit `PreparedKey`, `forward` scores queries against it.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

__all__ = ["Additive", "Bilinear", "Dot", "Function", "PreparedKey", "ScaledDot", "Score", "as_score"]


@dataclass(frozen=True)
class PreparedKey:
    """What a score needs to know of the keys, computed once and passed around as a value.

    A score that keeps more than one tensor subclasses this; `rows` and `select` then treat every tensor
    field like `key`, so each must have the shape (..., M, anything).

    Attributes:
        key: The keys as the score uses them, float, shape (..., M, K); K is the score's own width.
        start: Position of the first row, 0-based, for scores that use positions.
    """

    key: Tensor
    start: int = 0

    @property
    def length(self) -> int:
        """Number of keys, M."""
        return self.key.shape[-2]

    def rows(self, rows: slice) -> Self:
        """Keep a contiguous range of the keys.

        Args:
            rows: Which keys, a slice with step 1 over 0..M.

        Returns:
            The same kind of value for those keys, sharing memory with this one.

        Raises:
            ValueError: The slice has a step other than 1.
        """
        first, _, step = rows.indices(self.length)
        if step != 1:
            raise ValueError(f"rows: expected a slice with step 1, got step {step}")
        return replace(self._map(lambda tensor: tensor[..., rows, :]), start=self.start + first)

    def select(self, indices: Tensor) -> Self:
        """Reorder, repeat or drop examples, as beam search does.

        Args:
            indices: Integer, shape (R,); positions along the first leading dimension.

        Returns:
            The same kind of value with R examples.

        Raises:
            ValueError: The keys have no leading dimension to select from.
        """
        if self.key.ndim < 3:
            raise ValueError(
                f"select: the keys have shape {tuple(self.key.shape)} and no leading dimension; "
                "select works on (B, ..., M, K)"
            )
        return self._map(lambda tensor: tensor.index_select(0, indices))

    def _map(self, change: Callable[[Tensor], Tensor]) -> Self:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        changed: dict[str, Any] = {k: change(v) for k, v in values.items() if isinstance(v, Tensor)}
        return replace(self, **changed)


class Score(nn.Module):
    """Base of all scores; subclass it, override `forward` and, if keys can be prepared, `prepare_key`.

    Scores of half-precision inputs come in float32: a product of two float16 vectors easily passes 65504.

    Attributes:
        finite: Promises that finite inputs never score minus infinity, which saves looking for it. A score
            of minus infinity hides the key. Default: no promise.
    """

    finite: bool = False

    def prepare_key(self, key: Tensor, *, visible: Tensor | None = None, start: int = 0) -> PreparedKey:
        """Do the work that depends on the keys alone.

        Args:
            key: Float, shape (..., M, E_k).
            visible: Bool, shape (..., M) with the leading dimensions of `key` (or broadcast to them); True
                marks keys that some query may look at. The others count as zeros, so that nothing in padding,
                be it NaN, has any influence. Default: all keys.
            start: Position of the first key, 0-based; only scores that use positions read it.

        Returns:
            The prepared keys, for `forward` or `headlights.attend`.
        """
        if visible is not None:
            key = key.masked_fill(~visible[..., None], 0)
        return PreparedKey(self.project_key(key), start)

    def project_key(self, key: Tensor) -> Tensor:
        """Map each key to what `forward` compares queries with; the identity unless overridden.

        Args:
            key: Float, shape (..., M, E_k).

        Returns:
            Shape (..., M, K), K being the score's own width.
        """
        return key

    def forward(self, query: Tensor, prepared: PreparedKey, *, start: int | None = None) -> Tensor:
        """Score every query against every prepared key.

        Args:
            query: Float, shape (..., N, E_q); leading dimensions broadcast with those of the keys.
            prepared: What this score's `prepare_key` returned for M keys.
            start: Position of the first query, 0-based; only scores that use positions read it. Default: the
                last query stands at the last key.

        Returns:
            Shape (..., N, M), float32 for half-precision inputs, else the inputs' type.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define forward(query, prepared, *, start=None)"
        )


class Dot(Score):
    """The dot product times a factor: f(u, v) = μ u·v.

    Source: source A, "Attention Focus in RNN"; their μ is `scale`. μ towards 0 spreads the weights evenly,
    a large μ puts all weight on the best key.

    Args:
        scale: μ, unitless, any finite number. Default: 1.
        learned: Make μ a parameter, starting at `scale`. Default: it stays fixed.

    Raises:
        ValueError: `scale` is not finite.
    """

    finite = True
    scale: nn.Parameter | float

    def __init__(self, scale: float = 1.0, *, learned: bool = False) -> None:
        super().__init__()
        if not math.isfinite(scale):
            raise ValueError(f"scale: expected a finite number, got {scale}")
        self.scale = nn.Parameter(torch.tensor(float(scale))) if learned else float(scale)

    def forward(self, query: Tensor, prepared: PreparedKey, *, start: int | None = None) -> Tensor:  # noqa: ARG002
        return _products(query, prepared.key, self.scale)

    def extra_repr(self) -> str:
        return "learned" if isinstance(self.scale, nn.Parameter) else f"scale={self.scale}"


class ScaledDot(Score):
    """The dot product over the square root of the width: f(u, v) = u·v / √E.

    Source: Vaswani et al. 2017, arXiv:1706.03762, eq. 1. For independent components of mean 0 and variance 1
    the product has variance E; dividing by √E brings it back to 1, where the softmax has slope.
    """

    finite = True

    def forward(self, query: Tensor, prepared: PreparedKey, *, start: int | None = None) -> Tensor:  # noqa: ARG002
        return _products(query, prepared.key, max(query.shape[-1], 1) ** -0.5)


class Bilinear(Score):
    """A matrix between query and key: f(u, v) = u W v, for widths that may differ.

    Source: Luong et al. 2015, arXiv:1508.04025, eq. 8, "general". The keys are projected once, W v.

    Args:
        query_dim: E_q, width of a query.
        key_dim: E_k, width of a key.
        device: Where the parameters live. Default: torch's default device.
        dtype: Type of the parameters. Default: torch's default type.
    """

    finite = True

    def __init__(
        self,
        query_dim: int,
        key_dim: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.W = nn.Parameter(torch.empty(query_dim, key_dim, device=device, dtype=dtype))  # (E_q, E_k)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw W with variance 1 / (E_q E_k): inputs of unit variance then give scores of unit variance."""
        nn.init.normal_(self.W, std=max(self.W.numel(), 1) ** -0.5)

    def project_key(self, key: Tensor) -> Tensor:
        check_width("key", key, "E_k", self.W.shape[1])
        return key @ self.W.mT  # (..., M, E_q)

    def forward(self, query: Tensor, prepared: PreparedKey, *, start: int | None = None) -> Tensor:  # noqa: ARG002
        return _products(query, prepared.key, 1.0)

    def extra_repr(self) -> str:
        return f"{self.W.shape[0]}, {self.W.shape[1]}"


class Additive(Score):
    """A small network with one hidden layer: f(u, v) = tanh(u W1 + v W2) b.

    Source: Bahdanau et al. 2015, arXiv:1409.0473, A.1.2; their W_a and U_a are `W1` and `W2` transposed,
    their v_a is `b`. There is no division by the square root of a width.

    Args:
        query_dim: E_q, width of a query.
        key_dim: E_k, width of a key; may differ from E_q.
        hidden_dim: A, width of the hidden layer.
        bias: Add a learned vector inside the tanh, which the source has not. Default: none.
        device: Where the parameters live. Default: torch's default device.
        dtype: Type of the parameters. Default: torch's default type.
    """

    finite = True
    bias: nn.Parameter | None

    def __init__(
        self,
        query_dim: int,
        key_dim: int,
        hidden_dim: int,
        *,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.W1 = nn.Parameter(torch.empty(query_dim, hidden_dim, device=device, dtype=dtype))  # (E_q, A)
        self.W2 = nn.Parameter(torch.empty(key_dim, hidden_dim, device=device, dtype=dtype))  # (E_k, A)
        self.b = nn.Parameter(torch.empty(hidden_dim, device=device, dtype=dtype))  # (A,)
        if bias:
            self.bias = nn.Parameter(torch.empty(hidden_dim, device=device, dtype=dtype))  # (A,)
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw W1 and W2 as one map of the pair (u, v) with variance 1 / (E_q + E_k), b with variance 1 / A.

        Inputs of unit variance then reach the tanh with unit variance, where it neither saturates nor is
        linear, and the scores come out below unit variance, so that no key is shut out at the start.
        """
        width = (3 / max(self.W1.shape[0] + self.W2.shape[0], 1)) ** 0.5  # U(-a, a) has variance a^2 / 3
        nn.init.uniform_(self.W1, -width, width)
        nn.init.uniform_(self.W2, -width, width)
        width = (3 / max(self.b.shape[0], 1)) ** 0.5
        nn.init.uniform_(self.b, -width, width)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def project_key(self, key: Tensor) -> Tensor:
        check_width("key", key, "E_k", self.W2.shape[0])
        projected = key @ self.W2  # (..., M, A)
        return projected if self.bias is None else projected + self.bias

    def forward(self, query: Tensor, prepared: PreparedKey, *, start: int | None = None) -> Tensor:  # noqa: ARG002
        check_width("query", query, "E_q", self.W1.shape[0])
        return _tanh_sums(query @ self.W1, prepared.key, self.b)

    def extra_repr(self) -> str:
        sizes = f"{self.W1.shape[0]}, {self.W2.shape[0]}, {self.b.shape[0]}"
        return sizes if self.bias is None else f"{sizes}, bias=True"


class Function(Score):
    """A score made of any callable `(query, key) -> scores`.

    Args:
        function: Takes (..., N, E_q) and (..., M, E_k), returns (..., N, M). A module is registered, so its
            parameters train.

    Raises:
        TypeError: `function` cannot be called.
    """

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        if not callable(function):
            raise TypeError(
                f"score: expected a Score or a callable (query, key) -> scores, got {type(function).__name__}"
            )
        self.function = function

    def forward(self, query: Tensor, prepared: PreparedKey, *, start: int | None = None) -> Tensor:  # noqa: ARG002
        scores = self.function(query, prepared.key)
        if scores.shape[-2:] != (query.shape[-2], prepared.length):
            raise ValueError(
                f"score: the callable must return (..., N, M) = (..., {query.shape[-2]}, {prepared.length}), "
                f"got {tuple(scores.shape)}"
            )
        return scores.to(_wide(scores.dtype))


def as_score(score: Score | Callable[[Tensor, Tensor], Tensor] | None) -> Score:
    """Turn what users pass as `score=` into a `Score`.

    Args:
        score: A score, a callable `(query, key) -> scores`, or None for `ScaledDot()`.

    Returns:
        The score itself, or a `Function` around the callable.

    Raises:
        TypeError: `score` is neither.
    """
    if score is None:
        return _SCALED_DOT
    return score if isinstance(score, Score) else Function(score)


def full_precision(device_type: str) -> AbstractContextManager[Any]:
    """Suspend autocast, which would form products in half precision, where they overflow.

    Args:
        device_type: As in `torch.device.type`.

    Returns:
        A context manager; it costs next to nothing where autocast is off.
    """
    autocast = torch.is_autocast_enabled(device_type)
    return torch.autocast(device_type, enabled=False) if autocast else nullcontext()


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _products(query: Tensor, key: Tensor, scale: Tensor | float) -> Tensor:
    check_width("query", query, "the prepared key's width", key.shape[-1])
    wide = _wide(query.dtype)
    with full_precision(query.device.type):
        # Scaling the query costs N*E products, scaling the scores N*M.
        return (query.to(wide) * scale) @ key.to(wide).mT  # (..., N, M)


def _tanh_sums(query: Tensor, key: Tensor, b: Tensor) -> Tensor:
    wide = _wide(query.dtype)
    with full_precision(query.device.type):
        hidden = torch.tanh(query.to(wide)[..., :, None, :] + key.to(wide)[..., None, :, :])  # (..., N, M, A)
        return hidden @ b.to(wide)  # (..., N, M)


def check_width(name: str, tensor: Tensor, letter: str, width: int) -> None:
    """Refuse a tensor whose last dimension is not what is needed.

    Args:
        name: The argument's name.
        tensor: The argument.
        letter: What the width is called.
        width: What it must be.

    Raises:
        ValueError: It is not.
    """
    if tensor.shape[-1] != width:
        raise ValueError(
            f"{name}: expected a last dimension of {letter} = {width}, got {tuple(tensor.shape)}"
        )


_SCALED_DOT = ScaledDot()
