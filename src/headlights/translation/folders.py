"""Model folders: written beside and renamed, so that a folder is whole whatever interrupts the program."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from headlights.translation.model import ModelConfig, TranslationModel
from headlights.translation.tokenizer import Tokenizer

FORMAT, FORMAT_VERSION = "headlights-model", 1


class FolderError(ValueError):
    """A model or run folder that cannot be used; the message is one line that names file and likely fix."""


def replace_folder(path: Path, write: Callable[[Path], None]) -> None:
    """Write a folder so that `path` holds either all of the old or all of the new content.

    A folder cannot be renamed over another, so the old one steps aside for a moment; `whole_folder` knows
    where to look if the program is killed in that moment.

    Args:
        path: The folder to make or to replace.
        write: Fills the empty folder it is given. If it fails, `path` stays as it was.
    """
    new, old = _beside(path, "new"), _beside(path, "old")
    if not path.exists() and old.exists():
        old.rename(path)
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    try:
        write(new)
        for file in new.iterdir():
            with file.open("rb") as written:
                os.fsync(written.fileno())
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    shutil.rmtree(old, ignore_errors=True)
    if path.exists():
        path.rename(old)
    new.rename(path)
    shutil.rmtree(old, ignore_errors=True)


def whole_folder(path: Path) -> Path:
    """`path`, or the folder that stepped aside for it if the program was killed while replacing it."""
    old = _beside(path, "old")
    return old if not path.exists() and old.exists() else path


def find_model(path: Path) -> Path:
    """The model folder that `path` means: itself, or the best (else the last) model of a run folder."""
    for candidate in (path, path / "best", path / "last"):
        folder = whole_folder(candidate)
        if (folder / "config.json").exists():
            return folder
    if not path.exists():
        raise FolderError(
            f"{path} does not exist; expected a model folder or the run folder of `headlights train`"
        )
    raise FolderError(
        f"{path} holds no model: no config.json in it, in {path / 'best'} or in {path / 'last'}; "
        "if a training was stopped before its first save, train again"
    )


def _beside(path: Path, role: str) -> Path:
    return path.with_name(f".{path.name}.{role}")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file, or one clear line."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FolderError(
            f"{path} is missing: the folder is not a whole model folder; copy it again"
        ) from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise FolderError(f"{path} is broken ({error}); copy it again or train again") from None
    if not isinstance(content, dict):
        raise FolderError(f"{path} must hold a JSON object, got {type(content).__name__}")
    return content


def write_json(path: Path, content: dict[str, Any]) -> None:
    """A JSON object to a file, readable by people."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Tensors from a safetensors file, or one clear line."""
    try:
        return load_file(path)
    except FileNotFoundError:
        raise FolderError(
            f"{path} is missing: the folder is not a whole model folder; copy it again"
        ) from None
    except SafetensorError as error:
        raise FolderError(f"{path} is broken or cut short ({error}); copy it again or train again") from None


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
        replace_folder(path, self._write)

    def _write(self, folder: Path) -> None:
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
        save_file(self.model.state_dict(), folder / "model.safetensors")
        if self.source_tokenizer is self.target_tokenizer:
            self.source_tokenizer.save(folder / "tokenizer.json")
        else:
            self.source_tokenizer.save(folder / "tokenizer.source.json")
            self.target_tokenizer.save(folder / "tokenizer.target.json")
        write_json(folder / "training.json", self.training)

    @classmethod
    def load(cls, path: Path) -> "ModelFolder":
        """Read a model folder.

        Args:
            path: The folder.

        Returns:
            The model, in evaluation mode, and its tokenizers.

        Raises:
            FolderError: A file is missing, broken, cut short or does not fit the others.
        """
        folder = find_model(path)
        config = read_json(folder / "config.json")
        if config.get("format") != FORMAT or config.get("version") != FORMAT_VERSION:
            raise FolderError(
                f"{folder / 'config.json'} is not of a {FORMAT} of version {FORMAT_VERSION}: "
                f"format {config.get('format')!r}, version {config.get('version')!r}"
            )
        joint = folder / "tokenizer.json"
        if joint.exists():
            source = target = Tokenizer.load(joint)
        else:
            source = Tokenizer.load(folder / "tokenizer.source.json")
            target = Tokenizer.load(folder / "tokenizer.target.json")
        try:
            shape = ModelConfig.model_validate(config.get("model"))
            model = TranslationModel(shape, source.vocab_size, target.vocab_size, pad_id=source.pad_id)
            model.load_state_dict(read_tensors(folder / "model.safetensors"))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise FolderError(f"{folder / 'config.json'}: model.{place}: {first['msg']}") from None
        except RuntimeError as error:
            detail = " ".join(str(error).split())
            raise FolderError(
                f"{folder}: model.safetensors does not fit config.json and tokenizer: {detail}"
            ) from None
        return cls(model.eval(), source, target, read_json(folder / "training.json"))
