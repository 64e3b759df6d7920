"""Turning many sentence pairs into token ids, in several processes, in order."""

import signal
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from types import TracebackType
from typing import Self

from headlights.translation.corpus import Pair
from headlights.translation.ids import Ids
from headlights.translation.tokenizer import Tokenizer

_AHEAD = 4  # chunks that wait for each process

Sides = tuple[Tokenizer, Tokenizer]
_loaded: list[Sides] = []  # of this process, where it is one of the workers


class PairEncoder:
    """Encodes chunks of pairs; a context manager that ends its processes.

    Args:
        source: File of the source tokenizer.
        target: File of the target tokenizer.
        workers: Processes. With 1 the work is done in this one.
    """

    def __init__(self, source: Path, target: Path, workers: int) -> None:
        self._files = (source, target)
        self._workers = workers
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        if self._workers > 1:
            # A fork would copy the threads of torch and of the tokenizers in mid-work.
            self._pool = ProcessPoolExecutor(
                self._workers, mp_context=get_context("spawn"), initializer=_load, initargs=self._files
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def encode(self, chunks: Iterable[list[Pair]]) -> Iterator[tuple[list[Pair], Ids, Ids]]:
        """Encode chunks in order, reading only a few ahead of what was asked for.

        Args:
            chunks: Lists of pairs.

        Yields:
            Each chunk with the ids of its sources and of its targets.
        """
        if self._pool is None:
            tokenizers = _tokenizers(*self._files)
            for chunk in chunks:
                yield chunk, *_encode(tokenizers, [(pair.source, pair.target) for pair in chunk])
            return
        waiting: deque[tuple[list[Pair], Future[tuple[Ids, Ids]]]] = deque()
        remaining = iter(chunks)
        while True:
            for chunk in islice(remaining, self._workers * _AHEAD - len(waiting)):
                texts = [(pair.source, pair.target) for pair in chunk]
                waiting.append((chunk, self._pool.submit(_encode_in_worker, texts)))
            if not waiting:
                return
            chunk, future = waiting.popleft()
            yield chunk, *future.result()


def _load(source: Path, target: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all of them; who waits for them ends them
    _loaded.append(_tokenizers(source, target))


def _tokenizers(source: Path, target: Path) -> Sides:
    first = Tokenizer.load(source)
    return first, first if source == target else Tokenizer.load(target)


def _encode_in_worker(texts: list[tuple[str, str]]) -> tuple[Ids, Ids]:
    return _encode(_loaded[0], texts)


def _encode(tokenizers: Sides, texts: list[tuple[str, str]]) -> tuple[Ids, Ids]:
    source, target = tokenizers
    return (
        Ids.of(source.encode(text).ids for text, _ in texts),
        Ids.of(target.encode(text).ids for _, text in texts),
    )
