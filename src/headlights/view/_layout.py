"""Where everything stands: source words, ribbons, target words and the map whose rows they open."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from headlights.view._text import cell_width, clip, clusters, label

PAD = 26.0
_GAP = 9.0
_LONGEST = 28  # terminal columns of a label before it is shortened
_NARROW, _WIDE = frozenset("ijl.,:;'|!()[]ftrI "), frozenset("mwMW@%—…")
_CAPTION = 22.0
_LEGEND = 46.0


@dataclass(frozen=True)
class Layout:
    """Places in pixels of a picture of N target rows and M source columns.

    `source_y` and `target_y` are the middles of the words in the two sentences, `source_x` the right end of
    the source words, `target_x` that of the target words; ribbons run from `ribbon_x[0]` to `ribbon_x[1]` and
    on to `ribbon_end`, beside each target word. The map begins at (`map_x`, `map_y`) and has square cells of
    `pitch`.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    pitch: float
    font: float
    angle: int
    source_x: float
    source_y: tuple[float, ...]
    target_x: float
    target_y: tuple[float, ...]
    ribbon_x: tuple[float, float]
    ribbon_end: tuple[float, ...]
    map_x: float
    map_y: float
    width: float
    height: float

    @property
    def map_width(self) -> float:
        """Pixels of the map from left to right."""
        return self.pitch * len(self.source)

    @property
    def map_height(self) -> float:
        """Pixels of the map from top to bottom."""
        return self.pitch * len(self.target)


def lay_out(source: Sequence[str], target: Sequence[str], *, top: float = 0.0) -> Layout:
    """Places the words of two sentences and the map between them.

    Args:
        source: M words.
        target: N words.
        top: Pixels to leave free above, for a title.

    Returns:
        The layout; labels in it are shortened and free of control characters.
    """
    N, M = len(target), len(source)
    pitch = round(min(max(720 / max(N, M, 1), 14.0), 34.0), 1)
    font = round(min(pitch * 0.76, 15.0), 1)
    angle = 45 if pitch > 20 else 62
    above, beside = ([clip(label(word), _LONGEST) for word in words] for words in (source, target))
    slant = math.radians(angle)
    source_widths, target_widths = ([text_width(text, font) for text in texts] for texts in (above, beside))
    source_width, target_width = max(source_widths, default=0.0), max(target_widths, default=0.0)
    header = source_width * math.sin(slant) + font
    map_y = top + PAD + max(header, _CAPTION, (M - N) / 2 * pitch + _CAPTION)
    first = map_y + (N - M) / 2 * pitch
    source_x = PAD + max(source_width, 52.0)
    flow = min(max(pitch * 7, 150.0), 230.0)
    start = source_x + _GAP
    target_x = start + flow + _GAP + max(target_width, 52.0)
    map_x = target_x + _GAP
    rights = [map_x + (j + 1) * pitch + width * math.cos(slant) for j, width in enumerate(source_widths)]
    return Layout(
        source=tuple(above),
        target=tuple(beside),
        pitch=pitch,
        font=font,
        angle=angle,
        source_x=source_x,
        source_y=tuple(first + (j + 0.5) * pitch for j in range(M)),
        target_x=target_x,
        target_y=tuple(map_y + (i + 0.5) * pitch for i in range(N)),
        ribbon_x=(start, start + flow),
        ribbon_end=tuple(target_x - width - _GAP for width in target_widths),
        map_x=map_x,
        map_y=map_y,
        width=max([*rights, map_x + M * pitch, map_x + 150.0]) + PAD,
        height=map_y + max(N, (N + M) / 2) * pitch + _LEGEND,
    )


def text_width(text: str, font: float) -> float:
    """About how many pixels `text` takes in a proportional sans-serif font of `font` pixels."""
    return font * sum(_ems(cluster) for cluster in clusters(text))


def _ems(cluster: str) -> float:
    if cluster in _NARROW:
        return 0.31
    if cluster in _WIDE:
        return 0.92
    return 0.57 * cell_width(cluster) + (0.1 if cluster.isupper() else 0.0)
