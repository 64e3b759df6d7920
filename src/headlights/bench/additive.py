"""Contestants at additive scores, tanh(u W1 + v W2) b for every pair of a query u and a key v."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from headlights.attention import _factorised, scores
from headlights.bench.contestant import Build, Call, Contestants, Out, Place

EAGER = "headlights, no compiler"
Scores = Callable[[Tensor, Tensor, scores.Additive], Tensor]
"""Queries (B, N, E), keys (B, M, E) and the parameters to scores (B, N, M)."""


@dataclass(frozen=True)
class AdditiveInputs:
    """What every contestant gets.

    Attributes:
        query: Shape (B, N, E).
        key: Shape (B, M, E).
        score: Our module, whose parameters all others use.
        gradient: What comes back to the scores in a backward pass, shape (B, N, M).
    """

    query: Tensor
    key: Tensor
    score: scores.Additive
    gradient: Tensor


def draw_additive(
    batch: int, queries: int, keys: int, hidden: int, place: Place, *, width: int = 8
) -> AdditiveInputs:
    """Draw the inputs, the same in every process.

    Args:
        batch: B.
        queries: N.
        keys: M.
        hidden: A, width of the hidden layer.
        place: Where and in which type.
        width: E, width of queries and keys before they are projected. Default: 8, so that the projections,
            which all need, hardly count.

    Returns:
        The inputs.
    """
    torch.manual_seed(0)
    score = scores.Additive(width, width, hidden).to(device=place.device, dtype=place.dtype)
    query, key = place.draw(batch, queries, width), place.draw(batch, keys, width)
    return AdditiveInputs(query, key, score, place.draw(batch, queries, keys))


def forward(inputs: AdditiveInputs) -> Contestants:
    """The scores, from queries and keys as they come.

    Args:
        inputs: What they get.

    Returns:
        The contestants.
    """
    return {
        "textbook": lambda: lambda: (_textbook(inputs.query, inputs.key, inputs.score),),
        **_both_ways(lambda: lambda: (_ours(inputs.query, inputs.key, inputs.score),)),
        "textbook, compiled": lambda: lambda: (_compiled()(inputs.query, inputs.key, inputs.score),),
    }


def forward_backward(inputs: AdditiveInputs) -> Contestants:
    """The scores and the gradients of inputs and parameters.

    Args:
        inputs: What they get.

    Returns:
        The contestants.
    """
    return {
        "textbook": lambda: _backward(inputs, _textbook),
        **_both_ways(lambda: _backward(inputs, _ours)),
        "textbook, compiled": lambda: _backward(inputs, _compiled()),
    }


def step(inputs: AdditiveInputs) -> Contestants:
    """A decoder's step: keys prepared before, one query each.

    Args:
        inputs: What they get.

    Returns:
        The contestants.
    """
    score = inputs.score

    def textbook() -> Call:
        keys = inputs.key @ score.W2  # (B, M, A)
        return lambda: (torch.tanh((inputs.query @ score.W1)[:, :, None] + keys[:, None]) @ score.b,)

    def ours() -> Call:
        prepared = score.prepare_key(inputs.key)
        return lambda: (score(inputs.query, prepared),)

    return {"textbook": textbook, **_both_ways(ours)}


def _both_ways(build: Build) -> Contestants:
    """Ours with its compiled kernels, if they can be had, and without."""

    def eager() -> Call:
        call = build()

        def without_kernels() -> tuple[Tensor, ...]:
            names = vars(_factorised)
            kept = names["kernels_after"]
            names["kernels_after"] = lambda terms: None  # noqa: ARG005
            try:
                return call()
            finally:
                names["kernels_after"] = kept

        return without_kernels

    compiled = scores.compile_additive()
    return {"headlights": build if compiled else Out("no C++ compiler is here"), EAGER: eager}


def _textbook(query: Tensor, key: Tensor, score: scores.Additive) -> Tensor:
    hidden = torch.tanh((query @ score.W1)[:, :, None] + (key @ score.W2)[:, None])  # (B, N, M, A)
    return hidden @ score.b


@cache
def _compiled() -> Scores:
    """The textbook's lines, compiled once for all sizes."""
    compiled: Scores = torch.compile(_textbook, dynamic=True)
    return compiled


def _ours(query: Tensor, key: Tensor, score: scores.Additive) -> Tensor:
    found: Tensor = score(query, score.prepare_key(key))
    return found


def _backward(inputs: AdditiveInputs, function: Scores) -> Call:
    query, key = inputs.query.clone().requires_grad_(), inputs.key.clone().requires_grad_()
    leaves = [query, key, *inputs.score.parameters()]

    def call() -> tuple[Tensor, ...]:
        with torch.enable_grad():
            found = function(query, key, inputs.score)
            return found.detach(), *torch.autograd.grad(found, leaves, inputs.gradient)

    return call
