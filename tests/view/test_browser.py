"""The page in a real browser, driven over WebDriver."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headlights.view import AttentionMap, page, svg
from tests.view.browser import Browser

SOURCE = ["<b>", "</script>", "سلام", "👩‍🔬", "&amp;"]
TARGET = ["'x'", '"><img src=x onerror=a()>', "\u202ez"]
WEIGHTS = np.random.default_rng(3).dirichlet(np.ones(5) / 2, (2, 3, 3))  # L = 2, H = 3, N = 3, M = 5


@pytest.fixture(scope="module")
def browser(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Browser:
    maps = [
        AttentionMap(SOURCE, TARGET, weights=WEIGHTS, title="</h2>"),
        AttentionMap(SOURCE, TARGET, weights=WEIGHTS[0, 0], links=[(0, 0)]),
    ]
    path: Path = page(maps, title="<b>").save(tmp_path_factory.mktemp("pages") / "page.html")
    chromium.call("/se/log", {"type": "browser"})  # forgets what earlier pages logged
    chromium.call("/url", {"url": path.as_uri()})
    return chromium


def test_page_loads_nothing_and_logs_nothing(browser: Browser) -> None:
    assert browser.call("/se/log", {"type": "browser"}) == []
    assert browser.run("return performance.getEntriesByType('resource').map((entry) => entry.name)") == []


def test_words_are_single_labels(browser: Browser) -> None:
    words = "[...document.querySelectorAll('.card:last-child .{}[role]')]"
    query = f"return {words}.map((word) => word.lastChild.data)"
    assert browser.run(query.format("source")) == SOURCE
    assert browser.run(query.format("target")) == [*TARGET[:2], "⟨U+202E⟩z"]
    assert browser.run("return document.querySelectorAll('img, b:not(.heads b), .word *').length") == 0


def test_a_head_is_drawn_as_the_picture_draws_it(browser: Browser) -> None:
    browser.run("document.querySelectorAll('.head')[4].click()")  # layer 2, head 2
    drawn = browser.run(
        "const card = document.querySelector('.card');"
        "const read = (part) => [...card.querySelectorAll(part + ' path')]"
        "  .map((path) => [path.getAttribute('class'), path.getAttribute('d')]);"
        "return [read('.cells'), read('.ribbons'), card.querySelector('.largest').textContent]"
    )
    picture = svg(WEIGHTS[1, 1], SOURCE, TARGET)
    paths = re.findall(r'<path class="([^"]*)"[^>]* d="([^"]*)"', picture)
    assert_same_paths(drawn[0], [path for path in paths if path[0].startswith("c")])
    assert_same_paths(drawn[1], [path for path in paths if path[0].startswith("ribbon")])
    assert float(drawn[2]) == pytest.approx(WEIGHTS[1, 1].max(), rel=5e-3)


def assert_same_paths(drawn: list[list[str]], wanted: list[tuple[str, str]]) -> None:
    """Equal classes and outlines, to the rounding of either."""

    def key(path: Any) -> tuple[str, list[float]]:
        return path[0], [round(float(number)) for number in re.findall(r"-?\d+(?:\.\d+)?", path[1])]

    assert len(drawn) == len(wanted) > 0
    for one, other in zip(sorted(map(key, drawn)), sorted(map(key, wanted)), strict=True):
        assert one[0] == other[0]
        np.testing.assert_allclose(one[1], other[1], atol=1)


def test_a_picked_word_shows_its_weights_and_stays(browser: Browser) -> None:
    browser.run(
        "document.querySelector('.card:last-child .target[data-index=\"1\"]')"
        ".dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    )
    rows = "[...document.querySelectorAll('.card:last-child .ribbon.on')].map((ribbon) => ribbon.dataset.row)"
    assert set(browser.run(f"return {rows}")) == {"1"}
    said = browser.run("return document.querySelector('.card:last-child .readout').textContent")
    best = int(WEIGHTS[0, 0, 1].argmax())
    assert said.startswith(f"{TARGET[1]} looks at {SOURCE[best]} {WEIGHTS[0, 0, 1, best]:.3f} · ")
    browser.run("document.querySelector('.card:last-child .source').focus()")
    browser.press("\ue007")  # Enter
    said = browser.run("return document.querySelector('.card:last-child .readout').textContent")
    assert said.startswith("<b> is seen by ")
    browser.press("\ue00c")  # Escape
    assert browser.run("return document.querySelectorAll('.focused').length") == 0


def test_the_cell_under_the_pointer_is_named(browser: Browser) -> None:
    browser.run(
        "const svg = document.querySelector('.card:last-child svg'), cells = svg.querySelector('.cells');"
        "const box = cells.getBoundingClientRect();"
        "svg.dispatchEvent(new PointerEvent('pointermove',"
        " {bubbles: true, clientX: box.left + box.width * 0.7, clientY: box.top + box.height * 0.5}))"
    )
    said = browser.run("return document.querySelector('.card:last-child .readout').textContent")
    assert said == f"{TARGET[1]} looks at {SOURCE[3]} with {WEIGHTS[0, 0, 1, 3]:.3f}"


def test_alternatives_stand_side_by_side(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> None:
    alternatives = [
        AttentionMap(list("abcde"), list("hijklmn")[:n], weights=np.full((n, 5), 1 / 5), title=f"−{n}.5")
        for n in (7, 5)
    ]
    path = page(alternatives).save(tmp_path_factory.mktemp("pages") / "beam.html")
    chromium.call("/url", {"url": path.as_uri()})
    boxes = chromium.run(
        "return [...document.querySelectorAll('.card')].map((card) => card.getBoundingClientRect().toJSON())"
    )
    assert boxes[0]["top"] == boxes[1]["top"]
    assert boxes[0]["right"] < boxes[1]["left"]
    chromium.run(
        "const move = new PointerEvent('pointermove', {bubbles: true});"
        "document.querySelector('.card .source').dispatchEvent(move)"
    )
    said = chromium.run("return [...document.querySelectorAll('.readout')].map((line) => line.textContent)")
    assert all(line.startswith("a is seen by ") for line in said)
