"""Italian articles, contractions and agreement, by the spelling of the word that follows."""

from dataclasses import dataclass
from typing import Literal

Gender = Literal["m", "f"]

_VOWELS = frozenset("aeiouàèéìòù")
_LO_PAIRS = ("gn", "pn", "ps", "x", "y", "z")
# Preposition and article written as one word, by the article alone.
_ARTICLES = ("il", "lo", "l'", "la", "i", "gli", "le")
_CONTRACTED = {
    "a": ("al", "allo", "all'", "alla", "ai", "agli", "alle"),
    "da": ("dal", "dallo", "dall'", "dalla", "dai", "dagli", "dalle"),
    "di": ("del", "dello", "dell'", "della", "dei", "degli", "delle"),
    "in": ("nel", "nello", "nell'", "nella", "nei", "negli", "nelle"),
    "su": ("sul", "sullo", "sull'", "sulla", "sui", "sugli", "sulle"),
}


@dataclass(frozen=True, slots=True)
class Article:
    """A determiner whose form waits for the word after it.

    Attributes:
        kind: Which determiner.
        gender: Of the noun.
        plural: Whether the noun is plural; never for "a".
    """

    kind: Literal["the", "a", "this"]
    gender: Gender
    plural: bool

    def form(self, following: str) -> str:
        """Return the form before the word `following`."""
        if self.kind == "the":
            return definite(self.gender, self.plural, following)
        if self.kind == "a":
            return indefinite(self.gender, following)
        return demonstrative(self.gender, self.plural, following)


def starts_with_vowel(word: str) -> bool:
    """Whether an article elides before `word`; h is silent."""
    return word.lower().removeprefix("h")[:1] in _VOWELS


def takes_lo(word: str) -> bool:
    """Whether `word` begins with s and a consonant, z, gn, pn, ps, x or y, and so takes lo, uno, gli."""
    word = word.lower()
    impure_s = word[:1] == "s" and word[1:2] not in _VOWELS
    return impure_s or word.startswith(_LO_PAIRS)


def definite(gender: Gender, plural: bool, following: str) -> str:
    """Return il, lo, l', la, i, gli or le."""
    vowel = starts_with_vowel(following)
    if plural:
        if gender == "f":
            return "le"
        return "gli" if vowel or takes_lo(following) else "i"
    if vowel:
        return "l'"
    if gender == "f":
        return "la"
    return "lo" if takes_lo(following) else "il"


def indefinite(gender: Gender, following: str) -> str:
    """Return un, uno, una or un'."""
    if gender == "f":
        return "un'" if starts_with_vowel(following) else "una"
    return "uno" if takes_lo(following) else "un"


def demonstrative(gender: Gender, plural: bool, following: str) -> str:
    """Return questo, questa, quest', questi or queste."""
    if plural:
        return "queste" if gender == "f" else "questi"
    if starts_with_vowel(following):
        return "quest'"
    return "questa" if gender == "f" else "questo"


def contract(preposition: str, article: str) -> str | None:
    """Return a preposition and a definite article as one word (su, il: sul), or None if they stay apart."""
    forms = _CONTRACTED.get(preposition)
    return forms[_ARTICLES.index(article)] if forms and article in _ARTICLES else None
