"""How good translations are: BLEU, chrF and alignment error rate, whole and by sentence length."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import sacrebleu

from headlights.translation.alignment import AlignmentCounts, Head, count_links
from headlights.translation.corpus import Pair
from headlights.translation.side_by_side import fitting_workers
from headlights.translation.translations import Translation
from headlights.translation.translator import Translator
from headlights.translation.words import words

BUCKETS = (5, 10, 15, 20, 30, 50)  # longest source sentence of each, in words; one more for all beyond


@dataclass(frozen=True, slots=True)
class Scores:
    """Quality over a set of sentences.

    Attributes:
        sentences: How many there are.
        shortest: Words of the shortest source sentence counted; the lower bound in a bucket.
        longest: Words of the longest; the upper bound in a bucket.
        bleu: Corpus BLEU, 0..100.
        chrf: Corpus chrF, 0..100.
        alignment_error_rate: In 0..1, on forced references; None without gold links or without attention.
    """

    sentences: int
    shortest: int
    longest: int
    bleu: float
    chrf: float
    alignment_error_rate: float | None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of `evaluate`.

    Attributes:
        whole: Over all sentences.
        buckets: By length of the source sentence, shortest first; empty buckets are left out.
        bleu_signature: How sacreBLEU computed BLEU.
        chrf_signature: How sacreBLEU computed chrF.
        translations: What was judged, in order.
    """

    whole: Scores
    buckets: tuple[Scores, ...]
    bleu_signature: str
    chrf_signature: str
    translations: tuple[Translation, ...]


def bleu(hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> float:
    """Corpus BLEU by sacreBLEU with its usual settings (13a tokens, exponential smoothing).

    Args:
        hypotheses: Translations, detokenised.
        references: One per translation.
        lowercase: Ignore case.

    Returns:
        0..100; 0 for no sentences.
    """
    if not hypotheses:
        return 0.0
    found = sacrebleu.corpus_bleu(list(hypotheses), [list(references)], force=True, lowercase=lowercase)
    return float(found.score)


def evaluate(
    translator: Translator,
    pairs: Sequence[Pair],
    *,
    beam: int = 5,
    lowercase: bool = False,
    align_head: Head | None = None,
    buckets: Sequence[int] = BUCKETS,
) -> Evaluation:
    """Translate the sources of `pairs` and judge the result.

    Args:
        translator: What to judge.
        pairs: Sources with references, and gold links where there are any.
        beam: Width of the search.
        lowercase: Judge BLEU and chrF without regard to case.
        align_head: (layer, head), from 0: whose attention the alignment error rate goes by. Default: the mean
            of all.
        buckets: Longest source sentence of each bucket, in words, ascending.

    Returns:
        Scores over all sentences and by length.

    Raises:
        ValueError: `pairs` is empty, `buckets` do not ascend, or the model has no such head.
    """
    if not pairs:
        raise ValueError("pairs must hold at least one sentence pair to evaluate on, got none")
    if any(low >= high for low, high in pairwise(buckets)):
        raise ValueError(f"buckets must ascend, or sentences would count twice, got {tuple(buckets)}")
    sources = [pair.source for pair in pairs]
    workers = fitting_workers(translator.device)
    translations = translator.translate(sources, beam=beam, alignment=False, workers=workers)
    gold = [pair.links is not None for pair in pairs]
    forced = None
    if any(gold):
        sides = [pair.source for pair in pairs], [pair.target for pair in pairs]
        forced = translator.align(*sides, align_head=align_head)
    counts = [
        count_links(forced[i].alignment, pair.links or (), pair.possible)
        if forced and forced[i].weights is not None and gold[i]
        else None
        for i, pair in enumerate(pairs)
    ]
    bleu_metric = sacrebleu.BLEU(lowercase=lowercase, force=True)  # no word on full stops that stand alone
    chrf_metric = sacrebleu.CHRF(lowercase=lowercase)
    lengths = [len(words(pair.source)) for pair in pairs]

    def judge(chosen: Sequence[int], shortest: int, longest: int) -> Scores:
        hypotheses = [translations[i].text for i in chosen]
        references = [[pairs[i].target for i in chosen]]
        found = [count for i in chosen if (count := counts[i]) is not None]
        return Scores(
            len(chosen),
            shortest,
            longest,
            bleu_metric.corpus_score(hypotheses, references).score,
            chrf_metric.corpus_score(hypotheses, references).score,
            sum(found, AlignmentCounts()).error_rate if found else None,
        )

    bounds = [(low + 1, high) for low, high in zip([-1, *buckets], [*buckets, max(lengths)], strict=False)]
    members = [[i for i, length in enumerate(lengths) if low <= length <= high] for low, high in bounds]
    whole = judge(range(len(pairs)), min(lengths), max(lengths))
    parts = tuple(judge(m, low, high) for m, (low, high) in zip(members, bounds, strict=True) if m)
    return Evaluation(
        whole, parts, str(bleu_metric.get_signature()), str(chrf_metric.get_signature()), tuple(translations)
    )
