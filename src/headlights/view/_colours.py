"""Colours, computed here: even steps in OKLab between a few anchors, light to dark without a turn back.

Source of the colour space: B. Ottosson, "A perceptual color space for image processing", 2020. A blue-yellow
axis and a lightness that only falls (or only rises) keep a map readable for colour-blind readers and in grey.
"""

from collections.abc import Sequence

LEVELS = 49
"""Steps of a colour map; level 0 is the empty plate."""

HUES = 12
"""Colours that ribbons share, along the target sentence."""

_LIGHT_MAP = ("#f4f1e8", "#e6dcae", "#8fc1a3", "#3f8fa3", "#2a5a94", "#1b2757")
_DARK_MAP = ("#1f2430", "#26386b", "#27678f", "#3d9c99", "#9ccf9c", "#fbf0b6")
_LIGHT_HUES = ("#4455a8", "#2b7fa0", "#2f9184", "#8d9440", "#c48a2c", "#b9653f")
_DARK_HUES = ("#8f9df0", "#5db4dc", "#54c8b4", "#b9c66a", "#eebb62", "#e8956d")

RGB = tuple[int, int, int]


def map_colours(*, dark: bool) -> tuple[str, ...]:
    """The LEVELS colours of a map as "#rrggbb", from nothing to the largest weight."""
    return blend(_DARK_MAP if dark else _LIGHT_MAP, LEVELS)


def hue_colours(*, dark: bool) -> tuple[str, ...]:
    """The HUES colours of ribbons as "#rrggbb"."""
    return blend(_DARK_HUES if dark else _LIGHT_HUES, HUES)


def level(weight: float, largest: float) -> int:
    """The colour level, 0 to LEVELS - 1, of a weight on a scale that ends with `largest`."""
    return round(weight / largest * (LEVELS - 1)) if largest > 0 else 0


def hue(row: int, rows: int) -> int:
    """The ribbon colour, 0 to HUES - 1, of target word `row` among `rows`."""
    return round(row / max(rows - 1, 1) * (HUES - 1))


def blend(anchors: Sequence[str], steps: int) -> tuple[str, ...]:
    """Spreads `steps` colours evenly over the line through `anchors`, in OKLab.

    Args:
        anchors: At least two colours as "#rrggbb".
        steps: At least 2.

    Returns:
        The colours as "#rrggbb"; the first and last are the outer anchors.
    """
    points = [_to_oklab(to_rgb(anchor)) for anchor in anchors]
    colours = []
    for step in range(steps):
        place = step / (steps - 1) * (len(points) - 1)
        left = min(int(place), len(points) - 2)
        mix = place - left
        a, b = points[left], points[left + 1]
        colours.append(_from_oklab([x + (y - x) * mix for x, y in zip(a, b, strict=True)]))
    return tuple(colours)


def to_rgb(colour: str) -> RGB:
    """Reads "#rrggbb" as three numbers in 0..255."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _to_oklab(rgb: RGB) -> list[float]:
    r, g, b = (_linear(channel / 255) for channel in rgb)
    long = (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b) ** (1 / 3)
    medium = (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b) ** (1 / 3)
    short = (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b) ** (1 / 3)
    return [
        0.2104542553 * long + 0.7936177850 * medium - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * medium + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * medium - 0.8086757660 * short,
    ]


def _from_oklab(lab: Sequence[float]) -> str:
    lightness, a, b = lab
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    channels = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    return "#" + "".join(f"{round(255 * _gamma(min(max(c, 0.0), 1.0))):02x}" for c in channels)


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else float(((channel + 0.055) / 1.055) ** 2.4)


def _gamma(channel: float) -> float:
    return 12.92 * channel if channel <= 0.0031308 else float(1.055 * channel ** (1 / 2.4) - 0.055)
