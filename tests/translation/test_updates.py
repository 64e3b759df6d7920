"""Updates: gradients of several batches added up, and numbers that are none."""

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from headlights.translation.model import TranslationModel
from headlights.translation.rates import learning_rate
from headlights.translation.recipe import Recipe, check_recipe
from headlights.translation.updates import Diverged, Updater
from tests.attention.oracle import close
from tests.translation.test_model import SIZES, batch

PARTS = ([0], [1, 3], [2])


def recipe(**training: Any) -> Recipe:
    return check_recipe({"model": SIZES, "training": {"max_updates": 7, **training}}, "mine")


def make(settings: Recipe) -> TranslationModel:
    return TranslationModel(settings.model, 11, 13).double()


@pytest.mark.parametrize("coverage", [0.0, 0.3])
def test_an_update_of_several_batches_is_one_of_all_their_pairs(coverage: float) -> None:
    settings = recipe(warmup_updates=3, clip=0.1, coverage=coverage)
    model = make(settings)
    by_hand = copy.deepcopy(model)
    updater = Updater(settings, model)
    found = updater.update([batch(rows) for rows in PARTS], number=1, done=0.25)
    whole = by_hand.loss(batch([0, 1, 2, 3]), label_smoothing=0.1, coverage=coverage)
    assert found.tokens == whole.tokens == 15
    assert found.cross_entropy == pytest.approx(float(whole.cross_entropy), rel=1e-12)
    torch.autograd.backward(whole.smoothed / 15)
    nn.utils.clip_grad_norm_(by_hand.parameters(), 0.1)
    assert updater.rate == learning_rate(settings.training, 1, 0.25)
    torch.optim.AdamW(by_hand.parameters(), lr=updater.rate, betas=(0.9, 0.98), weight_decay=0.01).step()
    for ours, theirs in zip(model.parameters(), by_hand.parameters(), strict=True):
        assert close(ours, theirs)
        assert ours.grad is None


def spoilt(model: TranslationModel) -> None:
    """Word 12 becomes no number, which of all pairs only the second contains."""
    with torch.no_grad():
        model.decoder.embedding.weight[12] = math.nan


def test_a_loss_that_is_no_number_names_its_batch_and_changes_nothing() -> None:
    settings = recipe()
    model = make(settings)
    spoilt(model)
    before = copy.deepcopy(model.state_dict())
    updater = Updater(settings, model)
    with pytest.raises(Diverged, match=r"^the loss of update 5 is nan$") as caught:
        updater.update([batch(rows) for rows in PARTS], number=4, done=0.0)
    assert caught.value.batch == 1
    assert all(
        torch.equal(value.nan_to_num(), before[name].nan_to_num())
        for name, value in model.state_dict().items()
    )
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_gradient_that_is_no_number_is_found_before_the_step() -> None:
    settings = recipe()
    model = make(settings)
    before = copy.deepcopy(model.state_dict())
    weight: Any = model.decoder.output.weight
    weight.register_hook(lambda gradient: gradient * math.inf)
    with pytest.raises(Diverged, match=r"^the gradient of update 1 is (nan|inf)$") as caught:
        Updater(settings, model).update([batch([0, 1])], number=0, done=0.0)
    assert caught.value.batch is None  # the gradients of all batches are added up before they are looked at
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_run_of_several_batches_an_update_counts_both(tmp_path: Path) -> None:
    from headlights.translation.data import load_data
    from headlights.translation.processes import Processes
    from headlights.translation.progress import Reporter
    from headlights.translation.runs import RunFolder
    from headlights.translation.trainer import Trainer
    from tests.translation.toy import toy_recipe

    settings = toy_recipe(tmp_path, max_updates=None, max_epochs=1, accumulate=3, validations=1)
    data, run = load_data(settings), RunFolder(tmp_path / "run")
    run.create(settings)
    trainer = Trainer(settings, data, run, processes=Processes("cpu"), reporter=Reporter())
    trainer.run_to_the_end()
    batches = len(data.train.plan(0))
    assert trainer.progress.update == math.ceil(batches / 3)  # the last update has what is left
    assert trainer.progress.batch == batches
