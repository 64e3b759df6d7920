"""Write what was measured into `docs/benchmarks.md`, between markers, and the pictures beside it."""

from collections.abc import Sequence
from pathlib import Path

from headlights._errors import InputError
from headlights.bench import plots, report
from headlights.bench.run import Run

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
PAGE = "benchmarks.md"


def check_page(folder: Path) -> tuple[str, str]:
    """Find the page and where the figures go, before anything is measured.

    Args:
        folder: The docs folder.

    Returns:
        The page's text up to the first marker and from the second one on, both included.

    Raises:
        InputError: The page is missing or has not both markers.
    """
    page = folder / PAGE
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise InputError(f"--docs {folder}: expected {PAGE} in it, with the lines {BEGIN} and {END}")
    return before + begin, end + after


def write_page(folder: Path, runs: Sequence[Run]) -> None:
    """Put tables and pictures where the markers are.

    Args:
        folder: The docs folder, which holds the page.
        runs: What was measured.

    Raises:
        InputError: The page is missing or has not both markers.
    """
    before, after = check_page(folder)
    parts = [before]
    for run in runs:
        parts += _parts(folder, run)
    (folder / PAGE).write_text("\n\n".join([*parts, after]), encoding="utf-8")


def _parts(folder: Path, run: Run) -> list[str]:
    parts = [f"{report.sentence(run.setting)} The whole run took {run.seconds / 60:.1f} minutes."]
    if run.rows:
        parts.append(report.long_table(run.rows))
    if run.sweep:
        dtype = str(run.setting.place.dtype).removeprefix("torch.")
        picture = f"benchmarks-{dtype}.svg"
        parts += [
            f"A self-attention layer (1, N, 512), 8 heads, {dtype}:",
            f"![time and memory against N, both axes logarithmic]({picture})",
            "Time of a call:",
            report.sweep_table(run, report.time_text),
            "Peak memory:",
            report.sweep_table(run, report.memory_text),
        ]
        with (folder / picture).open("wb") as file:
            plots.plot(run, file, "svg")
    return parts
