"""What a sense is near to: its words and phrases as one vector."""

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Literal, NamedTuple

from torch import Tensor

from headlights._errors import InputError
from headlights.senses._encoders import ContextEncoder
from headlights.senses._vectors import mean_direction
from headlights.senses._words import places, same_word, split_words

Senses = Mapping[str, Sequence[str]]
"""Each sense of a word: its name, and words, phrases or sentences that show it."""


Show = Literal["words", "phrases", "both"]
"""What shows a shipped sense: words of its field, phrases that use the word, or both."""


class Cluster(NamedTuple):
    """One sense as vectors.

    Attributes:
        static: What a static vector is compared with, shape (E,).
        contextual: What a contextual vector is compared with, shape (E',); the same one where both share a
            space.
    """

    static: Tensor
    contextual: Tensor


@cache
def _shipped() -> dict[str, dict[str, dict[str, list[str]]]]:
    content = tomllib.loads((files("headlights.senses") / "clusters.toml").read_text(encoding="utf-8"))
    return {
        word: {
            name: {"words": sense["words"].split(), "phrases": sense["phrases"]}
            for name, sense in senses.items()
        }
        for word, senses in content.items()
    }


def known_words() -> tuple[str, ...]:
    """The ambiguous English words whose senses come with headlights."""
    return tuple(_shipped())


def known_senses(word: str, show: Show = "words") -> dict[str, list[str]]:
    """The senses of an ambiguous word that come with headlights.

    Args:
        word: One of `known_words()`, in any capitals.
        show: What shows a sense: five words of its field, three short phrases that use the word, or both.
            Default: words.

    Returns:
        Two senses, to give to `disambiguate`.

    Raises:
        ValueError: The word is not among them, or `show` is none of these.

    Example:
        >>> known_senses("table", "words")["data"]
        ['row', 'digits', 'column', 'numbers', 'spreadsheet']
    """
    senses = _shipped().get(word.casefold())
    if senses is None:
        known = ", ".join(known_words())
        raise InputError(f"no senses of {word!r} come with headlights; give them, or take one of: {known}")
    if show not in ("words", "phrases", "both"):
        raise ValueError(f"show: expected 'words', 'phrases' or 'both', got {show!r}")
    kinds = ("words", "phrases") if show == "both" else (show,)
    return {name: [item for kind in kinds for item in shown[kind]] for name, shown in senses.items()}


def cluster(word: str, name: str, items: Sequence[str], encoder: ContextEncoder) -> Cluster:
    """Make one vector of what shows a sense.

    An item that holds the word counts as the word in it. Any other counts as itself where static and
    contextual vectors share a space, and else as the word beside it ("table chair"): a model of many layers
    does not put a lone word where it puts the same word among others.

    Args:
        word: The ambiguous word.
        name: Of the sense, for messages.
        items: Words, phrases or sentences.
        encoder: Makes their vectors.

    Returns:
        The mean directions of the items.

    Raises:
        TypeError: `items` is one string.
        ValueError: There is no item, or the encoder knows none of their words.
    """
    if isinstance(items, str):
        raise TypeError(f"senses: expected a list of words or phrases for {name!r}, got one string")
    if not any(split_words(item) for item in items):
        raise InputError(f"senses: expected at least one word or phrase for {name!r}")
    shown = [words for words in map(split_words, items) if words]
    contextual = mean_direction([_in_context(word, words, encoder) for words in shown])
    if not contextual.any():
        raise InputError(f"senses: the encoder knows no word of {name!r}: {', '.join(items)}")
    if encoder.one_space:
        return Cluster(contextual, contextual)
    others = [other for words in shown for other in words if not same_word(word, other)]
    return Cluster(mean_direction(list(encoder(others or [word]))), contextual)


def _in_context(word: str, words: tuple[str, ...], encoder: ContextEncoder) -> Tensor:
    found = places(word, words)
    if found:
        return encoder.context(words).vectors[found[0]]
    if encoder.one_space:
        return mean_direction(list(encoder.context(words).vectors))
    return encoder.context((word, *words)).vectors[0]
