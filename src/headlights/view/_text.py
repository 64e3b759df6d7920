"""Words as labels: nothing invisible, nothing that moves its neighbours, and a known width."""

import unicodedata
from collections.abc import Callable, Iterator
from functools import cache

_JOINER = "\u200d"
_KEPT_FORMATS = {_JOINER, "\u200c"}  # the two joiners shape Persian, Indic scripts and emoji
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_FLAGS = range(0x1F1E6, 0x1F200)
_TAGS = range(0xE0020, 0xE0080)


def visible(word: str) -> str:
    """Replaces what cannot be seen or moves its neighbours by something that can.

    A control character becomes its picture (a line feed becomes ␊); a bidirectional control, another format
    character but the joiners, a line or paragraph separator, a surrogate or a code point that is not a
    character becomes its number (⟨U+202E⟩). All else stays as it is.

    Args:
        word: Any string.

    Returns:
        The same word without such characters.
    """
    return "".join(_picture(character) for character in word)


def label(word: str) -> str:
    """What is drawn for a word: `visible`, with a sign for an empty word (∅) and for spaces alone (␣)."""
    if not word.strip(" "):
        return "␣" * len(word) or "∅"
    return visible(word)


def _picture(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") or _is_noncharacter(code)
    if hidden and character not in _KEPT_FORMATS and code not in _TAGS:
        return f"⟨U+{code:04X}⟩"
    return character


def _is_noncharacter(code: int) -> bool:
    return code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF


def is_right_to_left(text: str) -> bool:
    """Whether any character of `text` belongs to a script written from right to left."""
    return any(unicodedata.bidirectional(character) in ("R", "AL") for character in text)


def cell_width(text: str) -> int:
    """Columns that `text` takes in a terminal, as rich measures it, or estimated where rich is missing."""
    return _measure()(text)


@cache
def _measure() -> Callable[[str], int]:
    try:
        from rich.cells import cell_len  # noqa: PLC0415 - an extra
    except ImportError:
        return estimated_width
    return cell_len


def estimated_width(text: str) -> int:
    """Columns that `text` takes in a terminal: a cluster is as wide as its widest character, 1 or 2."""
    return sum(max(map(_character_width, cluster)) for cluster in clusters(text))


def _character_width(character: str) -> int:
    if character == "\ufe0f" or ord(character) in _FLAGS:  # the sign asks for the emoji before it
        return 2
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def clusters(text: str) -> Iterator[str]:
    """Splits `text` where it may be cut: not before a mark, inside a joined emoji or inside a flag.

    Args:
        text: Any string.

    Yields:
        Its parts, in order; together they are `text`.
    """
    part = ""
    for character in text:
        if part and not _continues(part, character):
            yield part
            part = ""
        part += character
    if part:
        yield part


def _continues(part: str, character: str) -> bool:
    code = ord(character)
    if unicodedata.category(character).startswith("M") or character in _KEPT_FORMATS:
        return True
    if code in _SKIN_TONES or code in _TAGS or part.endswith(_JOINER):
        return True
    return code in _FLAGS and len(part) == 1 and ord(part) in _FLAGS


def clip(text: str, width: int) -> str:
    """Shortens `text` to at most `width` terminal columns, with an ellipsis if anything is missing.

    Args:
        text: Any string.
        width: In columns, at least 1.

    Returns:
        `text`, or its beginning and an ellipsis.
    """
    if cell_width(text) <= width:
        return text
    kept = ""
    for cluster in clusters(text):
        if cell_width(kept + cluster) + 1 > width:
            break
        kept += cluster
    return kept + "…"
