"""From text to the stretches that pieces may not cross, to bytes written as letters, and back to words."""

import codecs
from collections.abc import Iterable, Iterator, Sequence

from headlights.translation.words import Word, words

_PRINTABLE = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
_LETTER_OF = {byte: byte if byte in _PRINTABLE else 0x100 + _OTHERS.index(byte) for byte in range(256)}

BYTES_OF = {chr(letter): byte for byte, letter in _LETTER_OF.items()}
"""The byte that each letter of a piece stands for. Printable Latin-1 stands for itself; the rest moves up."""

Prepared = tuple[str, list[Word], list[tuple[int, int]]]


def prepare(text: str, lowercase: bool) -> Prepared:
    """Make a text ready for a model.

    Args:
        text: Any text.
        lowercase: Whether the model sees lower case only.

    Returns:
        seen: The text as the model sees it.
        found: Its words, as they stand in `text`.
        places: Start and end of each word in `seen`.

    Raises:
        ValueError: The text holds a lone surrogate.
    """
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"text must be valid Unicode, got the lone surrogate {text[error.start]!a} "
                f"at character {error.start}; decode the input with errors='replace'"
            ) from None
    found = words(text)
    if not lowercase:
        return text, found, [(start, end) for _, start, end in found]
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered, found, [(start, end) for _, start, end in found]
    place = [0]  # "İ" is one character, its lower case two
    for character in text:
        place.append(place[-1] + len(character.lower()))
    return lowered, found, [(place[start], place[end]) for _, start, end in found]


def cut(text: str, places: Iterable[tuple[int, int]]) -> Iterator[tuple[str, int | None]]:
    """Cut a text where no piece may cross: each word with the one space before it, and other white space.

    A space is put before the text, so that its first word is like any other; decoding drops it.

    Args:
        text: A text as the model sees it.
        places: Start and end of each of its words.

    Yields:
        segment: A stretch of the text, never empty; together they are the text with a space before it.
        owner: Index of the word that it holds, None for white space.
    """
    if not text:
        return
    text = " " + text
    done = 0
    for owner, (start, end) in enumerate(places):
        begin = start if text[start] == " " else start + 1  # `start` is the character before the word
        if done < begin:
            yield text[done:begin], None
        yield text[begin : end + 1], owner
        done = end + 1
    if done < len(text):
        yield text[done:], None


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
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return _decode_broken(data)
    if text.isascii():
        return text, list(range(len(text)))
    return text, [index for index, character in enumerate(text) for _ in character.encode()]


def _decode_broken(data: bytes) -> tuple[str, list[int]]:
    """The same of bytes some of which are no UTF-8."""
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
