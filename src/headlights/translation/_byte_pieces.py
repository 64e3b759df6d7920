"""Bytes written as letters, as byte-level BPE stores its pieces, and the words that such pieces belong to."""

import codecs
from collections.abc import Sequence

from headlights.translation.words import Word, words

_PRINTABLE = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
_LETTER_OF = {byte: byte if byte in _PRINTABLE else 0x100 + _OTHERS.index(byte) for byte in range(256)}

BYTES_OF = {chr(letter): byte for byte, letter in _LETTER_OF.items()}
"""The byte that each letter of a piece stands for. Printable Latin-1 stands for itself; the rest moves up."""


def to_byte_letters(text: str) -> str:
    """Write the UTF-8 bytes of a text as letters, one each.

    Args:
        text: Valid Unicode text.

    Returns:
        One letter a byte.
    """
    return text.encode().decode("latin-1").translate(_LETTER_OF)


def place_pieces(pieces: Sequence[bytes]) -> tuple[str, tuple[int | None, ...], tuple[Word, ...]]:
    """Join pieces to a text and say which word each belongs to.

    Args:
        pieces: Bytes of each piece in order; empty for what is no text.

    Returns:
        text: The text, without the one space that encoding put before it; broken bytes are U+FFFD.
        owners: For each piece the index of the word that covers most of its bytes (the first of equals);
            None for white space. The one space right before a word counts as part of it.
        found: The words of the text.
    """
    text, place = _decode(b"".join(pieces))
    dropped = text.startswith(" ")
    found = tuple(words(text[dropped:]))
    word_at: list[int | None] = [None] * len(text)
    for index, word in enumerate(found):
        start, end = word.start + dropped, word.end + dropped
        start -= start > 0 and text[start - 1] == " "
        word_at[start:end] = [index] * (end - start)
    owners: list[int | None] = []
    begin = 0
    for piece in pieces:
        covered = [word_at[place[byte]] for byte in range(begin, begin + len(piece))]
        named = [index for index in covered if index is not None]
        owners.append(max(sorted(set(named)), key=named.count, default=None))
        begin += len(piece)
    return text[dropped:], tuple(owners), found


def _decode(data: bytes) -> tuple[str, list[int]]:
    """The text of some bytes, and for each byte the index of the character that it is part of."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = ""
    place: list[int] = []
    waiting = 0
    for byte in data:
        new = decoder.decode(bytes([byte]))
        waiting += 1
        if new:
            # Only the last byte can have begun another character than the ones before it.
            place += [len(text)] * (waiting - 1) + [len(text) + len(new) - 1]
            text, waiting = text + new, 0
    rest = decoder.decode(b"", final=True)
    return text + rest, place + [len(text)] * waiting
