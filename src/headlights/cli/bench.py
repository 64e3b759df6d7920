"""`headlights bench`: time and memory of attention beside its peers, on this machine."""

import json
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headlights.cli.common import Device, Threads, UsageError, check_device, check_output, note, set_threads

if TYPE_CHECKING:
    from headlights.bench.run import Run
    from headlights.bench.running import Setting


class Subject(StrEnum):
    """What can be measured."""

    ATTENTION = "attention"


class Dtype(StrEnum):
    """In which type."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


def command(
    _what: Annotated[
        Subject, typer.Argument(metavar="attention", help="What to measure.")
    ] = Subject.ATTENTION,
    rows: Annotated[
        str | None, typer.Option(help="Measure these rows only: names with commas; 'sweep' is the last.")
    ] = None,
    crossover: Annotated[
        bool, typer.Option("--crossover", help="Measure instead where attend() should change its path.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Toy sizes in a few seconds, to see that everything runs.")
    ] = False,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write all figures.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the table of ours against theirs.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write the picture of the sweep: .svg or .png.")] = None,
    docs: Annotated[
        Path | None, typer.Option(help="Write tables and pictures into benchmarks.md of this folder.")
    ] = None,
    dtype: Annotated[Dtype | None, typer.Option(help="Default: float32, on a GPU both.")] = None,
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Time and memory of attention, ours and its peers', side by side."""
    for path, option in ((json_path, "--json"), (markdown, "--markdown"), (plot, "--plot")):
        check_output(path, option)
    if plot is not None and plot.suffix not in (".svg", ".png"):
        raise UsageError(f"--plot {plot}: expected a name that ends in .svg or .png")
    for path, option in ((plot, "--plot"), (docs, "--docs")):
        if path is not None and find_spec("matplotlib") is None:
            raise UsageError(f"{option} draws with matplotlib: pip install 'headlights[view]'")
    set_threads(threads)
    settings = _settings(check_device(device), dtype, quick)
    if crossover:
        _crossover(settings[0], json_path or markdown or plot or docs or rows)
        return
    chosen = _chosen(rows)
    if plot is not None and "sweep" not in chosen:
        raise UsageError(f"--plot draws the sweep, which --rows {rows} leaves out; add sweep to it")
    if docs is not None:
        from headlights.bench.pages import check_page

        check_page(docs)
    from headlights.bench.run import measure

    runs = [measure(chosen, setting, note) for setting in settings]
    _print(runs)
    _write(runs, json_path, markdown, plot, docs)
    wrong = [name for run in runs for name in run.wrong()]
    if wrong:
        note(f"headlights: wrong results, not timed: {'; '.join(wrong)}")
        raise typer.Exit(1)


def _settings(device: str | None, dtype: Dtype | None, quick: bool) -> "list[Setting]":
    """One for each type that is to be measured."""
    import torch

    from headlights.bench.contestant import Place
    from headlights.bench.running import Setting

    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    both = [torch.float32, torch.bfloat16] if where.type == "cuda" else [torch.float32]
    dtypes = both if dtype is None else [getattr(torch, dtype.value)]
    seconds = 0.0 if quick else 3.0
    return [Setting(Place(where, each), torch.get_num_threads(), quick, seconds) for each in dtypes]


def _chosen(rows: str | None) -> list[str]:
    """The names of the rows to measure."""
    from headlights.bench.run import row_names

    known = row_names()
    names = known if rows is None else [name.strip() for name in rows.split(",")]
    for name in names:
        if name not in known:
            raise UsageError(f"--rows {name}: expected some of {', '.join(known)}")
    return names


def _print(runs: "list[Run]") -> None:
    from headlights.bench import report

    for run in runs:
        print(report.sentence(run.setting))
        if run.rows:
            print(report.table(run.rows))
        if run.sweep:
            print(report.table(run.sweep))
        print(f"The whole run took {run.seconds:.0f} s.")


def _write(
    runs: "list[Run]", json_path: Path | None, markdown: Path | None, plot: Path | None, docs: Path | None
) -> None:
    from headlights.bench import pages, plots, report
    from headlights.translation.folders import replace_file

    if json_path is not None:
        with replace_file(json_path) as file:
            file.write(json.dumps([report.content(run) for run in runs], indent=1) + "\n")
    if markdown is not None:
        with replace_file(markdown) as file:
            tables = [f"{report.short_table(run.rows)}\n\n{report.sentence(run.setting)}\n" for run in runs]
            file.write("\n".join(tables))
    if plot is not None:
        with replace_file(plot) as file:
            plots.plot(runs[0], file.buffer, plot.suffix[1:])
    if docs is not None:
        pages.write_page(docs, runs)


def _crossover(setting: "Setting", unused: object) -> None:
    from headlights.bench.crossover import measure_crossovers, table

    if unused is not None:
        raise UsageError(
            "--crossover prints its table and takes none of --rows, --json, --markdown, --plot, --docs"
        )
    from headlights.bench.report import sentence

    print(sentence(setting))
    print(table(measure_crossovers(setting, note)))
