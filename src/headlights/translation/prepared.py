"""Prepared folders: token ids of a corpus in memory-mapped Arrow, ready to be trained on.

A prepared folder holds `train.arrow` (columns `source` and `target` of lists of int32, and `file` and `line`
of int32: which of the report's files a pair is from, counted from 0, and which line of it, from 1),
`valid.jsonl` (the validation pairs as text), the tokenizers as in a model folder, and `prepared.json`, the
report.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from headlights.translation.corpus import Pair, read_jsonl
from headlights.translation.folders import FolderError, load_tokenizers, read_json, whole_folder
from headlights.translation.ids import Ids
from headlights.translation.sentences import Sentences
from headlights.translation.tokenizer import Tokenizer

FORMAT, FORMAT_VERSION = "headlights-prepared", 1
TRAIN, VALID, REPORT = "train.arrow", "valid.jsonl", "prepared.json"
_SIDES, _PLACE = ("source", "target"), ("file", "line")
_WITHOUT_PLACE = pa.schema([(side, pa.list_(pa.int32())) for side in _SIDES])  # as once prepared
_SCHEMA = pa.schema([*_WITHOUT_PLACE, *(pa.field(name, pa.int32()) for name in _PLACE)])
_ROWS = 2**16  # pairs in a record batch: 64 MiB at most, with sides of 128 tokens
_AGAIN = "prepare the corpus again"


class PairWriter:
    """Writes token ids of sentence pairs to an Arrow file, a record batch at a time.

    Args:
        file: The open Arrow file.
    """

    def __init__(self, file: pa.ipc.RecordBatchFileWriter) -> None:
        self._file = file
        self._waiting: list[tuple[Ids, Ids, NDArray[np.int32]]] = []
        self._rows = 0

    def write(self, source: Ids, target: Ids, places: NDArray[np.int32]) -> None:
        """Add pairs behind those written.

        Args:
            source: One side.
            target: The other, as many sentences.
            places: File and line of each, shape (sentences, 2).
        """
        self._waiting.append((source, target, places))
        self._rows += len(source.lengths)
        if self._rows >= _ROWS:
            self.flush()

    def flush(self) -> None:
        """Write what is waiting."""
        if self._rows:
            *sides, places = zip(*self._waiting, strict=True)
            columns: list[pa.Array] = [
                _as_lists(
                    np.concatenate([ids.flat for ids in side]), np.concatenate([ids.lengths for ids in side])
                )
                for side in sides
            ]
            columns += map(pa.array, np.concatenate(places).T.copy())
            self._file.write_batch(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA))
        self._waiting, self._rows = [], 0


@contextmanager
def pair_writer(path: Path) -> Iterator[PairWriter]:
    """Write a new Arrow file of sentence pairs.

    Args:
        path: The file.

    Yields:
        What to write the pairs to.
    """
    with pa.OSFile(str(path), "wb") as stream, pa.ipc.new_file(stream, _SCHEMA) as file:
        writer = PairWriter(file)
        yield writer
        writer.flush()


class StoredSentences(Sentences):
    """Token ids of many sentences in a memory-mapped file; only lengths are held in memory.

    Args:
        columns: One side of each record batch of the file.
    """

    def __init__(self, columns: Iterable[pa.ListArray]) -> None:
        self._flat: list[NDArray[np.int32]] = []
        offsets = []
        for column in columns:
            self._flat.append(column.values.to_numpy(zero_copy_only=True))
            offsets.append(column.offsets.to_numpy(zero_copy_only=True))
        # Lengths of a sentence in bytes of its own: 5 million pairs take 80 MB.
        lengths = np.concatenate([np.zeros(0, np.int32), *map(np.diff, offsets)])
        self.lengths = torch.from_numpy(lengths.astype(np.int64))
        self._offsets = offsets
        self._firsts = np.cumsum([0, *(len(each) - 1 for each in offsets)])

    def _parts(self) -> Iterable[NDArray[np.int32]]:
        return self._flat

    def joined(self, rows: Tensor) -> Tensor:  # noqa: D102
        places = rows.numpy()
        batches = self._firsts.searchsorted(places, side="right") - 1
        within = places - self._firsts[batches]
        pieces = [
            self._flat[batch][self._offsets[batch][row] : self._offsets[batch][row + 1]]
            for batch, row in zip(batches.tolist(), within.tolist(), strict=True)
        ]
        return torch.from_numpy(np.concatenate([np.zeros(0, np.int32), *pieces]))


class StoredOrigins(Sequence[str]):
    """Where each pair of a prepared folder is from, read from the disk when it is asked for.

    Args:
        path: The folder.
        files: The files it was prepared from.
        pairs: Its pairs; without the columns `file` and `line` they are called by their numbers.
    """

    def __init__(self, path: Path, files: Sequence[str], pairs: pa.Table) -> None:
        self._path, self._files, self._pairs = path, files, pairs

    def __len__(self) -> int:
        """How many pairs there are."""
        return int(self._pairs.num_rows)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        """The origin of one pair, or of some."""
        if isinstance(index, slice):
            return [self[each] for each in range(len(self))[index]]
        if self._pairs.schema != _SCHEMA:
            return f"pair {index + 1} of {self._path}"
        file, line = (self._pairs[name][index].as_py() for name in _PLACE)
        return f"{self._files[file]}:{line}"


@dataclass(frozen=True, slots=True)
class PreparedData:
    """What a prepared folder holds.

    Attributes:
        source: Source sides to train on.
        target: Target sides, as many.
        valid: Pairs to validate with.
        source_tokenizer: For source text.
        target_tokenizer: For target text; the same object if they are joint.
        report: The content of `prepared.json`.
        origins: Where each training pair is from.
    """

    source: StoredSentences
    target: StoredSentences
    valid: list[Pair]
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    report: dict[str, Any]
    origins: StoredOrigins


def is_prepared(path: Path) -> bool:
    """Whether a path is a prepared folder."""
    return (whole_folder(path) / REPORT).exists()


def load_prepared(path: str | Path) -> PreparedData:
    """Open a prepared folder; the ids stay on the disk until they are asked for.

    Args:
        path: The folder.

    Returns:
        What it holds.

    Raises:
        FolderError: It is missing, broken, or no prepared folder.
    """
    if not is_prepared(Path(path)):
        raise FolderError(f"{path}: there is no {REPORT}; expected a folder written by `headlights prepare`")
    folder = whole_folder(Path(path))
    report = read_json(folder / REPORT)
    if (report.get("format"), report.get("version")) != (FORMAT, FORMAT_VERSION):
        raise FolderError(
            f"{folder / REPORT}: expected format {FORMAT!r}, version {FORMAT_VERSION}, got "
            f"{report.get('format')!r}, {report.get('version')!r}; {_AGAIN}"
        )
    files, tokenizer = report.get("files"), report.get("tokenizer")
    if not isinstance(files, list) or not isinstance(tokenizer, dict):
        raise FolderError(f"{folder / REPORT}: must name its files and its tokenizer; {_AGAIN}")
    pairs = _open(folder / TRAIN)
    source, target = (StoredSentences(batch.column(side) for batch in pairs.to_batches()) for side in _SIDES)
    valid = list(read_jsonl(folder / VALID))
    if not valid:
        raise FolderError(f"{folder / VALID} holds no validation pairs; {_AGAIN}")
    origins = StoredOrigins(Path(path), files, pairs)
    return PreparedData(source, target, valid, *load_tokenizers(folder), report, origins)


def _open(path: Path) -> pa.Table:
    try:
        file = pa.ipc.open_file(pa.memory_map(str(path)))
        batches = [file.get_batch(index) for index in range(file.num_record_batches)]
    except OSError as error:
        raise FolderError(f"{path} cannot be read: {error.strerror or error}; {_AGAIN}") from None
    except pa.ArrowInvalid as error:
        raise FolderError(f"{path} is broken or cut short ({error}); {_AGAIN}") from None
    if file.schema not in (_SCHEMA, _WITHOUT_PLACE):
        found = ", ".join(f"{each.name}: {each.type}" for each in file.schema)
        raise FolderError(f"{path}: expected columns source, target, file and line, got {found}; {_AGAIN}")
    return pa.Table.from_batches(batches, file.schema)


def _as_lists(flat: NDArray[np.int32], lengths: NDArray[np.int32]) -> pa.ListArray:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat))
