"""The parts of a picture as SVG elements: words, ribbons, cells, links and the scale."""

from collections.abc import Iterable, Sequence
from html import escape

from headlights.view._arrays import Map, largest_weight
from headlights.view._colours import HUES, LEVELS, hue, hue_colours, level, map_colours
from headlights.view._layout import Layout
from headlights.view._text import label

THINNEST = 0.01  # of the largest row sum; thinner ribbons are not drawn


def quote(text: str) -> str:
    """Escapes text for HTML and SVG, also in attributes; slashes too, so that no file holds an address."""
    return escape(text).replace("/", "&#47;")


def words(layout: Layout, source: Sequence[str], target: Sequence[str], *, pick: bool) -> str:
    """The words of both sentences and the words above the map, each one text element.

    Args:
        layout: Where they stand.
        source: M words, in full; a tooltip shows those that the layout has shortened.
        target: N words, in full.
        pick: Whether words can be picked with the keyboard and the pointer.

    Returns:
        SVG elements.
    """
    parts = []
    angle, middle = layout.angle, layout.font * 0.35

    def word(side: str, index: int, full: str, text: str, place: str) -> None:
        button = f' data-side="{side}" data-index="{index}"' if pick else ""
        more = f"<title>{quote(label(full))}</title>" if text != label(full) else ""
        parts.append(f'<text class="word {side}"{button} {place}>{more}{quote(text)}</text>')

    stop = (
        ' tabindex="0" role="button"' if pick else ""
    )  # the keyboard stops at a word once, not again above the map
    for j, (full, text) in enumerate(zip(source, layout.source, strict=True)):
        y = layout.source_y[j] + middle
        word("source", j, full, text, f'x="{layout.source_x:.1f}" y="{y:.1f}" text-anchor="end"{stop}')
        x = layout.map_x + (j + 0.5) * layout.pitch
        turn = f'transform="translate({x + middle * 0.7:.1f} {layout.map_y - 7:.1f}) rotate(-{angle})"'
        word("source", j, full, text, turn)
    for i, (full, text) in enumerate(zip(target, layout.target, strict=True)):
        y = layout.target_y[i] + middle
        word("target", i, full, text, f'x="{layout.target_x:.1f}" y="{y:.1f}" text-anchor="end"{stop}')
    caption = '<text class="caption" x="{:.1f}" y="{:.1f}" text-anchor="end">{}</text>'
    if source:
        parts.append(caption.format(layout.source_x, layout.source_y[0] - layout.pitch / 2 - 10, "source"))
    if target:
        parts.append(caption.format(layout.target_x, layout.map_y - 10, "target"))
    return "".join(parts)


def cells(layout: Layout, rows: Map) -> str:
    """The map: a plate, and one path for all the cells of a level.

    Args:
        layout: Where the map stands.
        rows: N rows of M weights.

    Returns:
        SVG elements; classes `c1`, `c2`, … are the levels.
    """
    largest, pitch = largest_weight(rows), layout.pitch
    size = pitch - (1.5 if pitch > 18 else 0.8)
    squares: dict[int, list[str]] = {}
    for i, row in enumerate(rows):
        for j, weight in enumerate(row):
            x, y = layout.map_x + j * pitch, layout.map_y + i * pitch
            square = f"M{x:.1f} {y:.1f}h{size:.1f}v{size:.1f}h-{size:.1f}z"
            squares.setdefault(level(weight, largest), []).append(square)
    return "".join(f'<path class="c{step}" d="{"".join(squares[step])}"/>' for step in sorted(squares))


def ribbons(layout: Layout, rows: Map) -> str:
    """The flow between the sentences: a ribbon for each weight, as thick as the weight is large.

    At a word ribbons stand beside each other in the order of their other ends; where they would be wider than
    the word's line they overlap.

    Args:
        layout: Where the words stand.
        rows: N rows of M weights.

    Returns:
        SVG paths, the faintest first; classes `h0`, `h1`, … follow the target sentence.
    """
    N, M = len(rows), len(layout.source)
    scale = max((sum(row) for row in rows), default=0.0) or 1.0
    unit = layout.pitch * 0.7 / scale
    shown = [(i, j) for i in range(N) for j in range(M) if rows[i][j] >= THINNEST * scale]
    received = [sum(rows[i][j] for i in range(N) if rows[i][j] >= THINNEST * scale) * unit for j in range(M)]
    given = [sum(w for w in row if w >= THINNEST * scale) * unit for row in rows]
    squeeze = [min(1.0, layout.pitch * 0.86 / total) if total else 1.0 for total in received]
    used_source, used_target = [0.0] * M, [0.0] * N
    paths = []
    for i, j in shown:
        thick = rows[i][j] * unit
        y1 = layout.source_y[j] + (used_source[j] + thick / 2 - received[j] / 2) * squeeze[j]
        y2 = layout.target_y[i] + used_target[i] + thick / 2 - given[i] / 2
        used_source[j] += thick
        used_target[i] += thick
        path = ribbon(layout.ribbon_x, layout.ribbon_end[i], (y1, y2), thick)
        opacity = 0.3 + 0.58 * rows[i][j] / scale
        attributes = f'class="ribbon h{hue(i, N)}" data-row="{i}" data-column="{j}" opacity="{opacity:.2f}"'
        paths.append((thick, f'<path {attributes} d="{path}"/>'))
    return "".join(path for _, path in sorted(paths, key=lambda pair: pair[0]))


def ribbon(across: tuple[float, float], end: float, heights: tuple[float, float], thick: float) -> str:
    """The outline of one ribbon: a curve from one height to the other, then straight to `end`."""
    (x1, x2), (y1, y2), half = across, heights, thick / 2
    mid = f"{(x1 + x2) / 2:.1f}"
    left, right = (f"{y1 - half:.2f}", f"{y1 + half:.2f}"), (f"{y2 - half:.2f}", f"{y2 + half:.2f}")
    return (
        f"M{x1:.1f} {left[0]}C{mid} {left[0]} {mid} {right[0]} {x2:.1f} {right[0]}H{end:.1f}V{right[1]}"
        f"H{x2:.1f}C{mid} {right[1]} {mid} {left[1]} {x1:.1f} {left[1]}Z"
    )


def rings(layout: Layout, links: Iterable[tuple[int, int]]) -> str:
    """A ring in the map's cell of each link (source word, target word)."""
    radius = layout.pitch * 0.27
    circle = '<circle class="link" cx="{:.1f}" cy="{:.1f}" r="{:.1f}"/>'
    middle = layout.pitch / 2 - 0.7
    return "".join(
        circle.format(
            layout.map_x + j * layout.pitch + middle, layout.map_y + i * layout.pitch + middle, radius
        )
        for j, i in links
    )


def scale(layout: Layout, largest: float) -> str:
    """The bar below the map that says what its colours mean."""
    x, y, bar = layout.map_x, layout.map_y + layout.map_height + 14, 120.0
    step = bar / LEVELS
    swatches = "".join(
        f'<rect class="swatch c{n}" x="{x + n * step:.2f}" y="{y:.1f}" width="{step + 0.3:.2f}" height="7"/>'
        for n in range(LEVELS)
    )
    text = '<text class="scale{}" x="{:.1f}" y="{:.1f}"{}>{}</text>'
    return (
        swatches
        + text.format("", x, y + 20, "", "0")
        + text.format(" largest", x + bar, y + 20, ' text-anchor="end"', f"{largest:.3g}")
    )


def palette(*, dark: bool) -> str:
    """CSS rules that give the classes `c…` of cells and `h…` of ribbons their colours."""
    colours, hues = map_colours(dark=dark), hue_colours(dark=dark)
    rules = [f".c{step}{{fill:{colours[step]}}}" for step in range(LEVELS)]
    return "".join(rules + [f".h{step}{{fill:{hues[step]}}}" for step in range(HUES)])
