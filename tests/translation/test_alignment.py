"""Word alignments and their error rate, by numbers derived by hand."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headlights.translation.alignment import (
    AlignmentCounts,
    copy_unknown,
    count_links,
    pharaoh,
    strongest_links,
    word_weights,
)

links_of_a_sentence = st.sets(st.tuples(st.integers(0, 4), st.integers(0, 4)))


def test_words_sum_over_source_tokens_and_average_over_target_tokens() -> None:
    # Target tokens: word 0 in two pieces, word 1, end mark. Source tokens: word 0, word 1 in two pieces, end.
    weights = torch.tensor(
        [
            [0.50, 0.25, 0.125, 0.125],
            [0.00, 0.50, 0.25, 0.25],
            [0.75, 0.00, 0.125, 0.125],
            [0.25, 0.25, 0.25, 0.25],
        ]
    )
    # Word 0 to word 0: (.5 + 0) / 2; to word 1: (.25 + .125 + .5 + .25) / 2. Word 1: .75 and 0 + .125.
    expected = [[0.25, 0.5625], [0.75, 0.125]]
    assert word_weights(weights, [0, 0, 1, None], [0, 1, 1, None]).tolist() == expected


def test_a_word_without_a_token_has_zeros() -> None:
    weights = torch.tensor([[0.5, 0.25, 0.25], [0.25, 0.25, 0.5]])
    assert word_weights(weights, [1, None], [0, 2, None]).tolist() == [[0.0, 0.0, 0.0], [0.5, 0.0, 0.25]]
    counted = word_weights(weights, [0, None], [0, 1, None], counts=(2, 3))
    assert counted.tolist() == [[0.5, 0.25, 0.0], [0.0, 0.0, 0.0]]
    assert strongest_links(counted) == ((0, 0),)


def test_no_words_at_all() -> None:
    assert word_weights(torch.ones(1, 1), [None], [None]).shape == (0, 0)
    assert word_weights(torch.ones(1, 2), [None], [0, None]).shape == (0, 1)
    assert strongest_links(torch.zeros(0, 3)) == strongest_links(torch.zeros(3, 0)) == ()


def test_case19_end_mark_and_padding_never_win() -> None:
    # Source: two words and the end mark, which gets most of the second row; nothing of it reaches a word.
    weights = torch.tensor([[0.6, 0.1, 0.3], [0.1, 0.3, 0.6], [0.0, 0.1, 0.9]])
    between = word_weights(weights, [0, 1, None], [0, 1, None])
    assert between.tolist() == weights[:2, :2].tolist()
    assert strongest_links(between) == ((0, 0), (1, 1))


def test_strongest_links_take_one_source_word_for_each_target_word() -> None:
    weights = torch.tensor([[0.1, 0.7, 0.2], [0.0, 0.0, 0.0], [0.3, 0.2, 0.1], [0.0, 0.6, 0.1]])
    assert strongest_links(weights) == ((1, 0), (0, 2), (1, 3))


def test_weights_of_another_size_are_refused() -> None:
    text = r"weights must have shape \(target tokens, source tokens\) = \(2, 3\), got \(3, 2\)"
    with pytest.raises(ValueError, match=text):
        word_weights(torch.zeros(3, 2), [0, 1], [0, 1, None])


def test_pharaoh_writes_source_first_and_sorts() -> None:
    assert pharaoh([(2, 0), (0, 1), (0, 0), (10, 3)]) == "0-0 0-1 2-0 10-3"
    assert pharaoh([]) == ""


def test_counts_and_error_rate_by_hand() -> None:
    # A = {00, 12, 21, 33}; S = {00, 11}; P = S + {12, 21}. |A∩S| = 1 (00), |A∩P| = 3 (00, 12, 21).
    counts = count_links([(0, 0), (1, 2), (2, 1), (3, 3)], [(0, 0), (1, 1)], [(1, 2), (2, 1)])
    assert counts == AlignmentCounts(links=4, sure=2, sure_found=1, possible_found=3)
    assert counts.error_rate == pytest.approx(1 - (1 + 3) / (4 + 2))
    # Twice the same link is one link; a sure link said again as possible changes nothing.
    assert count_links([(0, 0), (0, 0)], [(0, 0)], [(0, 0)]) == AlignmentCounts(1, 1, 1, 1)
    # Sentences add up before dividing: 1 - (1 + 3 + 1 + 1) / (4 + 2 + 1 + 1).
    total = counts + AlignmentCounts(1, 1, 1, 1)
    assert total == AlignmentCounts(5, 3, 2, 4)
    assert total.error_rate == pytest.approx(0.25)


def test_error_rate_at_the_ends() -> None:
    assert AlignmentCounts().error_rate == 0.0
    assert count_links([], [(0, 0)]).error_rate == 1.0
    assert count_links([(1, 1)], [(0, 0)]).error_rate == 1.0
    assert count_links([(1, 1)], [], [(1, 1)]).error_rate == 0.0


@given(links=links_of_a_sentence, sure=links_of_a_sentence, possible=links_of_a_sentence)
def test_error_rate_stays_in_its_range(
    links: set[tuple[int, int]], sure: set[tuple[int, int]], possible: set[tuple[int, int]]
) -> None:
    counts = count_links(links, sure, possible)
    assert 0.0 <= counts.error_rate <= 1.0
    assert count_links(sure, sure, possible).error_rate == 0.0
    assert counts.sure_found == sum(link in sure for link in links)
    assert counts.possible_found == sum(link in sure or link in possible for link in links)


def numbers(text: str, mark: str, base: int) -> list[tuple[int, int]]:
    pairs: Sequence[list[str]] = [part.split(mark) for part in text.split() if mark in part]
    return [(int(source) - base, int(target) - base) for source, target in pairs]


@pytest.mark.parametrize(("languages", "published"), [("enfr", 4.1), ("roen", 20.7)])
def test_published_error_rates(languages: str, published: float) -> None:
    root = os.environ.get("HEADLIGHTS_SHARED")
    folder = Path(root or ".") / "data" / "alignments"
    if root is None or not folder.is_dir():
        pytest.skip("set HEADLIGHTS_SHARED to a folder with data/alignments to check published figures")
    gold = (folder / f"{languages}.gold").read_text(encoding="utf-8").splitlines()
    system = (folder / f"{languages}.awesome-align.out").read_text(encoding="utf-8").splitlines()
    counts = AlignmentCounts()
    for truth, found in zip(gold, system, strict=True):
        counts += count_links(numbers(found, "-", 0), numbers(truth, "-", 1), numbers(truth, "p", 1))
    assert round(100 * counts.error_rate, 1) == published


def test_case19_an_unknown_word_is_the_source_word_looked_at_most() -> None:
    # Source tokens: three words (the second in two pieces), end mark, padding; the last two hold the most.
    weights = torch.tensor(
        [
            [0.70, 0.10, 0.10, 0.10, 0.05, 0.05],
            [0.05, 0.10, 0.15, 0.10, 0.60, 0.00],  # the end mark wins, then the second word: .10 + .15
            [0.10, 0.05, 0.05, 0.20, 0.30, 0.30],  # padding, then the third word
            [0.00, 0.00, 0.00, 0.00, 1.00, 0.00],  # no word at all
        ]
    )
    between = word_weights(weights, [0, 1, 2, 3], [0, 1, 1, 2, None, None])
    source = ["We", "Zwornikdal", "Oberkessach"]
    found = copy_unknown(["Wir", "<unk>", "<unk>", "<unk>"], [1, 2, 3], source, between)
    assert found == ("Wir", "Zwornikdal", "Oberkessach", "<unk>")
    assert copy_unknown(["<unk>"], [0], [], torch.zeros(1, 0)) == ("<unk>",)
    assert copy_unknown(["a", "b"], [], source, between) == ("a", "b")
