"""The whole grid: paths x scores x masks x dropout x types x observations x sizes, against float64 loops.

The normal run draws a fixed sample; HEADLIGHTS_FULL=1 runs every combination.
"""

import itertools
import os
import random
from typing import Any

import pytest
import torch
from torch import Tensor

from headlights import attend, masks, observations, scores
from headlights.attention import Mask
from tests.attention.oracle import PairScore, close, dot, loops, scaled_dot

SIZES = [(2, 3, 0, 5), (2, 3, 5, 0), (1, 2, 1, 1), (2, 1, 7, 3), (3, 2, 5, 11), (2, 2, 1, 7)]  # B, H, N, M
E, E_V, RATE = 2, 3, 0.4
DTYPES = [torch.float64, torch.float32, torch.bfloat16]


def _score(name: str) -> tuple[Any, PairScore]:
    if name == "dot":
        return scores.Dot(0.7), dot(0.7)
    if name == "scaled_dot":
        return scores.ScaledDot(), scaled_dot
    if name == "bilinear":
        bilinear = scores.Bilinear(E, E, dtype=torch.float64)
        return bilinear, lambda q, k: q @ bilinear.W.double() @ k
    if name == "additive":
        additive = scores.Additive(E, E, 5, dtype=torch.float64)
        a = additive
        return a, lambda q, k: torch.tanh(q @ a.W1.double() + k @ a.W2.double()) @ a.b.double()
    factor = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    return (
        lambda q, k: (q @ k.mT) * factor.to(q.dtype),
        lambda q, k: (q * k).sum() * factor,
    )


def _mask(name: str, B: int, H: int, N: int, M: int) -> tuple[Mask | None, Tensor | None, Tensor | None]:
    rows, keys = torch.arange(N)[:, None] + M - N, torch.arange(M)
    if name == "none":
        return None, None, None
    if name == "causal_lengths":
        lengths = torch.arange(B) * 3  # the first example is empty
        visible = (keys <= rows) & (keys < lengths[:, None, None, None])
        return masks.causal() & masks.lengths(lengths), visible, None
    if name == "window":
        return masks.window(2, 1), (keys >= rows - 2) & (keys <= rows + 1), None
    if name == "keep":
        visible = torch.rand(B, 1, N, M) > 0.4
        return masks.keep(visible), visible, None
    if name == "segments":
        query_ids, key_ids = torch.arange(N) // 2, torch.arange(M) // 3
        return masks.segments(query_ids, key_ids), query_ids[:, None] == key_ids, None
    bias = torch.randn(H, N, M, dtype=torch.float64).masked_fill(torch.rand(H, N, M) > 0.6, -torch.inf)
    return masks.bias(bias) & masks.causal(), keys <= rows, bias


OBSERVATIONS: dict[str, Any] = {
    "nothing": None,
    "all": (
        observations.Weights(),
        observations.MeanWeights(),
        observations.TopWeights(2),
        observations.Entropy(),
        observations.Received(),
    ),
}
GRID = list(
    itertools.product(
        ["reference", "blocked", "fused"],
        ["dot", "scaled_dot", "bilinear", "additive", "callable"],
        ["none", "causal_lengths", "window", "keep", "segments", "bias"],
        [False, True],
        DTYPES,
        list(OBSERVATIONS),
        SIZES,
    )
)


def _can(path: str, score: str, mask: str, _: bool, dtype: torch.dtype, seen: str, *sizes: Any) -> bool:
    return path != "fused" or (score in ("dot", "scaled_dot") and seen == "nothing")


CASES = [case for case in GRID if _can(*case)]
if not os.environ.get("HEADLIGHTS_FULL"):
    CASES = random.Random(7).sample(CASES, 160)


def _name(value: object) -> str:
    return "-".join(map(str, value)) if isinstance(value, tuple) else str(value).removeprefix("torch.")


@pytest.mark.parametrize(
    ("path", "score_name", "mask_name", "dropped", "dtype", "seen_name", "sizes"), CASES, ids=_name
)
def test_the_grid(
    path: Any,
    score_name: str,
    mask_name: str,
    dropped: bool,
    dtype: torch.dtype,
    seen_name: str,
    sizes: tuple[int, int, int, int],
) -> None:
    B, H, N, M = sizes
    width = M if dropped else E_V  # identity values show which weights dropout kept
    query, key = (torch.randn(B, H, n, E, dtype=torch.float64).to(dtype).requires_grad_() for n in (N, M))
    value = torch.eye(M).expand(B, H, M, M) if dropped else torch.randn(B, H, M, E_V, dtype=torch.float64)
    value = value.to(dtype).clone().requires_grad_()
    score, pair_score = _score(score_name)
    if isinstance(score, torch.nn.Module):
        score.to(dtype)
    mask, visible, bias = _mask(mask_name, B, H, N, M)
    if bias is not None and path == "fused":
        bias = bias.to(dtype)
        mask = masks.bias(bias) & masks.causal()
    expected, weights = loops(query, key, value, pair_score, visible, bias)
    observed = OBSERVATIONS[seen_name]
    if observed is not None:
        context, seen = attend(
            query, key, value, score=score, mask=mask, dropout=RATE * dropped, path=path, observe=observed
        )
        _check_observed(seen, weights.detach(), dtype)
    else:
        context = attend(query, key, value, score=score, mask=mask, dropout=RATE * dropped, path=path)
    if dropped:
        kept = (context.detach() != 0).double() / (1 - RATE)
        expected = (weights * kept) @ value.double()
    assert context.shape == (B, H, N, width)
    assert context.dtype == dtype
    assert close(context, expected)
    upstream = torch.randn_like(expected)
    leaves = [query, key, value]
    joined = (expected * upstream).sum() + sum(0 * leaf.double().sum() for leaf in leaves)
    right = torch.autograd.grad(joined, leaves)
    got = torch.autograd.grad((context.double() * upstream).sum(), leaves)
    for mine, theirs in zip(got, right, strict=True):
        assert close(mine, theirs.double(), dtype)


def _check_observed(seen: Any, weights: Tensor, dtype: torch.dtype) -> None:
    all_of_them, mean, top, entropy, received = seen
    rounding = dtype  # a learned score projects in its own type
    assert close(all_of_them, weights, rounding)
    assert close(mean, weights.mean(-3), rounding)
    assert close(received, weights.sum(-2), rounding)
    safe = weights.where(weights > 0, torch.ones_like(weights))
    assert close(entropy, -(weights * safe.log()).sum(-1), rounding)
    ranked = weights.sort(-1, descending=True).values[..., :2]
    ranked = torch.nn.functional.pad(ranked, (0, 2 - ranked.shape[-1]))
    assert close(top.values, ranked, rounding)
    found = all_of_them.gather(-1, top.indices.clamp_min(0)) if weights.shape[-1] else top.values
    assert torch.equal(found.where(top.indices >= 0, torch.zeros_like(found)), top.values)
