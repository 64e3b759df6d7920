"""Words in matplotlib figures: fonts that have their characters, and as many as there is room for."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from matplotlib.font_manager import FontProperties, fontManager, get_font
from matplotlib.ft2font import FT2Font
from matplotlib.text import Text
from matplotlib.textpath import text_to_path

from headlights.view._text import cell_width, clusters, label

FAMILY = "DejaVu Sans"
"""Comes with matplotlib, so a picture looks the same everywhere; other fonts only give what it lacks."""

LINE = 1.3
"""Height of a line of text, in font sizes."""

MISSING = "□"
"""Stands for a character that no installed font has."""

_LONGEST = 24  # terminal columns of a label before its middle is left out
_SMALLEST, _LARGEST = 6.5, 10.0  # points
_NICE = (1, 2, 5)


@dataclass(frozen=True)
class Label:
    """What is written for a word: its text, the font families that have its characters, and its width."""

    text: str
    families: tuple[str, ...]
    size: float

    @property
    def width(self) -> float:
        """Inches from left to right."""
        font = FontProperties(family=list(self.families), size=self.size)
        return float(text_to_path.get_text_width_height_descent(self.text, font, False)[0]) / 72

    def style(self) -> dict[str, Any]:
        """Properties of a matplotlib text; a dollar sign is a dollar sign."""
        return {"family": list(self.families), "size": self.size, "parse_math": False, "usetex": False}

    def put_on(self, text: Text) -> None:
        """Gives a matplotlib text these properties."""
        text.set(**self.style())


@dataclass(frozen=True)
class Side:
    """The labels of one side of a map.

    Attributes:
        places: The words that are labelled, from 0.
        labels: Their labels.
        angle: Degrees, anticlockwise.
        numbered: Whether words were left out, and the others bear their numbers.
        room: Inches from the map to the far end of the labels.
    """

    places: tuple[int, ...]
    labels: tuple[Label, ...]
    angle: int
    numbered: bool
    room: float

    def turn(self) -> dict[str, Any]:
        """Properties of a matplotlib text that stands above the map at this angle."""
        across = "center" if self.angle == 0 else "left"
        upright = "center" if self.angle == 90 else "bottom"
        return {"rotation": self.angle, "rotation_mode": "anchor", "ha": across, "va": upright}

    def number_width(self) -> float:
        """Inches that the numbers take beside the map; 0 if there are none."""
        return (
            len(str(self.places[-1] + 1)) * 0.62 * self.labels[0].size / 72 + 0.05 if self.numbered else 0.0
        )


def font_size(pitch: float) -> float:
    """Points of labels whose lines are `pitch` inches apart, within what can be read."""
    return min(max(pitch * 72 * 0.68, _SMALLEST), _LARGEST)


def rows_side(words: Sequence[str], pitch: float) -> Side:
    """Labels to the left of a map.

    Args:
        words: All of them, in full.
        pitch: Inches from one row to the next.

    Returns:
        As many as can stand below each other.
    """
    return _side(words, pitch, font_size(pitch), 0, font_size(pitch) * LINE / 72)


def columns_side(words: Sequence[str], pitch: float) -> Side:
    """Labels above a map: level if all fit, slanted if there is room, else upright.

    Args:
        words: All of them, in full.
        pitch: Inches from one column to the next.

    Returns:
        As many as can stand beside each other.
    """
    size = font_size(pitch)
    line = size * LINE / 72
    if pitch >= line * 1.42:
        level = _side(words, pitch, size, 0, pitch)
        if max(each.width for each in level.labels) <= pitch - 0.08:
            return Side(level.places, level.labels, 0, False, line)
        return _side(words, pitch, size, 45, pitch)
    return _side(words, pitch, size, 90, line)


def _side(words: Sequence[str], pitch: float, size: float, angle: int, apart: float) -> Side:
    step = nice_step(apart / pitch)
    places = tuple(range(step - 1, len(words), step)) or (0,)
    labels = tuple(labels_of([words[place] for place in places], size))
    side = Side(places, labels, angle, len(places) < len(words), 0.0)
    longest = max(each.width for each in labels) + side.number_width()
    room = longest * 0.71 + size / 72 if angle == 45 else longest
    return Side(places, labels, angle, side.numbered, room)


def nice_step(least: float) -> int:
    """The smallest of 1, 2, 5, 10, 20, 50, … that is not below `least`, but for rounding."""
    scale = 1
    while True:
        for digit in _NICE:
            if digit * scale >= least - 1e-6:
                return digit * scale
        scale *= 10


def labels_of(words: Iterable[str], size: float) -> list[Label]:
    """Labels for words: nothing invisible, nothing longer than a line, and a font for each character.

    Args:
        words: In full.
        size: Points.

    Returns:
        One label a word, in order.
    """
    texts = [shorten(label(word), _LONGEST) for word in words]
    return [_written(text, size) for text in texts]


def written(text: str, size: float, width: float = float("inf")) -> Label:
    """One label for a title or a note, which is as long as it is, or shortened to `width` inches."""
    found = _written(label(text), size)
    longest = cell_width(found.text)
    while found.width > width and longest > 4:
        longest -= 2
        found = _written(shorten(label(text), longest), size)
    return found


def shorten(text: str, width: int) -> str:
    """Leaves out the middle of a long text: beginnings and endings tell words apart.

    Args:
        text: Any string without control characters.
        width: Terminal columns, at least 3.

    Returns:
        `text`, or its beginning, an ellipsis and its end, at most `width` columns wide.
    """
    if cell_width(text) <= width:
        return text
    parts = list(clusters(text))
    head, tail, room = "", "", width - 1
    while parts:
        part = parts.pop(0) if cell_width(head) <= cell_width(tail) else parts.pop()
        room -= cell_width(part)
        if room < 0:
            break
        if cell_width(head) <= cell_width(tail):
            head += part
        else:
            tail = part + tail
    return f"{head}…{tail}"


def _written(text: str, size: float) -> Label:
    """Finds the families; what is drawn as one, such as an emoji, is missing as one."""
    odd = frozenset(text).difference(_homes(frozenset(text), (FAMILY,)))
    if not odd:
        return Label(text, (FAMILY,), size)
    homes = _homes(odd, None)
    lost = odd.difference(homes)
    shown = "".join(MISSING if lost.intersection(part) else part for part in clusters(text))
    families = dict.fromkeys(homes[character] for character in shown if character in homes)
    return Label(shown, (FAMILY, *families), size)


@lru_cache(1024)
def _homes(characters: frozenset[str], families: tuple[str, ...] | None) -> dict[str, str]:
    """A font family for each character that has one among `families`, or among all plain fonts."""
    homes: dict[str, str] = {}
    wanted = set(characters)
    for family, path in _plain_fonts():
        if not wanted:
            break
        if families is not None and family not in families:
            continue
        font = get_font(path) if families else FT2Font(path)
        found = {character for character in wanted if font.get_char_index(ord(character))}
        homes |= dict.fromkeys(found, family)
        wanted -= found
    return homes


@lru_cache(1)
def _plain_fonts() -> tuple[tuple[str, str], ...]:
    """Families and files: upright and of normal weight, sans-serif first; not the signs of mathematics."""
    plain = {
        str(font.fname): str(font.name)
        for font in reversed(fontManager.ttflist)
        if font.style == "normal" and font.weight == 400 and font.size == "scalable"
        if not font.name.startswith(("cm", "Last Resort", "STIX"))
    }
    ranked = sorted(((name, path) for path, name in plain.items()), key=lambda font: _rank(font[0]))
    return tuple(ranked)


def _rank(family: str) -> tuple[bool, bool, bool, str]:
    return family != FAMILY, "Sans" not in family, "Mono" in family, family
