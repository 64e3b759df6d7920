"""Preparing: a corpus of any size filtered and turned into token ids once, for many trainings."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headlights.translation.corpus import CorpusError, NonBlank, Pair, read, write_jsonl
from headlights.translation.corpus.filters import Dropped, Seen, SizeFilter
from headlights.translation.corpus.reading import has_blank_side
from headlights.translation.data import train_tokenizers
from headlights.translation.encoding import PairEncoder
from headlights.translation.folders import (
    TOKENIZERS,
    FolderError,
    read_json,
    replace_folder,
    save_tokenizers,
    whole_folder,
    write_json,
)
from headlights.translation.locks import locked_beside
from headlights.translation.prepared import (
    FORMAT,
    FORMAT_VERSION,
    REPORT,
    TRAIN,
    VALID,
    is_prepared,
    pair_writer,
)
from headlights.translation.recipe import TokenizerConfig
from headlights.translation.starting import tokenizer_config
from headlights.translation.tokenizer import Tokenizer

TOKENIZER_PAIRS = 1_000_000  # to learn from, unless told otherwise
_CHUNK = 4096  # pairs that a worker gets at a time
_WRITTEN = {TRAIN, VALID, REPORT, *TOKENIZERS}

OnProgress = Callable[[str, int, int | None], None]
"""Told what is being done, how many pairs that concerned so far, and of how many, if known."""


@dataclass(frozen=True, slots=True)
class PrepareConfig:
    """How to prepare a corpus.

    Attributes:
        tokenizer: How text becomes tokens.
        sizes: Which lengths are kept.
        duplicates: Keep pairs that came before, unless one is held out.
        held_out: Pairs to hold out for validation where no file is given, by seed.
        tokenizer_pairs: Pairs at most to learn the tokenizer from, drawn by seed.
        seed: Of both draws.
        workers: Processes that encode.
    """

    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    sizes: SizeFilter = field(default_factory=SizeFilter)
    duplicates: bool = False
    held_out: int = 500
    tokenizer_pairs: int = TOKENIZER_PAIRS
    seed: int = 1
    workers: int = 1


@dataclass(slots=True)
class PrepareReport:
    """What became of the pairs of a corpus.

    Attributes:
        read: Pairs in the files.
        kept: Pairs written to train on.
        valid: Pairs written to validate with.
        dropped: Pairs left out, counted by reason.
        source_tokens: Tokens kept, of the source.
        target_tokens: Tokens kept, of the target.
        seconds: How long it took.
    """

    read: int = 0
    kept: int = 0
    valid: int = 0
    dropped: Dropped = field(default_factory=Dropped)
    source_tokens: int = 0
    target_tokens: int = 0
    seconds: float = 0.0


def prepare(
    train: Sequence[str | Path],
    out: str | Path,
    *,
    valid: Sequence[str | Path] = (),
    config: PrepareConfig | None = None,
    tokenizers: tuple[Tokenizer, Tokenizer] | None = None,
    on_progress: OnProgress | None = None,
) -> PrepareReport:
    """Filter a corpus and write it as token ids, in memory that does not grow with it but for 8 bytes a pair.

    The corpus is read twice: to draw what the tokenizer is learned from, then to write.

    Args:
        train: The files, as for `headlights.translation.corpus.read`.
        out: The folder to make. One that was prepared from the same files is replaced once the new one is
            whole, if nothing else lies in it.
        valid: Files of validation pairs. Default: some of `train` are held out.
        config: How. Default: `PrepareConfig()`.
        tokenizers: For source and target, of a model that is to be trained on; in the place of those that
            `config` says how to learn. Default: they are learned.
        on_progress: Told how far it is. Default: nobody is.

    Returns:
        What was kept and what was left out, and why.

    Raises:
        CorpusError: A file cannot be read, or not twice, or nothing is left.
        FolderError: `out` holds something else or another corpus, or cannot be written, or another process
            prepares into it.
        ValueError: The vocabulary is too small for its kind.
    """
    config, folder = config or PrepareConfig(), Path(out)
    for path in (*train, *valid):
        if Path(path).exists() and not Path(path).is_file():
            raise CorpusError(f"{path} is no ordinary file; preparing reads text twice: save it as one first")
    if tokenizers is not None:
        config = replace(config, tokenizer=tokenizer_config(*tokenizers), tokenizer_pairs=0)
    work = _Preparation(train, valid, config, tokenizers, on_progress or (lambda *_: None))

    def write(new: Path) -> None:
        work.write(new)
        _check_free(folder, work.files)  # again: this took long, and meanwhile things may have been put there

    with locked_beside(folder):
        _check_free(folder, work.files)
        replace_folder(folder, write)
    return work.report


def _check_free(folder: Path, files: list[str]) -> None:
    """Refuse a folder that holds anything but these files prepared: it would be deleted with the folder."""
    present = whole_folder(folder)
    if not present.exists():
        return
    if not present.is_dir() or (any(present.iterdir()) and not is_prepared(folder)):
        raise FolderError(f"{folder} holds something else: choose another folder, or empty this one")
    others = sorted({entry.name for entry in present.iterdir()} - _WRITTEN)
    if others:
        raise FolderError(
            f"{present / others[0]} is not of the prepared folder and would be deleted with it: move it "
            "elsewhere, or choose another folder"
        )
    if is_prepared(folder) and (found := read_json(present / REPORT).get("files")) != files:
        origin = _names(found) if isinstance(found, list) else "other files"
        raise FolderError(
            f"{folder} holds another corpus, prepared from {origin}: choose another folder, or delete "
            "this one"
        )


class _Preparation:
    """One run of `prepare`."""

    def __init__(
        self,
        train: Sequence[str | Path],
        valid: Sequence[str | Path],
        config: PrepareConfig,
        tokenizers: tuple[Tokenizer, Tokenizer] | None,
        on_progress: OnProgress,
    ) -> None:
        self.train, self.valid, self.config, self.tell = train, valid, config, on_progress
        self.tokenizers = tokenizers
        self.report = PrepareReport()
        self.files = [str(path) for path in (*train, *valid)]
        self._number_of = {str(path): number for number, path in enumerate(train)}

    def write(self, folder: Path) -> None:
        """Fill an empty folder."""
        started = time.monotonic()
        sample, held_out = self._draw()
        tokenizers = self.tokenizers or train_tokenizers(self.config.tokenizer, sample)
        sample.clear()
        files = save_tokenizers(folder, *tokenizers)
        with PairEncoder(files[0], files[-1], self.config.workers) as encoder:
            valid = self._write_train(folder / TRAIN, encoder, held_out)
        if self.valid:
            valid = list(NonBlank(read(self.valid)))
        if not self.report.kept:
            raise CorpusError(
                f"nothing is left of {_names(self.train)}: {self._losses()}; loosen the filters"
            )
        if not valid:
            raise CorpusError(
                f"no pairs to validate with in {_names(self.valid or self.train)}; give others to validate"
            )
        self.report.valid = write_jsonl(valid, folder / VALID)
        self.report.seconds = round(time.monotonic() - started, 1)
        write_json(folder / REPORT, self._described())

    def _losses(self) -> str:
        return ", ".join(f"{count} {reason}" for reason, count in self.report.dropped.counts.items())

    def _described(self) -> dict[str, Any]:
        config = self.config
        return {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "files": self.files,
            "tokenizer": config.tokenizer.model_dump(),
            "filters": {**asdict(config.sizes), "duplicates": config.duplicates},
            "seed": config.seed,
            **asdict(self.report),
        }

    def _draw(self) -> tuple[list[Pair], set[int]]:
        """Read the corpus once: a sample for the tokenizer, and the numbers of the pairs to hold out."""
        draw = random.Random(self.config.seed)
        sample: list[Pair] = []
        count = 0
        filled = NonBlank(read(self.train))
        for pair in filled:
            if len(sample) < self.config.tokenizer_pairs:
                sample.append(pair)
            elif (place := draw.randrange(count + 1)) < len(sample):  # every pair has the same chance
                sample[place] = pair
            count += 1
            if count % _CHUNK == 0:
                self.tell("reading", count + filled.dropped, None)
        if count < 2:
            raise CorpusError(f"{count} sentence pairs in {_names(self.train)}; preparing needs at least two")
        self._pairs = count + filled.dropped
        held = 0 if self.valid else min(self.config.held_out, max(1, count // 10))
        return sample, set(draw.sample(range(count), held))

    def _write_train(self, path: Path, encoder: PairEncoder, held_out: set[int]) -> list[Pair]:
        """Read the corpus again and write what is to be trained on; returns what is held out."""
        held: list[Pair] = []
        chunks = self._chunks(held_out, held)
        with pair_writer(path) as writer:
            for pairs, source, target in encoder.encode(chunks):
                reasons = self.config.sizes.reasons(source.lengths, target.lengths)
                for pair, reason in zip(pairs, reasons, strict=True):
                    if reason is not None:
                        self.report.dropped.add(reason, pair.origin)
                kept = np.array([reason is None for reason in reasons])
                writer.write(source.keep(kept), target.keep(kept), self._places(pairs)[kept])
                self.report.kept += int(kept.sum())
                self.report.source_tokens += int(source.lengths[kept].sum())
                self.report.target_tokens += int(target.lengths[kept].sum())
                self.tell("encoding", self.report.read, self._pairs)
        self.tell("encoding", self.report.read, self._pairs)  # the last ones may all be left out
        return held

    def _places(self, pairs: Sequence[Pair]) -> NDArray[np.int32]:
        """Which file and which line each pair is from."""
        origins = [pair.origin.rpartition(":") for pair in pairs]
        return np.array([(self._number_of[file], int(line)) for file, _, line in origins], dtype=np.int32)

    def _chunks(self, held_out: set[int], held: list[Pair]) -> Iterator[list[Pair]]:
        """The pairs to encode: neither blank nor held out nor, unless asked for, seen before.

        What is seen before is not held out, and what is held out is left out wherever it comes again, or it
        would be validated with and trained on.
        """
        seen, keep_duplicates = Seen(), self.config.duplicates
        texts: set[tuple[str, str]] = set()  # of what is held out
        numbered = enumerate(self._filled())
        while chunk := list(islice(numbered, _CHUNK)):
            new = [True] * len(chunk)
            if held_out or not keep_duplicates:
                new = seen.are_new([pair for _, pair in chunk]).tolist()
            pairs: list[Pair] = []
            for (number, pair), is_new in zip(chunk, new, strict=True):
                sides = pair.source, pair.target
                if is_new and number in held_out:
                    held.append(pair)
                    texts.add(sides)
                elif is_new or (keep_duplicates and sides not in texts):
                    pairs.append(pair)
                else:
                    self.report.dropped.add("duplicate", pair.origin)
            if pairs:
                yield pairs

    def _filled(self) -> Iterator[Pair]:
        """The pairs of the corpus without the blank ones, all of them counted."""
        for pair in read(self.train):
            self.report.read += 1
            if has_blank_side(pair.source, pair.target):
                self.report.dropped.add("blank", pair.origin)
            else:
                yield pair


def _names(paths: Sequence[str | Path]) -> str:
    return " and ".join(map(str, paths))
