"""Trainings that cannot begin or go on: one line says why, and what was saved stays."""

import itertools
import math
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from headlights.translation import judging
from headlights.translation.corpus import CorpusError
from headlights.translation.data import load_data
from headlights.translation.folders import FolderError
from headlights.translation.model import TranslationModel
from headlights.translation.progress import Reporter
from headlights.translation.recipe import RecipeError, check_recipe
from headlights.translation.runs import RunFolder
from headlights.translation.training import TrainingError, train
from tests.translation.toy import toy_content, toy_recipe


def test_loss_that_is_no_number_stops_and_says_what_helps(
    toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss, calls = TranslationModel.loss, itertools.count(1)

    def diverging(self: TranslationModel, batch: Any, **options: Any) -> Any:
        found = loss(self, batch, **options)
        bad = self.training and next(calls) in (3, 14)
        return found._replace(cross_entropy=found.cross_entropy * math.nan) if bad else found

    monkeypatch.setattr(TranslationModel, "loss", diverging)
    recipe = RunFolder(toy_run).recipe()
    with pytest.raises(
        TrainingError,
        match=r"loss of update 3 is nan \(epoch 1, batch 3 of \d+: .*/train.tsv:\d+, .* and \d+ more\); ",
    ):
        train(recipe, out=tmp_path / "run", device="cpu", reporter=Reporter())
    with pytest.raises(TrainingError, match=r"loss of update 11 is nan .*; go on from the last save"):
        train(recipe, out=tmp_path / "run", device="cpu", reporter=Reporter())


def test_a_gradient_that_is_no_number_names_all_batches_it_may_be_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda *_: torch.tensor(math.inf))
    content = toy_content(tmp_path, accumulate=3)
    every = len(load_data(check_recipe(content, "toy")).train.plan(0))
    count = sum(map(len, load_data(check_recipe(content, "toy")).train.plan(0)[:3]))
    with pytest.raises(TrainingError) as caught:
        train(content, out=tmp_path / "run", device="cpu", reporter=Reporter())
    assert f"the gradient of update 1 is inf (epoch 1, batch 1 of {every}: " in str(caught.value)
    assert f"and {count - 5} more)" in str(caught.value)


def test_validation_loss_that_is_no_number_is_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "validation_loss", lambda *_: math.inf)
    with pytest.raises(TrainingError, match=r"the validation loss after update 8 is inf; train again with"):
        train(toy_recipe(tmp_path), out=tmp_path / "run", device="cpu", reporter=Reporter())
    assert os.listdir(tmp_path / "run") == ["recipe.toml"]


def test_a_model_that_breaks_just_before_a_validation_is_named_by_its_update(tmp_path: Path) -> None:
    steep = {"learning_rate": 1e30, "warmup_updates": 0, "clip": 1e30, "validations": 24}
    with pytest.raises(TrainingError, match=r"the validation loss after update 1 is nan; train again"):
        train(toy_recipe(tmp_path, **steep), out=tmp_path / "run", device="cpu", reporter=Reporter())


def test_a_run_without_its_state_keeps_its_models(toy_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(toy_run, run)
    shutil.rmtree(run / "resume")
    with pytest.raises(FolderError, match=r"resume is missing; train on from its model .* --from \S+run$"):
        train(RunFolder(run).recipe(), out=run, resume=True, device="cpu", reporter=Reporter())


def test_data_of_which_nothing_is_left_is_the_inputs_fault(tmp_path: Path) -> None:
    recipe = toy_recipe(tmp_path).changed({"data.max_length": 1})
    with pytest.raises(CorpusError, match=r"train.tsv: every sentence pair has a side of more than 1 tok"):
        train(recipe, out=tmp_path / "run", reporter=Reporter())
    assert not (tmp_path / "run").exists()


def test_a_model_that_cannot_be_built_is_the_recipes_fault(tmp_path: Path) -> None:
    recipe = toy_recipe(tmp_path).changed({"model.embed_dim": 10**18})
    with pytest.raises(RecipeError, match=r"model: cannot be built here: Storage size calc.*; choose sm"):
        train(recipe, out=tmp_path / "run", device="cpu", reporter=Reporter())
    assert not (tmp_path / "run").exists()
