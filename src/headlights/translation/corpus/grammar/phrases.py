"""Phrases in two languages at once: words, who translates whom, and how both become text."""

from dataclasses import dataclass, field
from itertools import pairwise

from headlights.translation.corpus.grammar.agreement import Article, contract
from headlights.translation.corpus.pair import Pair

FINAL_MARKS = frozenset(".?")
_UNSPACED = FINAL_MARKS | {","}


class Word:
    """One English word of a sentence in the making; two equal words are still two."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


@dataclass(slots=True)
class Target:
    """One Italian word of a sentence in the making.

    Attributes:
        form: The word, or an article that waits for the word after it.
        sure: English words that it translates.
        possible: English words that it may as well be said to translate.
    """

    form: str | Article
    sure: tuple[Word, ...]
    possible: tuple[Word, ...] = ()


@dataclass(slots=True)
class Phrase:
    """English words in their order and Italian words in theirs."""

    source: list[Word] = field(default_factory=list)
    target: list[Target] = field(default_factory=list)

    def __add__(self, other: "Phrase") -> "Phrase":
        """Both phrases in the same order in both languages."""
        return Phrase(self.source + other.source, self.target + other.target)


def say(english: str, italian: str) -> Phrase:
    """Return words that translate each other one by one, or several Italian words for one English word."""
    source = [Word(word) for word in english.split()]
    forms = italian.split()
    partners = source if len(source) == len(forms) else source[:1] * len(forms)
    return Phrase(source, [Target(form, (partner,)) for form, partner in zip(forms, partners, strict=True)])


def realise(phrase: Phrase) -> Pair:
    """Choose every article, contract and elide, and write both sides as text with their links."""
    target = _settle(phrase.target)
    index = {id(word): position for position, word in enumerate(phrase.source)}
    links = sorted((index[id(word)], j) for j, item in enumerate(target) for word in item.sure)
    possible = sorted((index[id(word)], j) for j, item in enumerate(target) for word in item.possible)
    return Pair(
        source=_text([word.text for word in phrase.source]),
        target=_text([str(item.form) for item in target]),
        links=tuple(links),
        possible=tuple(possible),
    )


def _settle(words: list[Target]) -> list[Target]:
    """Give each article its form, from the end since it depends on the next word, and contract it."""
    settled: list[Target] = []
    for word in reversed(words):
        if isinstance(word.form, Article):
            settled.append(Target(word.form.form(str(settled[-1].form)), word.sure, word.possible))
            continue
        article = settled[-1] if settled else None
        joined = contract(str(word.form), str(article.form)) if article else None
        if article and joined:
            # "sul" is above all "on"; "the" may be claimed as well.
            settled[-1] = Target(joined, word.sure, word.possible + article.sure + article.possible)
        else:
            settled.append(word)
    return settled[::-1]


def _text(words: list[str]) -> str:
    words[0] = words[0][0].upper() + words[0][1:]
    pieces = [words[0]]
    for before, word in pairwise(words):
        pieces.append(word if word in _UNSPACED or before.endswith("'") else f" {word}")
    return "".join(pieces)
