"""Whole phrases and sentences of the grammar against translations checked by hand."""

import re
from collections.abc import Iterator
from itertools import islice
from random import Random

import pytest

from headlights.translation.corpus.grammar import EXAMPLES, Example
from headlights.translation.corpus.grammar.clauses import clause
from headlights.translation.corpus.grammar.lexicon import Noun, Place, Scene, lexicon
from headlights.translation.corpus.grammar.nouns import Choices, Determiner, noun_phrase, preposition
from headlights.translation.corpus.grammar.phrases import realise, say
from headlights.translation.corpus.grammar.verbs import (
    Agreement,
    Mood,
    Tense,
    be,
    moods,
    there_is,
    verb_group,
)
from headlights.translation.corpus.pair import Pair

BOOK = lexicon()
SENSES = {noun.key: noun for pair in BOOK.senses.values() for noun in pair}


def find(key: str) -> Noun:
    return SENSES[key] if "/" in key else BOOK.nouns[key]


def scene(subject: str, verb: str, thing: str = "", where: str = "", place: str = "") -> Scene:
    return Scene(
        subjects=(find(subject),),
        verbs=() if verb == "be" else (BOOK.verbs[verb],),
        objects=(find(thing),) if thing else (),
        places=(Place(where, (find(place),)),) if place else (),
        optional=False,
    )


def draw(
    told: Scene, *, richness: float = 0.0, tense: Tense = "present", question: bool = False
) -> Iterator[Pair]:
    """Tell the scene many times."""
    rng = Random(0)
    for _ in range(40_000):
        yield realise(clause(Choices(rng, richness), tense=tense, question=question, scene=told))


def translation(pairs: Iterator[Pair], source: str) -> Pair:
    """Return the first pair with this source."""
    return next(pair for pair in pairs if pair.source == source)


@pytest.mark.parametrize(
    ("example", "told"),
    list(
        zip(
            EXAMPLES,
            (
                scene("table/tabella", "have", "data"),
                scene("plate", "be", "", "on", "table/tavolo"),
                scene("cat", "sit", "", "on", "mat/tappeto"),
                scene("athlete", "exercise", "", "on", "mat/materassino"),
            ),
            strict=True,
        )
    ),
    ids=["tabella", "tavolo", "tappeto", "materassino"],
)
def test_s11_the_grammar_derives_the_examples(example: Example, told: Scene) -> None:
    assert translation(draw(told), example.pair.source) == example.pair


@pytest.mark.parametrize(
    ("key", "determiner", "expected"),
    [
        ("shelf", "the", {"The shelf|Lo scaffale", "The shelves|Gli scaffali"}),
        ("island", "this", {"This island|Quest'isola", "These islands|Queste isole"}),
        ("lamp", "my", {"My lamp|La mia lampada", "My lamps|Le mie lampade"}),
        ("engineer", "a", {"An engineer|Un ingegnere"}),
        ("nurse", "a", {"A nurse|Un'infermiera"}),
        ("student", "a", {"A student|Uno studente"}),
        ("worker", "every", {"Every worker|Ogni operaio"}),
        ("water", "the", {"The water|L'acqua"}),
        ("data", "the", {"The data|I dati"}),
        ("data", "lot", {"A lot of data|Molti dati"}),
        ("door", "lot", {"A lot of doors|Molte porte"}),
        ("pen/recinto", "number", {"Two pens|Due recinti", "Three pens|Tre recinti"}),
    ],
)
def test_determiners(key: str, determiner: Determiner, expected: set[str]) -> None:
    choices = Choices(Random(1), 0.0)
    drawn = (realise(noun_phrase(choices, find(key), (determiner,), plain=True).phrase) for _ in range(60))
    assert {f"{pair.source}|{pair.target}" for pair in drawn} == expected


@pytest.mark.parametrize(
    ("english", "key", "expected"),
    [
        ("on", "island", "On the island|Sull'isola"),
        ("on", "shelf", "On the shelf|Sullo scaffale"),
        ("in", "stadium", "In the stadium|Nello stadio"),
        ("of", "student", "Of the student|Dello studente"),
        ("from", "office", "From the office|Dall'ufficio"),
        ("to", "nurse", "To the nurse|All'infermiera"),
        ("at", "station", "At the station|Alla stazione"),
        ("at", "stadium", "At the stadium|Allo stadio"),
        ("near", "house", "Near the house|Vicino alla casa"),
        ("near", "tree", "Near the tree|Vicino all'albero"),
        ("with", "key/chiave", "With the key|Con la chiave"),
        ("under", "tree", "Under the tree|Sotto l'albero"),
        ("for", "team", "For the team|Per la squadra"),
        ("in", "office", "In the offices|Negli uffici"),
        ("from", "student", "From the students|Dagli studenti"),
        ("on", "mat/tappeto", "On the mats|Sui tappeti"),
    ],
)
def test_prepositions_contract(english: str, key: str, expected: str) -> None:
    choices = Choices(Random(2), 0.0)
    drawn = (
        realise(preposition(english, noun_phrase(choices, find(key), ("the",), plain=True)))
        for _ in range(60)
    )
    assert expected in {f"{pair.source}|{pair.target}" for pair in drawn}


def test_contraction_is_surely_the_preposition_and_possibly_the_article() -> None:
    pair = translation(draw(scene("cat", "sit", "", "on", "mat/tappeto")), "The cat sits on the mat")
    # Il-The gatto-cat siede-sits sul-on(the) tappeto-mat.
    assert pair.links == ((0, 0), (1, 1), (2, 2), (3, 3), (5, 4))
    assert pair.possible == ((4, 3),)


@pytest.mark.parametrize(
    ("verb", "agreement", "mood", "expected"),
    [
        ("eat", Agreement(False, "m"), "plain", "Eats|Mangia"),
        ("eat", Agreement(True, "m"), "plain", "Eat|Mangiano"),
        ("eat", Agreement(True, "f", "past"), "plain", "Ate|Hanno mangiato"),
        ("break", Agreement(True, "f", "past"), "not", "Did not break|Non hanno rotto"),
        ("eat", Agreement(False, "m"), "not", "Does not eat|Non mangia"),
        ("eat", Agreement(True, "m", "past"), "not", "Did not eat|Non hanno mangiato"),
        ("exercise", Agreement(True, "m"), "not", "Do not exercise|Non si allenano"),
        ("exercise", Agreement(False, "f"), "plain", "Exercises|Si allena"),
        ("eat", Agreement(False, "m"), "never", "Never eats|Non mangia mai"),
        ("eat", Agreement(True, "m"), "always", "Always eat|Mangiano sempre"),
        ("look_for", Agreement(False, "m"), "never", "Never looks for|Non cerca mai"),
        ("open", Agreement(True, "m"), "can", "Can open|Possono aprire"),
        ("open", Agreement(False, "m"), "must", "Must open|Deve aprire"),
        ("write", Agreement(True, "m"), "want", "Want to write|Vogliono scrivere"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_verb_groups(verb: str, agreement: Agreement, mood: Mood, expected: str) -> None:
    pair = realise(verb_group(BOOK.verbs[verb], agreement, mood).phrase)
    assert f"{pair.source}|{pair.target}" == expected


def test_moods_follow_verb_and_subject() -> None:
    eat, have = BOOK.verbs["eat"], BOOK.verbs["have"]
    assert moods(have, "present", acting=True, negatable=True) == ("plain", "plain", "not")
    assert moods(eat, "past", acting=True, negatable=True) == ("plain", "plain", "not")
    assert moods(eat, "present", acting=False, negatable=False) == ("plain", "plain", "always")
    assert set(moods(eat, "present", acting=True, negatable=True)) >= {"can", "must", "want", "never"}


@pytest.mark.parametrize(
    ("plural", "tense", "there", "is_not"),
    [
        (False, "present", "There is|C'è", "Is not|Non è"),
        (True, "present", "There are|Ci sono", "Are not|Non sono"),
        (False, "past", "There was|C'era", "Was not|Non era"),
        (True, "past", "There were|C'erano", "Were not|Non erano"),
    ],
)
def test_being(plural: bool, tense: Tense, there: str, is_not: str) -> None:
    agreement = Agreement(plural, "m", tense)
    first, second = realise(there_is(agreement)), realise(be(agreement, negated=True))
    assert f"{first.source}|{first.target}" == there
    assert f"{second.source}|{second.target}" == is_not


@pytest.mark.parametrize(
    ("told", "tense", "question", "expected"),
    [
        (scene("cat", "sleep"), "present", False, "The cat sleeps|Il gatto dorme"),
        (scene("girl", "bring", "book", "to", "student"), "present", False,
         "The girl brings the book to the student|La ragazza porta il libro allo studente"),
        (scene("cat", "eat", "fish"), "present", True, "Does the cat eat the fish|Il gatto mangia il pesce"),
        (scene("girl", "find", "door"), "past", True,
         "Did the girl find the door|La ragazza ha trovato la porta"),
        (scene("nurse", "arrive"), "past", False, "The nurses arrive|Le infermiere arrivano"),
        (scene("plate", "be", "", "on", "table/tavolo"), "present", True,
         "Is there a plate on the table|C'è un piatto sul tavolo"),
        (scene("plate", "be", "", "on", "table/tavolo"), "past", False,
         "The plates were on the table|I piatti erano sul tavolo"),
        (scene("cat", "be", "", "near", "house"), "present", False,
         "Three cats are not near the house|Tre gatti non sono vicino alla casa"),
        (scene("number", "be", "", "in", "table/tabella"), "present", False,
         "There are a lot of numbers in the table|Ci sono molti numeri nella tabella"),
    ],
)  # fmt: skip
def test_clauses(told: Scene, tense: Tense, question: bool, expected: str) -> None:
    source, target = expected.split("|")
    assert translation(draw(told, tense=tense, question=question), source).target == target


@pytest.mark.parametrize(
    ("told", "tense", "expected"),
    [
        (scene("cat", "sleep"), "present", "The black cat sleeps|Il gatto nero dorme"),
        (scene("man", "see", "shelf"), "present",
         "The man sees the old shelf|L'uomo vede lo scaffale vecchio"),
        (scene("girl", "find", "book"), "past",
         "The girl found the book yesterday|La ragazza ha trovato il libro ieri"),
        (scene("woman", "buy", "book"), "present",
         "The woman buys a book every day|La donna compra un libro ogni giorno"),
    ],
)  # fmt: skip
def test_richer_clauses(told: Scene, tense: Tense, expected: str) -> None:
    source, target = expected.split("|")
    assert translation(draw(told, richness=0.25, tense=tense), source).target == target


def test_relative_clauses_and_owners() -> None:
    rich = list(islice(draw(scene("girl", "buy", "book"), richness=0.6), 4000))
    relative = [pair for pair in rich if " that the boy looks for" in pair.source]
    owned = [pair for pair in rich if re.search("book of the doctor(?!s)", pair.source)]
    acting = [pair for pair in rich if pair.source.startswith("The girl who sleeps buys")]
    assert relative
    assert all("che il ragazzo cerca" in pair.target for pair in relative)
    assert owned
    assert all("libro" in pair.target and " del medico" in pair.target for pair in owned)
    assert acting
    assert all(pair.target.startswith("La ragazza che dorme compra") for pair in acting)


def test_reordering_keeps_the_links() -> None:
    # The black cat sleeps / Il gatto nero dorme: black and cat cross.
    pair = translation(draw(scene("cat", "sleep"), richness=0.25), "The black cat sleeps")
    assert pair.links == ((0, 0), (1, 2), (2, 1), (3, 3))


def test_say_links_one_word_to_several() -> None:
    pair = realise(say("here", "di qui") + say(",", ","))
    assert (pair.source, pair.target) == ("Here,", "Di qui,")
    assert pair.links == ((0, 0), (0, 1), (1, 2))
