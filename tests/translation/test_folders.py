"""Files and folders are whole or untouched, and broken ones are refused in one line that names the file."""

import contextlib
import errno
import json
import os
import shutil
import signal
import stat
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from headlights.translation.folders import (
    FolderError,
    ModelFolder,
    find_model,
    read_json,
    read_tensors,
    replace_file,
    replace_folder,
    whole_folder,
)
from headlights.translation.tokenizer import Tokenizer

FILES = (
    "config.json",
    "model.safetensors",
    "tokenizer.source.json",
    "tokenizer.target.json",
    "training.json",
)


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def content(folder: Path) -> dict[str, str]:
    return {entry.name: entry.read_text() for entry in folder.iterdir()}


def writer(text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for name in ("a", "b"):
            (folder / name).write_text(text)

    return write


def test_file_replaces_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old")
    with replace_file(path) as file:
        file.write("new\n")
        file.flush()
        assert path.read_text() == "old"
    assert path.read_bytes() == b"new\n"
    with contextlib.suppress(KeyboardInterrupt), replace_file(path) as file:
        file.write("half")
        raise KeyboardInterrupt
    assert path.read_text() == "new\n"
    assert names(tmp_path) == ["out.txt"]


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077], ids=oct)
def test_new_file_has_the_mode_that_the_umask_leaves(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with replace_file(tmp_path / "out.txt") as file:
            file.write("text")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out.txt").stat().st_mode) == 0o666 & ~umask


def test_replaced_file_keeps_its_mode_and_a_link_stays_a_link(tmp_path: Path) -> None:
    path, link = tmp_path / "out.txt", tmp_path / "link"
    path.write_text("old")
    path.chmod(0o640)
    link.symlink_to(path)
    with replace_file(link) as file:
        file.write("new")
    assert link.is_symlink()
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_device_is_written_to_and_stays_a_device() -> None:
    with replace_file(Path("/dev/null")) as file:
        file.write("text")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="needs /dev/full")
def test_full_disk_is_one_line_that_names_the_file() -> None:
    refused = pytest.raises(FolderError, match=r"^/dev/full cannot be written: No space left on device$")
    with refused, replace_file(Path("/dev/full")) as file:
        file.write("text")
    assert Path("/dev/full").is_char_device()


def test_file_in_no_folder_or_in_the_place_of_one_is_refused(tmp_path: Path) -> None:
    refused = pytest.raises(FolderError, match=r"none/out.txt cannot be written: No such file or directory$")
    with refused, replace_file(tmp_path / "none" / "out.txt"):
        pass
    with pytest.raises(FolderError, match=r"cannot be written: Is a directory$"), replace_file(tmp_path):
        pass
    assert names(tmp_path) == []


@pytest.mark.parametrize("ends_last", ["first", "second"])
def test_of_two_programs_that_write_a_file_the_later_one_does(tmp_path: Path, ends_last: str) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old")
    first, second = replace_file(path), replace_file(path)
    first.__enter__().write("first")
    file = second.__enter__()
    file.write("se")
    file.flush()
    if ends_last == "first":
        file.write("cond")
        second.__exit__(None, None, None)
    before = path.read_text()
    assert before == ("second" if ends_last == "first" else "old")
    with pytest.raises(
        FolderError, match=r"out.txt was not written: another program has begun to write it; run one after"
    ):
        first.__exit__(None, None, None)
    assert path.read_text() == before
    if ends_last == "second":
        file.write("cond")
        second.__exit__(None, None, None)
    assert path.read_text() == "second"
    assert names(tmp_path) == ["out.txt"]


def test_closed_pipe_is_not_taken_for_a_broken_file(tmp_path: Path) -> None:
    with pytest.raises(BrokenPipeError), replace_file(tmp_path / "out.txt"):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


@pytest.mark.parametrize(
    ("error", "match"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "run cannot be saved: No space left on device; what",
        ),
        (
            SafetensorError("Error while serializing: I/O error: Quota exceeded"),
            "run cannot be saved: Quota exc",
        ),
    ],
    ids=["disk", "safetensors"],
)
def test_failed_save_leaves_the_old_folder_and_no_rubbish(
    tmp_path: Path, error: Exception, match: str
) -> None:
    path = tmp_path / "run"
    replace_folder(path, writer("old"))

    def write(folder: Path) -> None:
        writer("half")(folder)
        raise error

    with pytest.raises(FolderError, match=match):
        replace_folder(path, write)
    assert content(path) == {"a": "old", "b": "old"}
    assert names(tmp_path) == ["run"]


def test_interrupted_between_the_renames_puts_the_old_folder_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run"
    replace_folder(path, writer("old"))
    rename = Path.rename

    def interrupted(self: Path, target: Path) -> Path:
        if self.name == ".run.new":
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        replace_folder(path, writer("new"))
    assert content(path) == {"a": "old", "b": "old"}
    assert names(tmp_path) == ["run"]


@pytest.mark.parametrize("before", ["nothing", "whole", "aside"])
def test_folder_is_whole_when_killed_at_any_call(tmp_path: Path, before: str) -> None:
    """A fork kills itself at its k-th call to the file system, for every k until it gets to the end."""
    texts = {"new"} if before == "nothing" else {"old", "new"}
    seen = []
    for moment in range(1, 100):
        folder = tmp_path / str(moment)
        folder.mkdir()
        if before != "nothing":
            replace_folder(folder / "run", writer("old"))
        if before == "aside":  # killed between the renames of an earlier save
            (folder / "run").rename(folder / ".run.old")
        killed = _killed_at(moment, lambda folder=folder: replace_folder(folder / "run", writer("new")))  # type: ignore[misc]
        whole = whole_folder(folder / "run")
        if whole.exists() or before != "nothing":
            (text,) = set(content(whole).values())
            assert names(whole) == ["a", "b"]
            seen.append(text)
        replace_folder(folder / "run", writer("newest"))
        assert content(folder / "run") == {"a": "newest", "b": "newest"}
        assert names(folder) == ["run"]
        if not killed:
            break
    assert moment >= 7
    assert not killed
    assert set(seen) == texts


def _killed_at(moment: int, action: Callable[[], object]) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other threads do not matter to a fork that only writes files
        child = os.fork()
    if child == 0:
        count = 0

        def watch(event: str, _: object) -> None:
            nonlocal count
            if event in ("open", "os.rename", "os.mkdir", "os.rmdir", "os.remove"):
                count += 1
                if count == moment:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(watch)
        try:
            action()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def test_model_folder_round_trip(toy_run: Path, tmp_path: Path) -> None:
    model = ModelFolder.load(toy_run)
    model.save(tmp_path / "copy")
    again = ModelFolder.load(tmp_path / "copy")
    assert names(tmp_path / "copy") == sorted(FILES)
    assert again.training == model.training
    expected = model.model.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in again.model.state_dict().items())
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "copy").iterdir()}
    assert len(modes) == 1  # model.safetensors is as open to others as the rest


def test_joint_tokenizer_is_one_file_and_one_object(toy_run: Path, tmp_path: Path) -> None:
    model = ModelFolder.load(toy_run)
    source = Tokenizer.load(toy_run / "best" / "tokenizer.source.json")
    ModelFolder(model.model, source, source, {}).save(tmp_path / "joint")
    assert names(tmp_path / "joint") == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "training.json",
    ]
    again = ModelFolder.load(tmp_path / "joint")
    assert again.source_tokenizer is again.target_tokenizer


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGE: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "cut": _cut,
    "binary": lambda path: path.write_bytes(bytes(range(256))),
    "folder": _folder,
    "loop": _loop,  # cannot be read, not even by root
}


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", DAMAGE)
def test_each_broken_file_is_named_in_one_line(toy_run: Path, tmp_path: Path, file: str, damage: str) -> None:
    shutil.copytree(toy_run / "best", tmp_path / "model")
    DAMAGE[damage](tmp_path / "model" / file)
    with pytest.raises(FolderError) as caught:
        ModelFolder.load(tmp_path / "model")
    message = str(caught.value)
    assert file in message
    assert "\n" not in message
    assert len(message) < 300 + len(str(tmp_path))


def _changed(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        (
            {"version": 2},
            "must be of format 'headlights-model', version 1, got .*, version 2",
        ),
        ({"source_vocab": 41}, "config.json says source_vocab 41 but the tokenizer has"),
        ({"model": {"layers": 0}}, r"config.json: model.layers: Input should be greater .*, got 0; copy"),
        (
            {"model": {"score": "dot", "encoder_dim": 5}},
            "no such model can be built: score 'dot' compares",
        ),
        (
            {"model": {"embed_dim": 9}},
            r"does not fit config.json: size mismatch for .*; copy the folder",
        ),
        ({"model": None}, r"config.json: model: Input should be"),
    ],
    ids=["version", "vocabulary", "value", "widths", "shape", "nothing"],
)
def test_config_that_does_not_fit_is_refused(
    toy_run: Path, tmp_path: Path, changes: dict[str, object], match: str
) -> None:
    shutil.copytree(toy_run / "best", tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    if isinstance(changes.get("model"), dict):
        changes = {"model": json.loads(config.read_text())["model"] | changes["model"]}
    _changed(config, **changes)
    with pytest.raises(FolderError, match=match) as caught:
        ModelFolder.load(tmp_path / "model")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400 + len(str(tmp_path))


def test_json_that_is_no_object_and_tensors_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[]")
    with pytest.raises(FolderError, match=r"a.json must hold a JSON object, got list"):
        read_json(tmp_path / "a.json")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(FolderError, match=r"deep.json is broken or cut short"):
        read_json(tmp_path / "deep.json")
    save_file({"a": torch.zeros(3)}, tmp_path / "a.safetensors")
    assert read_tensors(tmp_path / "a.safetensors")["a"].tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(FolderError, match=r"none.safetensors is missing: the folder is not whole"):
        read_tensors(tmp_path / "none.safetensors")


def test_another_model_does_not_stand_in_for_a_damaged_best_one(toy_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(toy_run, run)
    (run / "best" / "config.json").unlink()
    with pytest.raises(FolderError, match=r"run/best/config.json is missing; copy the folder again or train"):
        find_model(run)


def test_model_is_found_in_itself_best_last_and_resume(
    toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    shutil.copytree(toy_run, run)
    for name in ("best", "last", "resume"):
        assert find_model(run) == run / name
        assert find_model(run / name) == run / name
        (run / name).rename(run / f".{name}.old")  # killed between the renames
        assert find_model(run) == run / f".{name}.old"
        shutil.rmtree(run / f".{name}.old")
    with pytest.raises(FolderError, match=r"run holds no model yet: .* headlights train --resume"):
        find_model(run)
    (run / "recipe.toml").unlink()
    with pytest.raises(FolderError, match=r"run holds no model: config.json is missing; expected a model"):
        find_model(run)
    with pytest.raises(FolderError, match=r"none does not exist; expected a model folder or the run folder"):
        find_model(tmp_path / "none")
    (tmp_path / "text").touch()
    with pytest.raises(FolderError, match=r"text is a file; expected a model folder or the run folder of"):
        find_model(tmp_path / "text")
    monkeypatch.chdir(toy_run / "best")
    assert find_model(Path()) == Path()
