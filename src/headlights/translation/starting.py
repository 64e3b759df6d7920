"""Starting from a model that was trained before: it gives shape and tokenizers, the recipe all else."""

from pathlib import Path
from typing import Any

from headlights.translation.architectures import RecurrentConfig, TransformerConfig
from headlights.translation.folders import find_model, read_json
from headlights.translation.recipe import Recipe, RecipeError, TokenizerConfig, check_recipe, load_recipe
from headlights.translation.runs import RunFolder
from headlights.translation.tokenizer import Tokenizer

_FREE = ("dropout", "attention_dropout", "word_dropout")  # of the model, but only while it is trained
_LEAST_WORDS = 8  # that a recipe may ask for
_LIKE: dict[Any, str] = {"recurrent": "rnn-small", "transformer": "transformer-tiny"}


def recipe_of(start: Path) -> Recipe:
    """The recipe to go on by from a model, where nobody names another.

    Args:
        start: A model folder, or a run folder.

    Returns:
        That of the run that the model is of; for a model folder by itself how the small recipe of its
        architecture trains.

    Raises:
        FolderError: There is no model.
        RecipeError: The run's recipe cannot be read.
    """
    folder = find_model(start)
    for run in (RunFolder(start), RunFolder(start.parent)):
        if start in (run.path, run.best, run.last, run.resume) and (run.path / "recipe.toml").exists():
            return run.recipe()
    shape = read_json(folder / "config.json").get("model")
    name = _LIKE.get(shape.get("architecture") if isinstance(shape, dict) else None, "rnn-small")
    return check_recipe({"training": load_recipe(name).training.model_dump(exclude_unset=True)}, name)


def fitted(
    recipe: Recipe, model: RecurrentConfig | TransformerConfig, tokenizer: TokenizerConfig, name: str | Path
) -> Recipe:
    """Complete a recipe by what the model that training starts from decides.

    Args:
        recipe: What it says of model and tokenizer must be so; what it leaves out is filled in. Dropout is
            its own choice.
        model: The model's shape.
        tokenizer: How its tokenizers were made.
        name: The folder, for messages.

    Returns:
        The whole recipe.

    Raises:
        RecipeError: The recipe asks for another model or other tokenizers.
    """
    content = recipe.model_dump(exclude_unset=True)
    found = {"model": model.model_dump(), "tokenizer": tokenizer.model_dump()}
    kind = content.get("model", {}).get("architecture", model.architecture)
    # Another architecture has other keys, and saying each would hide the one that counts.
    asked = content if kind == model.architecture else {"model": {"architecture": kind}}
    differing = [
        f"{section}.{key} = {has.get(key)!r} (the recipe says {value!r})"
        for section, has in found.items()
        for key, value in asked.get(section, {}).items()
        if not _agree(key, value, has)
    ]
    if differing:
        raise RecipeError(
            f"{name}, which training goes on from, has {', '.join(differing)}; leave that out of the recipe, "
            "or train a new model"
        )
    for section, has in found.items():
        content[section] = {**has, **content.get(section, {})}
    return check_recipe(content, "recipe")


def _agree(key: str, value: Any, has: dict[str, Any]) -> bool:
    """Whether a model or its tokenizers are what a key asks for; a vocabulary may be smaller."""
    if key == "vocab_size":
        return bool(value >= has[key])
    return key in has and (key in _FREE or value == has[key])


def tokenizer_config(source: Tokenizer, target: Tokenizer) -> TokenizerConfig:
    """Describe tokenizers as a recipe does.

    Args:
        source: For source text.
        target: For target text; the same object if they are joint.

    Returns:
        What they would have been learned by.
    """
    return TokenizerConfig(
        kind=source.kind,
        vocab_size=max(source.vocab_size, target.vocab_size, _LEAST_WORDS),
        joint=source is target,
        lowercase=source.lowercase,
    )
