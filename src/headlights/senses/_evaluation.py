"""How often the sense found is the right one, on sentences with known senses."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import NamedTuple

from headlights.senses._clusters import Show, known_senses
from headlights.senses._disambiguate import disambiguate
from headlights.senses._embedding import builtin
from headlights.senses._encoders import ContextEncoder, Encoder, SelfAttention
from headlights.senses._words import split_words


class Labelled(NamedTuple):
    """A sentence whose ambiguous word has a known sense.

    Attributes:
        word: The ambiguous word.
        sense: Its sense here, one of `known_senses(word)`.
        sentence: Holds the word once.
    """

    word: str
    sense: str
    sentence: str


@dataclass(frozen=True)
class WordScore:
    """What came out for one word, or for all.

    Attributes:
        word: The word; "all" for all.
        sentences: How many there were.
        right: In how many `Reading.sense` was right.
        right_nearest: In how many the sense nearest to the contextual vector was.
        right_static: In how many the sense nearest to the static vector was.
    """

    word: str
    sentences: int
    right: int
    right_nearest: int
    right_static: int

    def share(self, right: int) -> float:
        """How large a part of the sentences so many are, 0..1; 0 where there is none."""
        return right / max(self.sentences, 1)

    @property
    def accuracy(self) -> float:
        """The share in which `Reading.sense` was right, 0..1."""
        return self.share(self.right)


@dataclass(frozen=True)
class Evaluation:
    """How many senses were right.

    Attributes:
        whole: All words together.
        by_word: Each word, in the order of the sentences.
        skipped: Words that the encoder does not know, or of which it knows no word that shows a sense.
    """

    whole: WordScore
    by_word: tuple[WordScore, ...]
    skipped: tuple[str, ...]


def labelled_sentences() -> list[Labelled]:
    """The sentences that come with headlights: 24 words, two senses each, five sentences a sense."""
    lines = (files("headlights.senses") / "sentences.tsv").read_text(encoding="utf-8").splitlines()
    return [Labelled(*line.split("\t")) for line in lines]


def evaluate(
    encoder: Encoder | ContextEncoder | None = None,
    *,
    sentences: Iterable[Labelled] | None = None,
    show: Show = "words",
) -> Evaluation:
    """Measure how often the sense found is the right one, with the static vector beside it.

    Args:
        encoder: As `disambiguate` takes it. Default: `builtin()`.
        sentences: Sentences with known senses. Default: `labelled_sentences()`.
        show: What shows the senses, as in `known_senses`.

    Returns:
        The counts.

    Raises:
        ValueError: A sentence is of a word without known senses, or lacks its word.
    """
    chosen = builtin() if encoder is None else encoder
    seeing = chosen if isinstance(chosen, ContextEncoder) else SelfAttention(chosen)
    groups: dict[str, list[Labelled]] = {}
    for each in labelled_sentences() if sentences is None else sentences:
        groups.setdefault(each.word, []).append(each)
    known = {word: _knows(seeing, word, show) for word in groups}
    scores = tuple(_score(word, group, seeing, show) for word, group in groups.items() if known[word])
    whole = WordScore(
        "all",
        sum(score.sentences for score in scores),
        sum(score.right for score in scores),
        sum(score.right_nearest for score in scores),
        sum(score.right_static for score in scores),
    )
    return Evaluation(whole, scores, tuple(word for word in groups if not known[word]))


def _knows(encoder: ContextEncoder, word: str, show: Show) -> bool:
    shown = [split_words(" ".join(items)) for items in known_senses(word, show).values()]
    return bool(encoder([word]).any()) and all(bool(encoder(words).any()) for words in shown)


def _score(word: str, group: Sequence[Labelled], encoder: ContextEncoder, show: Show) -> WordScore:
    texts = [each.sentence for each in group]
    readings = disambiguate(word, texts, encoder, senses=known_senses(word, show))
    pairs = [(reading, each.sense) for reading, each in zip(readings, group, strict=True)]
    return WordScore(
        word,
        len(group),
        sum(reading.sense == sense for reading, sense in pairs),
        sum(reading.nearest == sense for reading, sense in pairs),
        sum(reading.nearest_static == sense for reading, sense in pairs),
    )
