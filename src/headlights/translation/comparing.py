"""The ladder from no attention to nothing but attention: the same text and time, one model after another."""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from headlights.translation.architectures import RecurrentConfig
from headlights.translation.corpus import Pair
from headlights.translation.evaluation import Evaluation, evaluate
from headlights.translation.progress import Reporter
from headlights.translation.recipe import Recipe, RecipeError
from headlights.translation.runs import RunFolder
from headlights.translation.training import Interrupted, train

RUNGS = ("no attention", "context in every cell", "u + u'", "additive", "transformer")
"""As source A tells the story, and then its end."""

_RECURRENT: dict[str, dict[str, Any]] = {
    "no attention": {"score": "none", "final": "first", "query": "previous"},
    "context in every cell": {"score": "none", "final": "every", "query": "previous"},
    "u + u'": {"score": "additive", "final": "first", "mix": "add", "query": "previous"},
    "additive": {"score": "additive", "final": "first", "mix": "concat", "query": "previous"},
}


def ladder(recipe: Recipe, rungs: Sequence[str] = RUNGS) -> dict[str, Recipe]:
    """Make one recipe for each rung: alike in data, tokenizer, limits and batches, different in the model.

    The Transformer has a rate and a warm-up of its own, and no penalty on what is not looked at.

    Args:
        recipe: Data, tokenizer, training and the sizes of a recurrent model.
        rungs: Some of `RUNGS`.

    Returns:
        The recipes by the names of their rungs, in order.

    Raises:
        RecipeError: The recipe's model is not recurrent, or a rung is unknown.
    """
    if not isinstance(recipe.model, RecurrentConfig):
        raise RecipeError(
            "model.architecture: the ladder needs the sizes of a recurrent model, got 'transformer'; start "
            "from a recurrent recipe"
        )
    unknown = [name for name in rungs if name not in RUNGS]
    if unknown:
        raise RecipeError(f"rung {unknown[0]!r}: expected one of {', '.join(RUNGS)}")
    return {name: recipe.changed(_changes(recipe.model, name)) for name in rungs}


def _changes(base: RecurrentConfig, name: str) -> dict[str, Any]:
    """What a rung changes of the recipe."""
    if name != "transformer":
        model = {
            "input_feeding": False,
            "embeddings_in_memory": False,
            "score_scale": None,
            "learn_scale": False,
            **_RECURRENT[name],
        }
        changes = {f"model.{key}": value for key, value in model.items()}
        return changes | {"training.coverage": 0.0} if model["score"] == "none" else changes
    width = max(4, base.hidden_dim // 4 * 4)  # four heads share it
    model = {
        "architecture": "transformer",
        "layers": 3,
        "embed_dim": width,
        "heads": 4,
        "feedforward_dim": 2 * width,
        "tie": base.tie,
        "dropout": base.dropout,
        "word_dropout": base.word_dropout,
    }
    # A recurrent model's rate is too high for it; and of its many maps none must cover all words.
    training = {"training.learning_rate": 1e-3, "training.warmup_updates": 400, "training.coverage": 0.0}
    return {f"model.{key}": value for key, value in model.items()} | training


def compare(
    recipe: Recipe,
    test: Sequence[Pair],
    out: str | Path,
    *,
    rungs: Sequence[str] = RUNGS,
    device: str | None = None,
    reporter: Callable[[str], Reporter | None] = lambda _: None,
    beam: int = 5,
    lowercase: bool = False,
) -> Iterator[tuple[str, Evaluation]]:
    """Train each rung on the same data with the same budget, and judge it.

    A rung whose run folder is whole is judged again without training; one that was stopped goes on.

    Args:
        recipe: As for `ladder`; its limits are the budget of each rung.
        test: Sources with references.
        out: The folder; each rung has its run in a folder of it.
        rungs: Some of `RUNGS`.
        device: Where to compute; default: a GPU where there is one, else the CPU.
        reporter: Called with the name of each rung before it is trained, gives who is told of its progress.
            Default: a bar on a terminal, lines elsewhere.
        beam: Width of the search.
        lowercase: Judge without regard to case.

    Yields:
        Each rung's name and scores, as soon as they are known.

    Raises:
        RecipeError: As for `ladder`.
        CorpusError: The data cannot be read.
        FolderError: A run folder cannot be written to or continued.
        Interrupted: A signal asked to stop; the same comparison goes on.
    """
    for name, each in ladder(recipe, rungs).items():
        folder = Path(out) / folder_name(name)
        begun = RunFolder(folder).can_resume()
        try:
            translator = train(each, out=folder, resume=begun, device=device, reporter=reporter(name))
        except Interrupted as stopped:
            stopped.again = "the same comparison"
            raise
        yield name, evaluate(translator, test, beam=beam, lowercase=lowercase)


def folder_name(rung: str) -> str:
    """What the run folder of a rung is called: its words with hyphens.

    Args:
        rung: One of `RUNGS`.

    Returns:
        A name of letters and hyphens.
    """
    return re.sub(r"[^a-z]+", "-", rung.replace("u + u'", "sum")).strip("-")
