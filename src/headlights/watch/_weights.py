"""Weights beside the model: computed again from what they depend on, or found in what a module returns."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from headlights.attention import Observation
from headlights.attention._mask_rules import Grid
from headlights.attention._reference import softmax
from headlights.attention._scores import Additive, Bilinear, Dot, Function, ScaledDot
from headlights.watch._operations import Attention

BLOCK_WEIGHTS = 2**20
"""How many weights are held at once while something smaller is kept of them: 4 MiB of float32."""

_WITHOUT_RANDOMNESS = (Dot, ScaledDot, Bilinear, Additive)


def observe_attention(call: Attention, observations: tuple[Observation, ...]) -> tuple[Any, ...]:
    """Compute the clean weights of a call, block of query rows by block, and keep what is asked for.

    Args:
        call: What the weights depend on.
        observations: What to keep.

    Returns:
        One result per observation, detached.
    """
    N, M = call.query.shape[-2], call.prepared.length
    grid = Grid(call.leading, N, M, call.query.device)
    first = call.prepared.start + M - N  # position of the first query: the last one stands at the last key

    def block(rows: slice) -> Tensor:
        query = call.query if rows.stop - rows.start == N else call.query[..., rows, :]
        # Not called as a module: hooks on the score belong to the model's own call.
        scores = call.score.forward(query, call.prepared, start=first + rows.start)
        visible, bias = call.mask.evaluate(grid, rows.start, rows.stop) if call.mask else (None, None)
        return softmax(scores, visible, bias, finite=call.score.finite)

    # A callable of the user's may look at all queries together, say to add a matrix of biases.
    whole = isinstance(call.score, Function)
    with _same_random_state(call):
        return _collect(block, (*call.leading, N, M), observations, whole=whole)


def observe_returned(weights: Tensor, observations: tuple[Observation, ...]) -> tuple[Any, ...]:
    """Keep what is asked for of weights that the model computed itself.

    Args:
        weights: Float, shape (..., N, M), any number of leading dimensions. A row that is all NaN, torch's
            softmax over no visible key, counts as zeros.
        observations: What to keep.

    Returns:
        One result per observation, detached and sharing no memory with `weights`.
    """
    wide = torch.promote_types(weights.dtype, torch.float32)

    def block(rows: slice) -> Tensor:
        kept = weights[..., rows, :].detach().to(wide)
        return kept.masked_fill(_nan_rows(kept), 0)

    return _collect(block, tuple(weights.shape), observations)


def returned_parts(output: object) -> list[object]:
    """Take what a module returned apart.

    Args:
        output: A tensor, or a tuple, list or mapping of anything.

    Returns:
        Its parts in order; the output itself if it has none.
    """
    if isinstance(output, Mapping):
        return list(output.values())
    return list(output) if isinstance(output, tuple | list) else [output]


def weights_among(parts: list[object]) -> Tensor | None:
    """Find attention weights: the last tensor whose rows are distributions.

    Rows that sum to less than 1 (an attention sink was cut off) and rows of NaN (no key was visible) are
    taken too, except in the first place, where most modules return the context.

    Args:
        parts: What a module returned, in order.

    Returns:
        The tensor itself, or None if nothing looks like weights.
    """
    for position in reversed(range(len(parts))):
        part = parts[position]
        if isinstance(part, Tensor) and _holds_distributions(part, strict=position == 0):
            return part
    return None


def _holds_distributions(tensor: Tensor, *, strict: bool) -> bool:
    if tensor.is_nested or not tensor.is_floating_point() or tensor.ndim < 2:
        return False
    if not strict:
        tensor = tensor.masked_fill(_nan_rows(tensor), 0)
    sums = tensor.sum(-1, dtype=torch.promote_types(tensor.dtype, torch.float32))
    slack = max(1e-4, 4 * torch.finfo(tensor.dtype).eps)
    fits = ((sums - 1).abs() <= slack) | (sums == 0) if strict else sums <= 1 + slack
    return bool((tensor >= 0).all() & fits.all())


def _nan_rows(tensor: Tensor) -> Tensor:
    return tensor.isnan().all(-1, keepdim=True)


def _same_random_state(call: Attention) -> AbstractContextManager[None]:
    if type(call.score) in _WITHOUT_RANDOMNESS:
        return nullcontext()
    device = call.query.device
    return torch.random.fork_rng([device] if device.type == "cuda" else [])


def _collect(
    block: Callable[[slice], Tensor],
    shape: tuple[int, ...],
    observations: tuple[Observation, ...],
    *,
    whole: bool = False,
) -> tuple[Any, ...]:
    collectors = [observation.start(shape) for observation in observations]
    for rows in _row_blocks(shape, whole):
        weights = block(rows).expand(*shape[:-2], rows.stop - rows.start, shape[-1])
        for collector in collectors:
            collector.update(rows, weights)
    return tuple(collector.result() for collector in collectors)


def _row_blocks(shape: tuple[int, ...], whole: bool) -> Iterator[slice]:
    N = shape[-2]
    row = max(1, torch.Size(shape).numel() // max(N, 1))  # weights in one query row, all leading dimensions
    size = max(N, 1) if whole else max(1, BLOCK_WEIGHTS // row)
    for start in range(0, max(N, 1), size):  # no query at all still makes one, empty, block
        yield slice(start, min(start + size, N))
