"""Run folders: what may be begun, what may go on, and the state that is taken up."""

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from headlights.translation.folders import FolderError, ModelFolder
from headlights.translation.recipe import Recipe
from headlights.translation.runs import Progress, RunFolder, Validation
from tests.translation.test_folders import DAMAGE
from tests.translation.toy import toy_recipe


def begun(folder: Path) -> tuple[RunFolder, Recipe]:
    run, recipe = RunFolder(folder / "run"), toy_recipe(folder)
    run.create(recipe)
    return run, recipe


def test_recipe_is_stored_and_read_back(tmp_path: Path) -> None:
    run, recipe = begun(tmp_path)
    assert run.recipe() == recipe
    assert [path.name for path in run.path.iterdir()] == ["recipe.toml"]
    assert not run.can_resume()


def test_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=r"no run to continue: recipe.toml is missing; begin one without"):
        RunFolder(tmp_path).recipe()


def test_run_that_was_never_saved_can_be_begun_again(tmp_path: Path) -> None:
    run, recipe = begun(tmp_path)
    run.log(update=50, loss=1.0)
    (run.path / ".resume.new").mkdir()
    run.create(recipe)
    assert (run.path / "log.jsonl").read_text() == ""


def test_run_that_was_killed_in_the_midst_of_beginning_can_be_begun_again(tmp_path: Path) -> None:
    run, recipe = begun(tmp_path)
    for name in ("recipe.toml", "log.jsonl"):
        (run.path / f".{name}.part").write_text("half of it")
    run.create(recipe)


def test_saved_run_full_folder_and_file_are_refused(toy_run: Path, tmp_path: Path) -> None:
    recipe = toy_recipe(tmp_path / "data")
    with pytest.raises(FolderError, match=r"holds a run already: continue it with --resume, or choose"):
        RunFolder(toy_run).create(recipe)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(FolderError, match=r"mine is not empty: choose another folder, or empty this one"):
        RunFolder(tmp_path / "mine").create(recipe)
    with pytest.raises(FolderError, match=r"letter.txt is a file; expected a folder to write the run into"):
        RunFolder(tmp_path / "mine" / "letter.txt").create(recipe)
    with pytest.raises(FolderError, match=r"run cannot be made: Not a directory"):
        RunFolder(tmp_path / "mine" / "letter.txt" / "run").create(recipe)


def test_log_is_json_lines_and_loses_only_what_comes_again(tmp_path: Path) -> None:
    run, _ = begun(tmp_path)
    for update in (10, 20, 30):
        run.log(update=update, note="più\u2028")
    with (run.path / "log.jsonl").open("a") as file:
        file.write('{"update": 40, "lo')  # killed while writing
    run.trim_log(20)
    lines = (run.path / "log.jsonl").read_text(encoding="utf-8").split("\n")
    assert [json.loads(line) for line in lines[:-1]] == [
        {"update": 10, "note": "più\u2028"},
        {"update": 20, "note": "più\u2028"},
    ]
    assert lines[-1] == ""


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="needs /dev/full")
def test_log_on_a_full_disk_is_one_line(tmp_path: Path) -> None:
    run, _ = begun(tmp_path)
    (run.path / "log.jsonl").symlink_to("/dev/full")
    with pytest.raises(FolderError, match=r"log.jsonl cannot be written: No space left on device$"):
        run.log(update=1)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model.hidden_dim", 14),
        ("tokenizer.vocab_size", 41),
        ("data.max_length", 7),
        ("training.seed", 2),
        ("training.batch_tokens", 101),
    ],
)
def test_what_the_state_depends_on_cannot_change(tmp_path: Path, key: str, value: int) -> None:
    run, recipe = begun(tmp_path)
    with pytest.raises(FolderError, match=rf"{key} cannot change while a run goes on: .* got {value}; train"):
        run.check_continues(recipe.changed({key: value}))


@pytest.mark.parametrize("key", ["training.max_updates", "training.learning_rate", "training.validations"])
def test_limits_and_rates_can_change(tmp_path: Path, key: str) -> None:
    run, recipe = begun(tmp_path)
    run.check_continues(recipe.changed({key: 3}))


def test_the_data_may_have_moved(tmp_path: Path) -> None:
    run, recipe = begun(tmp_path)
    run.check_continues(recipe.changed({"data.train": ("elsewhere.tsv",), "data.valid": ("too.tsv",)}))


def _optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), fused=True)


def test_state_comes_back_as_it_was(toy_run: Path, tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    folder = ModelFolder.load(toy_run)
    optimizer = _optimizer(folder.model)
    for parameter in folder.model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    best = Validation(update=3, loss=1.1, bleu=random.random())
    progress = Progress(
        update=5, epoch=1, batch=2, seconds=0.1, pairs=7, validations=1, best=best, latest=best
    )
    run.save_resume(folder, optimizer, progress)
    expected_draw = torch.rand(5)

    again = ModelFolder.load(toy_run)
    other = _optimizer(again.model)
    torch.manual_seed(999)
    assert run.load_resume(again.model, other) == progress
    assert torch.equal(torch.rand(5), expected_draw)
    old, new = optimizer.state_dict()["state"], other.state_dict()["state"]
    assert old.keys() == new.keys()
    for index, entries in old.items():
        assert entries.keys() == {"step", "exp_avg", "exp_avg_sq"}
        assert all(torch.equal(value, new[index][name]) for name, value in entries.items())
    assert all(map(torch.equal, folder.model.state_dict().values(), again.model.state_dict().values()))


def test_joint_tokenizer_stays_joint(toy_run: Path, tmp_path: Path) -> None:
    folder, run = ModelFolder.load(toy_run), RunFolder(tmp_path)
    joint = ModelFolder(folder.model, folder.source_tokenizer, folder.source_tokenizer, {})
    run.save_resume(joint, _optimizer(folder.model), Progress())
    source, target = run.resume_tokenizers()
    assert source is target


@pytest.mark.parametrize("file", ["state.json", "optimizer.safetensors", "model.safetensors"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_each_broken_file_of_the_state_is_named(
    toy_run: Path, tmp_path: Path, file: str, damage: str
) -> None:
    shutil.copytree(toy_run / "resume", tmp_path / "resume")
    model = ModelFolder.load(toy_run).model
    DAMAGE[damage](tmp_path / "resume" / file)
    with pytest.raises(FolderError, match=file) as caught:
        RunFolder(tmp_path).load_resume(model, _optimizer(model))
    assert "\n" not in str(caught.value)


def _add(path: Path) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | {"colour": 1}))


def _mistype(path: Path) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | {"update": "many"}))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (_add, r"state.json is not the state of this version's training \(colour\); train again"),
        (_mistype, r"state.json: update: Input should be a valid integer.*, got 'many'; train again"),
    ],
)
def test_state_of_another_kind_is_refused(
    toy_run: Path, tmp_path: Path, change: Callable[[Path], None], match: str
) -> None:
    shutil.copytree(toy_run / "resume", tmp_path / "resume")
    change(tmp_path / "resume" / "state.json")
    model = ModelFolder.load(toy_run).model
    with pytest.raises(FolderError, match=match):
        RunFolder(tmp_path).load_resume(model, _optimizer(model))


def test_optimizer_of_another_kind_is_refused(toy_run: Path, tmp_path: Path) -> None:
    shutil.copytree(toy_run / "resume", tmp_path / "resume")
    shutil.copy(toy_run / "best" / "model.safetensors", tmp_path / "resume" / "optimizer.safetensors")
    model = ModelFolder.load(toy_run).model
    with pytest.raises(
        FolderError, match=r"optimizer.safetensors is not the state of this training \('random'\)"
    ):
        RunFolder(tmp_path).load_resume(model, _optimizer(model))


def test_update_of_a_folder_is_found_where_it_stepped_aside(toy_run: Path, tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert run.update_of(run.last) is None
    shutil.copytree(toy_run / "last", tmp_path / ".last.old")
    assert run.update_of(run.last) == 24


def test_better_is_higher_bleu_or_equal_bleu_with_lower_loss() -> None:
    old = Validation(update=1, loss=2.0, bleu=10.0)
    assert Validation(update=2, loss=3.0, bleu=10.5).is_better_than(old)
    assert Validation(update=2, loss=1.9, bleu=10.0).is_better_than(old)
    assert not Validation(update=2, loss=2.0, bleu=10.0).is_better_than(old)
    assert not Validation(update=2, loss=1.0, bleu=9.9).is_better_than(old)


def test_whole_run_holds_what_the_design_says(toy_run: Path) -> None:
    model = {
        "config.json",
        "model.safetensors",
        "tokenizer.source.json",
        "tokenizer.target.json",
        "training.json",
    }
    assert set(os.listdir(toy_run)) == {"recipe.toml", "log.jsonl", "best", "last", "resume"}
    assert set(os.listdir(toy_run / "best")) == set(os.listdir(toy_run / "last")) == model
    assert set(os.listdir(toy_run / "resume")) == model | {"optimizer.safetensors", "state.json"}
