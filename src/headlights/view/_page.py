"""Maps as one HTML page that needs nothing else: no network, no other file."""

import base64
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path

from headlights.view import _drawing
from headlights.view._arrays import Heads, Map, check_links, check_words, largest_weight, to_heads
from headlights.view._layout import Layout, lay_out
from headlights.view._maps import AttentionMap
from headlights.view._text import visible

_COLUMN = 900  # pixels; a wider picture gets the whole row of a page of several


@dataclass(frozen=True)
class Page:
    """A complete HTML document. A notebook shows it; elsewhere save it and open the file.

    Attributes:
        text: The document.
        height: About how many pixels it takes on a wide screen.
    """

    text: str
    height: int = 600

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the page as a UTF-8 file; an older file is replaced at once, never half.

        Args:
            path: Where to; its folder exists.

        Returns:
            The path.

        Raises:
            OSError: The file cannot be written.
        """
        return write_beside(Path(path), self.text.encode("utf-8"))

    def _repr_html_(self) -> str:
        """The page in a frame of its own, so that neither it nor the notebook can change the other."""
        return (
            f'<iframe srcdoc="{escape(self.text)}" sandbox="allow-scripts" width="100%" '
            f'height="{self.height}" frameborder="0" title="attention"></iframe>'
        )


def html(
    weights: object,
    source: Sequence[str],
    target: Sequence[str],
    *,
    title: str | None = None,
    links: Iterable[tuple[int, int]] = (),
) -> Page:
    """Draws one sentence pair as an interactive page: ribbons between the words, and the map.

    Pointing shows numbers; a click or the keyboard picks a word. With several heads the page opens with their
    mean, and small pictures of all of them pick one. Colours end at the largest weight of the map that is
    shown; ribbons below 1 % of the largest row sum are left out.

    Args:
        weights: Any array or nested lists, shape (N, M) or (L, H, N, M), finite and at least 0; or kept
            largest weights, an object with `values` and `indices` of shape (N, k) or (L, H, N, k), where
            index -1 marks an unused slot.
        source: M words (keys).
        target: N words (queries).
        title: The page's title. Default: none.
        links: Pairs (source word, target word), counted from 0, ringed in the map. Default: none.

    Returns:
        The page. Nothing is shown or written: `page.save("attention.html")` does that.

    Raises:
        ValueError: Shape and words do not fit, a number is negative or not finite, or a link points outside.
    """
    words = check_words(source, "source"), check_words(target, "target")
    pairs = check_links(links, len(words[1]), len(words[0]))
    return _document([_Item(to_heads(weights, len(words[1]), len(words[0])), *words, None, pairs)], title)


def page(maps: Iterable[AttentionMap], *, title: str | None = None) -> Page:
    """Draws several sentence pairs on one interactive page, each as `html` does and under its own title.

    Args:
        maps: What to draw, in order.
        title: The title of the page. Default: none.

    Returns:
        The page. Nothing is shown or written: `page.save("attention.html")` does that.
    """
    items = []
    for each in maps:
        N, M = len(each.target), len(each.source)
        heads = to_heads(each if each.weights is None else each.weights, N, M)
        items.append(_Item(heads, each.source, each.target, each.title, each.links))
    return _document(items, title)


def write_beside(path: Path, content: bytes) -> Path:
    """Writes a file beside `path` and renames it, so that `path` is never half a file."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)  # mkstemp's file is for its owner alone
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
    return path


@dataclass(frozen=True)
class _Item:
    heads: Heads
    source: tuple[str, ...]
    target: tuple[str, ...]
    title: str | None
    links: tuple[tuple[int, int], ...]

    def mean(self) -> Map:
        """The mean over all heads, rounded as the page's script reads it."""
        maps = [rows for layer in self.heads for rows in layer]
        return [
            [sum(weights) / len(maps) for weights in zip(*rows, strict=True)]
            for rows in zip(*maps, strict=True)
        ]


def _document(items: Sequence[_Item], title: str | None) -> Page:
    folder = files("headlights.view")
    script = (folder / "_page.js").read_text("utf-8")
    dark = f"@media screen and (prefers-color-scheme:dark){{{_drawing.palette(dark=True)}}}"
    style = (folder / "_page.css").read_text("utf-8") + _drawing.palette(dark=False) + dark
    cards, data, height = [], [], 140
    for item in items:
        layout = lay_out(item.source, item.target)
        cards.append(_card(item, layout))
        data.append(_data(item, layout) if item.source and item.target else None)
        height += int(layout.height) + 130
    name = _drawing.quote(visible(title)) if title else ""
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    main = '<main class="several">' if len(items) > 1 else "<main>"
    text = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{name or 'attention'}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        + (f"<h1><bdi>{name}</bdi></h1>\n" if name else "")
        + f"{main}\n{''.join(cards)}</main>\n"
        f'<script type="application/json" id="data">{json.dumps(data, separators=(",", ":"))}</script>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )
    return Page(text, min(height, 900))


def _card(item: _Item, layout: Layout) -> str:
    head = f"<h2><bdi>{_drawing.quote(visible(item.title))}</bdi></h2>\n" if item.title else ""
    if not item.source or not item.target:
        counts = f"{len(item.source)} source words, {len(item.target)} target words"
        return f'<section class="card">\n{head}<p class="empty">Nothing to draw: {counts}.</p>\n</section>\n'
    rows = item.mean()
    wide = " wide" if layout.width > _COLUMN else ""
    width, height = f"{layout.width:.0f}", f"{layout.height:.0f}"
    return (
        f'<section class="card{wide}">\n{head}<div class="heads"></div>\n<div class="scroll">'
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-size="{layout.font}">'
        f'<g class="ribbons">{_drawing.ribbons(layout, rows)}</g>'
        f'<g class="cells">{_drawing.cells(layout, rows)}</g>'
        f"{_drawing.rings(layout, item.links)}{_drawing.words(layout, item.source, item.target, pick=True)}"
        f"{_drawing.scale(layout, largest_weight(rows))}</svg></div>\n"
        '<p class="readout" aria-live="polite"></p>\n</section>\n'
    )


def _data(item: _Item, layout: Layout) -> dict[str, object]:
    """What the script reads: numbers only, so no word can end the block that holds them."""
    place = {
        "pitch": layout.pitch,
        "mapX": round(layout.map_x, 1),
        "mapY": round(layout.map_y, 1),
        "ribbonX": [round(x, 1) for x in layout.ribbon_x],
        "ribbonEnd": [round(x, 1) for x in layout.ribbon_end],
        "sourceY": [round(y, 1) for y in layout.source_y],
        "targetY": [round(y, 1) for y in layout.target_y],
    }
    heads = [[[[float(f"{w:.4g}") for w in row] for row in rows] for rows in layer] for layer in item.heads]
    return {"place": place, "heads": heads}


def _digest(text: str) -> str:
    """The hash by which the page's policy admits its own script and style, and no other."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
