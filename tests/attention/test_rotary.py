"""Rotary positions: the formula, distances only, chunks, and the paths."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headlights import attend, masks, scores
from tests.attention.oracle import close


def test_pairs_are_turned_by_their_angles() -> None:
    rotary = scores.Rotary(scores.Dot(), base=100.0)
    vector = torch.randn(1, 4, dtype=torch.float64)
    turned = rotary.turn(vector, start=3)
    for i, wave in enumerate((1.0, 100 ** (-2 / 4))):
        x, y = vector[0, i], vector[0, i + 2]
        angle = 3 * wave
        assert close(turned[0, i], x * math.cos(angle) - y * math.sin(angle))
        assert close(turned[0, i + 2], x * math.sin(angle) + y * math.cos(angle))
    assert torch.equal(rotary.turn(vector, start=0), vector)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 5000), st.integers(1, 5), st.integers(1, 7), st.booleans())
def test_scores_depend_on_distances_only(shift: int, N: int, M: int, scaled: bool) -> None:
    rotary = scores.Rotary(scores.ScaledDot() if scaled else scores.Dot())
    query, key = torch.randn(N, 6, dtype=torch.float64), torch.randn(M, 6, dtype=torch.float64)
    here = rotary(query, rotary.prepare_key(key, start=2), start=4)
    there = rotary(query, rotary.prepare_key(key, start=2 + shift), start=4 + shift)
    assert torch.allclose(here, there, atol=1e-11, rtol=0)


def test_keys_prepared_in_chunks_equal_one_pass() -> None:
    rotary = scores.Rotary(scores.ScaledDot())
    key = torch.randn(2, 7, 6)
    whole = rotary.prepare_key(key).key
    chunks = [rotary.prepare_key(key[:, a:b], start=a).key for a, b in ((0, 3), (3, 4), (4, 7))]
    assert torch.equal(whole, torch.cat(chunks, 1))


@pytest.mark.parametrize("path", ["reference", "blocked", "fused"])
def test_the_last_query_stands_at_the_last_key(small_blocks: None, path: Any) -> None:
    rotary = scores.Rotary(scores.ScaledDot())
    x = torch.randn(2, 3, 7, 6, dtype=torch.float64)
    full = attend(x, x, x, score=rotary, mask=masks.causal(), path="reference")
    for new in (1, 3, 7):
        part = attend(x[..., -new:, :], x, x, score=rotary, mask=masks.causal(), path=path)
        assert close(part, full[..., -new:, :])
        prepared = rotary.prepare_key(x, start=1000)
        part = attend(x[..., -new:, :], prepared, x, score=rotary, mask=masks.causal(), path=path)
        assert torch.allclose(part, full[..., -new:, :], atol=1e-10)


def test_halves_are_turned_in_float32() -> None:
    rotary = scores.Rotary(scores.ScaledDot())
    vectors = torch.randn(5, 8).bfloat16()
    assert torch.equal(rotary.turn(vectors, 900), rotary.turn(vectors.float(), 900).bfloat16())


def test_refusals() -> None:
    with pytest.raises(ValueError, match=r"Rotary: expected vectors of even width, got shape \(2, 3\)"):
        scores.Rotary(scores.Dot()).turn(torch.zeros(2, 3), 0)
    with pytest.raises(TypeError, match="score: expected a Score to wrap, got function"):
        scores.Rotary(lambda q, k: q @ k.mT)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"base: expected a number above 0, got -1\.0"):
        scores.Rotary(scores.Dot(), base=-1.0)
    assert repr(scores.Rotary(scores.Dot())).startswith("Rotary(\n  base=10000")
