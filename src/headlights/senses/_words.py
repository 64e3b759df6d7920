"""A sentence as words, and where a word stands in it."""

import re

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*|[^\w\s]|_")


def split_words(sentence: str) -> tuple[str, ...]:
    """Split at white space and punctuation; a punctuation mark is a word of its own.

    Args:
        sentence: Any text. Hyphens and apostrophes inside a word stay in it.

    Returns:
        The words in order, as they are written.

    Example:
        >>> split_words("It's a well-known table.")
        ("It's", 'a', 'well-known', 'table', '.')
    """
    return tuple(_WORD.findall(sentence))


def is_mark(word: str) -> bool:
    """Whether it has no letter and no digit."""
    return not any(character.isalnum() for character in word)


def same_word(a: str, b: str) -> bool:
    """Whether two words differ in capitals at most."""
    return a.casefold() == b.casefold()


def places(word: str, words: tuple[str, ...]) -> list[int]:
    """The positions at which a word stands, counted from 0."""
    return [position for position, other in enumerate(words) if same_word(word, other)]
