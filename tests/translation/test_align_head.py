"""Alignment by a chosen head: word weights and links against plain loops over the attention of that head."""

import re
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from headlights.translation.alignment import check_head
from headlights.translation.architectures import RecurrentConfig
from headlights.translation.corpus import Pair
from headlights.translation.evaluation import evaluate
from headlights.translation.translations import Translation
from headlights.translation.translator import Translator
from tests.translation.toy import many_heads, untrained

SOURCES = ["red old cat", "", "dog runs", "old dog eats red cat"]
TARGETS = ["rosso vecchio gatto", "", "cane corre", "vecchio cane mangia"]
HEADS = list(product(range(2), range(3)))


def looked_at_most(attention: Tensor, found: Translation) -> list[tuple[int, int]]:
    """Links of tokens that are words, (source, target); the end marks are last on both sides."""
    links = []
    for target in range(len(found.words)):
        row = [float(attention[target, source]) for source in range(len(found.source_words))]
        links.append((row.index(max(row)), target))
    return links


@pytest.fixture(scope="module")
def translator() -> Translator:
    torch.manual_seed(5)
    return Translator(many_heads(), device="cpu")


@pytest.mark.parametrize("head", [None, *HEADS])
def test_links_and_weights_are_of_that_head(translator: Translator, head: tuple[int, int] | None) -> None:
    searched = translator.translate(SOURCES, beam=2, attention=True, align_head=head)
    given = translator.align(SOURCES, TARGETS, attention=True, align_head=head)
    plain = [*translator.translate(SOURCES, beam=2), *translator.align(SOURCES, TARGETS)]
    for found, other in zip([*searched, *given], plain, strict=True):
        assert (found.text, found.score) == (other.text, other.score)
        if found.attention is None:
            assert found.weights is None
            continue
        assert found.attention.shape[:2] == (2, 3)
        attention = found.attention.mean((0, 1)) if head is None else found.attention[head]
        assert found.weights is not None
        N, M = len(found.words), len(found.source_words)
        assert torch.equal(found.weights, attention[:N, :M])
        assert list(found.alignment) == looked_at_most(attention, found)


def test_heads_look_elsewhere(translator: Translator) -> None:
    found = {head: translator.align(SOURCES, TARGETS, align_head=head) for head in HEADS}
    links = {tuple(each.alignment for each in translations) for translations in found.values()}
    assert len(links) >= 4  # or the tests above would show little


def test_unknown_words_are_copied_from_where_that_head_looked() -> None:
    translator = Translator(many_heads(unknown=2.0), device="cpu")
    texts = set()
    for head in HEADS:
        marked = translator.translate(SOURCES, beam=2, align_head=head)
        copied = translator.translate(SOURCES, beam=2, align_head=list(head), replace_unknown=True)  # type: ignore[arg-type]
        assert any("<unk>" in each.words for each in marked)
        for before, after in zip(marked, copied, strict=True):
            source = {target: source for source, target in before.alignment}
            assert list(after.words) == [
                before.source_words[source[place]] if word == "<unk>" else word
                for place, word in enumerate(before.words)
            ]
        texts.add(tuple(each.text for each in copied))
    assert len(texts) >= 3


def test_error_rate_goes_by_that_head(translator: Translator) -> None:
    rates = []
    for head in HEADS:
        links = translator.align(SOURCES, TARGETS, align_head=head)
        pairs = [
            Pair(source, target, found.alignment)
            for source, target, found in zip(SOURCES, TARGETS, links, strict=True)
        ]
        assert evaluate(translator, pairs, beam=1, align_head=head).whole.alignment_error_rate == 0.0
        rates.append(evaluate(translator, pairs, beam=1, align_head=(1, 2)).whole.alignment_error_rate)
    assert max(rate for rate in rates if rate is not None) > 0.0


@pytest.mark.parametrize("head", [(2, 0), (0, 3), (-1, 0), (0, -1)])
def test_heads_that_are_not_there_are_refused(translator: Translator, head: tuple[int, int]) -> None:
    message = re.escape(f"align_head {head}: the model has 2 layers of 3 heads, both counted from 0")
    with pytest.raises(ValueError, match=message):
        translator.translate([""], align_head=head)
    with pytest.raises(ValueError, match=message):
        translator.align([], [], align_head=head)


def test_a_model_without_attention_has_no_head() -> None:
    small = {"embed_dim": 3, "hidden_dim": 5, "encoder_dim": 2, "score_dim": 3}
    plain = Translator(untrained(RecurrentConfig(score="none", **small)), device="cpu")
    message = r"align_head \(0, 0\): the model was trained without attention; leave it out"
    with pytest.raises(ValueError, match=message):
        plain.align(SOURCES, TARGETS, align_head=(0, 0))
    one = Translator(untrained(RecurrentConfig(**small)), device="cpu")
    for mean, head in zip(
        one.align(SOURCES, TARGETS), one.align(SOURCES, TARGETS, align_head=(0, 0)), strict=True
    ):
        assert mean.alignment == head.alignment
    check_head((0, 0), 1, 1)


@pytest.mark.parametrize("head", ["0.1", 1, (1,), (0, 1, 2), (0.0, 1)])
def test_what_is_no_head_is_refused(head: Any) -> None:
    message = re.escape(f"align_head must be (layer, head), both counted from 0, got {head!r}")
    with pytest.raises(TypeError, match=message):
        check_head(head, 2, 3)
