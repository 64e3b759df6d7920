"""The cards of a page: each one sentence pair with all its weights, or a large map that its script draws."""

from dataclasses import asdict, dataclass

from headlights.view import _drawing
from headlights.view._arrays import Heads, Map, largest_weight, to_heads
from headlights.view._colours import hue_colours, map_colours
from headlights.view._layout import Layout, lay_out
from headlights.view._packed import is_large, pack
from headlights.view._text import label, visible

_NO_SCRIPT = '<p class="empty">A map of this size is drawn by a script, which this browser does not run.</p>'
_COLUMN = 900  # pixels; a wider picture gets the whole row of a page of several


@dataclass(frozen=True)
class Item:
    """Attention with checked words, as `html` and `page` are given it."""

    weights: object
    source: tuple[str, ...]
    target: tuple[str, ...]
    title: str | None
    links: tuple[tuple[int, int], ...]

    def is_large(self) -> bool:
        """Whether the card's script draws it from its largest weights."""
        drawn = bool(self.source and self.target)
        return drawn and is_large(self.weights, len(self.target), len(self.source))


@dataclass(frozen=True)
class Card:
    """A card as HTML, what the script reads for it (None: nothing), and its height in pixels."""

    text: str
    data: dict[str, object] | None
    height: int


def draw(item: Item, *, share: int = 1) -> Card:
    """Makes the card of one map.

    Args:
        item: The weights and words.
        share: How many large maps the page has.

    Returns:
        The card.

    Raises:
        ValueError: Weights and words do not fit, or a number is negative or not finite.
        ImportError: The map is large and NumPy is not installed.
    """
    N, M = len(item.target), len(item.source)
    head = f"<h2><bdi>{_drawing.quote(visible(item.title))}</bdi></h2>\n" if item.title else ""
    if item.is_large():
        text = f'<section class="card wide explorer">\n{head}<noscript>{_NO_SCRIPT}</noscript>\n</section>\n'
        return Card(text, _large_data(item, share), 760)
    heads = to_heads(item.weights, N, M)
    if not N or not M:
        counts = f"{M} source words, {N} target words"
        text = f'<section class="card">\n{head}<p class="empty">Nothing to draw: {counts}.</p>\n</section>\n'
        return Card(text, None, 60)
    return _sentence_card(item, heads, head)


def _sentence_card(item: Item, heads: Heads, head: str) -> Card:
    layout, rows = lay_out(item.source, item.target), _mean(heads)
    wide = " wide" if layout.width > _COLUMN else ""
    width, height = f"{layout.width:.0f}", f"{layout.height:.0f}"
    text = (
        f'<section class="card{wide}">\n{head}<div class="heads"></div>\n<div class="scroll">'
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-size="{layout.font}">'
        f'<g class="ribbons">{_drawing.ribbons(layout, rows)}</g>'
        f'<g class="cells">{_drawing.cells(layout, rows)}</g>'
        f"{_drawing.rings(layout, item.links)}{_drawing.words(layout, item.source, item.target, pick=True)}"
        f"{_drawing.scale(layout, largest_weight(rows))}</svg></div>\n"
        '<p class="readout" aria-live="polite"></p>\n</section>\n'
    )
    return Card(text, _data(heads, layout), int(layout.height))


def _mean(heads: Heads) -> Map:
    """The mean over all heads, as the page's script computes it."""
    maps = [rows for layer in heads for rows in layer]
    return [
        [sum(weights) / len(maps) for weights in zip(*rows, strict=True)] for rows in zip(*maps, strict=True)
    ]


def _large_data(item: Item, share: int) -> dict[str, object]:
    packed = pack(item.weights, len(item.target), len(item.source), share=share)
    source, target = ([label(word) for word in words] for words in (item.source, item.target))
    return {
        "source": source,
        "target": None if source == target else target,
        "links": item.links,
        "packed": asdict(packed),
        "colours": [map_colours(dark=dark) for dark in (False, True)],
        "hues": [hue_colours(dark=dark) for dark in (False, True)],
    }


def _data(heads: Heads, layout: Layout) -> dict[str, object]:
    place = {
        "pitch": layout.pitch,
        "mapX": round(layout.map_x, 1),
        "mapY": round(layout.map_y, 1),
        "ribbonX": [round(x, 1) for x in layout.ribbon_x],
        "ribbonEnd": [round(x, 1) for x in layout.ribbon_end],
        "sourceY": [round(y, 1) for y in layout.source_y],
        "targetY": [round(y, 1) for y in layout.target_y],
    }
    numbers = [[[[float(f"{w:.4g}") for w in row] for row in rows] for rows in layer] for layer in heads]
    return {"place": place, "heads": numbers}
