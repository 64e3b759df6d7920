"""Training: from a recipe to a translator."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from headlights.translation.board import check_tensorboard
from headlights.translation.data import load_data
from headlights.translation.folders import FolderError, ModelFolder
from headlights.translation.processes import Processes
from headlights.translation.progress import Reporter, default_reporter
from headlights.translation.recipe import Recipe, check_recipe, load_recipe
from headlights.translation.runs import RunFolder
from headlights.translation.starting import fitted, tokenizer_config
from headlights.translation.trainer import Interrupted, Trainer, TrainingError
from headlights.translation.translator import Translator

__all__ = ["Interrupted", "TrainingError", "train"]


def train(
    recipe: Recipe | str | Path | dict[str, Any],
    *,
    out: str | Path = "headlights-run",
    resume: bool = False,
    device: str | torch.device | None = None,
    reporter: Reporter | None = None,
) -> Translator:
    """Train a translator.

    Args:
        recipe: A recipe, its content, a TOML file, or the name of a recipe that comes with the package. Its
            key `training.start` names a model to start from.
        out: The run folder to make. It must not hold a run already, unless `resume`.
        resume: Continue the run in `out` from where it was last saved; limits count the whole run. The model,
            the data and their order must be those of the run; files may have moved, limits and rates may
            change.
        device: Where to compute; default: a GPU where there is one, else the CPU.
        reporter: Told of progress. Default: a bar on a terminal, lines elsewhere, on standard error.

    Returns:
        The best translator by validation BLEU, as saved in `out`/best.

    Raises:
        RecipeError: A key or value of the recipe is wrong.
        CorpusError: The data cannot be read.
        FolderError: `out` cannot be written to or continued, another training holds it, or there is no model
            to start from.
        TrainingError: The loss is not a number any more.
        Interrupted: A signal ended the training; it was saved.
        ImportError: The recipe asks for TensorBoard, which is not installed.
    """
    if isinstance(recipe, dict):
        recipe = check_recipe(recipe, "recipe")
    elif not isinstance(recipe, Recipe):
        recipe = load_recipe(recipe)
    if recipe.training.tensorboard:
        check_tensorboard()
    processes, run = Processes(device), RunFolder(Path(out))
    if resume:
        recipe = _continued(recipe, run)
    elif processes.main:
        run.check_free()
    with run.held() if processes.main else nullcontext():
        return _train(recipe, run, processes, reporter, resume=resume)


def _continued(recipe: Recipe, run: RunFolder) -> Recipe:
    """The recipe to go on with, whole and checked."""
    if not run.can_resume() and (run.best.exists() or run.last.exists()):
        raise FolderError(
            f"{run.path} cannot be continued: {run.resume} is missing; train on from its model into a new "
            f"folder, with --from {run.path}"
        )
    if recipe.training.start:
        before = run.recipe()
        recipe = fitted(recipe, before.model, before.tokenizer, run.path)
    run.check_continues(recipe)
    return recipe


def _train(
    recipe: Recipe, run: RunFolder, processes: Processes, reporter: Reporter | None, *, resume: bool
) -> Translator:
    """Train in a run folder that is ours."""
    saved = resume and run.can_resume()
    tokenizers = run.resume_tokenizers() if saved else None
    start: ModelFolder | None = None
    if recipe.training.start and not saved:
        start = ModelFolder.load(Path(recipe.training.start))
        tokenizers = start.source_tokenizer, start.target_tokenizer
        recipe = fitted(recipe, start.model.config, tokenizer_config(*tokenizers), recipe.training.start)
    torch.manual_seed(recipe.training.seed)
    data = load_data(recipe, tokenizers=tokenizers)
    reporter = (reporter or default_reporter()) if processes.main else Reporter()
    trainer = Trainer(recipe, data, run, processes=processes, reporter=reporter)
    if saved:
        trainer.restore_in_turn()
    elif start is not None:
        trainer.model.load_state_dict(start.model.state_dict())
    if processes.main:
        (run.write_recipe if saved else run.create)(recipe)
    trainer.run_to_the_end()
    return trainer.best()
