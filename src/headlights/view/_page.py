"""Maps as one HTML page that needs nothing else: no network, no other file."""

import base64
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path

from headlights.view import _drawing
from headlights.view._arrays import check_links, check_words
from headlights.view._cards import Item, draw
from headlights.view._maps import AttentionMap
from headlights.view._text import visible

_EXPLORER = ("_sparse.js", "_raster.js", "_labels.js", "_map.js", "_overview.js", "_token.js", "_explorer.js")


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
    """Draws attention as an interactive page: ribbons between the words of sentences, and the map.

    Pointing shows numbers; a click or the keyboard picks a word. With several heads the page opens with their
    mean, and small pictures of all of them pick one. Colours end at the largest weight of the map that is
    shown; ribbons below 1 % of the largest row sum are left out.

    More than 64 words, or 300,000 weights, make a large map to move in. It opens with the first head, finds
    tokens, and holds the largest weights of each row: all that are given if the page then stays under 20 MiB,
    and of whole arrays a million in all, or 16 of each row. The page says how many. NumPy (extra `translate`)
    reads it, head by head; the zeros between kept weights never take memory.

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
        ImportError: The map is large and NumPy is not installed.
    """
    words = check_words(source, "source"), check_words(target, "target")
    pairs = check_links(links, len(words[1]), len(words[0]))
    return _document([Item(weights, *words, None, pairs)], title)


def page(maps: Iterable[AttentionMap], *, title: str | None = None) -> Page:
    """Draws several maps on one interactive page, each as `html` does and under its own title.

    Short sentences stand side by side where the window is wide enough: so alternatives of one source do.

    Args:
        maps: What to draw, in order.
        title: The title of the page. Default: none.

    Returns:
        The page. Nothing is shown or written: `page.save("attention.html")` does that.
    """
    items = [
        Item(each if each.weights is None else each.weights, each.source, each.target, each.title, each.links)
        for each in maps
    ]
    return _document(items, title)


def write_beside(path: Path, content: bytes) -> Path:
    """Writes a file beside `path` and renames it, so that `path` is never half a file.

    A link stays a link and an old file keeps its mode; what is no file (a pipe, /dev/null) is written to.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return path
    place = path.resolve()
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(name, _mode(place))  # mkstemp's file is for its owner alone
        os.replace(name, place)
    except BaseException:
        os.unlink(name)
        raise
    return path


def _mode(place: Path) -> int:
    """The mode of the file that is there, or of a new one."""
    if place.exists():
        return stat.S_IMODE(place.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _document(items: Sequence[Item], title: str | None) -> Page:
    large = sum(item.is_large() for item in items)
    cards = [draw(item, share=large) for item in items]
    script = _text_of("_page.js", *(_EXPLORER if large else ()), "_start.js")
    style = _text_of("_page.css", *(("_explorer.css",) if large else ())) + _drawing.palette(dark=False)
    style += f"@media screen and (prefers-color-scheme:dark){{{_drawing.palette(dark=True)}}}"
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
        + f"{main}\n{''.join(card.text for card in cards)}</main>\n"
        f'<script type="application/json" id="data">{_json([card.data for card in cards])}</script>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )
    return Page(text, min(140 + sum(card.height + 130 for card in cards), 900))


def _text_of(*names: str) -> str:
    folder = files("headlights.view")
    return "".join((folder / name).read_text("utf-8") for name in names)


def _json(data: object) -> str:
    """JSON that no word can end, and in which no word is an address."""
    text = json.dumps(data, separators=(",", ":")).replace("//", "/\\u002f")
    return text.translate({ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&"})


def _digest(text: str) -> str:
    """The hash by which the page's policy admits its own script and style, and no other."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
