"""What a word is: one rule for alignments, for word-level vocabularies and for what pieces may not cross.

White space separates words. A run of letters, digits and their marks is a word and keeps inner hyphens
("state-of-the-art") and the separators inside numbers ("3.14", "10:30"). Any other character is a word of its
own; emoji joined into one picture, and flags, are one. An apostrophe between letters ends the word before it
("l'" + "uomo", "C'" + "è"), unless it opens an English ending ("don't", "it's"). A run of a script that is
written without spaces stays one word.
"""

import re
import sys
import unicodedata
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

_INVISIBLE = "\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff"
_JOINER = "\u200d"
_SKIN_TONES = "\U0001f3fb-\U0001f3ff"
_TAGS = "\U000e0020-\U000e007f"
_REGIONAL = "[\U0001f1e6-\U0001f1ff]"

_CLOSING = frozenset(".,;:!?)]}»”…%‰°")
_OPENING = frozenset("([{«“„¿¡#@$£")
_TIGHT = frozenset("/\\_")
_STRAIGHT_QUOTES = frozenset("\"'")
_APOSTROPHES = ("'", "’")


class Word(NamedTuple):
    """A word and where it stands.

    Attributes:
        text: The word itself, never empty.
        start: Index of its first character in the text it was found in.
        end: Index just past its last character.
    """

    text: str
    start: int
    end: int


def words(text: str) -> list[Word]:
    """Split a text into words, with their places.

    Args:
        text: Any text.

    Returns:
        The words in order, without overlap; what lies between them is white space. Empty for a blank text.

    Example:
        >>> [word.text for word in words("Dell'acqua? Don't, at 10:30.")]
        ["Dell'", 'acqua', '?', "Don't", ',', 'at', '10:30', '.']
    """
    return [Word(match.group(), match.start(), match.end()) for match in _pattern().finditer(text)]


def join_words(texts: Iterable[str]) -> str:
    """Write words as running text: the way back from `words`, with the usual spacing of English and Italian.

    Straight quotation marks open and close in turn. The text it gives has the same words again, whenever the
    words came from `words` and none begins with a combining mark.

    Args:
        texts: The words, as strings.

    Returns:
        One line of text.

    Example:
        >>> join_words(["C'", "è", "l'", "uomo", "(", "forse", ")", "."])
        "C'è l'uomo (forse)."
    """
    pieces: list[str] = []
    open_quotes: set[str] = set()
    glue_next = True
    for text in texts:
        closes = text in open_quotes
        opens = text in _STRAIGHT_QUOTES and not closes
        if not (glue_next or closes or text in _CLOSING or text in _TIGHT):
            pieces.append(" ")
        pieces.append(text)
        if opens:
            open_quotes.add(text)
        open_quotes -= {text} if closes else set()
        is_elision = len(text) > 1 and text.endswith(_APOSTROPHES)
        glue_next = opens or is_elision or text in _OPENING or text in _TIGHT
    return "".join(pieces)


@cache
def _pattern() -> re.Pattern[str]:
    """The rule as one pattern. Built when first used: `re` has no class for combining marks."""
    extend = f"[{_marks()}{_INVISIBLE}{_SKIN_TONES}{_TAGS}]*"
    alnum = r"[^\W_]"
    letter = r"[^\W\d_]"
    core = rf"(?:{alnum}{extend})+"
    ending = rf"['’](?:[stdm]|re|ve|ll)(?!{alnum}|[{_marks()}])"
    lexical = rf"{core}(?:[-‐‑]{core}|(?<=\d)[.,:](?=\d){core}|(?i:{ending}))*(?:(?<!\d)['’](?={letter}))?"
    picture = rf"(?:[^\w\s]|_){extend}(?:(?<={_JOINER})[^\w\s]{extend})*"
    return re.compile(rf"{lexical}|{_REGIONAL}{{2}}|{picture}")


def _marks() -> str:
    """Every combining mark (categories Mn, Mc, Me) as the inside of a character class."""
    ranges: list[list[int]] = []
    blocks = (range(0x300, 0x20000), range(0xE0100, min(0xE01F0, sys.maxunicode)))
    for code in (code for block in blocks for code in block):
        if unicodedata.category(chr(code)).startswith("M"):
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)
