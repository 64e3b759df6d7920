"""Options and small services that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model folder, or the run folder of a training.")
]
Device = Annotated[
    str | None, typer.Option(help="Where to compute, e.g. cpu or cuda. Default: a GPU if there is one.")
]
Threads = Annotated[int | None, typer.Option(min=1, help="Processor threads. Default: torch's choice.")]
Beam = Annotated[int, typer.Option(min=1, help="Hypotheses kept per sentence; 1 is greedy.")]
Source = Annotated[Path | None, typer.Option("--source", help="Source text, a sentence a line (.gz too).")]
Target = Annotated[Path | None, typer.Option("--target", help="Target text, line by line its translation.")]
Pairs = Annotated[
    Path | None, typer.Option("--pairs", help="Source and target in one file: .tsv or .jsonl (.gz too).")
]


def set_threads(threads: int | None) -> None:
    """Limit torch to that many threads, if any number is given."""
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


def check_device(device: str | None) -> str | None:
    """The device as given, if torch knows it and it is there.

    Args:
        device: A name such as "cpu" or "cuda:0"; None: torch's choice.

    Returns:
        The same.

    Raises:
        ValueError: torch does not know it or cannot use it here.
    """
    if device is not None:
        import torch

        try:
            torch.empty(1, device=device)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).partition("\n")[0]
            raise ValueError(f"--device {device}: cannot be used here ({reason}); try --device cpu") from None
    return device


def paths_of(
    source: Path | None, target: Path | None, pairs: Path | None, prefix: str = "--"
) -> tuple[str, ...]:
    """The files that hold sentence pairs: one of pairs, or a source and a target file, or none.

    Args:
        source: Source text.
        target: Target text.
        pairs: Both in one file.
        prefix: How the options begin, for messages.

    Returns:
        Their names.

    Raises:
        ValueError: Both ways at once, or one side only.
    """
    if pairs is not None and (source is not None or target is not None):
        raise ValueError(f"give either {prefix}pairs or {prefix}source and {prefix}target, not both")
    if (source is None) != (target is None):
        given, missing = ("source", "target") if target is None else ("target", "source")
        raise ValueError(
            f"{prefix}{given} needs {prefix}{missing} beside it: line n of one translates line n of the other"
        )
    return tuple(str(path) for path in (pairs, source, target) if path is not None)
