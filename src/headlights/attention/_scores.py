"""How well a query and a key fit: one number for each pair, before the softmax.

A score works in two steps, so that what depends on the keys alone is computed once per sentence:
`prepare_key` turns keys into an explicit `PreparedKey`, `forward` scores queries against it.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from headlights.attention._compiled import compile_additive
from headlights.attention._factorised import factorise, projected_scores
from headlights.attention._rotary import Rotary
from headlights.attention._score_base import PreparedKey, Score, check_width, full_precision, wide

__all__ = [
    "Additive",
    "Bilinear",
    "Dot",
    "Function",
    "PreparedKey",
    "Rotary",
    "ScaledDot",
    "Score",
    "as_score",
    "compile_additive",
    "is_own",
]


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

    It takes exponentials once per query and once per key instead of a tanh per pair, and holds nothing of
    size N*M*A, neither forward nor backward. Only traced or transformed calls and second derivatives do.

    Args:
        query_dim: E_q, width of a query.
        key_dim: E_k, width of a key; may differ from E_q.
        hidden_dim: A, width of the hidden layer.
        bias: Add a learned vector inside the tanh, which the source has not. Default: none.
        device: Where the parameters live. Default: torch's default device.
        dtype: Type of the parameters. Default: torch's default type.
    """

    finite = True
    needs_visible = True
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

    def prepare_key(self, key: Tensor, *, visible: Tensor | None = None, start: int = 0) -> PreparedKey:
        return factorise(super().prepare_key(key, visible=visible, start=start), visible)

    def project_key(self, key: Tensor) -> Tensor:
        check_width("key", key, "E_k", self.W2.shape[0])
        projected = key @ self.W2  # (..., M, A)
        return projected if self.bias is None else projected + self.bias

    def forward(self, query: Tensor, prepared: PreparedKey, *, start: int | None = None) -> Tensor:  # noqa: ARG002
        check_width("query", query, "E_q", self.W1.shape[0])
        return projected_scores(query, self.W1, prepared, self.b)

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
        return scores.to(wide(scores.dtype))


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


def is_own(score: Score) -> bool:
    """Tell whether a score is exactly one of the library's.

    Such a score returns a tensor of its own, which may be overwritten, and depends on nothing but its
    arguments and parameters. A subclass may do otherwise.

    Args:
        score: The score.

    Returns:
        Whether it is.
    """
    if isinstance(score, Rotary):
        return is_own(score.score)
    return type(score) in (ScaledDot, Dot, Bilinear, Additive)


def _products(query: Tensor, key: Tensor, scale: Tensor | float) -> Tensor:
    check_width("query", query, "the prepared key's width", key.shape[-1])
    dtype = wide(query.dtype)
    query, key = query.to(dtype), key.to(dtype)
    with full_precision(query.device.type):
        is_compiled = torch.compiler.is_compiling()  # baddbmm would tie the sizes of an export together
        if is_compiled or isinstance(scale, Tensor) or query.ndim < 3 or query.shape[:-2] != key.shape[:-2]:
            return (query * scale) @ key.mT  # (..., N, M); scaling the query costs N*E, the scores N*M
        # The product of matrices scales on its way; beta = 0 says that nothing is added.
        rows, columns = query.flatten(0, -3), key.flatten(0, -3).mT
        products = torch.baddbmm(rows.new_empty(1, 1, 1), rows, columns, beta=0, alpha=scale)
        return products.view(*query.shape[:-1], key.shape[-2])


_SCALED_DOT = ScaledDot()
