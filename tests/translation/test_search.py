"""Search against exhaustive enumeration, plain loops and forced decoding."""

import math
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from headlights import scores
from headlights._errors import InputError
from headlights.translation.decoders import RecurrentDecoder
from headlights.translation.encoders import Memory
from headlights.translation.hypotheses import Hypothesis
from headlights.translation.search import SearchOptions, search
from tests.translation.toy_decoder import (
    BOS,
    EOS,
    Table,
    Toy,
    Written,
    alone,
    by_forcing,
    log_softmax,
    scattered,
    sources,
)


def run(
    table: Table, memory: Memory, *, forbidden: Sequence[int] = (BOS,), **options: Any
) -> list[list[Hypothesis]]:
    return search(Toy(table), memory, SearchOptions(**options), bos_id=BOS, eos_id=EOS, forbidden=forbidden)


class Found(NamedTuple):
    ids: tuple[int, ...]
    score: float
    normalised_score: float
    cut: bool


def in_plain_loops(
    table: Table, sentence: int, *, limit: int, penalty: float, beam: int | None
) -> list[Found]:
    """All that ends within the limit and is not lost by the beam, best first; without stopping early."""
    live: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    ended: list[Found] = []
    for step in range(1, limit + 1):
        grown = [
            ((*written, token), total + p)
            for written, total in live
            for token, p in enumerate(log_softmax(table(sentence, written)))
            if token != BOS
        ]
        live = []
        best = sorted(grown, key=lambda g: -g[1])[: None if beam is None else 2 * beam if beam > 1 else 1]
        for rank, (written, total) in enumerate(best):
            if written[-1] == EOS:
                if beam is None or rank < beam:
                    ended.append(Found(written[:-1], total, total / step**penalty, False))
            elif len(live) != beam:
                live.append((written, total))
        if step == limit:
            ended += [Found(written, total, total / step**penalty, True) for written, total in live]
    return sorted(ended, key=lambda f: (f.cut, -f.normalised_score))


def same(found: Sequence[Hypothesis], expected: Sequence[Found]) -> bool:
    return [(h.ids, h.cut) for h in found] == [(f.ids, f.cut) for f in expected] and all(
        h.score == pytest.approx(f.score, abs=1e-5)
        and h.normalised_score == pytest.approx(f.normalised_score, abs=1e-5)
        for h, f in zip(found, expected, strict=True)
    )


seeds = st.integers(0, 10**6)
penalties = st.sampled_from([0.0, 0.6, 1.0, 2.0])


@given(seed=seeds, limit=st.integers(1, 4), penalty=penalties, n_best=st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_a_beam_that_holds_everything_is_exhaustive_search(
    seed: int, limit: int, penalty: float, n_best: int
) -> None:
    table = scattered(seed)
    # Two tokens and the end mark: at the fourth step 8 prefixes with 3 continuations each, 24 in all.
    options: dict[str, Any] = {
        "beam": 24,
        "max_ratio": 0.0,
        "max_extra": limit,
        "length_penalty": penalty,
        "n_best": n_best,
    }
    expected = in_plain_loops(table, 0, limit=limit, penalty=penalty, beam=None)
    assert len(expected) == 2**limit + sum(2**k for k in range(limit))
    assert same(run(table, sources(3), **options)[0], expected[:n_best])


@given(seed=seeds, beam=st.integers(1, 5), penalty=penalties, data=st.data())
@settings(max_examples=60, deadline=None)
def test_case18_stopping_early_loses_nothing_that_the_beam_has(
    seed: int, beam: int, penalty: float, data: st.DataObject
) -> None:
    table, n_best = scattered(seed, vocab=5), data.draw(st.integers(1, beam))
    expected = in_plain_loops(table, 0, limit=7, penalty=penalty, beam=beam)
    options: dict[str, Any] = {
        "beam": beam,
        "max_ratio": 1.0,
        "max_extra": 4,
        "length_penalty": penalty,
        "n_best": n_best,
    }
    assert same(run(table, sources(3), **options)[0], expected[:n_best])


# Sums and means of log-probabilities disagree: "2" has .6 * .7 = .42 in 2 steps (with its end mark), "3 4 2"
# has .4 * .95^3 = .343 in 4. log(.42) / 2 = -.434 but log(.343) / 4 = -.268. After two steps the hypothesis
# that ends is ahead of the only open one (.4 * .95 = .38).
EARLY = {
    (): {2: 0.6, 3: 0.4},
    (2,): {EOS: 0.7, 4: 0.2, 3: 0.1},
    (3,): {4: 0.95, EOS: 0.05},
    (3, 4): {2: 0.95, EOS: 0.05},
    (3, 4, 2): {EOS: 0.95, 3: 0.05},
}


def early(sentence: int, written: tuple[int, ...]) -> list[float]:
    row = EARLY.get(written, {EOS: 0.6, 2: 0.2, 3: 0.2})
    return [math.log(row[token]) if token in row else -1e9 for token in range(5)]


@pytest.mark.parametrize(
    ("penalty", "ids", "total", "steps"), [(1.0, (3, 4, 2), 0.4 * 0.95**3, 4), (0.0, (2,), 0.42, 2)]
)
@pytest.mark.parametrize("beam", [2, 3, 5])
def test_case18_a_longer_better_hypothesis_overtakes(
    penalty: float, ids: tuple[int, ...], total: float, steps: int, beam: int
) -> None:
    for n_best in {1, min(3, beam), beam}:
        best = run(early, sources(4), beam=beam, n_best=n_best, length_penalty=penalty)[0][0]
        assert best.ids == ids
        assert best.score == pytest.approx(math.log(total), abs=1e-5)
        assert best.normalised_score == pytest.approx(math.log(total) / steps**penalty, abs=1e-5)


def test_a_beam_does_not_run_dry_when_its_best_end_together() -> None:
    # After one word both of the beam's best continuations end: "2" with .5 * .6 = .3, "3" with .4 * .7 = .28.
    # "2 4" (.5 * .4 = .2) goes on nevertheless, and wins by its mean: log(.2) / 3 = -.536 (its end is sure),
    # log(.3) / 2 = -.602, log(.28) / 2 = -.636.
    table: dict[tuple[int, ...], dict[int, float]] = {
        (): {2: 0.5, 3: 0.4, 4: 0.1},
        (2,): {EOS: 0.6, 4: 0.4},
        (3,): {EOS: 0.7, 4: 0.3},
    }

    def look_up(sentence: int, written: tuple[int, ...]) -> list[float]:
        row = table.get(written, {EOS: 1.0})
        return [math.log(row[token]) if token in row else -1e9 for token in range(5)]

    found = run(look_up, sources(4), beam=2, n_best=2)[0]
    assert [h.ids for h in found] == [(2, 4), (2,)]
    assert found[0].normalised_score == pytest.approx(math.log(0.2) / 3, abs=1e-5)
    # With patience 1 two that have ended are enough for a beam of 2, with 1.5 they are not.
    assert [h.ids for h in run(look_up, sources(4), beam=2, n_best=2, patience=1.0)[0]] == [(2,), (3,)]
    assert [h.ids for h in run(look_up, sources(4), beam=2, patience=1.5)[0]] == [(2, 4)]
    assert [h.ids for h in run(look_up, sources(4), beam=2, n_best=2, patience=0.1)[0]] == [(2,), (3,)]


@pytest.mark.parametrize("beam", [2, 5])
def test_coverage_decides_between_equals(beam: int) -> None:
    # "2" and "3" are equally probable. Two source tokens: "2" looks at the first all the time, "3" at both.
    looks: dict[tuple[int, ...], list[float]] = {(BOS, 2): [0.9, 0.1], (BOS, 3): [0.2, 0.8]}

    class Looking(Toy):
        def advance(self, token_ids: Tensor, state: Written, *, need_weights: bool = False) -> Any:
            logits, state, _ = super().advance(token_ids, state)
            rows = [looks.get(written, [0.8, 0.2]) for _, written in state.rows]
            return logits, state, torch.tensor(rows)[:, None, None] if need_weights else None

    def either(sentence: int, written: tuple[int, ...]) -> list[float]:
        return [-1e9, -1e9, math.log(0.55), math.log(0.45)] if not written else [-1e9, 0.0, -1e9, -1e9]

    def best(penalty: float) -> Hypothesis:
        options = SearchOptions(beam=beam, coverage_penalty=penalty)
        return search(Looking(either), sources(2), options, bos_id=BOS, eos_id=EOS, forbidden=(0,))[0][0]

    assert best(0.0).ids == (2,)
    assert best(0.0).weights is None
    # Received: "2" has .8 + .9 and .2 + .1; "3" has .8 + .2 = 1 and .2 + .8 = 1, so it loses nothing.
    covered = best(0.1)
    assert covered.ids == (3,)
    assert covered.normalised_score == pytest.approx(math.log(0.45) / 2, abs=1e-5)
    # log(.55) / 2 + b * log(.3) still wins if b is below (log(.55) - log(.45)) / 2 / -log(.3) = 0.083.
    assert best(0.08).ids == (2,)
    assert best(0.08).normalised_score == pytest.approx(math.log(0.55) / 2 + 0.08 * math.log(0.3), abs=1e-5)


@given(seed=seeds, beam=st.integers(2, 4), coverage=st.sampled_from([0.1, 0.5]))
@settings(max_examples=20, deadline=None)
def test_coverage_with_beams_equals_ranking_what_the_beam_ended(
    seed: int, beam: int, coverage: float
) -> None:
    def weights_of(written: tuple[int, ...]) -> list[float]:
        draw = random.Random(f"{seed} looks {written}")
        raw = [draw.random() for _ in range(3)]
        return [x / sum(raw) for x in raw]

    class Looking(Toy):
        def advance(self, token_ids: Tensor, state: Written, *, need_weights: bool = False) -> Any:
            logits, state, _ = super().advance(token_ids, state)
            rows = [weights_of(written[1:]) for _, written in state.rows]
            return logits, state, torch.tensor(rows)[:, None, None] if need_weights else None

    table = scattered(seed)
    options = SearchOptions(beam=beam, n_best=beam, coverage_penalty=coverage, max_ratio=0.0, max_extra=5)
    found = search(Looking(table), sources(3), options, bos_id=BOS, eos_id=EOS, forbidden=(BOS,))[0]
    ranked = []
    for f in in_plain_loops(table, 0, limit=5, penalty=1.0, beam=beam):
        steps = len(f.ids) + (not f.cut)
        received = [sum(weights_of(f.ids[:t])[m] for t in range(steps)) for m in range(3)]
        lost = sum(math.log(min(r, 1.0)) for r in received)
        ranked.append(Found(f.ids, f.score, f.normalised_score + coverage * lost, f.cut))
    ranked.sort(key=lambda f: (f.cut, -f.normalised_score))
    assert same(found, ranked[:beam])


def test_coverage_needs_attention() -> None:
    decoder = RecurrentDecoder(13, 5, 7, 11).eval()
    memory = Memory(torch.randn(1, 5, 11), torch.tensor([5]), torch.randn(1, 11))
    with pytest.raises(
        InputError, match="coverage_penalty needs a decoder with attention; this one has none"
    ):
        search(decoder, memory, SearchOptions(coverage_penalty=0.2), bos_id=1, eos_id=2)


@given(seed=seeds, penalty=penalties)
@settings(max_examples=40, deadline=None)
def test_s14_s15_beam_1_is_greedy(seed: int, penalty: float) -> None:
    table, total = scattered(seed), 0.0
    written: tuple[int, ...] = ()
    while len(written) < 8:
        row = log_softmax(table(0, written))
        token = max((t for t in range(4) if t != BOS), key=row.__getitem__)
        total += row[token]
        if token == EOS:
            break
        written = (*written, token)
    found = run(table, sources(1), beam=1, max_ratio=0.0, max_extra=8, length_penalty=penalty)[0]
    assert [h.ids for h in found] == [written]
    assert found[0].score == pytest.approx(total, abs=1e-5)
    assert found[0].cut == (len(written) == 8)


@given(seed=seeds, beam=st.integers(1, 4), lengths=st.lists(st.integers(1, 5), min_size=1, max_size=5))
@settings(max_examples=30, deadline=None)
def test_a_batch_equals_its_sentences_one_by_one(seed: int, beam: int, lengths: list[int]) -> None:
    table = scattered(seed)
    options: dict[str, Any] = {
        "beam": beam,
        "n_best": beam,
        "max_ratio": 1.0,
        "max_extra": 1,
        "need_weights": True,
    }
    together = run(table, sources(*lengths), **options)
    for place, length in enumerate(lengths):

        def only(sentence: int, written: tuple[int, ...], place: int = place) -> Sequence[float]:
            return table(place, written)

        by_itself = run(only, sources(length), **options)[0]
        assert [h.ids for h in together[place]] == [h.ids for h in by_itself]
        for h, other in zip(together[place], by_itself, strict=True):
            assert h.score == pytest.approx(other.score, abs=1e-5)
            # The toy's weights say what was read: the sentence, `bos`, and the tokens before each step.
            assert h.weights is not None
            steps = len(h.ids) + (not h.cut)
            assert h.weights.shape == (1, 1, steps, length)
            for step in range(steps):
                read = [place, BOS, *h.ids[:step], *[0] * 9]
                assert h.weights[0, 0, step].tolist() == read[:length]


def test_s15_sentences_leave_the_batch_apart() -> None:
    def counted(sentence: int, written: tuple[int, ...]) -> list[float]:
        return [0.0, 50.0, 0.0] if len(written) == sentence else [0.0, 0.0, 50.0]

    toy = Toy(counted)
    options = SearchOptions(beam=1)
    found = search(toy, sources(5, 5, 5), options, bos_id=BOS, eos_id=EOS)
    assert [h[0].ids for h in found] == [(), (2,), (2, 2)]
    assert [[sentence for sentence, _ in rows] for rows in toy.read] == [[0, 1, 2], [1, 2], [2]]


def test_s13_the_first_token_read_is_bos() -> None:
    toy = Toy(scattered(3))
    search(toy, sources(2, 3), SearchOptions(beam=2), bos_id=BOS, eos_id=EOS, forbidden=(BOS,))
    assert toy.read[0] == [(0, (BOS,)), (1, (BOS,))]
    assert [sentence for sentence, _ in toy.read[1]] == [0, 0, 1, 1]


@pytest.mark.parametrize("beam", [1, 3])
def test_s15_a_limit_of_length_cuts(beam: int) -> None:
    never = log_softmax([0.0, -math.inf, 1.0, 0.0])
    found = run(lambda *_: never, sources(1, 4), beam=beam, max_ratio=1.5, max_extra=1)
    # int(1.5 * 1) + 1 = 2 tokens and int(1.5 * 4) + 1 = 7
    assert [h[0].ids for h in found] == [(2,) * 2, (2,) * 7]
    assert all(h[0].cut for h in found)
    assert found[1][0].score == pytest.approx(7 * never[2], abs=1e-4)  # no end mark in it
    assert found[1][0].normalised_score == pytest.approx(never[2], abs=1e-5)


def test_what_the_limit_cut_comes_last() -> None:
    none = -math.inf

    # Whoever starts with 3 is sure never to end; whoever starts with 2 ends, but is less probable.
    def table(sentence: int, written: tuple[int, ...]) -> list[float]:
        if not written:
            return [none, none, math.log(0.1), math.log(0.9)]
        return [none, 0.0, none, none] if written[0] == 2 else [none, none, none, 0.0]

    found = run(table, sources(1), beam=2, n_best=2, max_ratio=0.0, max_extra=3)[0]
    assert [(h.ids, h.cut) for h in found] == [((2,), False), ((3, 3, 3), True)]
    assert found[0].score < found[1].score


def test_forbidden_tokens_are_never_written_and_leave_the_scores_alone() -> None:
    row = torch.tensor([[5.0, 1.0, 3.0, 2.0]])

    class Persistent(Toy):
        def advance(self, token_ids: Tensor, state: Written, *, need_weights: bool = False) -> Any:
            _, state, weights = super().advance(token_ids, state, need_weights=need_weights)
            return row.expand(len(token_ids), 4), state, weights

    options = SearchOptions(beam=1, max_ratio=0.0, max_extra=2)
    found = search(Persistent(scattered(0)), sources(1), options, bos_id=BOS, eos_id=EOS, forbidden=(0, 2))
    assert found[0][0].ids == (3, 3)
    assert found[0][0].score == pytest.approx(2 * log_softmax(row[0].tolist())[3], abs=1e-5)
    assert row.tolist() == [[5.0, 1.0, 3.0, 2.0]]  # the decoder's own tensor is left as it was


@given(seed=seeds, beam=st.integers(1, 5), penalty=penalties)
@settings(max_examples=20, deadline=None)
def test_n_best_are_different_and_in_order(seed: int, beam: int, penalty: float) -> None:
    options: dict[str, Any] = {"beam": beam, "length_penalty": penalty, "max_ratio": 0.0, "max_extra": 5}
    found = run(scattered(seed), sources(2), n_best=beam, **options)[0]
    assert 1 <= len(found) <= beam
    assert len({h.ids + (EOS,) * (not h.cut) for h in found}) == len(found)
    ranks = [(h.cut, -h.normalised_score) for h in found]
    assert ranks == sorted(ranks)
    assert run(scattered(seed), sources(2), n_best=1, **options)[0][0].ids == found[0].ids


@pytest.mark.parametrize("mix", ["concat", "add"])
@pytest.mark.parametrize("query", ["previous", "current"])
@pytest.mark.parametrize("beam", [1, 3])
def test_scores_and_weights_are_those_of_forced_decoding(mix: Any, query: Any, beam: int) -> None:
    score = scores.Additive(7, 11, 3)
    decoder = RecurrentDecoder(13, 5, 7, 11, score=score, cell="lstm", layers=2, mix=mix, query=query).eval()
    with torch.no_grad():
        decoder.output.weight.mul_(12)  # or all tokens are alike
    lengths = torch.tensor([3, 1, 5, 5])
    memory = Memory(torch.randn(4, 5, 11) * 3, lengths, torch.randn(4, 11) * 3)
    options = SearchOptions(beam=beam, n_best=beam, need_weights=True)
    found = search(decoder, memory, options, bos_id=1, eos_id=2, forbidden=(0, 1))
    for row, length in enumerate(lengths.tolist()):
        only = alone(memory, row)
        by_itself = search(decoder, only, options, bos_id=1, eos_id=2, forbidden=(0, 1))[0]
        assert [h.ids for h in found[row]] == [h.ids for h in by_itself]
        for h, other in zip(found[row], by_itself, strict=True):
            assert h.score == pytest.approx(other.score, abs=1e-4)
            expected, weights = by_forcing(decoder, only, h, bos=1, eos=2)
            assert h.score == pytest.approx(expected, abs=1e-4)
            assert h.weights is not None
            assert h.weights.shape == (1, 1, len(h.ids) + (not h.cut), length)
            assert torch.allclose(h.weights, weights, atol=1e-5)


def test_s32_a_beam_prepares_keys_once(monkeypatch: pytest.MonkeyPatch) -> None:
    score = scores.Additive(7, 11, 3)
    decoder = RecurrentDecoder(13, 5, 7, 11, score=score).eval()
    calls: list[int] = []
    project = score.project_key

    def count(key: Tensor) -> Tensor:
        calls.append(len(key))
        return project(key)

    monkeypatch.setattr(score, "project_key", count)
    memory = Memory(torch.randn(3, 5, 11), torch.tensor([5, 2, 3]), torch.randn(3, 11))
    search(decoder, memory, SearchOptions(beam=4), bos_id=1, eos_id=2)
    assert calls == [3]  # once, and for sentences, not for beams


def test_without_weights_none_are_kept() -> None:
    assert run(scattered(1), sources(3))[0][0].weights is None


def test_no_sentences_give_no_hypotheses() -> None:
    assert run(scattered(1), sources()) == []


def test_a_broken_model_is_reported_and_does_not_run_for_ever() -> None:
    def table(sentence: int, written: tuple[int, ...]) -> list[float]:
        return [math.nan] * 4 if sentence == 1 and len(written) == 2 else [0.0, -50.0, 1.0, 0.0]

    with pytest.raises(InputError, match="the decoder's logits are NaN: the model is broken"):
        run(table, sources(3, 3), beam=2)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"beam": 0}, "beam must be at least 1, got 0"),
        ({"beam": 2, "n_best": 3}, r"n_best must be between 1 and beam \(2\), got 3; raise the beam"),
        ({"n_best": 0}, r"n_best must be between 1 and beam \(5\), got 0"),
        ({"length_penalty": -0.5}, "length_penalty must be between 0 and 20, got -0.5"),
        ({"length_penalty": 1000.0}, "length_penalty must be between 0 and 20, got 1000.0"),
        ({"coverage_penalty": -0.5}, "coverage_penalty must not be negative, and be finite, got -0.5"),
        ({"coverage_penalty": float("inf")}, "coverage_penalty must not be negative, and be finite, got inf"),
        ({"max_ratio": -1.0}, "max_ratio must be between 0 and 1000, got -1.0"),
        ({"max_ratio": 1e300}, r"max_ratio must be between 0 and 1000, got 1e\+300"),
        ({"max_extra": 10**14}, "max_extra must be between 1 and 1000000, got 100000000000000"),
        ({"max_extra": 0}, "max_extra must be between 1 and 1000000, got 0"),
    ],
)
def test_refusals(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        SearchOptions(**options)
