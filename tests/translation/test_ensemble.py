"""Ensembles against exhaustive search over averaged distributions, one model twice, and forcing."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from headlights._errors import InputError
from headlights.translation.architectures import TransformerConfig
from headlights.translation.ensemble import EnsembleDecoder, JointMemory, mean_logits
from headlights.translation.folders import ModelFolder
from headlights.translation.model import TranslationModel
from headlights.translation.sampling import SamplingOptions, sample
from headlights.translation.search import SearchOptions, search
from headlights.translation.tokenizer import Tokenizer
from headlights.translation.translator import Translator
from tests.translation.test_search import in_plain_loops, same
from tests.translation.test_translator import ENGLISH, ITALIAN, build, can_be_forced
from tests.translation.toy_decoder import BOS, EOS, Table, Toy, Written, log_softmax, scattered, sources

seeds = st.integers(0, 10**6)
SPECIAL: dict[str, Any] = {"bos_id": BOS, "eos_id": EOS, "forbidden": (BOS,)}


def averaged(*tables: Table) -> Table:
    """The logarithm of the mean of what the tables make of a prefix."""

    def table(sentence: int, written: tuple[int, ...]) -> list[float]:
        rows = [log_softmax(each(sentence, written)) for each in tables]
        return [math.log(sum(map(math.exp, column)) / len(rows)) for column in zip(*rows, strict=True)]

    return table


def together(*tables: Table) -> EnsembleDecoder:
    return EnsembleDecoder([Toy(table) for table in tables])


def memory(*lengths: int, members: int = 2) -> JointMemory:
    return JointMemory.of([sources(*lengths)] * members)


def folder(**options: Any) -> ModelFolder:
    built = build("word", **options)
    return ModelFolder(built.model, built.source_tokenizer, built.target_tokenizer, {})


def transformer(seed: int) -> ModelFolder:
    first = folder()
    torch.manual_seed(seed)
    config = TransformerConfig(embed_dim=12, heads=3, layers=2, feedforward_dim=5)
    sizes = first.source_tokenizer.vocab_size, first.target_tokenizer.vocab_size
    return replace(first, model=TranslationModel(config, *sizes))


@given(seed=seeds, limit=st.integers(1, 4), penalty=st.sampled_from([0.0, 1.0]), members=st.integers(2, 3))
@settings(max_examples=25, deadline=None)
def test_a_beam_that_holds_everything_is_exhaustive_search_over_the_mean(
    seed: int, limit: int, penalty: float, members: int
) -> None:
    tables = [scattered(seed + number) for number in range(members)]
    options = SearchOptions(beam=24, n_best=5, max_ratio=0.0, max_extra=limit, length_penalty=penalty)
    found = search(together(*tables), memory(3, members=members), options, **SPECIAL)
    expected = in_plain_loops(averaged(*tables), 0, limit=limit, penalty=penalty, beam=None)
    assert same(found[0], expected[:5])


def test_the_mean_is_of_probabilities_and_not_of_their_logarithms() -> None:
    # (1/2 + 1/4) / 2 = 3/8 and (1/2 + 3/4) / 2 = 5/8; logits that are off by a constant mean the same.
    members = [torch.tensor([0.5, 0.5]).log() + 7.0, torch.tensor([0.25, 0.75]).log()]
    assert mean_logits(members).exp().tolist() == pytest.approx([0.375, 0.625], abs=1e-6)


@given(seed=seeds, beam=st.integers(1, 4), lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4))
@settings(max_examples=15, deadline=None)
def test_a_batch_equals_its_sentences_one_by_one(seed: int, beam: int, lengths: list[int]) -> None:
    tables = scattered(seed), scattered(seed + 1)
    options = SearchOptions(beam=beam, n_best=beam, max_ratio=1.0, max_extra=1)
    found = search(together(*tables), memory(*lengths), options, **SPECIAL)
    for place, length in enumerate(lengths):

        def only(table: Table, place: int = place) -> Table:
            return lambda _, written: table(place, written)

        alone = search(together(*map(only, tables)), memory(length), options, **SPECIAL)[0]
        assert [(h.ids, h.cut) for h in found[place]] == [(h.ids, h.cut) for h in alone]
        for h, other in zip(found[place], alone, strict=True):
            assert h.score == pytest.approx(other.score, abs=1e-5)


def test_draws_are_from_the_mean() -> None:
    tables = scattered(4), scattered(5)
    options = SamplingOptions(n_best=50, max_ratio=1.0, max_extra=3)
    found = sample(together(*tables), memory(2, 3), options, **SPECIAL)
    expected = sample(Toy(averaged(*tables)), sources(2, 3), options, **SPECIAL)
    assert [[h.ids for h in each] for each in found] == [[h.ids for h in each] for each in expected]


@pytest.mark.parametrize("made", [folder, lambda: transformer(3)], ids=["recurrent", "transformer"])
def test_a_model_with_itself_is_the_model(made: Any, tmp_path: Path) -> None:
    made().save(tmp_path / "model")
    alone = Translator.load([tmp_path / "model"], device="cpu")
    twice = Translator.load([tmp_path / "model", str(tmp_path / "model")], device="cpu")
    assert alone.training == twice.training
    for options in (SearchOptions(beam=3, n_best=3), SamplingOptions(n_best=2)):
        ours = twice.translate(ENGLISH, options=options, attention=True)
        for one, other in zip(ours, alone.translate(ENGLISH, options=options, attention=True), strict=True):
            for a, b in zip((one, *one.alternatives), (other, *other.alternatives), strict=True):
                assert (a.text, a.tokens, a.alignment) == (b.text, b.tokens, b.alignment)
                assert a.score == pytest.approx(b.score, abs=1e-5)
                assert a.weights is not None
                assert b.weights is not None
                assert torch.allclose(a.weights, b.weights, atol=1e-5)
                assert a.attention is not None
                assert b.attention is not None
                assert torch.allclose(a.attention, b.attention.mean((0, 1), keepdim=True), atol=1e-5)


def test_two_models_translate_as_their_forcing_says() -> None:
    folders = folder(), transformer(3)
    for each in folders:
        with torch.no_grad():
            each.model.decoder.output.bias[each.target_tokenizer.unk_id] = -30.0
            each.model.decoder.output.bias[each.target_tokenizer.eos_id] += 2.0
    translator = Translator(*folders, device="cpu")
    assert translator.attention_shape == (1, 1)
    found = translator.translate(ENGLISH, beam=4, n_best=4, attention=True)
    ended = [
        (line, each)
        for line, one in zip(ENGLISH, found, strict=True)
        for each in (one, *one.alternatives)
        if can_be_forced(each)
    ]
    assert len({len(each.words) for _, each in ended}) >= 2
    given_texts = [line for line, _ in ended], [each.text for _, each in ended]
    again = translator.align(*given_texts, attention=True, align_head=(0, 0))
    for (_, one), score in zip(ended, translator.score(*given_texts), strict=True):
        assert score.log_probability == pytest.approx(one.score, abs=1e-4)
    for (_, one), other in zip(ended, again, strict=True):
        assert one.words == other.words
        assert one.score == pytest.approx(other.score, abs=1e-4)
        assert one.attention is not None
        assert other.attention is not None
        assert torch.allclose(one.attention, other.attention, atol=1e-5)


class Looking(Toy):
    """A toy whose layers and heads look at given shares of two source tokens."""

    shares: Sequence[Sequence[float]] = ()

    def advance(self, token_ids: Tensor, state: Written, *, need_weights: bool = False) -> Any:
        logits, state, _ = super().advance(token_ids, state)
        if not need_weights or not self.shares:
            return logits, state, None
        return logits, state, torch.tensor([[list(self.shares)]] * len(token_ids))  # (B, 1, H, M)


def test_models_without_attention_have_none_together() -> None:
    without = folder(score="none")
    assert Translator(without, without, device="cpu").attention_shape == (0, 0)
    assert Translator(without, folder(), device="cpu").attention_shape == (1, 1)


def test_attention_is_the_mean_over_the_members_that_have_any() -> None:
    two, one, none = (Looking(scattered(n)) for n in range(3))
    two.shares, one.shares = [[1.0, 0.0], [0.5, 0.5]], [[0.25, 0.75]]
    options = SearchOptions(beam=2, need_weights=True)
    # Heads first: (1 + .5) / 2 = .75; then members: (.75 + .25) / 2 = .5
    for members, expected in (([two, one, none], 0.5), ([two, none], 0.75)):
        found = search(EnsembleDecoder(members), memory(2, members=len(members)), options, **SPECIAL)
        weights = found[0][0].weights
        assert weights is not None
        assert weights.shape == (1, 1, len(found[0][0].ids) + (not found[0][0].cut), 2)
        assert torch.allclose(weights[0, 0], torch.tensor([expected, 1 - expected]))
    found = search(EnsembleDecoder([none, none]), memory(2), options, **SPECIAL)
    assert found[0][0].weights is None


def test_refusals(tmp_path: Path) -> None:
    decoder = together(scattered(1), scattered(2))
    with pytest.raises(TypeError, match="memory must be a JointMemory, one memory per member, got Memory"):
        decoder.start(sources(3))
    with pytest.raises(ValueError, match="memory must hold one memory per member, got 3 for 2 decoders"):
        decoder.start(memory(3, members=3))
    with pytest.raises(ValueError, match=r"must share one target vocabulary, got sizes \[5, 7\]"):
        mean_logits([torch.zeros(2, 5), torch.zeros(2, 7)])
    with pytest.raises(
        ValueError, match="folder must be a folder or a list of one or more, got an empty list"
    ):
        Translator.load([])
    first = folder()
    for side, other in (
        ("source", replace(first, source_tokenizer=Tokenizer.train(ITALIAN, kind="word", vocab_size=9))),
        ("target", replace(first, target_tokenizer=Tokenizer.train(ENGLISH, kind="word", vocab_size=9))),
    ):
        text = f"model 3: its {side} tokenizer is not that of model 1, so they cannot decode together; train "
        with pytest.raises(InputError, match=text):
            Translator(first, first, other)
