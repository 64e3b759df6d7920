"""The command as a whole: help, mistakes on the command line, closed pipes, missing packages, and bugs."""

import os
import platform
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import headlights.cli
from headlights import __version__
from headlights.cli import info, memory
from headlights.cli.app import app
from tests.cli.conftest import Command

# Without a buffer Python has nothing left to complain about at exit.
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


# As torch words it on a GPU and on Windows.
GPU = (
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 15.77 GiB of which 1 GiB"
)
WINDOWS = "[enforce fail at alloc_cpu.cpp:80] data. DefaultCPUAllocator: not enough memory: you tried to "
WINDOWS += "allocate 96 bytes."


def raise_(error: Exception) -> None:
    """What a lambda cannot do."""
    raise error


def program(*arguments: str | Path, before: str = "") -> list[str]:
    """A command line that runs the command in a process of its own, perhaps after some code."""
    if before:
        code = f"{before}; from headlights.cli import main; main()"
        return [sys.executable, "-c", code, *map(str, arguments)]
    return [sys.executable, "-m", "headlights", *map(str, arguments)]


def test_help_and_version_are_printed(headlights: Command) -> None:
    help_text = headlights("--help")
    assert help_text.status == 0
    commands = (
        "demo",
        "prepare",
        "train",
        "translate",
        "evaluate",
        "align",
        "score",
        "view",
        "senses",
        "bench",
        "info",
    )
    for command in commands:
        assert f"\n  {command}" in help_text.output
        assert headlights(command, "-h").output.startswith(f"Usage: headlights {command} ")
    assert headlights() == help_text
    assert headlights("--version") == (0, f"headlights {__version__}\n", "")


def test_python_m_headlights_needs_neither_torch_nor_long_for_help() -> None:
    before = "import sys; sys.modules['torch'] = None"
    start = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(program("--help", before=before), capture_output=True, text=True, check=True)
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "Usage: headlights" in done.stdout
    # Of the processor, whatever else it has to do meanwhile.
    assert end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime < 0.7
    done = subprocess.run(program("--version"), capture_output=True, text=True, check=True)
    assert done.stdout == f"headlights {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["trian"], "No such command 'trian'. Did you mean 'train'? See: headlights --help"),
        (
            ["train", "--sorce", "a"],
            "No such option: --sorce (Possible options: --set, --source, --valid-source); "
            "see: headlights train --help",
        ),
        (["translate"], "Missing argument 'MODEL'; see: headlights translate --help"),
        (
            ["translate", "m", "--beam", "0"],
            "Invalid value for '--beam': Input should be greater than or equal to 1, got 0; "
            "see: headlights translate --help",
        ),
        (
            ["train", "--updates", "many"],
            "Invalid value for '--updates': Input should be a valid integer, unable to parse string as an "
            "integer, got many; see: headlights train --help",
        ),
        (["info", "extra"], "Got unexpected extra argument"),
    ],
)
def test_mistakes_on_the_command_line_are_one_line(
    headlights: Command, arguments: list[str], expected: str
) -> None:
    assert headlights(*arguments).error.startswith(expected)


def test_bug_keeps_its_traceback(headlights: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ValueError("a shape that no user gave")

    monkeypatch.setattr(platform, "python_version", broken)
    with pytest.raises(ValueError, match="a shape that no user gave"):
        headlights("info")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(13, "Permission denied", "/some/file"), "/some/file: Permission denied"),
        (OSError(12, "Cannot allocate memory"), "Cannot allocate memory"),
        (ModuleNotFoundError("no module x", name="x"), "no module x; pip install 'headlights[all]'"),
        (ImportError("needs y: pip install 'headlights[view]'"), "needs y: pip install 'headlights[view]'"),
    ],
    ids=["system", "no-file", "module", "extra"],
)
def test_errors_of_the_system_are_one_line(
    headlights: Command, monkeypatch: pytest.MonkeyPatch, error: Exception, expected: str
) -> None:
    def refused() -> None:
        raise error

    monkeypatch.setattr(platform, "python_version", refused)
    assert headlights("info").error == expected


def test_errors_that_only_look_like_the_systems_are_bugs(
    headlights: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error in (OSError("no number"), ImportError("circular", name="headlights.cli")):

        def broken(error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(platform, "python_version", broken)
        with pytest.raises(type(error)):
            headlights("info")


@pytest.mark.parametrize(
    ("ask", "size"),
    [
        (lambda: torch.empty(2**50), " for another 4503599627370496 bytes"),  # 2^50 numbers of 4 bytes
        (lambda: np.empty(2**50), " for another 8.00 PiB"),
        (lambda: bytearray(2**62), ""),
        (lambda: raise_(torch.OutOfMemoryError(GPU)), " for another 20.00 GiB"),
        (lambda: raise_(RuntimeError(WINDOWS)), " for another 96 bytes"),
    ],
    ids=["torch", "numpy", "python", "gpu", "windows"],
)
def test_want_of_memory_is_one_line(
    headlights: Command, monkeypatch: pytest.MonkeyPatch, ask: Callable[[], object], size: str
) -> None:
    monkeypatch.setattr(platform, "python_version", ask)
    assert headlights("info").error == (
        f"the memory did not suffice{size}; give it less at once, or end other programs"
    )


@pytest.mark.parametrize(
    ("arguments", "place", "cure"),
    [
        (("train", "--out", "run"), "training.train", "lower training.batch_tokens with --set, and raise "),
        (
            ("compare", "--out", "run"),
            "comparing.compare",
            "lower training.batch_tokens with --set, and raise ",
        ),
        (("translate", "model"), "translator.Translator.load", "lower --beam, or shorten the longest lines"),
    ],
    ids=["train", "compare", "translate"],
)
def test_want_of_memory_says_what_to_lower(
    headlights: Command, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], place: str, cure: str
) -> None:
    monkeypatch.setattr(f"headlights.translation.{place}", lambda *_, **__: raise_(MemoryError()))
    assert headlights(*arguments).error.startswith(f"the memory did not suffice; {cure}")


def test_the_commands_that_are_told_what_to_lower_are_there() -> None:
    assert memory._CURES.keys() <= {command.name for command in app.registered_commands}


def test_interrupted_before_anything_was_done(headlights: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(platform, "python_version", interrupted)
    assert headlights("info") == (130, "", "headlights: interrupted\n")


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="needs /dev/full")
def test_full_disk_behind_standard_output_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            program("--help"), stdout=full, stderr=subprocess.PIPE, env=BUFFERED, text=True, check=False
        )
    assert done.returncode == 2
    assert done.stderr == "headlights: standard output: No space left on device\n"


def test_closed_pipe_is_silent() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        program("--help"), stdout=write, stderr=subprocess.PIPE, env=BUFFERED, text=True, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("package", headlights.cli.NEEDED)
def test_missing_package_names_the_extra(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SystemExit) as end:
        headlights.cli.main()
    assert end.value.code == 2
    assert capsys.readouterr().err == (
        f"headlights: the command needs {package}: pip install 'headlights[translate]'\n"
    )


def test_without_any_extra_the_command_says_what_to_install() -> None:
    hide = f"import sys; sys.modules.update(dict.fromkeys({headlights.cli.NEEDED!r}))"
    done = subprocess.run(program("demo", before=hide), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("headlights: the command needs typer, rich, ")
    assert done.stderr.endswith(": pip install 'headlights[translate]'\n")
    assert len(done.stderr.splitlines()) == 1


def test_every_name_that_the_command_needs_is_in_the_extra() -> None:
    declared = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8").replace("-", "_")
    for package in headlights.cli.NEEDED:
        assert f'"{package}>=' in declared


def test_info_prints_what_a_bug_report_needs(headlights: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(info, "PACKAGES", ("tokenizers", "no-such-package"))
    status, output, errors = headlights("info")
    assert (status, errors) == (0, "")
    lines = output.splitlines()
    assert lines[0].startswith(f"headlights {__version__}, Python 3.")
    assert lines[1].startswith("torch 2.")
    assert lines[-1] == "no-such-package not installed"


@pytest.mark.parametrize(("count", "output"), [("1", "said\ntaken apart\n"), ("2", "said\n")])
def test_one_of_several_processes_ends_at_once(count: str, output: str) -> None:
    code = (
        "import atexit, headlights.cli as c; atexit.register(print, 'taken apart'); print('said'); c.leave(3)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "WORLD_SIZE": count},
        check=False,
    )
    assert (found.returncode, found.stdout, found.stderr) == (3, output, "")
