"""Forced prefixes: search among what begins with them, scores that count them, and limits that leave room."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headlights.translation.prefixes import Prefixes
from headlights.translation.search import SearchOptions, search
from tests.translation.test_search import in_plain_loops, same
from tests.translation.toy_decoder import BOS, EOS, Toy, log_softmax, scattered, sources

seeds = st.integers(0, 10**6)
written = st.lists(st.integers(2, 3), max_size=3).map(tuple)  # the toy's tokens but `bos` and `eos`


def run(toy: Toy, lengths: tuple[int, ...], prefixes: list[tuple[int, ...]], **options: Any) -> Any:
    options = {"max_ratio": 0.0, "max_extra": 4, **options}
    return search(
        toy,
        sources(*lengths),
        SearchOptions(**options),
        bos_id=BOS,
        eos_id=EOS,
        forbidden=(BOS,),
        prefixes=prefixes,
    )


@given(
    seed=seeds,
    prefix=written,
    limit=st.integers(1, 4),
    penalty=st.sampled_from([0.0, 1.0]),
    n_best=st.integers(1, 5),
)
@settings(max_examples=25, deadline=None)
def test_a_beam_that_holds_everything_is_exhaustive_search_behind_the_prefix(
    seed: int, prefix: tuple[int, ...], limit: int, penalty: float, n_best: int
) -> None:
    table = scattered(seed)
    longest = max(limit, len(prefix) + 1)
    everything = in_plain_loops(table, 0, limit=longest, penalty=penalty, beam=None)
    expected = [found for found in everything if found.ids[: len(prefix)] == prefix]
    assert 0 < len(expected) <= len(everything)
    options = {"beam": 24, "max_extra": limit, "length_penalty": penalty, "n_best": n_best}
    assert same(run(Toy(table), (3,), [prefix], **options)[0], expected[:n_best])


@given(seed=seeds, prefix=written)
@settings(max_examples=15, deadline=None)
def test_greedy_search_goes_on_behind_the_prefix(seed: int, prefix: tuple[int, ...]) -> None:
    table, total = scattered(seed), 0.0
    found: tuple[int, ...] = ()
    while len(found) < 7:
        row = log_softmax(table(0, found))
        best = max((t for t in range(4) if t != BOS), key=row.__getitem__)
        token = prefix[len(found)] if len(found) < len(prefix) else best
        total += row[token]
        if token == EOS:
            break
        found = (*found, token)
    (hypothesis,) = run(Toy(table), (1,), [prefix], beam=1, max_extra=7)[0]
    assert hypothesis.ids == found
    assert hypothesis.score == pytest.approx(total, abs=1e-5)
    assert hypothesis.cut == (len(found) == 7)


@given(seed=seeds, beam=st.integers(1, 4), prefixes=st.lists(written, min_size=1, max_size=4))
@settings(max_examples=15, deadline=None)
def test_a_batch_with_prefixes_equals_its_sentences_one_by_one(
    seed: int, beam: int, prefixes: list[tuple[int, ...]]
) -> None:
    table, lengths = scattered(seed), tuple(range(1, len(prefixes) + 1))
    together = run(Toy(table), lengths, prefixes, beam=beam, n_best=beam)
    for place, prefix in enumerate(prefixes):

        def only(sentence: int, written: tuple[int, ...], place: int = place) -> Sequence[float]:
            return table(place, written)

        alone = run(Toy(only), (place + 1,), [prefix], beam=beam, n_best=beam)[0]
        assert [(h.ids, h.cut) for h in together[place]] == [(h.ids, h.cut) for h in alone]
        assert all(h.ids[: len(prefix)] == prefix for h in alone)


def test_no_prefix_changes_nothing() -> None:
    options = SearchOptions(beam=3, n_best=3)
    without = search(Toy(scattered(5)), sources(3, 1), options, bos_id=BOS, eos_id=EOS, forbidden=(BOS,))
    with_empty = search(
        Toy(scattered(5)),
        sources(3, 1),
        options,
        bos_id=BOS,
        eos_id=EOS,
        forbidden=(BOS,),
        prefixes=[(), ()],
    )
    assert without == with_empty


def test_the_limit_leaves_room_for_the_prefix_and_one_token_more() -> None:
    begun = Prefixes([(2,) * 9, (3,), ()], count=3, barred=(EOS,), device=torch.device("cpu"))
    # int(1.5 * 2) + 1 = 4 tokens, but 9 + 1; int(1.5 * 3) + 1 = 5; int(1.5 * 1) + 1 = 2
    assert begun.limits([2, 3, 1], max_ratio=1.5, max_extra=1) == [10, 5, 2]
    found = run(Toy(scattered(2)), (1,), [(2,) * 9], max_extra=1)[0][0]
    assert found.ids[:9] == (2,) * 9
    assert len(found.ids) + (not found.cut) == 10


def test_refusals() -> None:
    toy = Toy(scattered(1))
    with pytest.raises(ValueError, match="prefixes must be one per sentence, got 1 for 2 sentences"):
        run(toy, (1, 1), [(2,)])
    text = "prefixes must not hold a token that ends a sentence or is never written, got {} for sentence 1"
    for token in (BOS, EOS):
        with pytest.raises(ValueError, match=text.format(token)):
            run(toy, (1, 1), [(2,), (2, token)])
