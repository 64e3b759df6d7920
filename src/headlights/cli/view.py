"""`headlights view`: where a translator looked, in the terminal and as a page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headlights.cli.common import Beam, Device, Threads, check_device, set_threads

if TYPE_CHECKING:
    from headlights.view import AttentionMap


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

    set_threads(threads)
    if model.is_file():
        if sentence is not None or target is not None:
            raise ValueError(
                f"{model} is a file of weights: it takes no sentence; expected a model folder for that"
            )
        attention = view.load_attention(model)
    else:
        attention = _translate(model, sentence, target, beam, check_device(device))
    shown = _flat(attention)
    print(view.terminal(shown, attention.source, attention.target, color=color))
    if attention.links:
        print()
        print(view.alignment_text(attention.links, attention.source, attention.target))
    if html is not None:
        print(f"page: {view.page([attention]).save(html)}")
    if svg is not None:
        svg.write_text(view.svg(shown, attention.source, attention.target), encoding="utf-8")
        print(f"picture: {svg}")
    if save is not None:
        print(f"weights: {view.save_attention(save, attention)}")


def _translate(
    model: Path, sentence: str | None, target: str | None, beam: int, device: str | None
) -> "AttentionMap":
    """Attention between the words of a sentence and of its translation."""
    from headlights import view
    from headlights.translation.translator import Translator

    if sentence is None or not sentence.strip():
        raise ValueError("view needs a sentence to translate: headlights view MODEL 'A sentence.'")
    translator = Translator.load(model, device=device)
    if target is None:
        (found,) = translator.translate([sentence], beam=beam)
    else:
        (found,) = translator.align([sentence], [target])
    if found.weights is None:
        raise ValueError(f"{model} was trained without attention: there is nothing to view")
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
