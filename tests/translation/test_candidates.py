"""The best words of a vocabulary against a sort of all of it, in float64."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headlights.translation.candidates import best_tokens, highest


@given(
    rows=st.integers(0, 3),
    words=st.integers(1, 700),
    count=st.integers(1, 12),
    levels=st.sampled_from([3, 10**6]),  # few of them, so that many are equal
    seed=st.integers(0, 99),
)
def test_highest_are_those_of_a_sort(rows: int, words: int, count: int, levels: int, seed: int) -> None:
    count = min(count, words)
    logits = torch.randint(levels, (rows, words), generator=torch.Generator().manual_seed(seed)).float()
    found, tokens = highest(logits, count)
    assert torch.equal(found, logits.sort(1, descending=True).values[:, :count])
    assert torch.equal(logits.gather(1, tokens), found)
    assert all(len(set(row)) == count for row in tokens.tolist())


@pytest.mark.parametrize("words", [40, 2000])
def test_log_probabilities_are_of_all_words(words: int) -> None:
    logits = 10.0 * torch.randn(5, words, generator=torch.Generator().manual_seed(1))
    expected = logits.double().log_softmax(1)
    scores, tokens = best_tokens(logits, 4, [], None)
    assert tokens.tolist() == expected.topk(4).indices.tolist()
    assert torch.allclose(scores.double(), expected.gather(1, tokens), rtol=0.0, atol=1e-5)


def test_a_forbidden_word_takes_no_place_from_the_others() -> None:
    logits = torch.arange(300.0).repeat(2, 1)
    scores, tokens = best_tokens(logits, 2, [299, 7], None)
    assert tokens.tolist() == [[299, 298, 297, 296]] * 2
    # log softmax of 298 among ..., 298, 299: -1 - log(1 + 1/e + 1/e^2 + ...) = -1 + log(1 - 1/e) = -1.45868
    assert torch.allclose(scores[:, 1], torch.tensor(-1.45868), atol=1e-4)
    assert scores.isneginf().tolist() == [[True, False, False, False]] * 2


def test_a_wanted_word_comes_alone() -> None:
    logits = torch.arange(300.0).repeat(2, 1)
    scores, tokens = best_tokens(logits, 2, [], torch.tensor([-1, 290]))
    assert tokens[0].tolist() == [299, 298]
    assert int(tokens[1, 0]) == 290
    assert torch.allclose(scores[1, 0], torch.tensor(-9.45868), atol=1e-4)
    assert scores.isneginf().tolist() == [[False, False], [False, True]]


@pytest.mark.parametrize("words", [40, 2000])
def test_nan_is_seen(words: int) -> None:
    logits = torch.zeros(1, words)
    logits[0, 17] = torch.nan
    assert best_tokens(logits, 2, [], None)[0].isnan().any()
