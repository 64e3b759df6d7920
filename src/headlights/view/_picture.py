"""One map as a static SVG picture, for a README or a paper: no script, no font file, no matplotlib."""

from collections.abc import Iterable, Sequence

from headlights.view import _drawing
from headlights.view._arrays import check_links, check_words, largest_weight, to_map
from headlights.view._layout import PAD, lay_out, text_width
from headlights.view._text import visible

_STYLE = (
    "text{font-family:Inter,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;white-space:pre}"
    ".paper{fill:#fffdf8;stroke:#e4dfd2}.title{font:600 20px Georgia,'Times New Roman',serif;fill:#23262d}"
    ".word{fill:#2b2e36}.caption{font-size:10px;letter-spacing:1.4px;text-transform:uppercase;fill:#8a867c}"
    ".swatch{shape-rendering:crispEdges}.scale{font-size:10.5px;fill:#8a867c}.link{fill:none;stroke:#d1495b;stroke-width:1.6}"
)


def svg(
    weights: object,
    source: Sequence[str],
    target: Sequence[str],
    *,
    title: str | None = None,
    links: Iterable[tuple[int, int]] = (),
) -> str:
    """Draws an attention map, and ribbons between the two sentences, as one static SVG picture.

    Read it from left to right: ribbons flow from the source words to the target words, as thick as the
    weights are large, and each target word opens its row of the map. Ribbons below 1 % of the largest row sum
    are left out. The picture has its own paper, so it is the same on light and dark pages.

    Args:
        weights: Any array or nested lists, shape (N, M), finite and at least 0; or kept largest weights, an
            object with `values` and `indices` of shape (N, k), where index -1 marks an unused slot.
        source: M words (keys).
        target: N words (queries).
        title: A line above the picture. Default: none.
        links: Pairs (source word, target word), counted from 0, ringed in the map. Default: none.

    Returns:
        The text of an SVG file. It uses no script, no address but the SVG namespace, and system fonts.

    Raises:
        ValueError: Shape and words do not fit, a number is negative or not finite, or a link points outside.
    """
    source, target = check_words(source, "source"), check_words(target, "target")
    rows = to_map(weights, len(target), len(source))
    pairs = check_links(links, len(target), len(source))
    layout = lay_out(source, target, top=30.0 if title else 0.0)
    head = f'<text class="title" x="{PAD}" y="42">{_drawing.quote(visible(title))}</text>' if title else ""
    width = f"{max(layout.width, text_width(title or '', 22) + 2 * PAD):.0f}"
    height = f"{layout.height:.0f}"
    name = _drawing.quote(visible(title or "attention map"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{name}" '
        f'width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
        f"<style>{_STYLE}.word{{font-size:{layout.font}px}}{_drawing.palette(dark=False)}</style>"
        f'<rect class="paper" x="1" y="1" rx="14" width="{int(width) - 2}" height="{int(height) - 2}"/>'
        f"{head}{_drawing.ribbons(layout, rows)}{_drawing.cells(layout, rows)}{_drawing.rings(layout, pairs)}"
        f"{_drawing.words(layout, source, target, pick=False)}"
        f"{_drawing.scale(layout, largest_weight(rows))}</svg>\n"
    )
