"""The commands put together, and what becomes of their errors."""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import typer

from headlights._errors import InputError
from headlights._version import __version__
from headlights.cli import (
    align,
    bench,
    compare,
    demo,
    evaluate,
    info,
    prepare,
    score,
    senses,
    train,
    translate,
    view,
)
from headlights.cli.memory import memory_line

app = typer.Typer(
    name="headlights",
    help="Attention you can see: train a translator on your own text, translate, and see where it looked.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (demo, prepare, train, translate, evaluate, align, score, compare, view, senses, bench, info):
    app.command(name=module.__name__.rpartition(".")[2])(module.command)

# Typer's base class for mistakes on the command line, which it does not export.
CommandError: type[Exception] = next(k for k in typer.BadParameter.__mro__ if k.__name__ == "ClickException")


def _print_version(asked: bool) -> None:
    if asked:
        print(f"headlights {__version__}")
        raise typer.Exit


@app.callback()
def options(
    _version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", is_eager=True, callback=_print_version
    ),
) -> None:
    """Attention you can see: train a translator on your own text, translate, and see where it looked."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line.

    Args:
        arguments: What follows `headlights`; nothing is `--help`.

    Returns:
        The exit status: 0 done, 1 `bench` found wrong results, 2 wrong input or too little memory or disk,
            130 and 143 interrupted.
    """
    given = list(arguments) or ["--help"]
    command = given[0]  # parsing empties the list
    try:
        with _terminable():
            code = _invoke(given)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has what it wanted
        _drop_output()
        return 0
    except (KeyboardInterrupt, typer.Abort):
        _say("interrupted")
        return 130
    except _Terminated:
        _say("terminated")
        return 128 + signal.SIGTERM
    except Exception as error:
        return _ended_by(error, command)
    return code


class _Terminated(BaseException):
    """SIGTERM came."""


@contextmanager
def _terminable() -> Iterator[None]:
    """Inside this block SIGTERM ends the work as Ctrl-C does: nothing half-written is left behind."""
    if threading.current_thread() is not threading.main_thread():  # where Python allows no handlers
        yield
        return

    def end(_number: int, _frame: object) -> None:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _invoke(arguments: list[str]) -> int:
    """Parse and call. Typer's own way to do this ends the process at a closed pipe."""
    command = typer.main.get_command(app)
    try:
        with command.make_context("headlights", arguments) as context:
            command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    return 0


def _ended_by(error: Exception, command: str) -> int:
    """The status for errors of the input and of the system; any other is a bug and keeps its traceback."""
    if isinstance(error, CommandError):  # unknown option or command, missing argument
        context = getattr(error, "ctx", None)
        message: str = error.format_message().rstrip(".") + _came(error)  # type: ignore[attr-defined]
        hint = "" if context is None else f" See: {context.command_path} --help"
        return _fail(message + (hint if message.endswith("?") else hint.replace(" See", "; see")))
    if isinstance(error, InputError):
        return _fail(str(error))
    if isinstance(error, OSError) and error.errno is not None:  # the system's word, not ours
        refused, place = _drop_output(), error.filename
        if place is None and refused is not None and refused.errno == error.errno:
            place = "standard output"
        return _fail(str(error.strerror) if place is None else f"{place}: {error.strerror}")
    if isinstance(error, ImportError) and not (error.name or "").startswith("headlights"):
        hint = "" if "pip install" in str(error) else "; pip install 'headlights[all]'"
        return _fail(f"{error}{hint}")
    if (line := memory_line(error, command)) is not None:
        return _fail(line)
    return _ended_by_training(error)


def _came(error: Exception) -> str:
    """What the user wrote, where pydantic checked it for typer: its reason alone does not say."""
    if not isinstance(error, typer.BadParameter) or error.__cause__ is None:
        return ""
    found: list[dict[str, Any]] = getattr(error.__cause__, "errors", list)()
    return f", got {found[0]['input']}" if found else ""


def _ended_by_training(error: Exception) -> int:
    from headlights.translation.corpus import CorpusError
    from headlights.translation.training import Interrupted, TrainingError

    if isinstance(error, Interrupted):
        _say(f"{error}; go on with: {error.again}")
        return 128 + error.signal
    if isinstance(error, CorpusError | TrainingError):
        return _fail(str(error))
    raise error


def _drop_output() -> OSError | None:
    """Send what standard output will not take nowhere, or Python complains at exit; its reason, if any."""
    try:
        sys.stdout.flush()
    except OSError as refused:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        return refused
    return None


def _fail(message: str) -> int:
    _say(message)
    return 2


def _say(message: str) -> None:
    with suppress(OSError):  # nobody listens
        print(f"headlights: {' '.join(message.split())}", file=sys.stderr, flush=True)
