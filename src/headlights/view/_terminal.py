"""Attention and alignments as text, for a terminal or a log."""

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise

from headlights.view._arrays import check_links, check_words, largest_weight, to_map
from headlights.view._colours import LEVELS, level, map_colours, to_rgb
from headlights.view._text import cell_width, clip, is_right_to_left, label

_SHADES = " ░▒▓█"
_LEFT_TO_RIGHT = "\u200e"  # keeps the cells beside a right-to-left word in their order; takes no column
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_MIN_WIDTH = 20


def terminal(
    weights: object,
    source: Sequence[str],
    target: Sequence[str],
    *,
    color: bool | None = None,
    width: int | None = None,
    numbers: bool = False,
) -> str:
    """Draws an attention map as text: a row for each target word, a column for each source word.

    Columns bear their words if they fit; otherwise numbers, counted from 1, with a legend below. A map wider
    than the terminal continues in further panels. Shades end at the largest weight of the map, which the last
    line says.

    Args:
        weights: Any array or nested lists, shape (N, M), finite and at least 0; or kept largest weights, an
            object with `values` and `indices` of shape (N, k), where index -1 marks an unused slot.
        source: M words (keys).
        target: N words (queries).
        color: Whether to colour cells by 24-bit escape sequences. Default: if standard output is a terminal
            and NO_COLOR is not set.
        width: Columns that a line may take, at least 20. Default: the terminal's, or 80.
        numbers: Whether to write each weight into its cell, to two decimals, in place of shades.

    Returns:
        Lines of at most `width` columns joined by line feeds, without a last one.

    Raises:
        ValueError: Shape and words do not fit, a number is negative or not finite, or `width` is below 20.

    Example:
        >>> print(terminal([[0.75, 0.25], [0, 1]], ["the", "cat"], ["il", "gatto"], color=False, width=40))
              the cat
        il    ▓▓▓ ░░░
        gatto     ███
        shades up to 1.00
    """
    source, target = check_words(source, "source"), check_words(target, "target")
    rows = to_map(weights, len(target), len(source))
    width, color = _line_width(width), _wants_color() if color is None else color
    if not source or not target:
        return f"nothing to draw: {len(source)} source words, {len(target)} target words"
    labels, names = [label(word) for word in source], [label(word) for word in target]
    stub = min(max(map(cell_width, names)), width // 4)
    room = width - stub - 1
    smallest = 4 if numbers else 3
    columns = [max(cell_width(text) + 1, smallest) for text in labels]
    headed = sum(columns) - 1 <= room
    if not headed:
        fits = [size for size in (3, 2) if size * len(labels) - 1 <= room]
        columns = [smallest if numbers else max(fits, default=1)] * len(labels)
    paint = _Paint(largest_weight(rows), color, numbers)
    panels = []
    for start, stop in _panels(columns, room):
        part = columns[start:stop]
        heads = [labels[start:stop]] if headed else _numerals(range(start, stop), columns[0], len(labels))
        lines = [" " * (stub + 1) + "".join(map(_pad, line, part)) for line in heads]
        lines += [
            _pad(clip(name, stub), stub + 1) + paint.row(row[start:stop], part)
            for name, row in zip(names, rows, strict=True)
        ]
        panels.append("\n".join(line.rstrip(" ") for line in lines))
    legend = (
        [] if headed else _wrap([f"{i} {_steady(text)}" for i, text in enumerate(labels, 1)], "  ", width, "")
    )
    return "\n".join(["\n\n".join(panels), *legend, paint.scale()])


def alignment_text(
    links: Iterable[tuple[int, int]],
    source: Sequence[str],
    target: Sequence[str],
    *,
    width: int | None = None,
) -> str:
    """Draws a word alignment as two sentences: each target word bears the numbers of its source words.

    Args:
        links: Pairs (source word, target word), counted from 0.
        source: The words of the source sentence.
        target: The words of the target sentence.
        width: Columns that a line may take, at least 20. Default: the terminal's, or 80.

    Returns:
        Lines of at most `width` columns joined by line feeds; in them words are counted from 1. A target word
        without a number is linked to nothing.

    Raises:
        ValueError: A link points outside its sentence, or `width` is below 20.

    Example:
        >>> source, target = "the red cat".split(), "il gatto rosso".split()
        >>> print(alignment_text([(0, 0), (1, 2), (2, 1)], source, target, width=40))
        source  the¹ red² cat³
        target  il¹ gatto³ rosso²
    """
    source, target = check_words(source, "source"), check_words(target, "target")
    width = _line_width(width)
    linked: list[list[int]] = [[] for _ in target]
    for i, j in check_links(links, len(target), len(source)):
        linked[j].append(i + 1)
    above = [_numbered(word, [i]) for i, word in enumerate(source, 1)]
    below = [_numbered(word, numbers) for word, numbers in zip(target, linked, strict=True)]
    return "\n".join(_wrap(above, " ", width, "source  ") + _wrap(below, " ", width, "target  "))


class _Paint:
    """Draws cells on a scale from 0 to `largest`."""

    def __init__(self, largest: float, color: bool, numbers: bool) -> None:
        self.largest, self.color, self.numbers = largest, color, numbers
        self.palette = [to_rgb(colour) for colour in map_colours(dark=True)]

    def row(self, weights: Sequence[float], columns: Sequence[int]) -> str:
        """One line of cells; a column wider than 1 ends with a gap, save the last."""
        gaps = [min(column - 1, 1) for column in columns]
        sizes = [column - gap for column, gap in zip(columns, gaps, strict=True)]
        return "".join(map(self._cell, weights, sizes, [*gaps[:-1], 0]))

    def scale(self) -> str:
        """The line that says where the shades end."""
        if not self.color:
            return f"{'weights' if self.numbers else 'shades'} up to {_decimal(self.largest)}"
        steps = range(0, LEVELS, 12)
        return "".join(self._on(step, " ") for step in steps) + f" up to {_decimal(self.largest)}"

    def _cell(self, weight: float, size: int, gap: int) -> str:
        if self.numbers:
            text = _short(weight).ljust(size)
        elif self.color:
            text = " " * size
        else:
            shade = round(weight / self.largest * (len(_SHADES) - 1)) if self.largest else 0
            text = _SHADES[shade] * size
        text += " " * gap
        return self._on(level(weight, self.largest), text) if self.color else text

    def _on(self, step: int, text: str) -> str:
        red, green, blue = self.palette[step]
        ink = "30" if red * 0.3 + green * 0.6 + blue * 0.1 > 120 else "97"
        return f"\x1b[{ink};48;2;{red};{green};{blue}m{text}\x1b[0m"


def _wants_color() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _line_width(width: int | None) -> int:
    if width is None:
        return max(shutil.get_terminal_size((80, 24)).columns, _MIN_WIDTH)
    if width < _MIN_WIDTH:
        raise ValueError(f"width: expected at least {_MIN_WIDTH} columns, got {width}")
    return width


def _pad(text: str, columns: int) -> str:
    return _steady(text + " " * (columns - cell_width(text)))


def _steady(text: str) -> str:
    """Keeps what stands beside a right-to-left word in its place."""
    return f"{_LEFT_TO_RIGHT}{text}{_LEFT_TO_RIGHT}" if is_right_to_left(text) else text


def _panels(columns: Sequence[int], room: int) -> list[tuple[int, int]]:
    """Ranges of columns that fit side by side; the gap after the last does not count."""
    bounds, used = [0], 0
    for index, column in enumerate(columns):
        if index > bounds[-1] and used + max(column - 1, 1) > room:
            bounds.append(index)
            used = 0
        used += column
    return list(pairwise([*bounds, len(columns)]))


def _numerals(positions: range, column: int, count: int) -> list[list[str]]:
    """Column numbers from 1, beside each other if they fit, else one digit below the other."""
    digits = len(str(count))
    if digits < column:
        return [[str(position + 1) for position in positions]]
    texts = [str(position + 1).rjust(digits) for position in positions]
    return [[text[line] for text in texts] for line in range(digits)]


def _numbered(word: str, numbers: Sequence[int]) -> str:
    return _steady(label(word)) + "⁺".join(str(number).translate(_SUPERSCRIPTS) for number in numbers)


def _wrap(items: Sequence[str], separator: str, width: int, head: str) -> list[str]:
    lines, line = [], head
    for item in items:
        text = clip(item, width - len(head))
        if line.strip() and line != head and cell_width(line + separator + text) > width:
            lines.append(line)
            line = " " * len(head)
        line += text if line in (head, " " * len(head)) else separator + text
    return [*lines, line.rstrip()]


def _short(weight: float) -> str:
    """A weight in three columns."""
    if weight < 0.005:
        return " ·"
    if weight < 0.995:
        return f"{weight:.2f}"[1:]
    return f"{weight:.1f}" if weight < 9.95 else f"{weight:.0f}" if weight < 999.5 else ">1k"


def _decimal(weight: float) -> str:
    return f"{weight:.2f}" if 0.01 <= weight < 100 or weight == 0 else f"{weight:.2g}"
