"""Averaged parameters: against a plain loop, and through a whole training."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from headlights.translation import trainer
from headlights.translation.averaging import Average, forget_average
from headlights.translation.evaluation import bleu
from headlights.translation.folders import ModelFolder
from headlights.translation.progress import Reporter
from headlights.translation.runs import RunFolder
from headlights.translation.trainer import Interrupted
from headlights.translation.training import train
from headlights.translation.translator import Translator
from tests.translation.test_training import Listener
from tests.translation.toy import fingerprint, toy_recipe

UPDATES = 5


def stepped(module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for parameter in module.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()


def test_the_average_is_the_plain_loop() -> None:
    module = nn.Linear(3, 2).double()
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1, fused=True)
    average = Average(optimizer, UPDATES)
    expected: list[float] = []
    for number in range(1, 61):
        stepped(module, optimizer)
        average.add(number)
        now = module.weight.flatten().tolist()
        share = max(1 / 5, 10 / (10 + number))  # a fifth from update 40 on
        expected = [m + share * (w - m) for m, w in zip(expected or now, now, strict=True)]
    own = module.weight.detach().clone()
    with average.shown():
        assert module.weight.flatten().tolist() == pytest.approx(expected, rel=1e-12)
        assert not torch.allclose(module.weight, own, rtol=1e-3)
    assert torch.equal(module.weight, own)


def test_what_is_shown_is_taken_back_when_the_block_fails() -> None:
    module = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1)
    average = Average(optimizer, UPDATES)
    with average.shown():  # before the first update there is nothing to show
        pass
    for number in (1, 2):
        stepped(module, optimizer)
        average.add(number)
    own = module.weight.detach().clone()
    with pytest.raises(KeyboardInterrupt), average.shown():
        raise KeyboardInterrupt
    assert torch.equal(module.weight, own)
    forget_average(optimizer)
    with average.shown():
        assert torch.equal(module.weight, own)


@pytest.fixture(scope="module")
def averaged_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("averaged")
    restless = {"learning_rate": 1e-1, "schedule": "inverse-sqrt", "final_rate": 1.0}
    recipe = toy_recipe(folder, average=UPDATES, accumulate=2, max_updates=30, **restless)
    train(recipe, out=folder / "run", device="cpu", reporter=Reporter())
    return folder / "run"


def test_the_better_of_model_and_average_is_best(averaged_run: Path) -> None:
    recipe = RunFolder(averaged_run).recipe()
    state = json.loads((averaged_run / "resume" / "state.json").read_text())
    lines = [json.loads(line) for line in (averaged_run / "log.jsonl").read_text().splitlines()]
    (entry,) = (line for line in lines if line["update"] == state["best"]["update"])
    both = [(entry[f"{kind}_bleu"], -entry[f"{kind}_loss"]) for kind in ("validation", "average")]
    assert state["best"]["averaged"] == (both[1] > both[0])
    assert state["best"]["averaged"]  # so that the next lines say something
    best = ModelFolder.load(averaged_run)
    assert best.training["averaged_updates"] == UPDATES
    assert best.training["validation_loss"] == entry["average_loss"]
    data = [line.split("\t") for line in Path(recipe.data.valid[0]).read_text().splitlines()]
    texts = Translator(best, device="cpu").translate([pair[0] for pair in data], beam=1)
    score = bleu([text.text for text in texts], [pair[1] for pair in data])
    assert round(score, 2) == best.training["validation_bleu"] == entry["average_bleu"]
    last, resume = (averaged_run / name / "model.safetensors" for name in ("last", "resume"))
    assert last.read_bytes() == resume.read_bytes()  # the model itself, whose training goes on


@pytest.mark.parametrize("stop_at", [3, 16], ids=lambda n: f"after{n}")
def test_a_stopped_run_goes_on_with_its_average(
    averaged_run: Path, tmp_path: Path, stop_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "REPORT_EVERY", 0.0)
    recipe = RunFolder(averaged_run).recipe()
    with pytest.raises(Interrupted):
        train(recipe, out=tmp_path / "run", device="cpu", reporter=Listener(stop_at))
    train(recipe, out=tmp_path / "run", resume=True, device="cpu", reporter=Reporter())
    assert fingerprint(tmp_path / "run") == fingerprint(averaged_run)


def test_an_average_can_end_and_begin_while_a_run_goes_on(averaged_run: Path, tmp_path: Path) -> None:
    content = toy_recipe(tmp_path, max_updates=3)
    train(content, out=tmp_path / "run", device="cpu", reporter=Reporter())
    moments = tmp_path / "run" / "resume" / "optimizer.safetensors"
    assert not any("average" in name for name in load_file(moments))
    for updates, average in ((6, 4), (9, 0)):
        changed = content.changed({"training.max_updates": updates, "training.average": average})
        train(changed, out=tmp_path / "run", resume=True, device="cpu", reporter=Reporter())
        assert any("average" in name for name in load_file(moments)) == bool(average)
