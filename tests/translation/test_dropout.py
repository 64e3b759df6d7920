"""Dropout with random bits, and of whole words: how much it drops, what it scales, and where."""

from typing import Any

import pytest
import torch

from headlights.translation.architectures import RecurrentConfig, TransformerConfig
from headlights.translation.dropout import Dropout, WordDropout, dropout


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
    for kind in (Dropout, WordDropout):
        with pytest.raises(ValueError, match=f"p must be at least 0 and below 1, got {p}"):
            kind(p)


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_words_are_dropped_whole_and_the_others_stay_as_they_are(p: float) -> None:
    torch.manual_seed(4)
    embedded = torch.randn(200, 100, 3)
    found = WordDropout(p)(embedded)
    kept = (found != 0).all(-1)
    assert torch.equal(found[kept], embedded[kept])
    assert not found[~kept].any()
    deviation = (p * (1 - p) / kept.numel()) ** 0.5  # binomial
    assert abs(float(kept.double().mean()) - (1 - p)) < 5 * deviation
    assert WordDropout(p).eval()(embedded) is embedded
    assert WordDropout(0.0)(embedded) is embedded


SMALL: dict[str, Any] = {"embed_dim": 4, "dropout": 0.0, "word_dropout": 0.5}


@pytest.mark.parametrize(
    "config",
    [
        RecurrentConfig(**SMALL, hidden_dim=6, encoder_dim=3, score_dim=3),
        TransformerConfig(**SMALL, heads=2, layers=1, feedforward_dim=5),
    ],
    ids=["recurrent", "transformer"],
)
@pytest.mark.parametrize("side", ["source", "target"])
def test_models_leave_words_of_either_side_unread_in_training(config: Any, side: str) -> None:
    """A sentence of one token that is left unread is read as any other is that is left unread."""
    encoder, decoder = config.make(9, 9, pad_id=0)
    first, second = torch.tensor([[3]] * 64), torch.tensor([[4]] * 64)

    def read(ids: torch.Tensor, *, training: bool) -> torch.Tensor:
        encoder.train(training and side == "source")
        decoder.train(training and side == "target")
        torch.manual_seed(5)  # the same are left unread
        source, target = (ids, first) if side == "source" else (first, ids)
        states: torch.Tensor = decoder(target, encoder(source, torch.ones(64, dtype=torch.int64))).states
        return states[:, 0]

    alike = (read(first, training=True) - read(second, training=True)).abs().amax(1) < 1e-7
    assert 16 < int(alike.sum()) < 48  # of 64, each with 1/2
    assert not ((read(first, training=False) - read(second, training=False)).abs().amax(1) < 1e-7).any()
