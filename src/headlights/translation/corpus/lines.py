"""Lines of text files: the one way every reader reads and every writer writes."""

import codecs
import gzip
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast


class CorpusError(ValueError):
    """A text file that cannot be read or does not hold what it should; one line that names the place."""


def read_lines(source: str | Path | BinaryIO) -> Iterator[str]:
    """Read a text file line by line; a line may be blank.

    Only a line feed, with or without a carriage return before it, ends a line. U+2028, U+0085, form feeds and
    their like are ordinary characters. The last line may lack its end. A byte-order mark is dropped.

    Args:
        source: A UTF-8 file, compressed if its name ends in ".gz", or a stream of bytes, which stays open.

    Yields:
        Each line without its end.

    Raises:
        CorpusError: The file cannot be read, its compression is broken, or a byte is not UTF-8.
        TypeError: The stream gives text instead of bytes.
    """
    for _, text in numbered_lines(source):
        yield text


def numbered_lines(source: str | Path | BinaryIO) -> Iterator[tuple[int, str]]:
    """Read a text file line by line, with numbers for messages.

    Args:
        source: As for `read_lines`.

    Yields:
        The number of the line, from 1, and the line without its end.

    Raises:
        CorpusError: As for `read_lines`.
        TypeError: As for `read_lines`.
    """
    name = _name(source)
    number = 0
    try:
        with _opened(source) as stream:
            for number, raw in enumerate(stream, start=1):
                if not isinstance(raw, bytes):
                    raise TypeError(f"{name}: expected a stream of bytes, got text; give its .buffer")
                yield number, _decode(raw, name, number)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise CorpusError(
            f"{name}: the gzip data is broken or cut off after line {number}; copy or compress the file again"
        ) from None
    except OSError as error:
        raise CorpusError(f"{name}: cannot be read: {error.strerror or error}") from None


@contextmanager
def line_writer(path: str | Path) -> Iterator[Callable[[str], None]]:
    """Write a text file: UTF-8, a line feed after each line.

    Args:
        path: The file, compressed if its name ends in ".gz"; replaced if it exists.

    Yields:
        A function that writes one line, given without its end. It raises ValueError for a line that would not
        be read back as it is: with a line feed, a carriage return at its end, or a first byte-order mark.
    """
    count = 0

    def write(line: str) -> None:
        nonlocal count
        count += 1
        if "\n" in line or line.endswith("\r") or (count == 1 and line.startswith("\ufeff")):
            raise ValueError(f"{path}:{count}: cannot be one line of a text file: {line!a}; write JSON Lines")
        stream.write(f"{line}\n".encode())

    with Path(path).open("wb") as raw:
        packed = str(path).lower().endswith(".gz")
        stream = gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) if packed else raw
        with stream:
            yield write


def _name(source: str | Path | BinaryIO) -> str:
    return str(source if isinstance(source, str | Path) else getattr(source, "name", "<stream>"))


@contextmanager
def _opened(source: str | Path | BinaryIO) -> Iterator[BinaryIO]:
    if not isinstance(source, str | Path):
        yield source
        return
    packed = str(source).lower().endswith(".gz")
    with gzip.open(source, "rb") if packed else Path(source).open("rb") as stream:
        yield cast(BinaryIO, stream)


def _decode(raw: bytes, name: str, number: int) -> str:
    if number == 1:
        raw = raw.removeprefix(codecs.BOM_UTF8)
    if raw.endswith(b"\n"):
        raw = raw[:-1].removesuffix(b"\r")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"{name}:{number}: byte {error.start + 1} of the line, 0x{raw[error.start]:02x}, is not UTF-8; "
            "convert the file to UTF-8"
        ) from None
