"""Sentences: clauses joined, asked, reported, and written with their links."""

from dataclasses import dataclass, replace
from random import Random

from headlights.translation.corpus.grammar.clauses import (
    choose_scene,
    clause,
    predicate,
    quality,
    subject_of,
)
from headlights.translation.corpus.grammar.lexicon import lexicon
from headlights.translation.corpus.grammar.nouns import Choices, noun_phrase
from headlights.translation.corpus.grammar.phrases import Phrase, realise, say
from headlights.translation.corpus.grammar.verbs import Agreement, Tense, says_that
from headlights.translation.corpus.pair import Pair

LONGEST = 25
_SHORT, _MIDDLE, _LONG = (0.0, 0.35, 0.8)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A pair and what was combined in it: (kind, word, word), by the names of the lexicon."""

    pair: Pair
    combinations: frozenset[tuple[str, str, str]]


def sentence(rng: Random) -> Sentence:
    """Return a random sentence of at most `LONGEST` English words, final mark included."""
    while True:
        choices = Choices(rng, rng.choice((_SHORT, _SHORT, _MIDDLE, _MIDDLE, _LONG)))
        phrase, mark = _shape(choices)
        if rng.random() < 0.7:
            phrase += say(mark, mark)
        if len(phrase.source) <= LONGEST:
            return Sentence(realise(phrase), frozenset(choices.combinations))


def _shape(choices: Choices) -> tuple[Phrase, str]:
    """Choose the kind of sentence; return it and its final mark."""
    tense: Tense = "past" if choices.happens(0.3) else "present"
    draw = choices.rng.random()
    if draw < 0.45 - choices.richness / 4:
        return clause(choices, tense=tense), "."
    if draw < 0.55:
        return clause(choices, tense=tense, question=True), "?"
    if draw < 0.65:
        return _quality(choices, tense, question=choices.happens(0.2))
    if draw < 0.75:
        return _quality_and_scene(choices), "."
    if draw < 0.82:
        return _reported(choices), "."
    return _joined(choices), "."


def _quality(choices: Choices, tense: Tense, *, question: bool) -> tuple[Phrase, str]:
    groups = lexicon().groups
    noun = choices.rng.choice([noun for group in groups.values() for noun in group if noun.adjectives])
    return quality(choices, subject_of(choices, noun), tense, question=question), "?" if question else "."


def _quality_and_scene(choices: Choices) -> Phrase:
    """The old table is strange and has two drawers: the sense is decided far from the word."""
    while True:
        scene = choose_scene(choices, ambiguous=0.8)
        noun = choices.rng.choice(scene.subjects)
        if scene.verbs and noun.adjectives:
            break
    subject = subject_of(choices, noun)
    told = quality(choices, subject, "present")
    again = replace(subject, phrase=Phrase())
    return told + say("and", "e") + predicate(choices, scene, again, "present")


def _reported(choices: Choices) -> Phrase:
    book = lexicon()
    who = noun_phrase(
        choices, choices.rng.choice(book.groups["anyone"] + book.groups["person"]), ("the", "my", "a")
    )
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
    tense: Tense = "past" if english in ("and", "but", "because") and choices.happens(0.3) else "present"
    first, second = clause(choices, tense=tense), clause(choices, tense=tense)
    link = say(english, italian)
    if english in ("when", "while", "if") and choices.happens(0.6):
        return link + first + say(",", ",") + second
    return first + link + second
