"""Dropout with random bits: how much it drops, what it scales, and where."""

import pytest
import torch

from headlights.translation.dropout import Dropout, dropout


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_each_place_is_dropped_as_often_as_it_should_and_the_mean_stays(p: float) -> None:
    torch.manual_seed(1)
    n = 40_000
    dropped = dropout(torch.ones(n, 7), p, True)  # 7: rows begin at every place in a drawn number
    kept = dropped != 0
    deviation = (p * (1 - p) / n) ** 0.5  # of one column's share, binomial
    assert kept.double().mean(0).sub(1 - p).abs().max() < 5 * deviation
    torch.testing.assert_close(
        dropped[kept], torch.full_like(dropped[kept], 1 / (1 - p)), rtol=1e-4, atol=0.0
    )


def test_neighbours_are_dropped_independently() -> None:
    torch.manual_seed(2)
    n = 100_000
    kept = (dropout(torch.ones(n, 4), 0.5, True) != 0).double() * 2 - 1  # the four share one drawn number
    correlation = kept.T @ kept / n
    assert (correlation - torch.eye(4)).abs().max() < 5 / n**0.5


def test_gradient_passes_where_the_value_did_with_the_same_scale() -> None:
    torch.manual_seed(3)
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    y = dropout(x, 0.4, True)
    y.sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    torch.testing.assert_close(x.grad * x, y.detach())


def test_the_seed_decides_what_is_dropped() -> None:
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(dropout(torch.ones(50), 0.5, True))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_numbers_keep_their_type(dtype: torch.dtype) -> None:
    assert dropout(torch.ones(9, dtype=dtype), 0.3, True).dtype == dtype


def test_it_acts_in_training_only_and_with_a_share_only() -> None:
    x = torch.randn(3, 4)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x
    assert not torch.equal(Dropout(0.5)(x), x)
    assert dropout(torch.empty(0, 4), 0.5, True).shape == (0, 4)


@pytest.mark.parametrize("p", [-0.1, 1.0, float("nan")])
def test_no_other_share_can_be_dropped(p: float) -> None:
    with pytest.raises(ValueError, match=f"p must be at least 0 and below 1, got {p}"):
        Dropout(p)
