"""`headlights view`: where a translator looked, in the terminal and as a page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headlights.cli.common import (
    Beam,
    Device,
    Threads,
    UsageError,
    check_device,
    check_output,
    check_text,
    set_threads,
)

if TYPE_CHECKING:
    from headlights.view import AttentionMap

_FORMATS = (".json", ".npz", ".safetensors")


def command(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A model or run folder, or a file of attention weights.")
    ],
    sentence: Annotated[
        str | None, typer.Argument(help="What to translate; not for a file of weights.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Force this translation instead of searching for one.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page to open in a browser, offline.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Write a picture.")] = None,
    save: Annotated[
        Path | None, typer.Option(help="Write the weights themselves: .json, .npz or .safetensors.")
    ] = None,
    color: Annotated[bool | None, typer.Option("--color/--no-color", help="Default: on a terminal.")] = None,
    beam: Beam = 5,
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Draw the attention of a translation."""
    from headlights import view
    from headlights.translation.folders import replace_file

    set_threads(threads)
    for path, option in ((html, "--html"), (svg, "--svg"), (save, "--save")):
        check_output(path, option)
    if save is not None and save.suffix not in _FORMATS:
        raise UsageError(f"--save {save}: expected a name that ends in {', '.join(_FORMATS)}")
    if model.is_file():
        attention = _read(model, sentence, target)
    else:
        attention = _translate(model, sentence, target, beam, check_device(device))
    shown = _flat(attention)
    print(view.terminal(shown, attention.source, attention.target, color=color))
    if attention.links:
        print()
        print(view.alignment_text(attention.links, attention.source, attention.target))
    if html is not None:
        with replace_file(html) as file:
            file.write(view.page([attention]).text)
        print(f"page: {html}")
    if svg is not None:
        with replace_file(svg) as file:
            file.write(view.svg(shown, attention.source, attention.target))
        print(f"picture: {svg}")
    if save is not None:
        _save(save, attention)
        print(f"weights: {save}")


def _read(path: Path, sentence: str | None, target: str | None) -> "AttentionMap":
    """Attention from a file of weights."""
    from headlights import view

    if sentence is not None or target is not None:
        raise UsageError(
            f"{path} is a file of weights: it takes no sentence; expected a model folder for that"
        )
    try:
        return view.load_attention(path)
    except ValueError as error:  # one line that names the file
        raise UsageError(str(error)) from None


def _save(path: Path, attention: "AttentionMap") -> None:
    from headlights import view

    try:
        view.save_attention(path, attention)
    except OSError as error:  # names a file beside it, or none
        raise UsageError(f"--save {path}: cannot be written: {error.strerror}") from None
    except ValueError as error:  # a word that the format cannot hold
        raise UsageError(f"--save {path}: {error}") from None


def _translate(
    model: Path, sentence: str | None, target: str | None, beam: int, device: str | None
) -> "AttentionMap":
    """Attention between the words of a sentence and of its translation."""
    from headlights import view
    from headlights.translation.corpus import is_blank
    from headlights.translation.translator import Translator

    for text, name in ((sentence, "SENTENCE"), (target, "--target")):
        if text is not None:
            check_text(text, name)
    if sentence is None or is_blank(sentence):
        raise UsageError("view needs a sentence to translate: headlights view MODEL 'A sentence.'")
    if target is not None and is_blank(target):
        raise UsageError("--target is blank: expected a translation of the sentence")
    translator = Translator.load(model, device=device)
    if target is None:
        (found,) = translator.translate([sentence], beam=beam)
    else:
        (found,) = translator.align([sentence], [target])
    if found.weights is None:
        raise UsageError(f"{model} was trained without attention: there is nothing to view")
    title = f"{sentence} → {found.text}"
    return view.AttentionMap(
        found.source_words, found.words, weights=found.weights, title=title, links=found.alignment
    )


def _flat(attention: "AttentionMap") -> Any:
    """One map (N, M): the mean over layers and heads where there are several."""
    import numpy as np

    if attention.weights is not None:
        return attention.weights if attention.weights.ndim == 2 else attention.weights.mean((0, 1))
    if attention.values.ndim == 2:
        return attention
    dense = np.zeros((*attention.values.shape[:-1], len(attention.source) + 1))
    np.put_along_axis(
        dense, attention.indices, attention.values, -1
    )  # -1, an unused slot, falls into the last column
    return dense[..., :-1].mean((0, 1))
