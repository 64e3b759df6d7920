"""Maps as one HTML page that needs nothing else: no network, no other file."""

import base64
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from html import escape
from importlib.resources import files
from pathlib import Path

from headlights.view import _drawing
from headlights.view._arrays import Heads, Map, check_links, check_words, largest_weight, to_heads
from headlights.view._colours import hue_colours, map_colours
from headlights.view._layout import Layout, lay_out
from headlights.view._maps import AttentionMap
from headlights.view._packed import Packed, is_large, pack
from headlights.view._text import label, visible

_EXPLORER = ("_sparse.js", "_raster.js", "_map.js", "_overview.js", "_token.js", "_explorer.js")
_NO_SCRIPT = '<p class="empty">A map of this size is drawn by a script, which this browser does not run.</p>'
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
    return _document(_read([_Given(weights, *words, None, pairs)]), title)


def page(maps: Iterable[AttentionMap], *, title: str | None = None) -> Page:
    """Draws several sentence pairs on one interactive page, each as `html` does and under its own title.

    Args:
        maps: What to draw, in order.
        title: The title of the page. Default: none.

    Returns:
        The page. Nothing is shown or written: `page.save("attention.html")` does that.
    """
    given = [
        _Given(
            each if each.weights is None else each.weights, each.source, each.target, each.title, each.links
        )
        for each in maps
    ]
    return _document(_read(given), title)


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
class _Given:
    weights: object
    source: tuple[str, ...]
    target: tuple[str, ...]
    title: str | None
    links: tuple[tuple[int, int], ...]

    def is_large(self) -> bool:
        return bool(self.source and self.target) and is_large(
            self.weights, len(self.target), len(self.source)
        )


@dataclass(frozen=True)
class _Item:
    """What a card shows: all the weights of a sentence, or the packed ones of a large map."""

    heads: Heads | Packed
    source: tuple[str, ...]
    target: tuple[str, ...]
    title: str | None
    links: tuple[tuple[int, int], ...]


def _read(given: Sequence[_Given]) -> list[_Item]:
    share = sum(each.is_large() for each in given)
    items = []
    for each in given:
        N, M = len(each.target), len(each.source)
        heads: Heads | Packed
        heads = pack(each.weights, N, M, share=share) if each.is_large() else to_heads(each.weights, N, M)
        items.append(_Item(heads, each.source, each.target, each.title, each.links))
    return items


def _document(items: Sequence[_Item], title: str | None) -> Page:
    large = any(isinstance(item.heads, Packed) for item in items)
    script = _text_of("_page.js", *(_EXPLORER if large else ()), "_start.js")
    style = _text_of("_page.css", *(("_explorer.css",) if large else ())) + _drawing.palette(dark=False)
    style += f"@media screen and (prefers-color-scheme:dark){{{_drawing.palette(dark=True)}}}"
    cards, data, height = [], [], 140
    for item in items:
        card, numbers, pixels = _card(item)
        cards.append(card)
        data.append(numbers)
        height += pixels + 130
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
        f'<script type="application/json" id="data">{_json(data)}</script>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )
    return Page(text, min(height, 900))


def _text_of(*names: str) -> str:
    folder = files("headlights.view")
    return "".join((folder / name).read_text("utf-8") for name in names)


def _json(data: object) -> str:
    """JSON that no word can end, and in which no word is an address."""
    text = json.dumps(data, separators=(",", ":")).replace("//", "/\\u002f")
    return text.translate({ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&"})


def _card(item: _Item) -> tuple[str, dict[str, object] | None, int]:
    """A card as HTML, what the script reads for it, and its height in pixels."""
    head = f"<h2><bdi>{_drawing.quote(visible(item.title))}</bdi></h2>\n" if item.title else ""
    if not item.source or not item.target:
        counts = f"{len(item.source)} source words, {len(item.target)} target words"
        empty = f'<section class="card">\n{head}<p class="empty">Nothing to draw: {counts}.</p>\n</section>\n'
        return empty, None, 60
    if isinstance(item.heads, Packed):
        card = f'<section class="card wide explorer">\n{head}<noscript>{_NO_SCRIPT}</noscript>\n</section>\n'
        return card, _large_data(item, item.heads), 760
    return _sentence_card(item, item.heads, head)


def _sentence_card(item: _Item, heads: Heads, head: str) -> tuple[str, dict[str, object], int]:
    layout, rows = lay_out(item.source, item.target), _mean(heads)
    wide = " wide" if layout.width > _COLUMN else ""
    width, height = f"{layout.width:.0f}", f"{layout.height:.0f}"
    card = (
        f'<section class="card{wide}">\n{head}<div class="heads"></div>\n<div class="scroll">'
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-size="{layout.font}">'
        f'<g class="ribbons">{_drawing.ribbons(layout, rows)}</g>'
        f'<g class="cells">{_drawing.cells(layout, rows)}</g>'
        f"{_drawing.rings(layout, item.links)}{_drawing.words(layout, item.source, item.target, pick=True)}"
        f"{_drawing.scale(layout, largest_weight(rows))}</svg></div>\n"
        '<p class="readout" aria-live="polite"></p>\n</section>\n'
    )
    return card, _data(heads, layout), int(layout.height)


def _mean(heads: Heads) -> Map:
    """The mean over all heads, as the page's script computes it."""
    maps = [rows for layer in heads for rows in layer]
    return [
        [sum(weights) / len(maps) for weights in zip(*rows, strict=True)] for rows in zip(*maps, strict=True)
    ]


def _large_data(item: _Item, packed: Packed) -> dict[str, object]:
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


def _digest(text: str) -> str:
    """The hash by which the page's policy admits its own script and style, and no other."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
