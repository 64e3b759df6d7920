"""The static picture: an SVG file that any viewer reads."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headlights.view import svg
from headlights.view._colours import LEVELS, blend, hue, level, map_colours, to_rgb
from headlights.view._text import label

SVG = "{http://www.w3.org/2000/svg}"


def labels(picture: str) -> list[str]:
    root = ElementTree.fromstring(picture)
    words = [text for text in root.iter(f"{SVG}text") if (text.get("class") or "").startswith("word")]
    return ["".join(text.itertext()) for text in words]


@given(st.lists(st.text(max_size=2), max_size=5), st.lists(st.text(max_size=2), max_size=5))
def test_picture_is_xml_with_each_word_as_a_label(source: list[str], target: list[str]) -> None:
    picture = svg(np.ones((len(target), len(source))), source, target, title="<&>\x00")
    shown = labels(picture)
    assert shown == [label(w) for word in source for w in (word, word)] + [label(w) for w in target]
    picture.encode("utf-8")


def test_picture_holds_no_script_and_no_address_but_the_namespace() -> None:
    picture = svg(np.eye(2), ["http://a", "b"], ["c", "https://d"], title="//e")
    assert re.findall(r"https?://[^\"]*", picture) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"<script|<foreignObject|\bon\w+=|href|url\(|@import", picture)


def test_long_words_are_shortened_with_the_whole_in_a_tooltip() -> None:
    long = "Donaudampfschifffahrtsgesellschaftskapitän"
    picture = svg([[1.0]], [long], ["x"])
    assert f"<title>{long}</title>Donaudampfschifffahrtsgesel…</text>" in picture


@pytest.mark.parametrize(("N", "M"), [(1, 1), (3, 2), (2, 13), (17, 3), (61, 59)])
def test_everything_stands_inside_the_picture(N: int, M: int) -> None:
    root = ElementTree.fromstring(svg(np.full((N, M), 1 / M), ["abcdefgh"] * M, ["ij"] * N, title="a" * 80))
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for path in root.iter(f"{SVG}path"):
        for x, y in re.findall(r"M([\d.-]+) ([\d.-]+)", path.get("d", "")):
            assert 0 < float(x) < width
            assert 0 < float(y) < height
    for text in root.iter(f"{SVG}text"):
        if text.get("x"):
            assert 0 < float(text.get("x", 0)) < width
            assert 8 < float(text.get("y", 0)) < height


def test_cells_are_coloured_by_level() -> None:
    root = ElementTree.fromstring(svg([[1.0, 0.5], [0.0, 0.25]], ["a", "b"], ["c", "d"]))
    drawn = {
        p.get("class"): p.get("d", "").count("M")
        for p in root.iter(f"{SVG}path")
        if "ribbon" not in str(p.get("class"))
    }
    assert drawn == {"c48": 1, "c24": 1, "c0": 1, "c12": 1}


def test_several_heads_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"expected shape \(1, 1\), got 2 layers of 3 heads; pick one as weights"
    ):
        svg(np.ones((2, 3, 1, 1)), ["a"], ["b"])


@pytest.mark.parametrize("dark", [False, True])
def test_lightness_of_the_map_never_turns_back(dark: bool) -> None:
    """So the map reads in grey and for colour-blind readers; luminance as WCAG 2 defines it."""

    def luminance(colour: str) -> float:
        parts = [c / 255 for c in to_rgb(colour)]
        r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return float(0.2126 * r + 0.7152 * g + 0.0722 * b)

    steps = np.diff([luminance(colour) for colour in map_colours(dark=dark)])
    assert (steps > 0).all() if dark else (steps < 0).all()


def test_blend_ends_with_its_anchors_and_passes_the_middle() -> None:
    # halfway between black and white OKLab lightness is 0.5, linear light 0.125, and sRGB
    # 1.055 * 0.125**(1 / 2.4) - 0.055 = 0.389, which is 99 = 0x63 of 255
    assert blend(["#000000", "#ffffff"], 3) == ("#000000", "#636363", "#ffffff")
    assert blend(["#1b2757", "#fbf0b6"], 5)[0::4] == ("#1b2757", "#fbf0b6")


def test_levels_and_hues_span_their_ranges() -> None:
    assert [level(weight, 0.5) for weight in (0.0, 0.25, 0.5)] == [0, (LEVELS - 1) // 2, LEVELS - 1]
    assert level(0.0, 0.0) == 0
    assert [hue(row, 3) for row in range(3)] == [0, 6, 11]
    assert hue(0, 1) == 0
