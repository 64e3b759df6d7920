"""What `disambiguate` takes and gives, with vectors that are set by hand."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from headlights.senses import (
    Context,
    ContextEncoder,
    Labelled,
    SelfAttention,
    disambiguate,
    evaluate,
    known_senses,
    known_words,
    labelled_sentences,
)

HAND = {"bat": (1.0, 1.0), "cave": (2.0, 0.0), "ball": (0.0, 2.0), "wing": (3.0, 0.0), "glove": (0.0, 3.0)}
SENSES = {"animal": ["wing"], "club": ["glove"]}


def by_hand(words: Sequence[str]) -> Tensor:
    return torch.tensor([HAND.get(word.lower(), (0.0, 0.0)) for word in words]).reshape(-1, 2)


class Layered:
    """Sees each word as itself plus all its neighbours, in a space of its own (the axes are swapped)."""

    one_space = False

    def __call__(self, words: Sequence[str]) -> Tensor:
        return by_hand(words)

    def context(self, words: Sequence[str]) -> Context:
        vectors = by_hand(words)
        around = vectors.sum(0) - vectors
        return Context((vectors + around).flip(-1), torch.full((len(words), len(words)), 1 / len(words)))


def test_a_reading_worked_out_by_hand() -> None:
    (reading,) = disambiguate("BAT", ["A Bat, a cave; no bat!"], by_hand, senses=SENSES)
    assert (reading.word, reading.position) == ("Bat", 1)
    assert reading.words == ("A", "Bat", ",", "a", "cave", ";", "no", "bat", "!")
    # bat·bat = 2 twice, bat·cave = 2; words of zero are not looked at: a third each.
    assert reading.weights.tolist() == pytest.approx([0, 1 / 3, 0, 0, 1 / 3, 0, 0, 1 / 3, 0])
    assert reading.contextual.tolist() == pytest.approx([4 / 3, 2 / 3])
    half = 1 / math.sqrt(2)
    assert reading.before == pytest.approx({"animal": half, "club": half})
    assert reading.after == pytest.approx({"animal": 2 / math.sqrt(5), "club": 1 / math.sqrt(5)})
    assert (reading.sense, reading.nearest, reading.nearest_static) == ("animal", "animal", "animal")
    assert reading.decided_by[0][0] == "cave"
    assert reading.decided_by[0][1] == pytest.approx(1 / 3)
    assert "bat" not in dict(reading.decided_by)
    assert dict(reading.decided_by)["a"] == 0


def test_the_sense_is_the_one_that_rose_where_the_nearest_is_the_frequent_one() -> None:
    vectors = {"bat": (4.0, 1.0), "ball": (3.0, 3.0), "wing": (1.0, 0.0), "glove": (0.0, 1.0)}
    (reading,) = disambiguate(
        "bat", ["bat ball"], lambda words: torch.tensor([vectors[word] for word in words]), senses=SENSES
    )
    assert reading.nearest == reading.nearest_static == "animal"
    assert reading.sense == "club"


def test_a_word_said_twice_counts_with_its_sum() -> None:
    (reading,) = disambiguate("bat", ["the cave, the Cave and the bat"], by_hand)
    assert reading.decided_by[0][0] == "cave"
    assert reading.decided_by[0][1] == pytest.approx(2 / 3)
    assert (reading.sense, reading.nearest, reading.nearest_static) == (None, None, None)
    assert reading.title == "bat"


def test_examples_count_as_the_word_in_them() -> None:
    # "bat cave" makes (1.5, 0.5) of bat, "bat ball" (0.5, 1.5); the sentence's bat is the first again.
    senses = {"animal": ["the bat in the cave"], "club": ["bat, ball"]}
    (reading,) = disambiguate("bat", ["cave of the bat"], by_hand, senses=senses)
    assert reading.after == pytest.approx({"animal": 1, "club": 2 * 0.75 / 2.5})  # 2 * 1.5 * 0.5 / |v|^2


def test_in_a_space_of_its_own_the_word_stands_beside_what_shows_the_sense() -> None:
    assert isinstance(Layered(), ContextEncoder)
    (reading,) = disambiguate("bat", ["bat cave"], Layered(), senses=SENSES)
    # (1, 1) + (2, 0) swapped is (1, 3); beside "wing" bat becomes (1, 4), beside "glove" (4, 1).
    assert reading.contextual.tolist() == [1, 3]
    lengths = math.sqrt(10) * math.sqrt(17)
    assert reading.after == pytest.approx({"animal": 13 / lengths, "club": 7 / lengths})
    half = 1 / math.sqrt(2)
    assert reading.before == pytest.approx({"animal": half, "club": half})  # to wing and glove themselves
    assert reading.sense == "animal"


def test_pictures_show_every_word() -> None:
    (reading,) = disambiguate("bat", ["a cave <b> bat"], by_hand, senses=SENSES)
    text = reading.text(color=False, width=40)
    assert "cave" in text
    assert ".50" in text
    svg = reading.svg()
    assert svg.startswith("<svg")
    assert "bat: animal" in svg


@pytest.mark.parametrize(
    ("arguments", "options", "error", "expected"),
    [
        (("bat", "a bat"), {}, TypeError, "sentences: expected a list of sentences, got one string"),
        (
            ("bat", ["a bat", "bats"]),
            {},
            ValueError,
            "sentences: expected the word 'bat' in each, got 'bats'",
        ),
        (("zq", ["zq"]), {}, ValueError, "word: the encoder does not know 'zq'; take another encoder or"),
        (("bat", ["bat"]), {"encoder": 3}, TypeError, "encoder: expected a callable from words to vectors"),
        (
            ("bat", ["bat"]),
            {"encoder": lambda w: [0]},
            TypeError,
            "encoder: expected it to return a torch.Te",
        ),
        (
            ("bat", ["bat"]),
            {"encoder": lambda w: torch.zeros(2)},
            ValueError,
            r"encoder: expected floats of shape \(n, E\) for n = 1 words, got torch.float32 of shape \(2,\)",
        ),
        (
            ("bat", ["bat"]),
            {"senses": {"a": "wing"}},
            TypeError,
            "senses: expected a list of words or phrases",
        ),
        (
            ("bat", ["bat"]),
            {"senses": {"a": [" "]}},
            ValueError,
            "senses: expected at least one word or phrase",
        ),
        (("bat", ["bat"]), {"senses": {"a": ["x", "y"]}}, ValueError, "encoder knows no word of 'a': x, y"),
    ],
)
def test_what_cannot_be_read_is_refused(
    arguments: tuple[Any, ...], options: dict[str, Any], error: type[Exception], expected: str
) -> None:
    with pytest.raises(error, match=expected):
        disambiguate(*arguments, **{"encoder": by_hand, **options})


def test_scale_must_be_finite() -> None:
    with pytest.raises(ValueError, match="scale: expected a finite number, got inf"):
        SelfAttention(by_hand, scale=math.inf)


def test_shipped_senses_and_sentences_fit_each_other() -> None:
    sentences = labelled_sentences()
    assert len(sentences) >= 200
    assert len({each.sentence for each in sentences}) == len(sentences)
    assert {each.word for each in sentences} == set(known_words())
    assert len(known_words()) >= 22
    shown = {
        item.lower()
        for word in known_words()
        for items in known_senses(word, "both").values()
        for item in items
    }
    for word in known_words():
        senses = [each.sense for each in sentences if each.word == word]
        assert set(senses) == set(known_senses(word))
        assert {senses.count(name) for name in set(senses)} == {5}
    for each in sentences:
        (reading,) = disambiguate(each.word, [each.sentence], lambda words: torch.ones(len(words), 1))
        assert sum(word.lower() == each.word for word in reading.words) == 1
        assert not any(len(item.split()) > 2 and item in each.sentence.lower() for item in shown)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ("zebra",),
            "no senses of 'zebra' come with headlights; give them, or take one of: table, mat, bank",
        ),
        (("table", "all"), "show: expected 'words', 'phrases' or 'both', got 'all'"),
    ],
)
def test_unknown_senses_are_refused(arguments: tuple[Any, ...], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        known_senses(*arguments)


def test_evaluation_counts() -> None:
    # bat (1, 1) with cave or ball becomes (1.5, .5) or (.5, 1.5). Known words that show the senses: "wings",
    # "cave" for animal, "ball" for club; a vector of no other word: alone, the first sense is the nearest.
    vectors = {**HAND, "wings": (1.0, 0.0)}
    sentences = [
        Labelled("bat", "animal", "A bat in a cave."),
        Labelled("bat", "club", "A bat and a ball."),
        Labelled("bat", "club", "A bat in a cave."),
        Labelled("pen", "writing", "A pen."),
    ]
    found = evaluate(
        lambda words: torch.tensor([vectors.get(word.lower(), (0.0, 0.0)) for word in words]).reshape(-1, 2),
        sentences=sentences,
    )
    assert found.skipped == ("pen",)
    assert found.by_word[0].word == "bat"
    score = found.whole
    assert (score.sentences, score.right, score.right_nearest, score.right_static) == (3, 2, 2, 1)
    assert score.accuracy == pytest.approx(2 / 3)
    empty = evaluate(by_hand, sentences=[])
    assert (empty.whole.sentences, empty.whole.accuracy, empty.by_word) == (0, 0.0, ())


def test_builtin_finds_most_senses_that_its_words_can_tell() -> None:
    found = evaluate()
    assert found.whole.sentences >= 120
    assert found.whole.right_static * 2 == found.whole.sentences  # one answer for two equal halves
    assert found.whole.accuracy > 0.8
