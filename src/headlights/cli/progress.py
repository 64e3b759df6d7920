"""How far a command is: a bar on a terminal, a line now and then elsewhere, both on standard error."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headlights.cli.common import note

Tell = Callable[[str, int, int | None], None]
"""Told what is being done, how many things are done, and of how many, None if nobody knows."""

EVERY = 15.0  # seconds between lines


@contextmanager
def progress(things: str, *, bar: bool = True) -> Iterator[Tell]:
    """Show how far a command is while it works.

    Args:
        things: What is counted, in the plural.
        bar: Draw a bar where standard error is a terminal; not while output runs over the same screen.

    Yields:
        To be told, now and then.
    """
    if not (bar and sys.stderr.isatty()):
        yield _lines(things)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as drawn:
        task = drawn.add_task(things, total=None)
        yield lambda work, done, total: drawn.update(
            task, description=f"{work} {things}", completed=done, total=total
        )


def _lines(things: str) -> Tell:
    last = time.monotonic()

    def tell(work: str, done: int, total: int | None) -> None:
        nonlocal last
        if time.monotonic() - last >= EVERY:
            last = time.monotonic()
            note(f"{work} {things}: {done:,}" + ("" if total is None else f" of {total:,}"))

    return tell
