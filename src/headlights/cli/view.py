"""`headlights view`: where a model looked, in the terminal, as a page, as a picture and as a file."""

import webbrowser
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Annotated

import typer

from headlights.cli.attention_output import save_map
from headlights.cli.common import (
    Device,
    Threads,
    UsageError,
    check_device,
    check_output,
    note,
    set_threads,
)
from headlights.cli.heads import check_drawable, is_wide, mean_map, pick_heads, print_summary, single_map
from headlights.cli.sources import FORMATS, find_maps, read_text, say_line
from headlights.cli.watching import PARTS, SHORT, TOP, Reading

if TYPE_CHECKING:
    from headlights.view import AttentionMap


_ENDINGS = {"html": (".html", ".htm"), "svg": (".svg",), "png": (".png",), "pdf": (".pdf",)}
"""How the names of pictures end, unless they have no ending (a pipe)."""


def command(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            help="A model or run folder, a Hugging Face model folder, or a file of attention weights.",
        ),
    ],
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="What the model reads; not for a file of weights.")
    ] = None,
    text_file: Annotated[
        Path | None, typer.Option(help="Read TEXT from a file; - is standard input.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Force this translation instead of searching for one.")
    ] = None,
    layer: Annotated[
        int | None, typer.Option(min=1, help="Draw this layer, from 1. Default: the mean of all.")
    ] = None,
    head: Annotated[
        int | None, typer.Option(min=1, help="Draw this head, from 1. Default: the mean of all.")
    ] = None,
    sentence: Annotated[
        int | None,
        typer.Option(
            min=1, help="Of a .jsonl file, take this line, from 1. Default: all; the first is drawn."
        ),
    ] = None,
    part: Annotated[
        str | None,
        typer.Option(
            help=f"Of an encoder–decoder model, draw and save {', '.join(PARTS)}; the first unless asked."
        ),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=f"Keep a row's largest weights, so many. Default: all up to {SHORT} tokens, then {TOP}.",
        ),
    ] = None,
    keep_all: Annotated[bool, typer.Option("--all", help="Keep all weights, also of a long text.")] = False,
    truncate: Annotated[bool, typer.Option("--truncate", help="Cut what is too long for the model.")] = False,
    html: Annotated[
        Path | None, typer.Option(help="Write a page with all heads, to open in a browser, offline.")
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open that page in the browser.")] = False,
    svg: Annotated[Path | None, typer.Option(help="Write a picture of what is drawn.")] = None,
    png: Annotated[
        Path | None, typer.Option(help="Write a figure; of several heads each is drawn, not the mean.")
    ] = None,
    pdf: Annotated[Path | None, typer.Option(help="Write that figure for print.")] = None,
    save: Annotated[
        Path | None, typer.Option(help="Write the weights themselves: .json, .npz or .safetensors.")
    ] = None,
    color: Annotated[bool | None, typer.Option("--color/--no-color", help="Default: on a terminal.")] = None,
    beam: Annotated[
        int | None, typer.Option(min=1, help="Hypotheses kept per sentence; 1 is greedy. Default: 5.")
    ] = None,
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Draw the attention of a translation, or of a Hugging Face model over a text."""
    set_threads(threads)
    figures = {kind: path for kind, path in (("png", png), ("pdf", pdf)) if path is not None}
    _check_outputs({"html": html, "svg": svg, "save": save, **figures}, model, text_file)
    if figures:
        from headlights.view import heads, matrix  # noqa: F401 (says before the work what is not installed)
    if save is not None and save.suffix not in FORMATS:
        raise UsageError(f"--save {save}: expected a name that ends in {', '.join(FORMATS)}")
    if top is not None and keep_all:
        raise UsageError("give either --top or --all, not both")
    if part is not None and part not in PARTS:
        raise UsageError(f"--part {part}: expected one of {', '.join(PARTS)}")
    reading = Reading(
        text=read_text(text, text_file),
        target=target,
        top=0 if keep_all else top,
        truncate=truncate,
        beam=beam,
        device=check_device(device),
        sentence=sentence,
        threads=threads,
    )
    _check_part(part, model, there=not model.is_file())
    maps = find_maps(model, reading)
    _check_part(part, model, there=len(maps) > 1)
    attention = maps[part or next(iter(maps))]
    shown = pick_heads(attention, layer, head)
    check_drawable(shown, svg, "--svg")
    say_line(maps, reading)
    _print(shown, color)
    if html is not None or open_page:
        _write_page(list(maps.values()), html, open_page)
    if svg is not None:
        _write_picture(shown, svg)
    for kind, path in figures.items():
        _write_figure(shown, path, kind)
    if save is not None:
        save_map(save, attention, "--save")
        print(f"weights: {save}")


def _check_outputs(paths: dict[str, Path | None], *inputs: Path | None) -> None:
    taken: dict[Path, str] = {}
    for option, path in paths.items():
        check_output(path, f"--{option}", *inputs)
        kinds = _ENDINGS.get(option)
        if path is not None and kinds and path.suffix.lower() not in ("", *kinds):
            raise UsageError(f"--{option} {path}: expected a name that ends in {' or '.join(kinds)}")
        if path is not None and (other := taken.setdefault(path.resolve(), option)) != option:
            raise UsageError(f"--{option} {path}: --{other} writes this file too; give each its own name")


def _check_part(part: str | None, model: Path, *, there: bool) -> None:
    if part is not None and not there:
        raise UsageError(f"--part {part}: {model} is no encoder–decoder model of Hugging Face's")


def _print(shown: "AttentionMap", color: bool | None) -> None:
    from headlights import view

    if is_wide(shown):
        print_summary(shown)
        return
    print(view.terminal(mean_map(shown), shown.source, shown.target, color=color))
    if shown.links:
        print()
        print(view.alignment_text(shown.links, shown.source, shown.target))


def _write_page(maps: "list[AttentionMap]", path: Path | None, open_page: bool) -> None:
    from headlights import view
    from headlights.translation.folders import replace_file

    place = path or Path(mkdtemp(prefix="headlights-")) / "attention.html"
    with replace_file(place) as file:
        file.write(view.page(maps).text)
    print(f"page: {place}")
    if open_page and not webbrowser.open(place.absolute().as_uri()):
        note(f"--open: found no browser; open {place} in one")


def _write_picture(shown: "AttentionMap", path: Path) -> None:
    from headlights import view
    from headlights.translation.folders import replace_file

    with replace_file(path) as file:
        file.write(view.svg(mean_map(shown), shown.source, shown.target))
    print(f"picture: {path}")


def _write_figure(shown: "AttentionMap", path: Path, kind: str) -> None:
    """One map with its links, or each of several heads."""
    from headlights import view
    from headlights.translation.folders import replace_file

    whole = single_map(shown)
    if whole is None:
        weights = shown if shown.weights is None else shown.weights
        figure = view.heads(weights, shown.source, shown.target, title=shown.title)
    else:
        figure = view.matrix(whole, shown.source, shown.target, title=shown.title, links=shown.links)
    with replace_file(path) as file:
        figure.savefig(file.buffer, format=kind)
    print(f"figure: {path}")
