"""How widely each head looks, as a matplotlib figure."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from headlights.view._arrays import check_words
from headlights.view._labels import written
from headlights.view._maps import to_numpy
from headlights.view._sheet import (
    FAINT,
    INK,
    draw_bar,
    draw_cells,
    draw_frame,
    draw_notes,
    frame_map,
    map_step,
    nothing_to_draw,
    scale_to,
)
from headlights.view._tiles import Stack

_CLOSE = 1.001  # entropies may pass their bound by rounding


def entropy(
    values: object, target: Sequence[str] | None = None, *, M: int | None = None, title: str | None = None
) -> Figure:
    """Draws how widely each head looks, in nats, as a matplotlib figure.

    0 is a head that looks at one word, ln M one that looks at all M alike, which is where the colours end if
    M is known. Without words a cell is a head, layers down and heads across, with its mean over all queries;
    with words a row is a head and a column a query.

    Args:
        values: Entropies in nats, shape (L, H, N), as `observations.Entropy` gives them for each layer; or
            weights, shape (L, H, N, M), whose rows are taken as shares of their sum (a row of zeros has
            entropy 0). Any array or nested lists, or a list of one array a layer.
        target: N words (queries). Default: means over them.
        M: Keys, beside entropies. Default: not known; the colours end at the largest entropy.
        title: A line above the map. Default: none.

    Returns:
        The figure, made without pyplot.

    Raises:
        ValueError: The shape is another, a number is negative or not finite, or an entropy is above ln M.
        TypeError: Words are no strings, or `values` no numbers.
    """
    found, M = _read_entropies(values, M)
    L, H, N = found.shape
    words = None if target is None else check_words(target, "target")
    if words is not None and len(words) != N:
        raise ValueError(f"target: expected {N} words for entropies of shape {found.shape}, got {len(words)}")
    if not N or not L or not H:
        return nothing_to_draw(f"{L} layers of {H} heads, {N} target words", title)
    table = found.mean(-1) if words is None else found.reshape(L * H, N)
    rows = [str(layer + 1) for layer in range(L)] if words is None else _head_names(L, H)
    columns = [str(head + 1) for head in range(H)] if words is None else words
    note = "0: looks at one word" + (f";  ln {M} = {math.log(M):.2f}: at all alike" if M else "")
    frame = frame_map(rows, columns, title, notes=[(note, FAINT)])
    figure, axes = draw_frame(frame, ("layer", "head") if words is None else ("head", "target"))
    step = map_step(*table.shape)
    norm = scale_to(math.log(M) if M else float(table.max()))
    drawn = draw_cells(axes, Stack(table[None, None], None, table.shape[1]).tiles(0, 0, step), frame, norm)
    draw_bar(figure, (frame.x + frame.width, frame.y), frame.height, drawn, "entropy (nats)")
    draw_notes(figure, frame, [(note, FAINT)])
    if frame.pitch >= 0.3:
        for (i, j), number in np.ndenumerate(table):
            text = written(f"{number:.2f}", 7.5)
            color = "white" if norm(number) > 0.6 else INK
            axes.text(j + 0.5, i + 0.5, text.text, ha="center", va="center", color=color, **text.style())
    return figure


def _read_entropies(values: object, M: int | None) -> tuple[Any, int | None]:
    if getattr(values, "indices", None) is not None and not callable(getattr(values, "indices", None)):
        raise ValueError(
            "values: expected entropies or whole weights, got kept largest weights, which lack the rest; "
            "observe observations.Entropy()"
        )
    if isinstance(values, list | tuple):
        values = [to_numpy(each, "values") for each in values]
    found = to_numpy(values, "values").astype(np.float64)
    if found.ndim not in (3, 4):
        raise ValueError(
            "values: expected entropies of shape (L, H, N) or weights of shape (L, H, N, M), "
            f"got {found.shape}"
        )
    bad = ~(np.isfinite(found) & (found >= 0))
    if bad.any():
        raise ValueError(f"values: expected finite numbers of at least 0, got {float(found[bad][0])!r}")
    if found.ndim == 4:
        if M is not None and found.shape[-1] != M:
            raise ValueError(f"M: expected {found.shape[-1]} for weights of shape {found.shape}, got {M}")
        return _entropies(found), found.shape[-1] or None
    if M is not None and M < 1:
        raise ValueError(f"M: expected at least 1 key, got {M}")
    largest = float(found.max()) if found.size else 0.0
    if M is not None and largest > math.log(M) * _CLOSE + 1e-6:
        raise ValueError(
            f"values: expected entropies in nats of at most ln {M} = {math.log(M):.4g}, got {largest:.4g}; "
            "bits are nats / ln 2"
        )
    return found, M


def _entropies(weights: Any) -> Any:
    """Entropies in nats of rows taken as shares, shape (..., N, M) to (..., N)."""
    total = weights.sum(-1, keepdims=True)
    shares = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    logs = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    return np.maximum(-(shares * logs).sum(-1), 0.0)


def _head_names(L: int, H: int) -> list[str]:
    if L == 1:
        return [f"head {head + 1}" for head in range(H)]
    return [f"layer {layer + 1} head {head + 1}" for layer in range(L) for head in range(H)]
