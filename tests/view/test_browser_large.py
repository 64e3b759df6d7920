"""A large map in a real browser: what is drawn, said and found, by pointer and by keyboard."""

import re
import time
from typing import Any, NamedTuple

import numpy as np
import pytest

from headlights.view import html
from headlights.view._colours import map_colours
from tests.view.browser import Browser

HOSTILE = [
    "</script>",
    '"><img src=x onerror=a()>',
    "\u202ecba",
    "a\nb",
    "<!--",
    "//example.org",
    "",
    "\ud800",
]
SHOWN = [
    "</script>",
    '"><img src=x onerror=a()>',
    "⟨U+202E⟩cba",
    "a␊b",
    "<!--",
    "//example.org",
    "∅",
    "⟨U+D800⟩",
]
L, H, N, K = 2, 3, 211, 5
WORDS = [HOSTILE[n % 8] + str(n) * (n % 3 > 0) for n in range(N)]
RNG = np.random.default_rng(5)
COLUMNS = np.argsort(RNG.random((L, H, N, N)), axis=-1)[..., :K]
VALUES = RNG.dirichlet(np.ones(K), (L, H, N)).astype(np.float32)
DENSE = np.zeros((L, H, N, N), np.float32)
np.put_along_axis(DENSE, COLUMNS, VALUES, -1)
READOUT = "return document.querySelector('.readout').innerText"
SHOWS = "return document.querySelector('.tools b').textContent === '{}'"


class Kept(NamedTuple):
    values: Any
    indices: Any


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    drawn = html(Kept(VALUES, COLUMNS), WORDS, WORDS, title="</script><b>", links=[(3, 5)])
    return drawn.save(tmp_path_factory.mktemp("pages") / "large.html").as_uri()


@pytest.fixture
def browser(chromium: Browser, address: str) -> Browser:
    """The page with its first head, fitted, nothing picked."""
    if chromium.call("/url", method="GET") != address:
        chromium.call("/se/log", {"type": "browser"})  # forgets what earlier pages logged
        chromium.call("/url", {"url": address})
        chromium.until("return document.querySelector('.readout')?.hasChildNodes()")
    chromium.run("document.querySelector('.head').click(); document.querySelector('.over').focus()")
    chromium.until(SHOWS.format("layer 1, head 1"))
    for key in ("\ue00c", "0"):
        chromium.press(key)
    chromium.point(2, 2)
    return chromium


def place(browser: Browser, row: int, column: int) -> tuple[float, float]:
    """Where the middle of a cell stands in the window, from the words and the size of the picture alone."""
    x, y, width, height = browser.run(
        "const box = document.querySelector('.over').getBoundingClientRect();"
        "return [box.x, box.y, box.width, box.height]"
    )
    left = round(min(max(0.2 * width, 64), 150))
    pitch = min((width - left - 34) / N, (height - 96 - 58) / N)
    return x + left + (column + 0.5) * pitch, y + 96 + (row + 0.5) * pitch


def test_nothing_is_loaded_or_logged(browser: Browser) -> None:
    assert browser.call("/se/log", {"type": "browser"}) == []
    assert browser.run("return performance.getEntriesByType('resource').map((entry) => entry.name)") == []


def test_heads_and_means_are_read_as_they_are(browser: Browser) -> None:
    """Every number of a head, of a layer's mean and of the mean of all, and the sums of columns."""
    script = (
        "const heads = new Heads(data[0].packed, {N}, {N});"
        "return (async () => {{ const map = await heads.read({choice});"
        " const column = map.column(7).map((entry) => [entry.index, entry.weight]);"
        " const parts = [map.starts, map.columns, map.weights, map.received(), column];"
        " return parts.map((part) => [...part]) }})()"
    )
    means = {
        "{layer: 1, head: 2}": DENSE[1, 2],
        "{layer: 0}": DENSE[0].mean(0),
        "{}": DENSE.mean((0, 1)),
    }
    for choice, expected in means.items():
        starts, columns, weights, received, column = browser.run(script.format(N=N, choice=choice))
        found = np.zeros((N, N))
        for i in range(N):
            part = slice(starts[i], starts[i + 1])
            found[i, columns[part]] = weights[part]
        np.testing.assert_allclose(found, expected, atol=5e-5)
        np.testing.assert_allclose(received, expected.sum(0), atol=5e-4)
        assert dict(map(tuple, column)) == pytest.approx(
            {i: w for i, w in enumerate(expected[:, 7]) if w > 0}, abs=5e-5
        )


def test_the_cell_under_the_pointer_is_named_as_text(browser: Browser) -> None:
    row = 8  # "</script>8": a word that would end the script
    column = int(DENSE[0, 0, row].argmax())
    browser.point(*place(browser, row, column))
    browser.until(f"{READOUT}.startsWith('</script>8')")
    said = browser.run(READOUT).splitlines()
    shown = SHOWN[column % 8] + str(column) * (column % 3 > 0)
    assert said[0] == f"</script>8 8 looks at {shown} {column} with {DENSE[0, 0, row, column]:.3f}"
    order = np.argsort(-DENSE[0, 0, row])[:5]
    assert [int(n) for n in re.findall(r" (\d+) 0\.\d{3}", said[1])] == order.tolist()
    assert said[2].startswith(f"Column receives {DENSE[0, 0, :, column].sum():.3f} from all rows: ")
    assert browser.run("return document.querySelectorAll('img, .readout b').length") == 0


def test_a_cell_that_was_not_kept_says_so(browser: Browser) -> None:
    row, column = 20, int(np.flatnonzero(DENSE[0, 0, 20] == 0)[0])
    browser.point(*place(browser, row, column), click=True)
    said = browser.until(READOUT + ".split('\\n')[0].includes('with less than') && " + READOUT[7:])
    assert f"with less than {VALUES[0, 0, row].min():.3f}" in said.splitlines()[0]


def test_pixels_show_the_largest_weight_below_them(browser: Browser) -> None:
    """At the middle of cells of the fitted map, the colour of the square root of the weight."""
    box = browser.run(
        "const box = document.querySelector('.base').getBoundingClientRect(); return [box.x, box.y]"
    )
    dark = browser.run("return matchMedia('(prefers-color-scheme: dark)').matches")
    colours, top = map_colours(dark=dark), DENSE[0, 0].max()
    for row in (3, 40, 210):
        column = int(DENSE[0, 0, row].argmax())
        x, y = place(browser, row, column)
        red, green, blue, _ = browser.run(
            f"const at = [{x - box[0]}, {y - box[1]}].map((n) => Math.floor(n * devicePixelRatio));"
            "return [...document.querySelector('.base').getContext('2d').getImageData(...at, 1, 1).data]"
        )
        level = round(float(np.sqrt(DENSE[0, 0, row, column] / top)) * 48)
        near = {colours[n] for n in (level - 1, level, level + 1) if 0 <= n < 49}
        assert f"#{red:02x}{green:02x}{blue:02x}" in near


def test_a_click_lists_what_is_looked_at_and_what_looks(browser: Browser) -> None:
    row, column = 30, int(DENSE[0, 0, 30].argmax())
    browser.point(*place(browser, row, column), click=True)
    browser.until("return document.querySelectorAll('.tokens section').length === 2")
    listed = browser.run(
        "return [...document.querySelectorAll('.tokens section')].map((side) =>"
        " [...side.querySelectorAll('li small')].map((place) => Number(place.textContent)))"
    )
    assert listed[0] == sorted(COLUMNS[0, 0, row].tolist())
    seen = np.flatnonzero(DENSE[0, 0, :, column])
    assert set(listed[1]) <= set(seen.tolist())
    assert len(listed[1]) == min(len(seen), 10)
    assert browser.run("return document.querySelectorAll('img, script').length") == 2  # the page's own
    browser.run("document.querySelector('.tokens li button').click()")
    other = listed[0][0]
    assert f"looks at {SHOWN[other % 8]}" in browser.until(READOUT)


def test_a_token_is_found_and_the_next_one(browser: Browser) -> None:
    browser.press("/")
    for key in "cba1":
        browser.press(key)
    matches = [n for n, word in enumerate(WORDS) if "cba1" in word]
    assert browser.run("return document.querySelector('.found').textContent") == f"1 of {len(matches)}"
    browser.press("\ue007")  # Enter
    assert browser.run("return document.querySelector('.found').textContent") == f"2 of {len(matches)}"
    name = f"⟨U+202E⟩{WORDS[matches[1]][1:]} {matches[1]}"
    browser.until(f"{READOUT}.startsWith('{name} looks at {name}')")
    browser.run(
        "const box = document.querySelector('[type=search]'); box.value = '#17';"
        "box.dispatchEvent(new Event('input'))"
    )
    browser.until(f"{READOUT}.includes(' 17 looks at ')")


def test_the_keyboard_moves_zooms_and_changes_heads(browser: Browser) -> None:
    browser.press("\ue015")  # down: starts in the middle
    browser.until(f"{READOUT}.includes(' 105 looks at ')")
    browser.press("\ue015")
    browser.until(f"{READOUT}.includes(' 106 looks at ')")
    browser.press("]")
    browser.until(SHOWS.format("layer 1, head 2"))
    browser.until(f"{READOUT}.includes(' 106 looks at ')")  # what is picked stays
    before = browser.run("return document.querySelector('.base').toDataURL()")
    browser.press("+")
    browser.until(f"return document.querySelector('.base').toDataURL() !== '{before}'")
    browser.press("0")
    assert browser.run("return document.querySelector('.base').toDataURL()") == before


def test_the_wheel_zooms_about_the_pointer_and_dragging_moves(browser: Browser) -> None:
    def mouse(kind: str, x: float, y: float, **more: Any) -> None:
        browser.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    row, column = 150, int(DENSE[0, 0, 150].argmax())
    x, y = place(browser, row, column)
    named = f"{READOUT}.includes('{column} with {DENSE[0, 0, row, column]:.3f}')"
    for turn in (-900, -900):  # each e ** 2.25 nearer, until cells are as large as they become
        mouse("mouseWheel", x, y, deltaX=0, deltaY=turn)
    browser.point(x + 1, y + 1)
    browser.until(named)
    mouse("mousePressed", x, y, button="left", clickCount=1)
    mouse("mouseMoved", x - 50, y - 70, button="left", buttons=1)  # further than a cell of 34 pixels
    mouse("mouseReleased", x - 50, y - 70, button="left", clickCount=1)
    browser.point(x - 49, y - 69)
    browser.until(named)
    assert browser.run("return document.querySelector('.tokens').hidden")  # a drag picks nothing


def test_small_pictures_pick_heads_and_means(browser: Browser) -> None:
    browser.until(
        "return [...document.querySelectorAll('.head canvas')]"
        ".every((canvas) => canvas.getContext('2d').getImageData(0, 0, 1, 1).data[3] === 255)"
    )
    browser.run("document.querySelectorAll('.head')[4].click()")
    browser.until(SHOWS.format("layer 2, head 2"))
    top = float(browser.run("return document.querySelector('.legends span').textContent"))
    assert top == pytest.approx(DENSE[1, 1].max(), rel=6e-3)
    browser.run("document.querySelectorAll('.head')[4].focus()")
    browser.press("\ue012")  # left
    browser.until(SHOWS.format("layer 2, head 1"))
    browser.run("document.querySelector('.mean').click()")
    browser.until(SHOWS.format("mean of all heads"))
    assert browser.run("return document.querySelectorAll('[aria-pressed=true]').length") == 1


def test_colours_follow_the_scheme_and_print_is_light(browser: Browser) -> None:
    corner = (
        "const brush = document.querySelector('.base').getContext('2d');"
        "return [...brush.getImageData(152 * devicePixelRatio, 100 * devicePixelRatio, 60, 40).data]"
    )

    def becomes(colour: str) -> bool:  # the page draws when it next may
        end = time.monotonic() + 5
        while plate() != colour and time.monotonic() < end:
            time.sleep(0.02)
        return plate() == colour

    def plate() -> str:
        pixels = np.array(browser.run(corner)).reshape(-1, 4)
        values, counts = np.unique(pixels[:, :3], axis=0, return_counts=True)
        return "#" + "".join(f"{channel:02x}" for channel in values[counts.argmax()])

    def emulate(scheme: str, media: str = "") -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.send("Emulation.setEmulatedMedia", media=media, features=features)

    try:
        emulate("light")
        assert becomes(map_colours(dark=False)[0])
        emulate("dark")
        assert becomes(map_colours(dark=True)[0])
        emulate("dark", "print")
        assert becomes(map_colours(dark=False)[0])
    finally:
        browser.send("Emulation.setEmulatedMedia", media="", features=[])


def test_the_page_says_what_was_left_out(browser: Browser) -> None:
    said = browser.run("return document.querySelector('.about').textContent")
    assert said == "Largest 5 of 211 weights per row; means and sums are of these."


def test_a_notebook_shows_a_large_map_in_its_frame(
    chromium: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    frame = html(Kept(VALUES, COLUMNS), WORDS, WORDS)._repr_html_()
    path = tmp_path_factory.mktemp("pages") / "notebook.html"
    path.write_text(f"<!DOCTYPE html><meta charset=utf-8><body>{frame}", "utf-8")
    chromium.call("/url", {"url": path.as_uri()})
    chromium.call("/frame", {"id": 0})
    try:
        chromium.until("return document.querySelector('.readout')?.hasChildNodes()")
        chromium.run("document.querySelector('.mean').click()")
        chromium.until(SHOWS.format("mean of all heads"))
    finally:
        chromium.call("/frame", {"id": None})
