"""Model folders, and writing so that a file or folder is whole whatever interrupts the program."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from headlights._errors import InputError
from headlights.translation.architectures import (
    ARCHITECTURES,
    ModelConfig,
    RecurrentConfig,
    TransformerConfig,
)
from headlights.translation.model import TranslationModel
from headlights.translation.tokenizer import Tokenizer

FORMAT, FORMAT_VERSION = "headlights-model", 1
_JOINT, _SEPARATE = "tokenizer.json", ("tokenizer.source.json", "tokenizer.target.json")
TOKENIZERS = (_JOINT, *_SEPARATE)  # files that tokenizers may be in
_CONFIG: TypeAdapter[RecurrentConfig | TransformerConfig] = TypeAdapter(ModelConfig)
_AGAIN = "copy the folder again or train again"


class FolderError(InputError):
    """A file or folder that cannot be read or written; the message is one line that names it and the fix."""


@contextmanager
def replace_file(path: Path) -> Iterator[TextIO]:
    """Write a text file so that `path` holds either all of the old or all of the new content.

    A link stays a link, and an old file keeps its mode. What is no file of content (a pipe, /dev/stdout) is
    written to as it stands. Of two programs that write it at the same time the one that began last does so.

    Args:
        path: The file to make or to replace.

    Yields:
        The file to write to: UTF-8, a line feed after a line.

    Raises:
        FolderError: The system refuses to make or to write the file, or another program began to write it.
    """
    try:
        if path.exists() and not path.is_file():
            with path.open("w", encoding="utf-8", newline="\n") as file:
                yield file
            return
        place = path.resolve()
        beside = _beside(place, "part")
        beside.unlink(missing_ok=True)  # what a killed program left, which is why all use one name
        file = beside.open("x", encoding="utf-8", newline="\n")
        begun = os.fstat(file.fileno())
        try:
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            if not lies_at(beside, begun):
                raise FolderError(
                    f"{path} was not written: another program has begun to write it; run one after the other"
                )
            if place.exists():
                shutil.copymode(place, beside)
            beside.replace(place)
        finally:
            if lies_at(beside, begun):
                beside.unlink(missing_ok=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise FolderError(f"{path} cannot be written: {_refusal(error)}") from None


def replace_folder(path: Path, write: Callable[[Path], None]) -> None:
    """Write a folder so that `path` holds either all of the old or all of the new content.

    A folder cannot be renamed over another, so the old one steps aside for a moment; `whole_folder` knows
    where to look if the program is killed in that moment.

    Args:
        path: The folder to make or to replace.
        write: Fills the empty folder it is given. If it fails, `path` stays as it was.

    Raises:
        FolderError: The system refuses to write; `path` is as it was.
    """
    new, old = _beside(path, "new"), _beside(path, "old")
    try:
        settle_folder(path)
        new.mkdir(parents=True)
        write(new)
        for file in new.iterdir():
            with file.open("rb+") as written:
                os.fsync(written.fileno())
        if path.exists():
            path.rename(old)
        new.rename(path)
    except (OSError, SafetensorError) as error:
        raise FolderError(
            f"{path} cannot be saved: {_refusal(error)}; what was saved there before is untouched"
        ) from None
    finally:
        settle_folder(path)


def settle_folder(path: Path) -> None:
    """Put back what stepped aside for `path`, if nothing has taken its place, and clear away the rest."""
    new, old = _beside(path, "new"), _beside(path, "old")
    if not path.exists() and old.exists():
        old.rename(path)
    shutil.rmtree(new, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)


def whole_folder(path: Path) -> Path:
    """`path`, or the folder that stepped aside for it if the program was killed while replacing it."""
    old = _beside(path, "old")
    return old if not path.exists() and old.exists() else path


def lies_at(path: Path, opened: os.stat_result) -> bool:
    """Whether a path still leads to a file that was opened there, not to nothing or to a later one."""
    try:
        return os.path.samestat(path.stat(), opened)
    except FileNotFoundError:
        return False


def find_model(path: Path) -> Path:
    """The model folder that `path` means: itself, or the best model of a run folder, else its latest."""
    for candidate in (path, path / "best", path / "last", path / "resume"):
        folder = whole_folder(candidate)
        if (folder / "config.json").exists():
            return folder
        if candidate != path and folder.exists():
            raise FolderError(f"{folder / 'config.json'} is missing; {_AGAIN}")
    if path.is_file():
        raise FolderError(
            f"{path} is a file; expected a model folder or the run folder of `headlights train`"
        )
    if not path.exists():
        raise FolderError(
            f"{path} does not exist; expected a model folder or the run folder of `headlights train`"
        )
    if (path / "recipe.toml").exists():
        raise FolderError(
            f"{path} holds no model yet: its training was stopped before the first save; "
            f"go on with: headlights train --resume --out {path}"
        )
    raise FolderError(
        f"{path} holds no model: config.json is missing; expected a model folder or the run folder of "
        "`headlights train`"
    )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file, or one clear line."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FolderError(_unreadable(path, error)) from None
    except (ValueError, RecursionError) as error:
        raise FolderError(f"{path} is broken or cut short ({error}); {_AGAIN}") from None
    if not isinstance(content, dict):
        raise FolderError(f"{path} must hold a JSON object, got {type(content).__name__}; {_AGAIN}")
    return content


def write_json(path: Path, content: dict[str, Any]) -> None:
    """A JSON object to a file, readable by people."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Tensors from a safetensors file, or one clear line."""
    try:
        path.open("rb").close()  # the system's reasons, which safetensors words by its own parts
        return load_file(path)
    except OSError as error:
        raise FolderError(_unreadable(path, error)) from None
    except SafetensorError as error:
        raise FolderError(f"{path} is broken or cut short ({error}); {_AGAIN}") from None


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Tensors to a safetensors file, with the mode that any new file gets."""
    path.touch()
    mode = path.stat().st_mode
    save_file(tensors, path)  # puts a file of its own, closed to others, in the place of this one
    path.chmod(mode)


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """What a model folder holds.

    Attributes:
        model: With its trained parameters.
        source_tokenizer: For source text.
        target_tokenizer: For target text; the same object as for the source if they are joint.
        training: How it was trained: update, seed, scores.
    """

    model: TranslationModel
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    training: dict[str, Any]

    def save(self, path: Path) -> None:
        """Write the folder, all or nothing."""
        replace_folder(path, self.write)

    def write(self, folder: Path) -> None:
        """Write the files into an empty folder."""
        write_json(
            folder / "config.json",
            {
                "format": FORMAT,
                "version": FORMAT_VERSION,
                "source_vocab": self.source_tokenizer.vocab_size,
                "target_vocab": self.target_tokenizer.vocab_size,
                "model": self.model.config.model_dump(),
            },
        )
        aliases = _aliases(self.model)
        tensors = {name: value for name, value in self.model.state_dict().items() if name not in aliases}
        write_tensors(folder / "model.safetensors", tensors)
        save_tokenizers(folder, self.source_tokenizer, self.target_tokenizer)
        write_json(folder / "training.json", self.training)

    @classmethod
    def load(cls, path: Path) -> "ModelFolder":
        """Read a model folder.

        Args:
            path: The folder, or the run folder of a training.

        Returns:
            The model, in evaluation mode, and its tokenizers.

        Raises:
            FolderError: A file is missing, broken, cut short or does not fit the others.
        """
        folder = find_model(path)
        config = read_json(folder / "config.json")
        if config.get("format") != FORMAT or config.get("version") != FORMAT_VERSION:
            raise FolderError(
                f"{folder / 'config.json'} must be of format {FORMAT!r}, version {FORMAT_VERSION}, got "
                f"{config.get('format')!r}, version {config.get('version')!r}"
            )
        source, target = load_tokenizers(folder)
        sizes = {"source_vocab": source.vocab_size, "target_vocab": target.vocab_size}
        for name, size in sizes.items():
            if config.get(name) != size:
                raise FolderError(
                    f"{folder}: config.json says {name} {config.get(name)!r} but the tokenizer has {size} "
                    "tokens: the files are of different models"
                )
        model = _build(folder, config.get("model"), source, target)
        return cls(model.eval(), source, target, read_json(folder / "training.json"))


def save_tokenizers(folder: Path, source: Tokenizer, target: Tokenizer) -> tuple[Path, ...]:
    """Write the tokenizers of a folder.

    Args:
        folder: The folder.
        source: For source text.
        target: For target text; the same object if they are joint.

    Returns:
        The files: one of a joint tokenizer, otherwise two, source and target.
    """
    if source is target:
        source.save(folder / _JOINT)
        return (folder / _JOINT,)
    for tokenizer, name in zip((source, target), _SEPARATE, strict=True):
        tokenizer.save(folder / name)
    return tuple(folder / name for name in _SEPARATE)


def load_tokenizers(folder: Path) -> tuple[Tokenizer, Tokenizer]:
    """Source and target tokenizer of a model folder; one object if they are joint.

    Args:
        folder: The model folder.

    Returns:
        Both.

    Raises:
        FolderError: A file is missing or broken.
    """
    names = (_JOINT,) if (folder / _JOINT).exists() else _SEPARATE
    missing = [name for name in names if not (folder / name).exists()]
    if len(missing) == 2:
        raise FolderError(f"{folder / _JOINT} is missing, and so are {' and '.join(missing)}; {_AGAIN}")
    if missing:
        raise FolderError(f"{folder / missing[0]} is missing; {_AGAIN}")
    try:
        found = [Tokenizer.load(folder / name) for name in names]
    except ValueError as error:  # names the file and the fix
        raise FolderError(str(error)) from None
    return found[0], found[-1]


def _build(folder: Path, shape: object, source: Tokenizer, target: Tokenizer) -> TranslationModel:
    """The model of a folder with its parameters."""
    config = folder / "config.json"
    try:
        checked = _CONFIG.validate_python(shape)
        model = TranslationModel(checked, source.vocab_size, target.vocab_size, pad_id=source.pad_id)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(["model", *(str(part) for part in first["loc"] if part not in ARCHITECTURES)])
        if first["type"] == "value_error":  # widths that do not go together, in our own words
            message = first["msg"].removeprefix("Value error, ")
            raise FolderError(f"{config}: no such model can be built: {message}") from None
        raise FolderError(f"{config}: {place}: {first['msg']}, got {first['input']!r}; {_AGAIN}") from None
    except (RuntimeError, ValueError) as error:  # no memory for it, or one table for two vocabularies
        raise FolderError(f"{config}: no such model can be built: {error}") from None
    load_parameters(model, folder / "model.safetensors")
    return model


def load_parameters(model: TranslationModel, path: Path) -> None:
    """Give a model the parameters of a file.

    Args:
        model: Of the same shape.
        path: The safetensors file.

    Raises:
        FolderError: The file is missing or broken, or its parameters are not those of the model.
    """
    try:
        tensors = read_tensors(path)
        for name, saved in _aliases(model).items():
            if saved in tensors:
                tensors[name] = tensors[saved]
        model.load_state_dict(tensors)
    except RuntimeError as error:  # its first line names the class, the second the first misfit
        misfit = " ".join(str(error).splitlines()[1:2]).strip(" \t.")
        raise FolderError(f"{path} does not fit config.json: {misfit}; {_AGAIN}") from None


def _aliases(model: TranslationModel) -> dict[str, str]:
    """Further names of tied parameters, and the name that each is saved under: a file holds them once."""
    first: dict[int, str] = {}
    named = model.named_parameters(remove_duplicate=False)
    return {
        name: kept for name, parameter in named if (kept := first.setdefault(id(parameter), name)) != name
    }


def _beside(path: Path, role: str) -> Path:
    return path.parent / f".{path.name}.{role}"


def _unreadable(path: Path, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{path} is missing: the folder is not whole; {_AGAIN}"
    return f"{path} cannot be read: {_refusal(error)}"


def _refusal(error: OSError | SafetensorError) -> str:
    """Why the system refused, without the wrapping of whoever asked it."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).rpartition("I/O error: ")[2]
