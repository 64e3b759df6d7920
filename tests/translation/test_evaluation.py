"""Evaluation: sacreBLEU's own figures, buckets that are a partition, error rates where there is gold."""

from collections.abc import Sequence
from typing import Any, cast

import pytest
import sacrebleu
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headlights.translation.alignment import Head, Links
from headlights.translation.corpus import Pair
from headlights.translation.evaluation import Evaluation, bleu, evaluate
from headlights.translation.translations import Translation
from headlights.translation.translator import Translator

REFERENCES = ["The cat sits on the mat .", "A dog sleeps here .", "It has a lot of data .", "Yes ."]
HYPOTHESES = ["the cat sits on a mat .", "A dog sleeps there .", "It has lots of data .", "Yes ."]


def test_text_that_looks_tokenised_is_judged_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    many = REFERENCES * 26  # sacreBLEU warns from a hundred full stops that stand alone
    assert bleu(many, many) == pytest.approx(100.0)
    pairs = [Pair(str(number), text) for number, text in enumerate(many)]
    found = evaluate(cast(Translator, Known({pair.source: pair.target for pair in pairs})), pairs)
    assert found.whole.bleu == pytest.approx(100.0)
    assert caplog.records == []


class Known:
    """Stands for a translator: answers and alignments by source sentence."""

    def __init__(self, answers: dict[str, str], links: dict[str, Links | None] | None = None) -> None:
        self.answers, self.links = answers, links or {}
        self.beams: list[int] = []
        self.aligned: list[str] = []
        self.device = torch.device("cpu")

    def translate(self, lines: Sequence[str], *, beam: int, **_: Any) -> list[Translation]:
        self.beams.append(beam)
        return [Translation(self.answers[line]) for line in lines]

    def align(
        self, sources: Sequence[str], targets: Sequence[str], *, align_head: Head | None
    ) -> list[Translation]:
        self.aligned += targets
        return [
            Translation(target, alignment=links or (), weights=None if links is None else torch.zeros(1, 1))
            for target, links in zip(targets, map(self.links.get, sources), strict=True)
        ]


def judge(translator: Known, pairs: Sequence[Pair], **options: Any) -> Evaluation:
    return evaluate(cast(Translator, translator), pairs, **options)


def judge_lengths(lengths: Sequence[int], **options: Any) -> tuple[Evaluation, list[Pair]]:
    """Sources of so many words; each pair has its own reference and translation."""
    pairs = [Pair("w " * n + f"{i}", REFERENCES[i % 4]) for i, n in enumerate(n - 1 for n in lengths)]
    answers = {pair.source: HYPOTHESES[(i + i // 4) % 4] for i, pair in enumerate(pairs)}
    return judge(Known(answers), pairs, **options), pairs


@pytest.mark.parametrize("lowercase", [False, True])
def test_bleu_and_chrf_are_sacrebleus(lowercase: bool) -> None:
    pairs = [Pair(f"source {i}", reference) for i, reference in enumerate(REFERENCES)]
    known = Known({pair.source: text for pair, text in zip(pairs, HYPOTHESES, strict=True)})
    result = judge(known, pairs, beam=3, lowercase=lowercase)
    expected = sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES], lowercase=lowercase)
    assert 20 < expected.score < 90
    assert result.whole.bleu == pytest.approx(expected.score)
    assert bleu(HYPOTHESES, REFERENCES, lowercase=lowercase) == pytest.approx(expected.score)
    chrf = sacrebleu.CHRF(lowercase=lowercase).corpus_score(HYPOTHESES, [REFERENCES])
    assert result.whole.chrf == pytest.approx(chrf.score)
    assert "version:" in result.bleu_signature
    assert f"case:{'lc' if lowercase else 'mixed'}" in result.bleu_signature
    assert "nc:6" in result.chrf_signature
    assert known.beams == [3]
    assert [translation.text for translation in result.translations] == HYPOTHESES


def test_bleu_at_the_ends() -> None:
    assert bleu([], []) == 0.0
    assert bleu(REFERENCES, REFERENCES) == pytest.approx(100.0)


@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=12),
    buckets=st.sets(st.integers(1, 50), max_size=4),
)
@settings(max_examples=40, deadline=None)
def test_s20_buckets_are_a_partition_by_source_length(lengths: list[int], buckets: set[int]) -> None:
    bounds = sorted(buckets)
    result, pairs = judge_lengths(lengths, buckets=bounds)
    assert sum(part.sentences for part in result.buckets) == len(pairs) == result.whole.sentences
    assert (result.whole.shortest, result.whole.longest) == (min(lengths), max(lengths))
    for before, after in zip(result.buckets, result.buckets[1:], strict=False):
        assert before.longest < after.shortest
    for part in result.buckets:
        inside = [i for i, n in enumerate(lengths) if part.shortest <= n <= part.longest]
        assert part.sentences == len(inside) > 0
        assert part.longest in {*bounds, max(lengths)}
        assert part.shortest - 1 in {-1, *bounds}
        texts = [result.translations[i].text for i in inside]
        expected = sacrebleu.corpus_bleu(texts, [[pairs[i].target for i in inside]]).score
        assert part.bleu == pytest.approx(expected)


def test_error_rate_of_forced_references_where_there_is_gold() -> None:
    pairs = [
        Pair("a b", "c d", links=((0, 0), (1, 1)), possible=((1, 0),)),
        Pair("a b c", "d", links=None),
        Pair("x", "y", links=((0, 0),)),
        Pair("one two three four five six", "z", links=((2, 0),)),
    ]
    links: dict[str, Links | None] = {
        "a b": ((0, 0), (1, 0), (0, 1)),
        "a b c": ((0, 0),),
        "x": ((0, 0),),
        "one two three four five six": ((1, 0),),
    }
    known = Known({pair.source: "c d" for pair in pairs}, links)
    result = judge(known, pairs, buckets=(2, 3))
    assert known.aligned == ["c d", "d", "y", "z"]  # references, not translations
    # A = 3 + 1 + 1, S = 2 + 1 + 1; found of S: 1 + 1 + 0, of P: 2 + 1 + 0. The second pair has no gold.
    assert result.whole.alignment_error_rate == pytest.approx(1 - (2 + 3) / (5 + 4))
    # Up to two words: the first and third pair. Three words: no gold. More: all wrong.
    assert [part.alignment_error_rate for part in result.buckets] == [
        pytest.approx(1 - (2 + 3) / (4 + 3)),
        None,
        1.0,
    ]


def test_a_sentence_without_links_counts_as_missed() -> None:
    pairs = [Pair("a b", "c d", links=((0, 0), (1, 1))), Pair("x", "y", links=((0, 0),))]
    known = Known({"a b": "", "x": ""}, {"a b": (), "x": ((0, 0),)})
    # A = 1, S = 3, one of each found.
    assert judge(known, pairs).whole.alignment_error_rate == pytest.approx(1 - 2 / 4)


def test_no_error_rate_without_gold_or_without_attention() -> None:
    with_gold, without = Pair("a", "b", links=((0, 0),)), Pair("a", "b")
    known = Known({"a": "b"}, {"a": ((0, 0),)})
    assert judge(known, [without]).whole.alignment_error_rate is None
    assert known.aligned == []  # nothing is forced for nothing
    assert judge(known, [with_gold]).whole.alignment_error_rate == 0.0
    assert judge(Known({"a": "b"}, {"a": None}), [with_gold]).whole.alignment_error_rate is None


def test_refusals() -> None:
    with pytest.raises(
        ValueError, match="pairs must hold at least one sentence pair to evaluate on, got none"
    ):
        judge(Known({}), [])
    with pytest.raises(
        ValueError, match=r"buckets must ascend, or sentences would count twice, got \(5, 5\)"
    ):
        judge(Known({}), [Pair("a", "b")], buckets=(5, 5))
