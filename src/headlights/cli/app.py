"""The commands put together, and what becomes of their errors."""

import sys
from collections.abc import Sequence

import typer

from headlights._version import __version__
from headlights.cli import demo, evaluate, info, train, translate, view

app = typer.Typer(
    name="headlights",
    help="Attention you can see: train a translator on your own text, translate, and see where it looked.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (demo, train, translate, evaluate, view, info):
    app.command(name=module.__name__.rpartition(".")[2])(module.command)

# Typer's base class for mistakes on the command line, which it does not export.
CommandError: type[Exception] = next(k for k in typer.BadParameter.__mro__ if k.__name__ == "ClickException")


@app.callback()
def options(
    version: bool = typer.Option(False, "--version", help="Print the version and exit.", is_eager=True),
) -> None:
    """Attention you can see: train a translator on your own text, translate, and see where it looked."""
    if version:
        print(f"headlights {__version__}")
        raise typer.Exit


def run(arguments: Sequence[str]) -> int:
    """Run one command line.

    Args:
        arguments: What follows `headlights`.

    Returns:
        The exit status.
    """
    try:
        result = typer.main.get_command(app).main(
            list(arguments), prog_name="headlights", standalone_mode=False
        )
    except CommandError as error:  # unknown option or command, missing argument
        return _fail(error.format_message())  # type: ignore[attr-defined]
    except BrokenPipeError:
        return 0
    except OSError as error:
        return _fail(f"{error.filename or 'input or output'}: {error.strerror or error}")
    except KeyboardInterrupt:
        print("headlights: interrupted", file=sys.stderr)
        return 130
    except typer.Abort:
        return 130
    except Exception as error:
        return _known(error)
    return result if isinstance(result, int) else 0


def _known(error: Exception) -> int:
    """The status for errors that are the input's; anything else is ours and goes on with its traceback."""
    from headlights.translation.training import Interrupted, TrainingError

    if isinstance(error, Interrupted):
        print(
            f"headlights: {error}; go on with: headlights train --resume --out {error.run}", file=sys.stderr
        )
        return 128 + error.signal
    if isinstance(error, ValueError | TrainingError):
        return _fail(str(error))
    raise error


def _fail(message: str) -> int:
    print(f"headlights: {' '.join(message.split())}", file=sys.stderr)
    return 2
