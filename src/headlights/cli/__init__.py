"""The command `headlights`: parses, calls, prints. One file per command."""

import importlib.util
import io
import sys

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
    sys.exit(run(sys.argv[1:]))
