"""One map as a matplotlib figure: attention, or word links."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headlights.view._arrays import check_links, check_words
from headlights.view._colours import map_colours
from headlights.view._sheet import (
    LINK,
    Frame,
    draw_bar,
    draw_cells,
    draw_frame,
    draw_notes,
    frame_map,
    map_step,
    nothing_to_draw,
    scale_to,
    tile_notes,
)
from headlights.view._tiles import Stack, read_stack

Pairs = tuple[tuple[int, int], ...]

_DARK = map_colours(dark=False)[-1]
_MANY = 2000  # marks; more are drawn as dots in SVG and PDF


def matrix(
    weights: object,
    source: Sequence[str],
    target: Sequence[str],
    *,
    title: str | None = None,
    links: Iterable[tuple[int, int]] = (),
) -> Figure:
    """Draws one attention map as a matplotlib figure: rows are target words, columns source words.

    The figure is as large as its content asks for. Where words do not fit, every 2nd, 5th, 10th … is
    labelled, with its number counted from 1. A map finer than the dots of the figure is drawn in tiles, each
    the largest weight in it, and a line below says so; save it at 100 dots to the inch or more. A character
    that no installed font has is drawn as a box; matplotlib before 3.11 draws right-to-left words from the
    left.

    Args:
        weights: Any array or nested lists, shape (N, M), finite and at least 0; or kept largest weights, an
            object with `values` and `indices` of shape (N, k), where index -1 marks an unused slot. Those are
            never made dense.
        source: M words (keys).
        target: N words (queries).
        title: A line above the map. Default: none.
        links: Pairs (source word, target word), counted from 0, ringed in the map. Default: none.

    Returns:
        The figure, made without pyplot: `figure.savefig("map.png")`, also SVG and PDF; a notebook shows it.

    Raises:
        ValueError: Shape and words do not fit, a number is negative or not finite, or a link points outside.
        TypeError: Words are no strings, or weights no numbers.
    """
    found, stack = read_stack(weights, source, target)
    pairs = check_links(links, len(found.target), len(found.source))
    _check_one(stack)
    return _draw(stack, found.source, found.target, title, pairs, ())


def alignment(
    links: Iterable[tuple[int, int]],
    source: Sequence[str],
    target: Sequence[str],
    weights: object = None,
    *,
    possible: Iterable[tuple[int, int]] = (),
    title: str | None = None,
) -> Figure:
    """Draws word links as a matplotlib figure: a grid with a mark where words translate each other.

    Without weights sure links are filled squares and possible ones hollow; with weights, which shade the
    grid, they are rings, whole and dotted.

    Args:
        links: Pairs (source word, target word), counted from 0.
        source: The words of the source sentence, M of them.
        target: The words of the target sentence, N of them.
        weights: Attention to shade the grid with, as `matrix` takes it. Default: none.
        possible: Links that are neither required nor wrong; pairs like `links`. Default: none.
        title: A line above the grid. Default: none.

    Returns:
        The figure, made without pyplot.

    Raises:
        ValueError: A link points outside its sentence, or `matrix` refuses the weights.
        TypeError: Words are no strings, or weights no numbers.
    """
    words = check_words(source, "source"), check_words(target, "target")
    N, M = len(words[1]), len(words[0])
    sure, maybe = check_links(links, N, M), check_links(possible, N, M)
    stack = None
    if weights is not None:
        _, stack = read_stack(weights, *words)
        _check_one(stack)
    return _draw(stack, *words, title, sure, tuple(pair for pair in maybe if pair not in set(sure)))


def _check_one(stack: Stack) -> None:
    L, H, N, M = stack.shape
    if L * H != 1:
        raise ValueError(
            f"weights: expected shape ({N}, {M}), got {L} layers of {H} heads; "
            "pick one as weights[layer, head], average them, or draw all with view.heads"
        )


def _draw(
    stack: Stack | None,
    source: Sequence[str],
    target: Sequence[str],
    title: str | None,
    sure: Pairs,
    possible: Pairs,
) -> Figure:
    N, M = len(target), len(source)
    if not N or not M:
        return nothing_to_draw(f"{M} source words, {N} target words", title)
    shade = stack is not None
    step = map_step(N, M)
    notes = tile_notes(step) if shade else []
    if possible:
        notes.append(("○ sure   ◌ possible", LINK) if shade else ("■ sure   □ possible", _DARK))
    frame = frame_map(target, source, title, notes=notes, bar=shade)
    figure, axes = draw_frame(frame, ("target", "source"))
    tiles = stack.tiles(0, 0, step) if stack else np.zeros((-(-N // step[0]), -(-M // step[1])))
    drawn = draw_cells(axes, tiles, frame, scale_to(stack.largest() if stack else 0.0))
    if shade:
        draw_bar(figure, (frame.x + frame.width, frame.y), frame.height, drawn, "weight")
        _rings(axes, frame, sure, "-")
        _rings(axes, frame, possible, ":")
    else:
        _squares(axes, frame, sure, filled=True)
        _squares(axes, frame, possible, filled=False)
    draw_notes(figure, frame, notes)
    return figure


def _rings(axes: Axes, frame: Frame, links: Pairs, line: str) -> None:
    if links:
        _marks(axes, frame, links, 0.6).set(
            facecolor="none", edgecolor=LINK, linestyle=line, linewidth=min(max(frame.pitch * 4, 0.5), 1.4)
        )


def _squares(axes: Axes, frame: Frame, links: Pairs, *, filled: bool) -> None:
    if links:
        _marks(axes, frame, links, 0.62, marker="s").set(
            facecolor=_DARK if filled else "none",
            edgecolor=_DARK,
            linewidth=min(max(frame.pitch * 3, 0.3), 1.0),
        )


def _marks(axes: Axes, frame: Frame, links: Pairs, share: float, marker: str = "o") -> Any:
    """A mark in the middle of each linked cell, `share` of it wide but never too small to see."""
    points = max(frame.pitch * 72 * share, 1.6)
    x, y = [j + 0.5 for j, _ in links], [i + 0.5 for _, i in links]
    return axes.scatter(x, y, s=points**2, marker=marker, clip_on=False, rasterized=len(links) > _MANY)
