"""Sampling against exact distributions, plain loops, greedy search and forced decoding."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headlights import scores
from headlights._errors import InputError
from headlights.translation.architectures import TransformerConfig
from headlights.translation.decoders import RecurrentDecoder
from headlights.translation.encoders import Memory
from headlights.translation.hypotheses import Hypothesis
from headlights.translation.sampling import SamplingOptions, draw, drawn_from, sample, with_given
from headlights.translation.search import SearchOptions, search
from headlights.translation.transformer import TransformerDecoder
from tests.translation.toy_decoder import (
    BOS,
    EOS,
    Table,
    Toy,
    alone,
    by_forcing,
    log_softmax,
    scattered,
    sources,
)

seeds = st.integers(0, 10**6)
rows_of_logits = st.lists(st.integers(-12, 12).map(lambda n: n / 4), min_size=1, max_size=7)  # with equals


def run(
    table: Table, *lengths: int, lines: Sequence[int] | None = None, prefixes: Any = None, **options: Any
) -> list[list[Hypothesis]]:
    return sample(
        Toy(table),
        sources(*lengths),
        SamplingOptions(**options),
        bos_id=BOS,
        eos_id=EOS,
        forbidden=(BOS,),
        prefixes=prefixes,
        lines=lines,
    )


@given(seed=seeds, options=st.sampled_from([{"temperature": 1e-9}, {"top_k": 1}, {"top_p": 1e-9}]))
@settings(max_examples=15, deadline=None)
def test_the_most_probable_token_alone_is_greedy_search(seed: int, options: dict[str, Any]) -> None:
    table = scattered(seed)
    greedy = SearchOptions(beam=1, max_ratio=1.0, max_extra=3)
    expected = search(Toy(table), sources(1, 3), greedy, bos_id=BOS, eos_id=EOS, forbidden=(BOS,))
    found = run(table, 1, 3, max_ratio=1.0, max_extra=3, n_best=2, **options)
    for ours, (theirs,) in zip(found, expected, strict=True):
        assert [(h.ids, h.cut) for h in ours] == [(theirs.ids, theirs.cut)] * 2
        assert all(h.score == pytest.approx(theirs.score, abs=1e-5) for h in ours)


def exact(logits: Sequence[float], temperature: float, top_k: int, top_p: float) -> list[float]:
    """The same distribution in plain loops."""
    largest = max(logits)
    powers = [math.exp((x - largest) / temperature) for x in logits]
    ranked = sorted(range(len(logits)), key=lambda i: (-powers[i], i))
    if top_k:
        ranked = ranked[:top_k]
    total = sum(powers[i] for i in ranked)
    kept: list[int] = []
    for i in ranked:
        kept.append(i)
        if top_p < 1 and sum(powers[j] for j in kept) >= top_p * total:
            break
    total = sum(powers[i] for i in kept)
    return [powers[i] / total if i in kept else 0.0 for i in range(len(logits))]


@given(
    logits=rows_of_logits,
    temperature=st.sampled_from([0.3, 1.0, 2.5]),
    top_k=st.integers(0, 8),
    top_p=st.sampled_from([0.11, 0.53, 0.97, 1.0]),
)
@settings(max_examples=100, deadline=None)
def test_what_is_drawn_from_equals_plain_loops(
    logits: list[float], temperature: float, top_k: int, top_p: float
) -> None:
    options = SamplingOptions(temperature=temperature, top_k=top_k, top_p=top_p)
    found = drawn_from(torch.tensor([logits, logits[::-1]], dtype=torch.float64), options)
    for row, given_row in zip(found.tolist(), (logits, logits[::-1]), strict=True):
        assert row == pytest.approx(exact(given_row, temperature, top_k, top_p), abs=1e-12)


def test_top_p_keeps_the_fewest_tokens_that_reach_it() -> None:
    # 1/2 and 1/4 reach 3/4 exactly, so that the third is not needed; 3/4 and a little more needs it.
    logits = torch.tensor([0.125, 0.5, 0.125, 0.25], dtype=torch.float64).log()
    expected = {
        0.5: [0.0, 1.0, 0.0, 0.0],
        0.75: [0.0, 2 / 3, 0.0, 1 / 3],
        0.7501: [1 / 7, 4 / 7, 0.0, 2 / 7],  # of equals the lower id
        0.8751: [1 / 8, 4 / 8, 1 / 8, 2 / 8],
    }
    for top_p, probabilities in expected.items():
        found = drawn_from(logits, SamplingOptions(top_p=top_p))
        assert found.tolist() == pytest.approx(probabilities, abs=1e-12)


def test_a_draw_is_the_token_whose_share_holds_the_chance() -> None:
    shares = torch.tensor([[0.0, 0.5, 0.0, 0.5, 0.0]], dtype=torch.float64)
    chances = {5e-324: 1, 0.25: 1, 0.5: 1, 0.5000001: 3, 1.0: 3}  # never one of share 0
    for chance, token in chances.items():
        assert draw(shares, torch.tensor([chance], dtype=torch.float64)).tolist() == [token]


@pytest.mark.parametrize(
    "options",
    [{}, {"temperature": 0.5}, {"temperature": 2.0, "top_k": 2}, {"top_p": 0.8}],
    ids=["plain", "cold", "hot top 2", "nucleus"],
)
def test_frequencies_are_those_of_the_exact_distribution(options: dict[str, Any]) -> None:
    table, count = scattered(11, vocab=5), 3000
    settings_of = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, **options}

    def following(written: tuple[int, ...]) -> list[float]:
        logits = list(table(0, written))
        logits[BOS] = -1e9
        return exact(logits, **settings_of)

    probabilities: dict[tuple[int, ...], float] = {}
    for first, p in enumerate(following(())):
        if first == EOS:
            probabilities[(EOS,)] = p
            continue
        for second, q in enumerate(following((first,))):
            probabilities[first, second] = p * q
    (found,) = run(table, 3, max_ratio=0.0, max_extra=2, n_best=count, **options)
    counts = Counter(h.ids if h.cut else (*h.ids, EOS) for h in found)
    possible = {ids: p for ids, p in probabilities.items() if p > 0}
    assert counts.keys() <= possible.keys()
    assert len(possible) >= 3
    # Pearson's statistic, Σ (observed - expected)² / expected over k outcomes, has exactly the mean k - 1 and
    # the variance 2 (k - 1) + (Σ 1/p - k² - 2 k + 2) / n; 5 standard deviations above the mean is no chance.
    k, n = len(possible), count
    statistic = sum((counts[ids] - n * p) ** 2 / (n * p) for ids, p in possible.items())
    variance = 2 * (k - 1) + (sum(1 / p for p in possible.values()) - k * k - 2 * k + 2) / n
    assert statistic < k - 1 + 5 * math.sqrt(variance)


@given(
    seed=seeds,
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    options=st.sampled_from([{}, {"temperature": 2.0, "top_p": 0.9}, {"top_k": 2}]),
    first=st.integers(0, 3),
)
@settings(max_examples=15, deadline=None)
def test_a_sentence_is_drawn_alike_whatever_is_beside_it(
    seed: int, lengths: list[int], options: dict[str, Any], first: int
) -> None:
    table = scattered(seed)
    options = {**options, "seed": seed, "max_ratio": 1.0, "max_extra": 2, "need_weights": True}
    together = run(table, *lengths, n_best=3, first_line=first, **options)
    for place, length in enumerate(lengths):

        def only(sentence: int, written: tuple[int, ...], place: int = place) -> Sequence[float]:
            return table(place, written)

        by_itself = run(only, length, lines=[first + place], n_best=2, **options)[0]
        assert len(by_itself) == 2
        for h, other in zip(together[place][:2], by_itself, strict=True):
            assert (h.ids, h.score, h.cut) == (other.ids, other.score, other.cut)
            assert h.normalised_score == h.score / (len(h.ids) + (not h.cut))
            # The toy's weights say what was read: the sentence, `bos`, and the tokens before each step.
            assert h.weights is not None
            steps = len(h.ids) + (not h.cut)
            assert h.weights.shape == (1, 1, steps, length)
            for step in range(steps):
                assert h.weights[0, 0, step].tolist() == [place, BOS, *h.ids[:step], *[0] * 9][:length]


def test_seed_line_and_sample_each_give_other_draws() -> None:
    # Two tokens of equal probability, 40 times: one draw in 2^40 equals another by chance.
    def coin(sentence: int, written: tuple[int, ...]) -> list[float]:
        return [-1e9, -1e9, 0.0, 0.0]

    found = [
        h.ids
        for seed in (0, 1)
        for sentence in run(coin, 1, 1, n_best=2, seed=seed, max_ratio=0.0, max_extra=40)
        for h in sentence
    ]
    assert len(set(found)) == 8
    assert all(0.2 < ids.count(2) / 40 < 0.8 for ids in found)  # within 3.8 standard deviations of a half


def test_ended_translations_leave_the_batch() -> None:
    toy = Toy(lambda *_: [-1e9, 0.0, 1.0, 0.0])
    options = SamplingOptions(max_ratio=1.0, max_extra=5, n_best=5)
    found = sample(toy, sources(1, 4), options, bos_id=BOS, eos_id=EOS, forbidden=(BOS,))
    steps = [len(h.ids) + (not h.cut) for sentence in found for h in sentence]
    assert len(set(steps)) > 2
    assert [len(rows) for rows in toy.read] == [
        sum(lasts > step for lasts in steps) for step in range(max(steps))
    ]


def test_a_limit_of_length_cuts_and_a_prefix_is_kept() -> None:
    never = [0.0, -1e9, 1.0, 0.0]
    found = run(lambda *_: never, 1, 4, max_ratio=1.5, max_extra=1, prefixes=[(3, 3, 3), (3,)], n_best=20)
    # int(1.5 * 1) + 1 = 2 tokens, but one more than the prefix has; int(1.5 * 4) + 1 = 7.
    assert [{len(h.ids) for h in each} for each in found] == [{4}, {7}]
    row = log_softmax(never)
    for prefix, each in zip([(3, 3, 3), (3,)], found, strict=True):
        assert len({h.ids for h in each}) > 1
        for h in each:
            assert h.cut
            assert h.ids[: len(prefix)] == prefix
            assert BOS not in h.ids
            assert h.score == pytest.approx(sum(row[token] for token in h.ids), abs=1e-5)


def decoders() -> list[RecurrentDecoder | TransformerDecoder]:
    torch.manual_seed(7)
    recurrent = RecurrentDecoder(13, 5, 7, 12, score=scores.Additive(7, 12, 3), cell="lstm")
    shape = TransformerConfig(embed_dim=12, heads=3, layers=2, feedforward_dim=5, dropout=0.0)
    _, transformer = shape.make(13, 13, pad_id=0)
    assert isinstance(transformer, TransformerDecoder)
    return [recurrent.eval(), transformer.eval()]


@pytest.mark.parametrize("decoder", decoders(), ids=["recurrent", "transformer"])
@pytest.mark.parametrize("options", [{}, {"temperature": 1.7, "top_k": 5, "top_p": 0.9}], ids=["", "changed"])
def test_scores_and_weights_are_those_of_forced_decoding(
    decoder: RecurrentDecoder | TransformerDecoder, options: dict[str, Any]
) -> None:
    lengths = torch.tensor([3, 1, 5])
    states = torch.randn(3, 5, 12) * (torch.arange(5) < lengths[:, None])[..., None]
    memory = Memory(states, lengths, torch.randn(3, 12))
    drawn = SamplingOptions(n_best=3, need_weights=True, **options)
    found = sample(decoder, memory, drawn, bos_id=1, eos_id=2, forbidden=(0, 1))
    steps = {len(h.ids) + (not h.cut) for sentence in found for h in sentence}
    assert len(steps) > 2
    for row, hypotheses in enumerate(found):
        for h in hypotheses:
            expected, weights = by_forcing(decoder, alone(memory, row), h, bos=1, eos=2)
            assert h.score == pytest.approx(expected, abs=1e-4)
            assert h.weights is not None
            assert h.weights.shape == weights.shape
            assert torch.allclose(h.weights, weights, atol=1e-5)


def test_nothing_to_draw_for_and_no_weights_asked_for() -> None:
    assert run(scattered(1)) == []
    assert run(scattered(1), 3)[0][0].weights is None


def test_options_with_single_values_in_their_place() -> None:
    assert with_given(None, {"beam": None}) == SearchOptions()
    assert with_given(SearchOptions(beam=3), {"n_best": 2, "max_ratio": None}) == SearchOptions(
        beam=3, n_best=2
    )
    assert with_given(SamplingOptions(seed=3), {"n_best": 2}) == SamplingOptions(seed=3, n_best=2)
    with pytest.raises(
        ValueError, match="beam and length_penalty cannot be given with SamplingOptions; leave it out"
    ):
        with_given(SamplingOptions(), {"beam": 5, "length_penalty": 0.0, "n_best": 1})


def test_a_broken_model_is_reported_and_does_not_run_for_ever() -> None:
    def table(sentence: int, written: tuple[int, ...]) -> list[float]:
        return [math.nan] * 4 if sentence == 1 and len(written) == 2 else [0.0, -50.0, 1.0, 0.0]

    with pytest.raises(InputError, match="the decoder's logits are NaN: the model is broken"):
        run(table, 3, 3)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"temperature": 0.0},
            "temperature must be above 0 and finite, got 0.0; for the most probable",
        ),
        ({"temperature": math.inf}, "temperature must be above 0 and finite, got inf"),
        ({"temperature": math.nan}, "temperature must be above 0 and finite, got nan"),
        ({"top_k": -1}, r"top_k must be 0 \(all tokens\) or more, got -1"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1, got 0.0"),
        ({"top_p": 1.1}, "top_p must be above 0 and at most 1, got 1.1"),
        ({"seed": -1}, "seed must be 0 or more, got -1"),
        ({"first_line": -1}, "first_line must be 0 or more, got -1"),
        ({"n_best": 0}, "n_best must be at least 1, got 0"),
        ({"max_ratio": -1.0}, "max_ratio must be between 0 and 1000, got -1.0"),
        ({"max_ratio": 1e300}, r"max_ratio must be between 0 and 1000, got 1e\+300"),
        ({"max_extra": 10**14}, "max_extra must be between 1 and 1000000, got 100000000000000"),
    ],
)
def test_refusals(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        SamplingOptions(**options)


def test_lines_must_fit_the_batch() -> None:
    with pytest.raises(ValueError, match="lines must be one per sentence, got 3 for 2 sentences"):
        run(scattered(1), 1, 1, lines=[0, 1, 2])
