"""Lines as they arrive, so that an answer never waits for a question that is still to come."""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import BinaryIO

from headlights.translation.corpus import read_lines

_PIECE = 2**16  # bytes asked for at a time: what a pipe holds


def arriving(stream: BinaryIO, most: int) -> Iterator[list[str]]:
    """Read lines in chunks: all that are there, and at least one.

    Args:
        stream: Bytes, as from a pipe or a terminal.
        most: Lines of a chunk at most.

    Yields:
        The next lines, without their ends.

    Raises:
        CorpusError: A byte is not UTF-8.
    """
    raw = _RawLines(stream)
    lines = read_lines(raw)  # type: ignore[arg-type]  # iterates like a stream of bytes
    for first in lines:
        yield [first, *islice(lines, min(raw.waiting, most - 1))]


class _RawLines:
    """The lines of a stream, which knows how many of them can be had without waiting."""

    def __init__(self, stream: BinaryIO) -> None:
        self.name = getattr(stream, "name", "<stream>")
        self._stream = stream
        self._ready: deque[bytes] = deque()
        self._begun = b""

    @property
    def waiting(self) -> int:
        """Lines that are here already."""
        return len(self._ready)

    def __iter__(self) -> Iterator[bytes]:
        while piece := self._stream.read1(_PIECE):  # type: ignore[attr-defined]  # what is there, no more
            *whole, self._begun = (self._begun + piece).split(b"\n")
            self._ready.extend(line + b"\n" for line in whole)
            while self._ready:
                yield self._ready.popleft()
        if self._begun:
            yield self._begun
