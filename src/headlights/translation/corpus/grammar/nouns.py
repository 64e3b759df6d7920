"""Noun phrases: determiners, adjectives, owners and relative clauses."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal, TypeVar

from headlights.translation.corpus.grammar.agreement import Article, Gender
from headlights.translation.corpus.grammar.lexicon import Adjective, Noun, lexicon
from headlights.translation.corpus.grammar.phrases import Phrase, Target, Word

_T = TypeVar("_T")
Determiner = Literal["the", "a", "this", "my", "every", "number", "lot"]

_NUMBERS = (("two", "due"), ("three", "tre"))
_MINE = {("m", False): "mio", ("f", False): "mia", ("m", True): "miei", ("f", True): "mie"}
_LOT = {"m": "molti", "f": "molte"}
# What somebody has: my book, the house of the doctor.
_OWNED_GROUPS = frozenset({"food", "drink", "text", "thing"})
_OWNED = frozenset({"dog", "cat", "horse", "cow", "house", "kitchen", "garden", "office", "money"})
# Whom somebody calls theirs, though they own them not.
_CLOSE = frozenset({"friend", "doctor", "student", "lawyer", "secretary"})


@dataclass(slots=True)
class NounPhrase:
    """A noun phrase and what the rest of the clause must agree with."""

    noun: Noun
    phrase: Phrase
    plural: bool
    determiner: Determiner
    adjective: Adjective | None = None
    owned: bool = False

    @property
    def gender(self) -> Gender:
        """Of the Italian noun."""
        return self.noun.gender


@dataclass
class Choices:
    """The random choices of one sentence.

    Attributes:
        rng: Where they come from.
        richness: Chance, 0..1, that a phrase gets one more part.
        combinations: Pairs of words that were combined so far, the kind first.
        told: How often each word was chosen in the sentences before this one.
        chosen: The words chosen for this one so far.
    """

    rng: Random
    richness: float
    combinations: set[tuple[str, str, str]] = field(default_factory=set)
    told: Counter[str] = field(default_factory=Counter)
    chosen: list[str] = field(default_factory=list)

    def happens(self, chance: float) -> bool:
        """Return True with this chance, 0..1."""
        return self.rng.random() < chance

    def pick(self, options: Sequence[_T], name: Callable[[_T], str]) -> _T:
        """Return of three random options the one told least so far, so that no word stays rare."""
        chosen = min(self.rng.choices(options, k=3), key=lambda each: self.told[name(each)])
        self.chosen.append(name(chosen))
        return chosen


def determine(choices: Choices, noun: Noun, allowed: Sequence[Determiner]) -> tuple[Determiner, bool]:
    """Choose a determiner among the allowed ones that fits the noun, and number; prefer the first."""
    determiner: Determiner = allowed[0]
    if choices.happens(0.4) or not _fits(noun, determiner):
        determiner = choices.rng.choice([each for each in allowed if _fits(noun, each)] or ["the"])
    if not noun.english[0] or determiner in ("number", "lot"):
        return determiner, True
    several = determiner in ("the", "this", "my") and bool(noun.italian[1])
    rare = 3 * choices.told[_number_name(noun, True)] < 2 * choices.told[_number_name(noun, False)]
    return determiner, several and choices.happens(0.6 if rare else 0.2)


def _number_name(noun: Noun, plural: bool) -> str:
    return f"{noun.key} plural" if plural else f"{noun.key} singular"


def _fits(noun: Noun, determiner: Determiner) -> bool:
    singular = noun.english[0]
    match determiner:
        case "a":
            return bool(singular) and not noun.mass
        case "every" | "number":
            return bool(singular and noun.italian[1])
        case "lot":
            return bool(noun.italian[1])
        case "my":
            return is_owned(noun) or noun.key in _CLOSE
    return True


def noun_key(noun: Noun) -> str:
    """Return its name in the lexicon, by which choices are counted."""
    return noun.key


def is_owned(noun: Noun) -> bool:
    """Whether it makes sense that somebody owns such a thing."""
    return noun.group in _OWNED_GROUPS or noun.key in _OWNED


def noun_phrase(
    choices: Choices,
    noun: Noun,
    allowed: Sequence[Determiner] = ("the", "a", "this", "my", "number", "lot"),
    *,
    plain: bool = False,
) -> NounPhrase:
    """Return a noun with its determiner, and perhaps adjectives and an owner.

    Args:
        choices: Draws them, and remembers the combinations.
        noun: The noun.
        allowed: Determiners, the likeliest first.
        plain: Leave out adjectives and owners.

    Returns:
        The phrase, with what the verb agrees with.
    """
    determiner, plural = determine(choices, noun, allowed)
    choices.chosen.append(_number_name(noun, plural))
    # Mass nouns mark their English plural "~".
    word = Word(noun.english[plural])
    head = Phrase([word], [Target(noun.italian[plural], (word,))])
    adjective = None if plain else _adjective(choices, noun)
    if adjective:
        quality = Word(adjective.english)
        agreed = Target(adjective.agree(noun.gender, plural), (quality,))
        head = Phrase([quality, word], [*head.target, agreed])
        choices.combinations.add(("adjective", noun.key, adjective.english))
    phrase = _opening(choices, determiner, noun, plural, head.source[0].text) + head
    owned = (
        not plain
        and is_owned(noun)
        and determiner in ("the", "this")
        and choices.happens(choices.richness / 2)
    )
    if owned:
        owner = noun_phrase(
            choices,
            choices.pick(lexicon().people, noun_key),
            ("the", "my", "this"),
            plain=choices.happens(0.6),
        )
        phrase += preposition("of", owner)
    return NounPhrase(noun, phrase, plural, determiner, adjective, owned)


def _adjective(choices: Choices, noun: Noun) -> Adjective | None:
    if not noun.adjectives or not choices.happens(0.2 + choices.richness / 2):
        return None
    return choices.pick(noun.adjectives, lambda each: f"{each.english} {noun.gender}")


def _opening(choices: Choices, determiner: Determiner, noun: Noun, plural: bool, following: str) -> Phrase:
    """Return the determiner in both languages; `following` is the English word after it."""
    if determiner == "number":
        english, italian = choices.rng.choice(_NUMBERS)
        word = Word(english)
        return Phrase([word], [Target(italian, (word,))])
    if determiner == "lot":
        a, lot, of = Word("a"), Word("lot"), Word("of")
        return Phrase([a, lot, of], [Target(_LOT[noun.gender], (lot,), (a, of))])
    if determiner == "every":
        word = Word("every")
        return Phrase([word], [Target("ogni", (word,))])
    if determiner == "my":
        word = Word("my")
        mine = Target(_MINE[noun.gender, plural], (word,))
        return Phrase([word], [Target(Article("the", noun.gender, plural), (word,)), mine])
    if determiner == "a":
        word = Word("an" if following[0] in "aeiou" else "a")
    elif determiner == "this":
        word = Word("these" if plural else "this")
    else:
        word = Word("the")
    return Phrase([word], [Target(Article(determiner, noun.gender, plural), (word,))])


_PREPOSITIONS = {
    "on": "su", "in": "in", "of": "di", "from": "da", "to": "a", "at": "a", "with": "con", "for": "per",
    "under": "sotto", "near": "vicino",
}  # fmt: skip


def preposition(english: str, complement: NounPhrase) -> Phrase:
    """Return a preposition and its noun phrase; near is two words, vicino a."""
    word = Word(english)
    target = [Target(_PREPOSITIONS[english], (word,))]
    if english == "near":
        target.append(Target("a", (word,)))
    return Phrase([word], target) + complement.phrase
