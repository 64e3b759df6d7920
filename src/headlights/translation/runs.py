"""Run folders: what a training leaves on disk, and how one that was stopped goes on."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import tomli_w
import torch
from safetensors.torch import save_file
from torch import Tensor

from headlights.translation.folders import (
    FolderError,
    ModelFolder,
    read_json,
    read_tensors,
    replace_folder,
    whole_folder,
    write_json,
)
from headlights.translation.recipe import Recipe, load_recipe
from headlights.translation.tokenizer import Tokenizer


@dataclass(slots=True)
class Progress:
    """Where a training stands.

    Attributes:
        update: Updates done.
        epoch: Pass over the data, from 0.
        batch: Batches done in this epoch.
        seconds: Time spent, in all pieces of the run.
        validations: Validations done.
        best_bleu: The best validation BLEU so far, 0..100; None before the first validation.
        best_update: The update that reached it.
    """

    update: int = 0
    epoch: int = 0
    batch: int = 0
    seconds: float = 0.0
    validations: int = 0
    best_bleu: float | None = None
    best_update: int = 0


@dataclass(frozen=True, slots=True)
class RunFolder:
    """`recipe.toml`, `log.jsonl`, the model folders `best` and `last`, and in `resume` what continuing needs.

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

    def create(self, recipe: Recipe) -> None:
        """Make the folder for a new run.

        Args:
            recipe: Stored as `recipe.toml`.

        Raises:
            FolderError: There is a run in it already, or it is not a folder.
        """
        if self.path.exists() and not self.path.is_dir():
            raise FolderError(f"{self.path} is a file; expected a folder to write the run into")
        if self.path.is_dir() and any(self.path.iterdir()):
            hint = "continue it with --resume or" if self.can_resume() else "delete it or"
            raise FolderError(f"{self.path} is not empty: {hint} choose another folder")
        self.path.mkdir(parents=True, exist_ok=True)
        content = recipe.model_dump(mode="json", exclude_none=True)
        (self.path / "recipe.toml").write_text(tomli_w.dumps(content), encoding="utf-8")

    def can_resume(self) -> bool:
        """Whether a training was saved here that can go on."""
        return (whole_folder(self.resume) / "state.json").exists()

    def recipe(self) -> Recipe:
        """The recipe of the run that is in the folder."""
        if not (self.path / "recipe.toml").exists():
            raise FolderError(f"{self.path} holds no run: recipe.toml is missing")
        return load_recipe(self.path / "recipe.toml")

    def log(self, **entry: Any) -> None:
        """Append one line to `log.jsonl`."""
        with (self.path / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")

    def save_resume(self, model: ModelFolder, optimizer: torch.optim.Optimizer, progress: Progress) -> None:
        """Save all that continuing needs: parameters, optimiser, place in the data, random state."""

        def write(folder: Path) -> None:
            save_file(model.model.state_dict(), folder / "model.safetensors")
            tensors = {
                f"{index}.{name}": value
                for index, entries in optimizer.state_dict()["state"].items()
                for name, value in entries.items()
            }
            tensors["random"] = torch.get_rng_state()
            if torch.cuda.is_available():
                tensors["random.cuda"] = torch.cuda.get_rng_state()
            save_file(tensors, folder / "optimizer.safetensors")
            for name, tokenizer in (("source", model.source_tokenizer), ("target", model.target_tokenizer)):
                tokenizer.save(folder / f"tokenizer.{name}.json")
            write_json(folder / "state.json", asdict(progress))

        replace_folder(self.resume, write)

    def resume_tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        """Source and target tokenizer of the saved training."""
        folder = whole_folder(self.resume)
        return Tokenizer.load(folder / "tokenizer.source.json"), Tokenizer.load(
            folder / "tokenizer.target.json"
        )

    def load_resume(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
        """Put model, optimiser and random state back to where `save_resume` left them.

        Args:
            model: Built as the saved one was.
            optimizer: Of the same kind over the same parameters.

        Returns:
            Where the training stood.

        Raises:
            FolderError: A file is missing, broken or cut short.
        """
        folder = whole_folder(self.resume)
        progress = Progress(**read_json(folder / "state.json"))
        model.load_state_dict(read_tensors(folder / "model.safetensors"))
        tensors = read_tensors(folder / "optimizer.safetensors")
        torch.set_rng_state(tensors.pop("random"))
        cuda = tensors.pop("random.cuda", None)
        if cuda is not None and torch.cuda.is_available():
            torch.cuda.set_rng_state(cuda)
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in tensors.items():
            index, _, name = key.partition(".")
            state.setdefault(int(index), {})[name] = value
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
        return progress
