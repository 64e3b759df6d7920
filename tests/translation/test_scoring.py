"""Scores of given translations against the decoder's own logits, and what they cost."""

from typing import Any

import pytest
import torch
from torch import Tensor

from headlights._errors import InputError
from headlights.translation.scoring import TargetScore
from tests.translation.test_translator import ENGLISH, ITALIAN, ODD, build, forced


@pytest.mark.parametrize("batch_tokens", [10, 4096])
def test_scores_are_sums_of_the_decoders_log_probabilities(batch_tokens: int) -> None:
    translator = build()
    found = translator.score(ENGLISH, ITALIAN, batch_tokens=batch_tokens)
    for source, target, score in zip(ENGLISH, ITALIAN, found, strict=True):
        with torch.no_grad():
            expected, attention = forced(translator, source, target)
        assert score.log_probability == pytest.approx(expected, rel=1e-6, abs=1e-5)
        assert score.tokens == len(attention)  # a row of attention for each token and for the end mark


@pytest.mark.parametrize("attention", ["additive", "none"])
def test_scores_are_those_of_align_in_order_and_blank_pairs_have_no_tokens(attention: Any) -> None:
    translator = build(score=attention)
    targets = ["Un cane dorme.", "", "\u00a0", "Il", *ITALIAN, *ITALIAN[:3]]
    found = translator.score(ODD, targets, batch_tokens=40)
    aligned = translator.align(ODD, targets, batch_tokens=50)
    for score, forcing in zip(found, aligned, strict=True):
        assert score.log_probability == pytest.approx(forcing.score, abs=1e-5)
        assert score.tokens == len(forcing.tokens)
    blank = [place for place, score in enumerate(found) if score == TargetScore(0.0, 0)]
    assert blank == [1, 2, 3, 5, 9]
    assert translator.score([], []) == []
    assert translator.score([" "], ["a"]) == [(0.0, 0)]


def test_logits_exist_for_one_chunk_of_tokens_and_attention_not_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    translator = build()
    model = translator.model
    sizes: list[int] = []
    needs: list[bool] = []
    project, forward = model.decoder.project, model.decoder.forward

    def watched(states: Tensor) -> Tensor:
        sizes.append(states.shape[:-1].numel())
        return project(states)

    def decode(*inputs: Any, need_weights: bool) -> Any:
        needs.append(need_weights)
        return forward(*inputs, need_weights=need_weights)

    monkeypatch.setattr(model.decoder, "project", watched)
    monkeypatch.setattr(model.decoder, "forward", decode)
    sources, targets = ENGLISH * 7, ITALIAN * 7
    tokens = sum(score.tokens for score in translator.score(sources, targets))
    assert needs == [False]
    assert tokens > 256
    assert max(sizes) == 256
    assert sum(sizes) == tokens  # padding is never projected
    sizes.clear()
    translator.align(sources, targets)
    assert (max(sizes), sum(sizes)) == (256, tokens)


def test_a_score_does_not_depend_on_what_stands_beside_it() -> None:
    translator = build()
    alone = translator.score(ENGLISH[:1], ITALIAN[:1])[0]
    beside = translator.score([*ENGLISH, "a " * 40], [*ITALIAN, "b " * 40])[0]
    assert beside.log_probability == pytest.approx(alone.log_probability, abs=1e-5)


@pytest.mark.parametrize("use", ["score", "align"])
def test_logits_that_are_nan_are_an_error(use: str) -> None:
    translator = build()
    with torch.no_grad():
        for parameter in translator.model.decoder.parameters():
            parameter.fill_(torch.nan)
    with pytest.raises(
        InputError, match=r"^the decoder's logits are NaN: the model is broken; train it again"
    ):
        getattr(translator, use)(ENGLISH, ITALIAN)


def test_refusals() -> None:
    translator = build()
    with pytest.raises(TypeError, match="sources must be a list of texts"):
        translator.score("A", ["B"])
    with pytest.raises(ValueError, match="score needs one target per source, got 1 sources, 2 targets"):
        translator.score(["A"], ["B", "C"])
