"""Sentences: clauses joined, asked, reported, and written with their links."""

from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from random import Random

from headlights.translation.corpus.grammar.clauses import (
    choose_scene,
    clause,
    predicate,
    qualities,
    quality,
    subject_of,
)
from headlights.translation.corpus.grammar.lexicon import Noun, lexicon
from headlights.translation.corpus.grammar.nouns import Choices, noun_key, noun_phrase
from headlights.translation.corpus.grammar.phrases import Phrase, realise, say
from headlights.translation.corpus.grammar.verbs import Agreement, Tense, says_that
from headlights.translation.corpus.pair import Pair


@dataclass(frozen=True, slots=True)
class Length:
    """A bucket of sentence lengths and how to fill it.

    Attributes:
        shortest: In English words, the final mark included.
        longest: In English words, the final mark included.
        richness: As in `Choices`.
        joined: Chance, 0..1, of two clauses; 0 also excludes other sentences with two verbs.
    """

    shortest: int
    longest: int
    richness: float
    joined: float


_LENGTHS = (
    Length(3, 5, 0.0, 0.0),
    Length(6, 10, 0.2, 0.05),
    Length(11, 15, 0.15, 0.6),
    Length(16, 20, 0.5, 0.75),
    Length(21, 25, 0.7, 0.9),
)
_SHARES = (0.12, 0.35, 0.26, 0.16, 0.11)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence pair and how it came about.

    Attributes:
        pair: The sentence in both languages.
        combinations: What was combined in it: (kind, word, word), by the names of the lexicon.
        chosen: The choices to count, by the same names.
    """

    pair: Pair
    combinations: frozenset[tuple[str, str, str]]
    chosen: tuple[str, ...]


def sentence(rng: Random, told: Counter[str]) -> Sentence:
    """Return a random sentence of 3 to 25 English words, final mark included; prefer what was told less."""
    length = rng.choices(_LENGTHS, _SHARES)[0]
    while True:
        choices = Choices(rng, length.richness, told=told)
        phrase, mark = _shape(choices, length)
        if rng.random() < 0.7:
            phrase += say(mark, mark)
        if length.shortest <= len(phrase.source) <= length.longest:
            return Sentence(realise(phrase), frozenset(choices.combinations), tuple(choices.chosen))


def _shape(choices: Choices, length: Length) -> tuple[Phrase, str]:
    """Choose the kind of sentence; return it and its final mark."""
    tense: Tense = "past" if choices.happens(0.3) else "present"
    if choices.happens(length.joined):
        return _joined(choices), "."
    # Sentences with two verbs come last: the shortest have none of them.
    draw = choices.rng.uniform(0, 1 if length.joined else 0.78)
    if draw < 0.5:
        return clause(choices, tense=tense), "."
    if draw < 0.65:
        return clause(choices, tense=tense, question=True), "?"
    if draw < 0.78:
        return _quality(choices, tense, question=choices.happens(0.2))
    if draw < 0.9:
        return _quality_and_scene(choices), "."
    return _reported(choices), "."


def _quality(choices: Choices, tense: Tense, *, question: bool) -> tuple[Phrase, str]:
    noun = choices.pick(_describable(), noun_key)
    subject = subject_of(choices, noun, relative=not question)
    if not qualities(subject):
        return _quality(choices, tense, question=question)
    return quality(choices, subject, tense, question=question), "?" if question else "."


@cache
def _describable() -> tuple[Noun, ...]:
    return tuple(noun for group in lexicon().groups.values() for noun in group if noun.adjectives)


def _quality_and_scene(choices: Choices) -> Phrase:
    """The old table is strange and has two drawers: the sense is decided far from the word."""
    scene = choose_scene(choices, ambiguous=0.8)
    subject = subject_of(choices, choices.pick(scene.subjects, noun_key))
    if not scene.verbs or not qualities(subject):
        return _quality_and_scene(choices)
    told = quality(choices, subject, "present", continued=True)
    again = replace(subject, phrase=Phrase())
    return told + say("and", "e") + predicate(choices, scene, again, "present")


def _reported(choices: Choices) -> Phrase:
    book = lexicon()
    who = noun_phrase(choices, choices.pick(book.people, noun_key), ("the", "my", "a"))
    verb = book.verbs[choices.rng.choice(("say", "know"))]
    tense: Tense = "past" if choices.happens(0.3) else "present"
    return who.phrase + says_that(Agreement(who.plural, who.gender), verb) + clause(choices, tense=tense)


def _joined(choices: Choices) -> Phrase:
    """Return two clauses with a conjunction between or before them."""
    english, italian = choices.rng.choice(
        (
            ("and", "e"),
            ("but", "ma"),
            ("because", "perché"),
            ("when", "quando"),
            ("while", "mentre"),
            ("if", "se"),
        )
    )
    tense: Tense = "past" if english in ("and", "but", "because") and choices.happens(0.4) else "present"
    first, second = clause(choices, tense=tense), clause(choices, tense=tense)
    link = say(english, italian)
    if english in ("when", "while", "if") and choices.happens(0.6):
        return link + first + say(",", ",") + second
    return first + link + second
