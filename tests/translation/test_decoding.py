"""The translator's ways to decode: options, prefixes of text, draws, and limits of length."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from headlights.translation.sampling import SamplingOptions
from headlights.translation.search import SearchOptions
from headlights.translation.translations import Translation
from headlights.translation.translator import Translator
from headlights.translation.words import words
from tests.translation.test_translator import ENGLISH, build, can_be_forced, same

WAYS = [SearchOptions(beam=1), SearchOptions(beam=3, n_best=3), SamplingOptions(n_best=3)]
NAMES = ["greedy", "beam", "sampling"]
PREFIXES = ["Il gatto", "", "La tabella ha", " \t"]


@pytest.fixture(scope="module")
def translator() -> Translator:
    return build()


def everything(found: list[Translation]) -> list[tuple[str, str, Translation]]:
    """Each translation with its source and its prefix."""
    assert len(found) == len(ENGLISH)
    return [
        (line, prefix.strip(), each)
        for line, prefix, best in zip(ENGLISH, PREFIXES, found, strict=True)
        for each in (best, *best.alternatives)
    ]


def test_options_and_single_values_say_the_same(translator: Translator) -> None:
    ours = translator.translate(ENGLISH, options=SearchOptions(beam=4, n_best=2, max_extra=3))
    values = translator.translate(ENGLISH, beam=4, n_best=2, max_extra=3)
    mixed = translator.translate(ENGLISH, options=SearchOptions(beam=4, n_best=3), n_best=2, max_extra=3)
    for one, other, third in zip(ours, values, mixed, strict=True):
        assert same(one, other)
        assert same(one, third)
        assert len(one.alternatives) == len(other.alternatives) == len(third.alternatives) == 1


def test_the_longest_translation_is_a_ratio_and_some_more() -> None:
    endless = build(ends=-30.0)
    for translation in endless.translate(ENGLISH, beam=2, max_ratio=0.5, max_extra=3):
        assert len(translation.tokens) == len(translation.source_tokens) // 2 + 3


@pytest.mark.parametrize("options", WAYS, ids=NAMES)
@pytest.mark.parametrize("lowercase", [False, True])
def test_translations_begin_with_their_prefix(options: Any, lowercase: bool) -> None:
    translator = build(lowercase=lowercase)
    plain = translator.translate(ENGLISH, options=options)
    found = translator.translate(ENGLISH, options=options, prefixes=PREFIXES)
    spaced = translator.translate(ENGLISH, options=options, prefixes=[f"\n {p}  " for p in PREFIXES])
    for _, prefix, each in everything(found):
        assert each.text.startswith(prefix.lower() if lowercase else prefix)
    assert [(each.text, each.score) for each in found] == [(each.text, each.score) for each in spaced]
    for place in (1, 3):
        assert same(found[place], plain[place])
    assert not same(found[0], plain[0])


@pytest.mark.parametrize("options", WAYS, ids=NAMES)
def test_scores_count_the_prefix_as_forcing_does(options: Any) -> None:
    translator = build("word", ends=1.5)
    assert translator.target_tokenizer.unk_id is not None
    with torch.no_grad():
        translator.model.decoder.output.bias[translator.target_tokenizer.unk_id] = -30.0
    found = everything(translator.translate(ENGLISH, options=options, prefixes=PREFIXES))
    ended = [(line, each) for line, _, each in found if can_be_forced(each)]
    assert len(ended) >= 2
    again = translator.align([line for line, _ in ended], [each.text for _, each in ended])
    for (_, one), other in zip(ended, again, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-4)


@pytest.mark.parametrize("replaced", [False, True])
def test_unknown_words_of_a_prefix_stay_as_they_were_typed(replaced: bool) -> None:
    translator = build("word", lowercase=True)
    unk = translator.target_tokenizer.unk_id
    assert unk is not None
    with torch.no_grad():
        translator.model.decoder.output.bias[unk] += 3.0
    prefixes = ["Il Zwornikdal", "", "İstanbul ha", ""]
    found = translator.translate(ENGLISH, beam=2, prefixes=prefixes, replace_unknown=replaced)
    assert found[0].words[:2] == ("il", "Zwornikdal")
    assert found[2].words[:2] == ("İstanbul", "ha")
    assert found[0].tokens[:2] == ("il", "<unk>")
    assert any("<unk>" in each.tokens[2:] for each in found)
    assert any("<unk>" in each.words for each in found) == (not replaced)
    assert all([word.text for word in words(each.text)] == list(each.words) for each in found if replaced)


@pytest.mark.parametrize("batch_tokens", [1, 40])
def test_draws_and_prefixes_do_not_depend_on_batches(translator: Translator, batch_tokens: int) -> None:
    options = SamplingOptions(temperature=1.5, n_best=2, seed=3)
    whole = translator.translate(ENGLISH, options=options, prefixes=PREFIXES)
    cut = translator.translate(ENGLISH, options=options, prefixes=PREFIXES, batch_tokens=batch_tokens)
    for (_, _, one), (_, _, other) in zip(everything(whole), everything(cut), strict=True):
        assert same(one, other)
    rest = replace(options, first_line=2)
    again = translator.translate(ENGLISH[2:], options=rest, prefixes=PREFIXES[2:])
    assert all(same(one, other) for one, other in zip(whole[2:], again, strict=True))
    reseeded = translator.translate(ENGLISH, options=replace(options, seed=4), prefixes=PREFIXES)
    assert not any(same(one, each) for one, each in zip(whole, reseeded, strict=True))


def test_blank_lines_stay_blank_whatever_their_prefix(translator: Translator) -> None:
    (found,) = translator.translate([" "], prefixes=["Il gatto"], options=SamplingOptions())
    assert (found.text, found.tokens, found.score) == ("", (), 0.0)


def test_refusals(translator: Translator) -> None:
    with pytest.raises(ValueError, match="translate needs one prefix per line, got 1 for 2 lines"):
        translator.translate(["A", "B"], prefixes=["Il"])
    with pytest.raises(TypeError, match=r"prefixes must be a list of texts, got one text; give \['Il'\]"):
        translator.translate(["A", "B"], prefixes="Il")
    with pytest.raises(TypeError, match="options must be SearchOptions or SamplingOptions, got dict"):
        translator.translate(["A"], options={"beam": 5})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="beam cannot be given with SamplingOptions; leave it out"):
        translator.translate(["A"], options=SamplingOptions(), beam=5)
