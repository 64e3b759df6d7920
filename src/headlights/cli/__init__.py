"""The command `headlights`: parses, calls, prints. One file per command."""

import importlib.util
import io
import os
import sys
from contextlib import suppress
from typing import NoReturn

NEEDED = ("typer", "rich", "pydantic", "tokenizers", "safetensors", "sacrebleu", "tomli_w", "numpy")


def main() -> None:
    """Run the command line and exit with its status, or with 2 where a package is missing; see `app.run`."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(
            f"headlights: the command needs {', '.join(missing)}: pip install 'headlights[translate]'",
            file=sys.stderr,
        )
        sys.exit(2)
    if isinstance(sys.stdout, io.TextIOWrapper):  # text goes out as it comes in, whatever the locale
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    try:
        from headlights.cli.app import run
    except KeyboardInterrupt:
        sys.exit(130)
    leave(run(sys.argv[1:]))


def leave(status: int) -> NoReturn:
    """End the process; if it is one of several that train together, without taking Python apart before.

    Threads of torch.distributed may still be letting go of tensors, for which they need Python; where that is
    on its way out already they are ended in the middle, and with them, by an abort, the process.

    Args:
        status: Of the exit.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        sys.exit(status)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # nobody reads it
            stream.flush()
    os._exit(status)
