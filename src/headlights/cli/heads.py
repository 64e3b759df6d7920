"""Which heads of a stack of maps are shown, and what a terminal says of maps that are too wide for it."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headlights._counted import counted
from headlights.cli.common import UsageError

if TYPE_CHECKING:
    from headlights.view import AttentionMap

MOST_DRAWN = 100
"""More words than this on a side are not drawn in a terminal."""

MOST_PICTURED = 400
"""Nor more than this in a picture of lines and letters."""


def pick_heads(attention: "AttentionMap", layer: int | None, head: int | None) -> "AttentionMap":
    """Keep what `--layer` and `--head` ask for.

    Args:
        attention: One map, or maps by layer and head.
        layer: Which layer, from 1; None: all.
        head: Which head of it, from 1; None: all.

    Returns:
        Maps by layer and head, as many as asked for, with their words, title and links.

    Raises:
        UsageError: There is no such layer or head, or a head of several layers is asked for.
    """
    from headlights import view

    arrays = {name: getattr(attention, name) for name in ("weights", "values", "indices")}
    arrays = {
        name: array[None, None] if array.ndim == 2 else array
        for name, array in arrays.items()
        if array is not None
    }
    L, H = next(iter(arrays.values())).shape[:2]
    for option, number, count in (("--layer", layer, L), ("--head", head, H)):
        if number is not None and number > count:
            raise UsageError(f"{option} {number}: there are {count}, counted from 1")
    if head is not None and layer is None and L > 1:
        there = f"there are {L} layers of {counted(H, 'head')}"
        raise UsageError(f"--head {head}: needs --layer beside it; {there}")
    layers, heads = (slice(None) if number is None else slice(number - 1, number) for number in (layer, head))
    picked = {name: array[layers, heads] for name, array in arrays.items()}
    return view.AttentionMap(
        attention.source, attention.target, title=attention.title, links=attention.links, **picked
    )


def single_map(attention: "AttentionMap") -> Any:
    """The map of a single head, as `headlights.view` draws it.

    Args:
        attention: Arrays (L, H, N, M), or (L, H, N, k) of the largest weights.

    Returns:
        An array (N, M), or a map of (N, k); None if there are several heads.
    """
    from headlights import view

    weights, values, indices = attention.weights, attention.values, attention.indices
    if (values if weights is None else weights).shape[:2] != (1, 1):
        return None
    if weights is not None:
        return weights[0, 0]
    return view.AttentionMap(attention.source, attention.target, values=values[0, 0], indices=indices[0, 0])


def mean_map(attention: "AttentionMap") -> Any:
    """The mean of maps by layer and head, as `headlights.view` draws it.

    Args:
        attention: Arrays (L, H, N, M), or (L, H, N, k) of the largest weights.

    Returns:
        An array (N, M); of kept largest weights of a single head, a map of (N, k).
    """
    import numpy as np

    single = single_map(attention)
    if single is not None:
        return single
    if attention.weights is not None:
        return attention.weights.mean((0, 1))
    L, H, N, k = attention.values.shape
    values, indices = attention.values.reshape(L * H, N, k), attention.indices.reshape(L * H, N, k)
    # One dense map in all, not one a head; -1, an unused slot, falls into a last column that is cut off.
    total = np.zeros((N, len(attention.source) + 1), dtype=values.dtype)
    rows = np.arange(N)[:, None]
    for kept, places in zip(values, indices, strict=True):
        np.add.at(total, (rows, places), kept)
    return total[:, :-1] / (L * H)


def is_wide(attention: "AttentionMap") -> bool:
    """Whether a map has too many words for a terminal."""
    return max(len(attention.source), len(attention.target)) > MOST_DRAWN


def print_summary(attention: "AttentionMap") -> None:
    """Say, in place of a map, how sharply each head looks.

    Args:
        attention: Arrays (L, H, N, M), or (L, H, N, k) of the largest weights.
    """
    from headlights.cli.tables import print_table

    weights = attention.values if attention.weights is None else attention.weights
    L, H = weights.shape[:2]
    N, M = len(attention.target), len(attention.source)
    print(f"{N} × {M} words in {L} × {H} heads: too many to draw here; a page shows them: --html FILE")
    print("the largest weight of a row, its mean in each head, in %")
    sharpness = weights.max(-1, initial=0).mean(-1)
    columns = max((shutil.get_terminal_size((80, 24)).columns - 8) // 6, 1)
    for first in range(0, H, columns):
        heads = range(first, min(first + columns, H))
        table = [("layer", *(f"h{head + 1}" for head in heads))]
        table += [
            (str(layer + 1), *(f"{100 * sharpness[layer, head]:.1f}" for head in heads)) for layer in range(L)
        ]
        print_table(table)


def check_drawable(attention: "AttentionMap", path: Path | None, option: str) -> None:
    """Refuse a picture of more words than a picture can show.

    Args:
        attention: What is to be drawn.
        path: The picture's file; None: there will be none.
        option: What the user calls it.

    Raises:
        UsageError: There are too many.
    """
    N, M = len(attention.target), len(attention.source)
    if path is not None and max(N, M) > MOST_PICTURED:
        raise UsageError(
            f"{option} {path}: {N} × {M} words are too many for a picture with each word; expected at most "
            f"{MOST_PICTURED} a side; write a page with --html"
        )
