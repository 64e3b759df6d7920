"""The training loop: stopped and continued without a trace, and every end told in a line."""

import errno
import itertools
import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from headlights.translation import trainer, training
from headlights.translation.folders import FolderError, ModelFolder
from headlights.translation.model import TranslationModel
from headlights.translation.progress import Reporter
from headlights.translation.runs import RunFolder
from headlights.translation.training import Interrupted, train
from headlights.translation.translator import Translator
from headlights.translation.updates import Updater
from tests.translation.toy import fingerprint, toy_content, toy_recipe, write_pairs


class Listener(Reporter):
    """Keeps what it is told, and sends this process signals at one update."""

    def __init__(self, stop_at: int = -1, *, signals: tuple[signal.Signals, ...] = (signal.SIGINT,)) -> None:
        self.stop_at, self.signals = stop_at, signals
        self.notes: list[str] = []
        self.updates: list[int] = []
        self.finished = 0

    def note(self, text: str) -> None:
        self.notes.append(text)

    def update(self, *, number: int, **_: Any) -> None:
        self.updates.append(number)
        if number == self.stop_at:
            for each in self.signals:
                signal.raise_signal(each)

    def finish(self) -> None:
        self.finished += 1


@pytest.fixture(autouse=True)
def tell_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every update is reported, however quick."""
    monkeypatch.setattr(trainer, "REPORT_EVERY", 0.0)


@pytest.mark.parametrize(("score", "compiles"), [("additive", True), ("bilinear", False)])
def test_compiled_kernels_serve_from_the_first_update_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, score: str, compiles: bool
) -> None:
    """They add up in another order, so a run that goes on must not get them at another update."""
    done: list[str] = []
    monkeypatch.setattr("headlights.attention.scores.compile_additive", lambda: done.append("compiled"))
    update = Updater.update

    def watched(updater: Updater, *given: Any) -> Any:
        done.append("update")
        return update(updater, *given)

    monkeypatch.setattr(Updater, "update", watched)
    content = toy_content(tmp_path, max_updates=2)
    content["model"]["score"] = score
    train(content, out=tmp_path / "run", device="cpu", reporter=Reporter())
    assert done == ["compiled"] * compiles + ["update"] * 2


def test_every_validation_comes_at_its_update(tmp_path: Path) -> None:
    """Update 29 of 50 is 0.58, and 0.58 * 50 a little less than 29."""
    train(
        toy_content(tmp_path, max_updates=50, validations=50),
        out=tmp_path / "run",
        device="cpu",
        reporter=Reporter(),
    )
    entries = map(json.loads, (tmp_path / "run" / "log.jsonl").read_text().splitlines())
    assert [entry["update"] for entry in entries if "validation_bleu" in entry] == list(range(1, 51))


def test_run_says_what_it_does_and_logs_json_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "LOG_EVERY", 10)
    content = toy_content(tmp_path)
    del content["data"]["valid"]
    with Path(content["data"]["train"][0]).open("a") as file:
        file.write("red\t \n")
    listener = Listener()
    translator = train(content, out=tmp_path / "run", device="cpu", reporter=listener)
    assert listener.notes[:2] == [
        "left out 1 training pair with a blank side",
        "no validation file: held out 19 of the training pairs (seed 1)",
    ]
    parameters = sum(each.numel() for each in translator.model.parameters())
    assert listener.notes[2] == (
        "180 training and 19 validation pairs, 10 source and 10 target tokens, "
        f"{parameters:,} parameters, on cpu"
    )
    assert listener.updates == list(range(1, 25))
    assert listener.finished == 1
    entries = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [entry["update"] for entry in entries] == [8, 10, 16, 20, 24]
    assert {"loss", "learning_rate", "epoch", "tokens_per_second", "seconds"} < entries[1].keys()
    assert {"validation_loss", "validation_bleu", "best", "seconds"} < entries[0].keys()


@pytest.mark.parametrize("stop_at", [1, 8, 13, 23], ids=lambda n: f"after{n}")
def test_stopped_run_goes_on_to_the_same_end(toy_run: Path, tmp_path: Path, stop_at: int) -> None:
    """Case 20: model, moments, schedule, random state and place in the data, bit by bit."""
    recipe = RunFolder(toy_run).recipe()
    with pytest.raises(Interrupted, match=f"stopped at update {stop_at}, saved in .*run") as caught:
        train(recipe, out=tmp_path / "run", device="cpu", reporter=Listener(stop_at))
    assert (caught.value.signal, caught.value.run, caught.value.update) == (2, tmp_path / "run", stop_at)
    torch.manual_seed(999)  # another process begins elsewhere
    listener = Listener()
    train(recipe, out=tmp_path / "run", resume=True, device="cpu", reporter=listener)
    assert listener.updates == list(range(stop_at + 1, 25))
    assert f"going on at update {stop_at}" in listener.notes
    assert fingerprint(tmp_path / "run") == fingerprint(toy_run)


@pytest.mark.parametrize("part", ["model", "optimizer", "random", "place", "order"])
def test_every_part_of_the_state_matters(
    toy_run: Path, tmp_path: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 20, the other way round: leave one part out and the end is another."""
    recipe = RunFolder(toy_run).recipe()
    with pytest.raises(Interrupted):
        train(recipe, out=tmp_path / "run", device="cpu", reporter=Listener(13))
    load = RunFolder.load_resume

    def partly(self: RunFolder, model: TranslationModel, optimizer: torch.optim.Optimizer) -> Any:
        fresh = {name: value.clone() for name, value in model.state_dict().items()}
        progress = load(self, model, optimizer)
        if part == "model":
            model.load_state_dict(fresh)
        elif part == "optimizer":
            optimizer.state.clear()
        elif part == "random":
            torch.manual_seed(999)
        elif part == "place":
            progress.batch -= 1
        else:
            progress.epoch += 1
        return progress

    monkeypatch.setattr(RunFolder, "load_resume", partly)
    train(recipe, out=tmp_path / "run", resume=True, device="cpu", reporter=Reporter())
    assert (
        fingerprint(tmp_path / "run")["last/model.safetensors"]
        != fingerprint(toy_run)["last/model.safetensors"]
    )


def test_epochs_count_the_whole_run(tmp_path: Path) -> None:
    recipe = toy_recipe(tmp_path / "data", max_updates=None, max_epochs=2)
    train(recipe, out=tmp_path / "whole", device="cpu", reporter=Reporter())
    with pytest.raises(Interrupted):
        train(recipe, out=tmp_path / "run", device="cpu", reporter=Listener(3))
    train(recipe, out=tmp_path / "run", resume=True, device="cpu", reporter=Reporter())
    assert fingerprint(tmp_path / "run") == fingerprint(tmp_path / "whole")
    state = json.loads((tmp_path / "run" / "resume" / "state.json").read_text())
    assert state["epoch"] + bool(state["batch"]) == 2


def test_reached_limit_is_said_and_a_later_one_is_trained_to(toy_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(toy_run, run)
    recipe, before, listener = RunFolder(run).recipe(), fingerprint(run), Listener()
    shutil.copytree(run / "best", run / ".last.old")  # killed while clearing away
    (run / ".best.new").mkdir()
    (run / "resume").rename(run / ".resume.old")  # killed between the renames
    train(recipe, out=run, resume=True, device="cpu", reporter=listener)
    assert listener.notes[-1] == "nothing to do: the run has reached its limit at update 24"
    assert listener.updates == []
    assert fingerprint(run) == before

    listener = Listener()
    train(recipe.changed({"training.max_updates": 29}), out=run, resume=True, device="cpu", reporter=listener)
    assert listener.updates == [25, 26, 27, 28, 29]  # 29 in all, not 29 more
    assert RunFolder(run).update_of(run / "last") == 29  # what came last is judged and saved
    assert RunFolder(run).recipe().training.max_updates == 29


def test_run_stopped_before_its_first_save_begins_again(toy_run: Path, tmp_path: Path) -> None:
    recipe = RunFolder(toy_run).recipe()
    RunFolder(tmp_path / "run").create(recipe)
    train(recipe, out=tmp_path / "run", resume=True, device="cpu", reporter=Reporter())
    assert fingerprint(tmp_path / "run") == fingerprint(toy_run)


def test_second_interrupt_leaves_at_once_with_what_was_saved(toy_run: Path, tmp_path: Path) -> None:
    recipe = RunFolder(toy_run).recipe()
    listener = Listener(13, signals=(signal.SIGTERM, signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        train(recipe, out=tmp_path / "run", device="cpu", reporter=listener)
    assert listener.finished == 1
    assert json.loads((tmp_path / "run" / "resume" / "state.json").read_text())["update"] == 8
    train(recipe, out=tmp_path / "run", resume=True, device="cpu", reporter=Reporter())
    assert fingerprint(tmp_path / "run") == fingerprint(toy_run)


@pytest.mark.parametrize("folder", ["resume", "best", "last"])
def test_second_interrupt_inside_a_save_loses_nothing(
    toy_run: Path, tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = RunFolder(toy_run).recipe()
    rename, saves = Path.rename, itertools.count()

    def interrupted(self: Path, target: Path) -> Path:
        if self.name == f".{folder}.new" and next(saves) == 1:
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, out=tmp_path / "run", device="cpu", reporter=Reporter())
    assert ModelFolder.load(tmp_path / "run").training["update"] >= 8
    assert not [path for path in (tmp_path / "run").iterdir() if path.name.startswith(".")]
    train(recipe, out=tmp_path / "run", resume=True, device="cpu", reporter=Reporter())
    assert fingerprint(tmp_path / "run") == fingerprint(toy_run)


def test_stopped_while_validating(toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, translate = RunFolder(toy_run).recipe(), Translator.translate

    def stopped(self: Any, *args: Any, **kwargs: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)
        return translate(self, *args, **kwargs)

    monkeypatch.setattr(Translator, "translate", stopped)
    with pytest.raises(Interrupted, match="stopped at update 8") as caught:
        train(recipe, out=tmp_path / "run", device="cpu", reporter=Reporter())
    assert caught.value.signal == signal.SIGTERM
    monkeypatch.undo()
    train(recipe, out=tmp_path / "run", resume=True, device="cpu", reporter=Reporter())
    assert fingerprint(tmp_path / "run") == fingerprint(toy_run)


def test_stopped_while_reading_data_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    recipe = toy_recipe(tmp_path / "data")
    monkeypatch.setattr(training, "load_data", stopped)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, out=tmp_path / "run", device="cpu", reporter=Reporter())
    assert not (tmp_path / "run").exists()


def test_saves_by_time_between_validations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "SAVE_EVERY", 0.0)
    monkeypatch.setattr(trainer, "SAVE_SHARE", 1e9)
    saved: list[int] = []
    save = RunFolder.save_resume

    def counted(self: RunFolder, model: ModelFolder, optimizer: Any, progress: Any) -> None:
        saved.append(progress.update)
        save(self, model, optimizer, progress)

    monkeypatch.setattr(RunFolder, "save_resume", counted)
    train(toy_recipe(tmp_path, max_updates=5), out=tmp_path / "run", device="cpu", reporter=Reporter())
    assert saved == [1, 2, 3, 4, 5]


def test_full_disk_is_one_line_and_keeps_what_was_saved(
    toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, save, saves = RunFolder(toy_run).recipe(), save_file, itertools.count()

    def full(tensors: Any, path: Path) -> None:
        if next(saves) >= 5:  # the first validation writes 4: model and optimiser, best, last
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        save(tensors, path)

    monkeypatch.setattr("headlights.translation.folders.save_file", full)
    with pytest.raises(
        FolderError, match=r"resume cannot be saved: No space left on device; what was saved"
    ) as e:
        train(recipe, out=tmp_path / "run", device="cpu", reporter=Reporter())
    assert "\n" not in str(e.value)
    assert json.loads((tmp_path / "run" / "resume" / "state.json").read_text())["update"] == 8
    monkeypatch.undo()
    train(recipe, out=tmp_path / "run", resume=True, device="cpu", reporter=Reporter())
    assert fingerprint(tmp_path / "run") == fingerprint(toy_run)


def test_no_run_changed_data_and_full_folder_are_refused(toy_run: Path, tmp_path: Path) -> None:
    recipe = toy_recipe(tmp_path)
    with pytest.raises(FolderError, match=r"none holds no run to continue"):
        train(recipe, out=tmp_path / "none", resume=True, reporter=Reporter())
    with pytest.raises(FolderError, match=r"holds a run already"):
        train(recipe, out=toy_run, reporter=Reporter())
    with pytest.raises(Interrupted):
        train(recipe, out=tmp_path / "run", device="cpu", reporter=Listener(2))
    write_pairs(tmp_path / "train.tsv", 101)
    with pytest.raises(FolderError, match=r"run had 199 training pairs but the data now has 101; put the"):
        train(recipe, out=tmp_path / "run", resume=True, device="cpu", reporter=Reporter())
    write_pairs(tmp_path / "train.tsv", 199)
    write_pairs(tmp_path / "valid.tsv", 6)
    with pytest.raises(FolderError, match=r"run had 7 validation pairs but the data now has 6; put the"):
        train(recipe, out=tmp_path / "run", resume=True, device="cpu", reporter=Reporter())
    write_pairs(tmp_path / "valid.tsv", 7, skip=3)
    for name, what in (("train", "training"), ("valid", "validation")):
        path = tmp_path / f"{name}.tsv"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        path.write_text("".join([lines[1], lines[0], *lines[2:]]), encoding="utf-8")  # two lines swapped
        with pytest.raises(FolderError, match=rf"run had other {what} pairs than the data now has, as many"):
            train(recipe, out=tmp_path / "run", resume=True, device="cpu", reporter=Reporter())
        path.write_text("".join(lines), encoding="utf-8")
    train(recipe, out=tmp_path / "run", resume=True, device="cpu", reporter=Reporter())


def test_training_stops_early_when_nothing_gets_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bleus = iter([1.0, 3.0, 2.0, 3.0, 4.0, 3.0, 3.0, 3.0, 9.0])
    monkeypatch.setattr(trainer, "judge", lambda *_: (next(bleus), 1.0))
    recipe, run = toy_recipe(tmp_path, validations=12, patience=3), tmp_path / "run"
    with pytest.raises(Interrupted):
        train(recipe, out=run, device="cpu", reporter=Listener(13))  # after six of its validations
    listener = Listener()
    train(recipe, out=run, resume=True, device="cpu", reporter=listener)
    assert listener.updates == [14, 15, 16]  # 4.0 came at update 10, its equal or better in none of three
    assert listener.notes[-1] == ("stopped early: 3 validations without a better one (training.patience = 3)")
    assert (RunFolder(run).update_of(run / "best"), RunFolder(run).update_of(run / "last")) == (10, 16)
    assert len((run / "log.jsonl").read_text().splitlines()) == 8

    again = Listener()
    train(recipe, out=run, resume=True, device="cpu", reporter=again)
    assert again.updates == []
    assert again.notes[-1].startswith("stopped early: 3 validations without")
    patient = recipe.changed({"training.patience": 4, "training.max_updates": 17})
    train(patient, out=run, resume=True, device="cpu", reporter=Reporter())
    assert RunFolder(run).update_of(run / "best") == 17


@pytest.mark.parametrize("stop_at", [4, 10], ids=lambda n: f"after{n}")
def test_all_that_a_state_may_hold_is_taken_up_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_at: int
) -> None:
    """Case 20 with a running mean, own words drawn at random, summed batches, and an early end."""

    def judged(folder: ModelFolder, *_: Any) -> tuple[float, float]:
        size = sum(float(each.detach().double().square().sum()) for each in folder.model.parameters())
        return 10.0 - abs(folder.training["update"] - 6), size  # best at update 6, and the mean is smaller

    monkeypatch.setattr(trainer, "judge", judged)
    content = toy_content(tmp_path / "data", average=5, accumulate=2, patience=3, validations=8)
    content["forcing"] = {"schedule": "linear", "updates": 9, "final": 0.2}
    train(content, out=tmp_path / "whole", device="cpu", reporter=Reporter())
    with pytest.raises(Interrupted):
        train(content, out=tmp_path / "run", device="cpu", reporter=Listener(stop_at))
    torch.manual_seed(999)
    listener = Listener()
    train(content, out=tmp_path / "run", resume=True, device="cpu", reporter=listener)
    assert listener.updates == list(range(stop_at + 1, 16))  # validations 9, 12 and 15 are no better than 6
    assert fingerprint(tmp_path / "run") == fingerprint(tmp_path / "whole")
    state = json.loads((tmp_path / "run" / "resume" / "state.json").read_text())
    assert (state["waited"], state["best"]["update"], state["best"]["averaged"]) == (3, 6, True)


def test_a_state_from_earlier_versions_goes_on(toy_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(toy_run, run)
    state = json.loads((run / "resume" / "state.json").read_text())
    for later in ("waited", "valid_pairs", "train_hash", "valid_hash"):
        del state[later]
    del state["best"]["averaged"], state["latest"]["averaged"]
    (run / "resume" / "state.json").write_text(json.dumps(state))
    recipe = RunFolder(run).recipe().changed({"training.max_updates": 25})
    train(recipe, out=run, resume=True, device="cpu", reporter=Reporter())
    assert RunFolder(run).update_of(run / "last") == 25
