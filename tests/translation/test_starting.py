"""Starting from a model: its parameters, shape and tokenizers, with all else of the recipe's own."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from headlights.translation import trainer
from headlights.translation.folders import FolderError, ModelFolder
from headlights.translation.preparing import PrepareConfig, prepare
from headlights.translation.progress import Reporter
from headlights.translation.recipe import RecipeError, TokenizerConfig, load_recipe
from headlights.translation.runs import RunFolder
from headlights.translation.starting import recipe_of
from headlights.translation.trainer import Interrupted
from headlights.translation.training import train
from headlights.translation.updates import Updated, Updater
from tests.translation.test_training import Listener
from tests.translation.toy import fingerprint, write_pairs

MODEL = {"embed_dim": 8, "hidden_dim": 12, "encoder_dim": 6, "score_dim": 8}


def on_other_data(start: Path, folder: Path, **sections: Any) -> dict[str, Any]:
    """A recipe that says nothing of the model, over pairs of its own."""
    folder.mkdir(exist_ok=True)
    pairs = str(write_pairs(folder / "other.tsv", 101, skip=1))
    training = {"start": str(start), "max_updates": 5, "batch_tokens": 90, "validations": 2}
    training |= {"learning_rate": 5e-3, "average": 4}
    return {
        "data": {"train": pairs, "held_out": 9},
        "forcing": {"ratio": 0.5},
        **sections,
        "training": {**training, **sections.get("training", {})},
    }


def test_training_starts_from_the_parameters_of_the_model(
    toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[tuple[dict[str, Tensor], bool]] = []
    update = Updater.update

    def seen(self: Updater, batches: Sequence[Any], number: int, done: float) -> Updated:
        state = {name: value.clone() for name, value in self.model.state_dict().items()}
        begun.append((state, bool(self.optimizer.state)))
        return update(self, batches, number, done)

    monkeypatch.setattr(Updater, "update", seen)
    train(on_other_data(toy_run, tmp_path), out=tmp_path / "run", device="cpu", reporter=Reporter())
    first, optimizer_has_a_past = begun[0]
    given, found = ModelFolder.load(toy_run), ModelFolder.load(tmp_path / "run")
    assert first.keys() == given.model.state_dict().keys()
    assert all(torch.equal(first[name], value) for name, value in given.model.state_dict().items())
    assert not optimizer_has_a_past
    assert not all(map(torch.equal, first.values(), found.model.state_dict().values()))
    assert found.model.config == given.model.config
    assert found.source_tokenizer.same_as(given.source_tokenizer)
    assert found.target_tokenizer.same_as(given.target_tokenizer)
    for name in ("best", "last", "resume"):
        training = json.loads((tmp_path / "run" / name / "training.json").read_text())
        assert training["start"] == str(toy_run)
    recipe = RunFolder(tmp_path / "run").recipe()
    assert (recipe.training.start, recipe.model) == (str(toy_run), given.model.config)
    assert (recipe.tokenizer.kind, recipe.tokenizer.vocab_size, recipe.forcing.ratio) == ("word", 10, 0.5)


@pytest.mark.parametrize("stop_at", [1, 3], ids=lambda n: f"after{n}")
def test_a_started_run_goes_on_to_the_same_end(
    toy_run: Path, tmp_path: Path, stop_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 20 for such a run; the model it started from is no longer needed."""
    monkeypatch.setattr(trainer, "REPORT_EVERY", 0.0)
    start, run = tmp_path / "start", tmp_path / "run"
    shutil.copytree(toy_run / "best", start)
    recipe = on_other_data(start, tmp_path)
    train(recipe, out=tmp_path / "whole", device="cpu", reporter=Reporter())
    with pytest.raises(Interrupted):
        train(recipe, out=run, device="cpu", reporter=Listener(stop_at))
    shutil.rmtree(start)
    torch.manual_seed(999)
    with_all = RunFolder(run).recipe()
    train(recipe if stop_at == 1 else with_all, out=run, resume=True, device="cpu", reporter=Reporter())
    assert fingerprint(run) == fingerprint(tmp_path / "whole")


def test_a_started_run_that_was_never_saved_begins_again(toy_run: Path, tmp_path: Path) -> None:
    recipe = on_other_data(toy_run, tmp_path)
    train(recipe, out=tmp_path / "whole", device="cpu", reporter=Reporter())
    RunFolder(tmp_path / "run").create(RunFolder(tmp_path / "whole").recipe())
    train(recipe, out=tmp_path / "run", resume=True, device="cpu", reporter=Reporter())
    assert fingerprint(tmp_path / "run") == fingerprint(tmp_path / "whole")


def test_dropout_is_the_recipes_and_what_agrees_may_be_said(toy_run: Path, tmp_path: Path) -> None:
    said = {"model": {**MODEL, "dropout": 0.4}, "tokenizer": {"kind": "word", "vocab_size": 77}}
    recipe = on_other_data(toy_run, tmp_path, **said, training={"max_updates": 1})
    found = train(recipe, out=tmp_path / "run", device="cpu", reporter=Reporter())
    assert found.model.config.dropout == 0.4
    assert found.model.config.model_copy(update={"dropout": 0.2}) == ModelFolder.load(toy_run).model.config


@pytest.mark.parametrize(
    ("sections", "text"),
    [
        (
            {"model": {"embed_dim": 9, "hidden_dim": 12, "score": "bilinear"}},
            "model.embed_dim = 8 (the recipe says 9), model.score = 'additive' (the recipe says 'bilinear')",
        ),
        (
            {"model": {"architecture": "transformer", "heads": 2}},
            "model.architecture = 'recurrent' (the recipe says 'transformer')",
        ),
        ({"tokenizer": {"lowercase": True}}, "tokenizer.lowercase = False (the recipe says True)"),
        (
            {"tokenizer": {"kind": "word", "vocab_size": 9}},
            "tokenizer.vocab_size = 10 (the recipe says 9)",
        ),
    ],
)
def test_a_recipe_of_another_model_is_refused(
    toy_run: Path, tmp_path: Path, sections: dict[str, Any], text: str
) -> None:
    with pytest.raises(RecipeError, match="which training goes on from, has ") as caught:
        train(on_other_data(toy_run, tmp_path, **sections), out=tmp_path / "run", reporter=Reporter())
    assert str(caught.value) == (
        f"{toy_run}, which training goes on from, has {text}; leave that out of the recipe, or train a new "
        "model"
    )
    assert not (tmp_path / "run").exists()


def test_no_model_and_another_start_are_refused(toy_run: Path, tmp_path: Path) -> None:
    recipe, run = on_other_data(tmp_path / "none", tmp_path), tmp_path / "run"
    with pytest.raises(FolderError, match="none does not exist; expected a model folder or the run folder"):
        train(recipe, out=run, reporter=Reporter())
    train(on_other_data(toy_run, tmp_path), out=run, device="cpu", reporter=Reporter())
    with pytest.raises(FolderError, match=r"training.start cannot change while a run goes on: .*/none'"):
        train(recipe, out=run, resume=True, reporter=Reporter())
    other = on_other_data(toy_run, tmp_path, model={"layers": 2})
    with pytest.raises(RecipeError, match=r"run, which training goes on from, has model.layers = 1 \(the "):
        train(other, out=run, resume=True, reporter=Reporter())


def test_prepared_text_must_have_the_tokenizers_of_the_model(toy_run: Path, tmp_path: Path) -> None:
    recipe = on_other_data(toy_run, tmp_path)
    words = PrepareConfig(TokenizerConfig(kind="word", vocab_size=9), held_out=9)
    prepare([recipe["data"]["train"]], tmp_path / "prepared", config=words)
    recipe["data"] = {"prepared": str(tmp_path / "prepared")}
    with pytest.raises(FolderError, match=r"prepared has other tokenizers than the run began with; prepare "):
        train(recipe, out=tmp_path / "run", reporter=Reporter())
    given = ModelFolder.load(toy_run)
    tokenizers = given.source_tokenizer, given.target_tokenizer
    pairs = write_pairs(tmp_path / "other.tsv", 101)
    prepare([pairs], tmp_path / "prepared", config=words, tokenizers=tokenizers)
    report = json.loads((tmp_path / "prepared" / "prepared.json").read_text())
    assert report["tokenizer"] == {"kind": "word", "vocab_size": 10, "joint": False, "lowercase": False}
    train(recipe, out=tmp_path / "run", device="cpu", reporter=Reporter())
    train(recipe, out=tmp_path / "run", resume=True, device="cpu", reporter=Reporter())


def test_the_recipe_of_a_model_is_that_of_its_run(toy_run: Path, tmp_path: Path) -> None:
    for start in (toy_run, toy_run / "best", toy_run / "last"):
        assert recipe_of(start) == RunFolder(toy_run).recipe()
    shutil.copytree(toy_run / "best", tmp_path / "model")
    (tmp_path / "recipe.toml").write_text("of something else")
    alone = recipe_of(tmp_path / "model")
    assert alone.training == load_recipe("rnn-small").training
    assert alone.model_fields_set == {"training"}
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    config["model"] = {"architecture": "transformer"}
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    assert recipe_of(tmp_path / "model").training == load_recipe("transformer-tiny").training
