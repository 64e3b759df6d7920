"""Kernels of additive scores: compiled once, kept on disk, trusted or not, and done without."""

import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from headlights import scores
from headlights.attention import PreparedKey, _compiled
from headlights.attention._factorised import additive_scores, factorise
from tests.attention.additive_tools import exact, fresh, leaves, needs_compiler


@needs_compiler
def test_one_compilation_serves_all_shapes_and_later_processes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    loader = fresh(monkeypatch, tmp_path)
    commands: list[Any] = []
    run = subprocess.run

    def counted(command: Any, **options: Any) -> Any:
        commands.append(command)
        return run(command, **options)

    def compilations() -> int:
        return sum("-c" in command for command in commands)  # the others link

    monkeypatch.setattr(subprocess, "run", counted)
    monkeypatch.setattr(_compiled, "TERMS_BEFORE_COMPILING", 1000)
    b = torch.randn(3)
    for B, N, M in ((1, 1, 1), (2, 3, 5), (7, 11, 13), (1, 5, 1), (5, 1, 7)):
        before = loader.terms
        query, key = torch.randn(B, N, 3), torch.randn(B, M, 3)
        got = additive_scores(query, factorise(PreparedKey(key), None), b)
        assert torch.allclose(got.double(), exact(query, key, b), atol=1e-6)
        if loader.kernels is None:  # a small call never compiles
            assert loader.terms == before + B * N * M * 3 < 1000
    # 3 + 90 + 3003 terms: the third call compiled, no other
    assert compilations() == 1
    assert loader.kernels is not None
    later = fresh(monkeypatch, tmp_path)
    assert later.after(1) is not None  # loaded at its first call, however small
    assert scores.compile_additive()
    assert len(commands) == 2


@pytest.mark.parametrize("name", ["TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE", "HEADLIGHTS_COMPILE"])
def test_compiling_can_be_switched_off(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    loader = fresh(monkeypatch, tmp_path)
    monkeypatch.setenv(name, "0" if name == "HEADLIGHTS_COMPILE" else "1")
    assert loader.after(2**40) is None
    assert not scores.compile_additive()
    assert not any(tmp_path.iterdir())


def test_without_a_compiler_blocks_serve_in_silence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fresh(monkeypatch, tmp_path)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert not scores.compile_additive()
    query, key, b = torch.randn(2, 3, 5), torch.randn(2, 7, 5), torch.randn(5)
    got = additive_scores(query, factorise(PreparedKey(key), None), b)
    assert torch.allclose(got.double(), exact(query, key, b), atol=1e-6)


def test_a_blank_compiler_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    found = _compiled._compiler()
    monkeypatch.setenv("CXX", " ")
    assert _compiled._compiler() == found


@pytest.mark.parametrize(
    "compiler", ["/nowhere/c++", 'g++ "', f"{sys.executable} -c raise(SystemExit('no'))"]
)
def test_a_broken_compiler_warns_once(compiler: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fresh(monkeypatch, tmp_path)
    monkeypatch.setenv("CXX", compiler)
    with pytest.warns(
        UserWarning, match=r"additive scores: .* could not compile the fast kernels \(.*\); the slower"
    ):
        assert not scores.compile_additive()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not scores.compile_additive()


@needs_compiler
def test_a_broken_library_on_disk_is_compiled_anew(
    monkeypatch: pytest.MonkeyPatch, cache: Path, tmp_path: Path
) -> None:
    assert fresh(monkeypatch, cache).bring() is not None
    compiled = _compiled._cached()
    monkeypatch.setattr(subprocess, "run", lambda command, **options: shutil.copy(compiled, command[-1]))
    loader = fresh(monkeypatch, tmp_path)
    goal = _compiled._cached()
    goal.parent.mkdir(parents=True)
    goal.write_bytes(b"torn")
    assert loader.after(1) is None
    assert scores.compile_additive()
    assert goal.read_bytes() == compiled.read_bytes()
    assert os.listdir(goal.parent) == [goal.name]
    goal.unlink()
    goal.parent.rmdir()
    goal.parent.write_text("in the way")  # nothing can be kept, and it does not matter
    fresh(monkeypatch, tmp_path)
    assert scores.compile_additive()


@needs_compiler
@pytest.mark.parametrize("open_to_all", ["file", "folder"])
def test_a_library_that_others_could_have_written_is_not_loaded(
    open_to_all: str, monkeypatch: pytest.MonkeyPatch, cache: Path, tmp_path: Path
) -> None:
    assert fresh(monkeypatch, cache).bring() is not None
    compiled = _compiled._cached()
    loader = fresh(monkeypatch, tmp_path)
    goal = _compiled._cached()
    _compiled._keep(compiled, goal)
    loader.after(1)
    assert loader.kernels is not None
    (goal if open_to_all == "file" else goal.parent).chmod(0o777)
    assert fresh(monkeypatch, tmp_path).after(1) is None


@needs_compiler
def test_another_library_in_its_place_is_not_loaded(
    monkeypatch: pytest.MonkeyPatch, cache: Path, tmp_path: Path
) -> None:
    assert fresh(monkeypatch, cache).bring() is not None
    compiler = _compiled._compiler()
    assert compiler is not None
    source, library = tmp_path / "other.cpp", tmp_path / "other.so"
    source.write_text("int other;")
    subprocess.run([*compiler, "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    loader = fresh(monkeypatch, tmp_path)
    _compiled._keep(library, _compiled._cached())
    assert loader.after(1) is None


def test_a_relative_cache_folder_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    assert _compiled._cached().is_relative_to(Path.home() / ".cache")


@needs_compiler
def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    assert fresh(monkeypatch, cache).bring() is not None
    inputs = leaves((3, 5, 37), (3, 7, 37), (37,), dtype=torch.float32)
    found = []
    monkeypatch.setattr(_compiled, "TERMS_OF_A_THREAD", 1)
    for threads in (1, 4):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        out = additive_scores(inputs[0], factorise(PreparedKey(inputs[1]), None), inputs[2])
        found.append((out, *torch.autograd.grad(out.square().sum(), inputs)))
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other, rtol=1e-6)
