"""The command `headlights`: parses, calls, prints. One file per command."""

import importlib.util
import os
import sys

NEEDED = ("typer", "rich", "pydantic", "tokenizers", "safetensors", "sacrebleu", "tomli_w", "numpy")


def main() -> None:
    """Run the command line and exit: 0 done, 2 wrong input, 130 and 143 interrupted."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(
            f"headlights: the command needs {', '.join(missing)}: pip install 'headlights[translate]'",
            file=sys.stderr,
        )
        sys.exit(2)
    from headlights.cli.app import run

    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has left; without this Python complains again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)
