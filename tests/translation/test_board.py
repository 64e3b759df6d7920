"""TensorBoard: what is written where the package is there, and one line where it is not."""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from headlights.translation import trainer
from headlights.translation.board import Board
from headlights.translation.progress import Reporter
from headlights.translation.training import train
from tests.translation.toy import toy_recipe

READER = "tensorboard.backend.event_processing.event_accumulator"


def test_without_the_package_nothing_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ImportError, match=r"needs the package tensorboard: pip install 'headlights\[tensor"):
        train(toy_recipe(tmp_path, tensorboard=True), out=tmp_path / "run", reporter=Reporter())
    with pytest.raises(ImportError, match="needs the package tensorboard"):
        Board(tmp_path / "board", 0)
    assert not (tmp_path / "run").exists()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_log_becomes_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard", reason="needs the extra 'tensorboard'")
    monkeypatch.setattr(trainer, "LOG_EVERY", 4)
    recipe = toy_recipe(tmp_path, tensorboard=True, max_updates=8, validations=2)
    train(recipe, out=tmp_path / "run", device="cpu", reporter=Reporter())
    longer = recipe.changed({"training.max_updates": 12})
    train(longer, out=tmp_path / "run", resume=True, device="cpu", reporter=Reporter())
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert len(lines) >= 6
    found = curves(tmp_path / "run" / "tensorboard")
    assert "update" not in found
    for name in ("loss", "learning_rate", "validation_loss", "validation_bleu"):
        expected = {line["update"]: line[name] for line in lines if name in line}
        assert found[name] == pytest.approx(expected, rel=1e-6)


def curves(folder: Path) -> dict[str, dict[int, float]]:
    """What TensorBoard itself reads."""
    events: Any = import_module(READER).EventAccumulator(str(folder))
    events.Reload()
    return {
        name: {event.step: event.value for event in events.Scalars(name)} for name in events.Tags()["scalars"]
    }
