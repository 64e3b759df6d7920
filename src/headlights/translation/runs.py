"""Run folders: what a training leaves on disk, and how one that was stopped goes on."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import tomli_w
import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from headlights.translation.folders import (
    FolderError,
    ModelFolder,
    load_parameters,
    load_tokenizers,
    read_json,
    read_tensors,
    replace_file,
    replace_folder,
    settle_folder,
    whole_folder,
    write_json,
    write_tensors,
)
from headlights.translation.locks import LOCK, locked
from headlights.translation.model import TranslationModel
from headlights.translation.recipe import Recipe, load_recipe
from headlights.translation.tokenizer import Tokenizer

_FILES = ("data.train", "data.valid", "data.prepared")  # may have moved; their pairs are compared
_BOARD = "tensorboard"
_LATER = {"waited", "valid_pairs", "train_hash", "valid_hash"}  # older runs go on without them
_FIXED = ("training.batch_tokens", "training.seed", "training.start")  # what has been done rests on them


@dataclass(frozen=True, slots=True)
class Validation:
    """How good the model was at one point.

    Attributes:
        update: Updates done.
        loss: Cross-entropy, in nats per target token.
        bleu: Of greedy translations, 0..100.
        averaged: Whether it was judged with averaged parameters.
    """

    update: int
    loss: float
    bleu: float
    averaged: bool = False

    def is_better_than(self, other: "Validation") -> bool:
        """Whether BLEU is higher, or equal (as at the start, when all are 0) with a lower loss."""
        return (self.bleu, -self.loss) > (other.bleu, -other.loss)


@dataclass(slots=True)
class Progress:
    """Where a training stands.

    Attributes:
        update: Updates done.
        epoch: Pass over the data, from 0.
        batch: Batches done in this epoch.
        seconds: Time spent, in all pieces of the run.
        pairs: Training pairs; the place in the data means nothing with others.
        validations: Validations done of those that the recipe asks for.
        waited: Validations since the best.
        valid_pairs: Pairs to validate with; scores on others cannot be compared. 0: not known.
        train_hash: Fingerprint of the training pairs. "": not known.
        valid_hash: That of the pairs to validate with.
        best: The best validation; None before the first.
        latest: The last validation; None before the first.
    """

    update: int = 0
    epoch: int = 0
    batch: int = 0
    seconds: float = 0.0
    pairs: int = 0
    validations: int = 0
    waited: int = 0
    valid_pairs: int = 0
    train_hash: str = ""
    valid_hash: str = ""
    best: Validation | None = None
    latest: Validation | None = None


@dataclass(frozen=True, slots=True)
class RunFolder:
    """`recipe.toml`, `log.jsonl`, the model folders `best` and `last`, and in `resume` what continuing needs.

    `resume` is what counts: it is written first and as one, and `best` and `last` follow from it. It is a
    model folder too, with the state of the training beside the model.

    Attributes:
        path: The folder.
    """

    path: Path
    best: Path = field(init=False)
    last: Path = field(init=False)
    resume: Path = field(init=False)

    def __post_init__(self) -> None:
        for name in ("best", "last", "resume"):
            object.__setattr__(self, name, self.path / name)

    @property
    def board(self) -> Path:
        """Where TensorBoard's files are, if there are any."""
        return self.path / _BOARD

    def check_free(self) -> None:
        """Refuse a folder that a new run must not be written into.

        A run that was stopped before its first save is no loss, and may be begun again.

        Raises:
            FolderError: There is something in it already, or it is not a folder.
        """
        if self.path.exists() and not self.path.is_dir():
            raise FolderError(f"{self.path} is a file; expected a folder to write the run into")
        if self.can_resume():
            raise FolderError(
                f"{self.path} holds a run already: continue it with --resume, or choose another folder"
            )
        files = {"recipe.toml", "log.jsonl"}
        begun = {*files, *(f".{name}.part" for name in files), ".resume.new", LOCK, _BOARD}
        if self.path.is_dir() and not {entry.name for entry in self.path.iterdir()} <= begun:
            raise FolderError(f"{self.path} is not empty: choose another folder, or empty this one")

    def create(self, recipe: Recipe) -> None:
        """Make the folder for a new run.

        Args:
            recipe: Stored as `recipe.toml`.

        Raises:
            FolderError: It cannot be written, or `check_free` refuses it.
        """
        self.check_free()
        self._make()
        self.write_recipe(recipe)
        self.trim_log(0)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep all other trainings out of the folder inside the block.

        A folder that is made for this, and that nothing was written into, is removed at the end.

        Yields:
            Nothing.

        Raises:
            FolderError: Another training holds it, or it cannot be made or written to.
        """
        missing = [each for each in (self.path, *self.path.parents) if not each.exists()]
        self._make()
        try:
            with locked(self.path):
                yield
        finally:
            for each in missing:
                with suppress(OSError):  # by now there is something in it
                    each.rmdir()

    def _make(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FolderError(f"{self.path} cannot be made: {error.strerror}") from None

    def write_recipe(self, recipe: Recipe) -> None:
        """Store `recipe.toml`."""
        with replace_file(self.path / "recipe.toml") as file:
            file.write(tomli_w.dumps(recipe.model_dump(mode="json", exclude_none=True)))

    def recipe(self) -> Recipe:
        """The recipe of the run that is in the folder."""
        if not (self.path / "recipe.toml").exists():
            raise FolderError(
                f"{self.path} holds no run to continue: recipe.toml is missing; begin one without --resume"
            )
        return load_recipe(self.path / "recipe.toml")

    def check_continues(self, recipe: Recipe) -> None:
        """Refuse a recipe that the run in the folder cannot go on with.

        What the model is, where it came from and the order of the data must stay; limits, rates and the like
        may change.

        Args:
            recipe: The recipe to go on with.

        Raises:
            FolderError: There is no run, or a key has changed that must not.
        """
        before, now = dict(_keys(self.recipe())), dict(_keys(recipe))
        for key, value in now.items():
            fixed = key not in _FILES and (not key.startswith("training.") or key in _FIXED)
            if fixed and value != before[key]:
                raise FolderError(
                    f"{key} cannot change while a run goes on: {self.path} has {before[key]!r}, got "
                    f"{value!r}; train into a new folder for that"
                )

    def check_same_data(self, before: Progress, now: Progress) -> None:
        """Refuse to go on with other data: the place in it and the scores so far would mean nothing.

        Args:
            before: As it was saved; what is not known there is not compared.
            now: Of a training that begins with the data that is there.

        Raises:
            FolderError: There are other pairs, or more or fewer.
        """
        again = "put the files back as they were, or train into a new folder"
        for count, count_now, known, found, what in (
            (before.pairs, now.pairs, before.train_hash, now.train_hash, "training"),
            (before.valid_pairs, now.valid_pairs, before.valid_hash, now.valid_hash, "validation"),
        ):
            if count and count != count_now:
                raise FolderError(
                    f"{self.path} had {count} {what} pairs but the data now has {count_now}; {again}"
                )
            if known and found and known != found:
                raise FolderError(
                    f"{self.path} had other {what} pairs than the data now has, as many or in another order; "
                    f"{again}"
                )

    def can_resume(self) -> bool:
        """Whether a training was saved here that can go on."""
        return (whole_folder(self.resume) / "state.json").exists()

    def log(self, **entry: Any) -> None:
        """Append one line to `log.jsonl`."""
        try:
            with (self.path / "log.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry, ensure_ascii=False) + "\n")
        except OSError as error:
            raise FolderError(f"{self.path / 'log.jsonl'} cannot be written: {error.strerror}") from None

    def trim_log(self, update: int) -> None:
        """Take out of `log.jsonl` what is later than the saved state: it will happen again.

        Args:
            update: Updates of the saved state.
        """
        path = self.path / "log.jsonl"
        if path.exists():
            lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
            with replace_file(path) as file:
                file.writelines(f"{line}\n" for line in lines if _is_entry(line, update))

    def settle(self, update: int) -> None:
        """Clear away what a killed program left, before the run goes on.

        Args:
            update: Updates of the saved state.
        """
        for folder in (self.best, self.last, self.resume):
            settle_folder(folder)
        self.trim_log(update)

    def save_resume(self, model: ModelFolder, optimizer: torch.optim.Optimizer, progress: Progress) -> None:
        """Save all that continuing needs: model, tokenizers, optimiser, place in the data, random state.

        Args:
            model: The model as it is now.
            optimizer: Its optimiser.
            progress: Where the training stands.

        Raises:
            FolderError: The system refuses to write; what was saved before is untouched.
        """

        def write(folder: Path) -> None:
            model.write(folder)
            tensors = {
                f"{index}.{name}": value
                for index, entries in optimizer.state_dict()["state"].items()
                for name, value in entries.items()
            }
            tensors["random"] = torch.get_rng_state()
            device = next(model.model.parameters()).device
            if device.type == "cuda":
                tensors["random.cuda"] = torch.cuda.get_rng_state(device)
            write_tensors(folder / "optimizer.safetensors", tensors)
            write_json(folder / "state.json", asdict(progress))

        replace_folder(self.resume, write)

    def resume_tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        """Source and target tokenizer of the saved training."""
        return load_tokenizers(whole_folder(self.resume))

    def load_resume(self, model: TranslationModel, optimizer: torch.optim.Optimizer) -> Progress:
        """Put model, optimiser and random state back to where `save_resume` left them.

        Args:
            model: Built as the saved one was.
            optimizer: Of the same kind over the same parameters.

        Returns:
            Where the training stood.

        Raises:
            FolderError: A file is missing, broken, cut short or does not fit the others.
        """
        folder = whole_folder(self.resume)
        progress = _read_progress(folder / "state.json")
        load_parameters(model, folder / "model.safetensors")
        path = folder / "optimizer.safetensors"
        tensors = read_tensors(path)
        state: dict[int, dict[str, Tensor]] = {}
        try:
            torch.set_rng_state(tensors.pop("random"))
            cuda = tensors.pop("random.cuda", None)
            device = next(model.parameters()).device
            if cuda is not None and device.type == "cuda":
                torch.cuda.set_rng_state(cuda, device)
            for key, value in tensors.items():
                index, _, name = key.partition(".")
                state.setdefault(int(index), {})[name] = value
            optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
        except (KeyError, ValueError, TypeError, RuntimeError) as error:
            raise FolderError(f"{path} is not the state of this training ({error}); train again") from None
        return progress

    def update_of(self, folder: Path) -> int | None:
        """Updates of the model in `best` or `last`; None if there is none."""
        path = whole_folder(folder) / "training.json"
        return read_json(path).get("update") if path.exists() else None


def _keys(recipe: Recipe) -> Iterator[tuple[str, Any]]:
    """Every `section.key` of a recipe with its value."""
    for section, content in recipe.model_dump().items():
        for key, value in content.items():
            yield f"{section}.{key}", value


def _is_entry(line: str, update: int) -> bool:
    """Whether a line of the log is whole and not later than `update`."""
    try:
        entry = json.loads(line)
    except ValueError:
        return False
    return isinstance(entry, dict) and entry.get("update", 0) <= update


def _read_progress(path: Path) -> Progress:
    content = read_json(path)
    known = {each.name for each in fields(Progress)}
    if not known - _LATER <= content.keys() <= known:
        odd = ", ".join(sorted(content.keys() ^ known))
        raise FolderError(f"{path} is not the state of this version's training ({odd}); train again")
    try:
        return TypeAdapter(Progress).validate_python(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise FolderError(f"{path}: {place}: {first['msg']}, got {first['input']!r}; train again") from None
