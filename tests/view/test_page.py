"""The HTML page: complete, closed to the network, and every word a label."""

import base64
import hashlib
import json
import os
import re
import stat
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headlights import view
from headlights.view import AttentionMap, html, page
from headlights.view._colours import HUES, LEVELS
from headlights.view._drawing import THINNEST

HOSTILE = [
    "▁das", "<pad>", "</script>", "<!--", "-->", "]]>", "<i>", "&lt;", "&#60;",
    '"><img src=x onerror=a()>',
    "' onload='alert(1)", "<script>alert(2)</script>", "</title>", "</style>", "</svg>", "<title>", "مرحبا",
    "שָׁלוֹם",
    "👩🏽‍🚀", "🇮🇹", "日本", "un@@", "\\t", "${1+1}", "`a`", "{{x}}", "%s", "//example.org", "https://example.org/a?b&c",
]  # fmt: skip
INVISIBLE = {"": "∅", " ": "␣", "a\nb": "a␊b", "\x00": "␀", "\x85": "⟨U+0085⟩", "\u202ecba": "⟨U+202E⟩cba"}
RARE = {
    "\u2067x": "⟨U+2067⟩x",
    "a\u2028b\u2029": "a⟨U+2028⟩b⟨U+2029⟩",
    "\ud800": "⟨U+D800⟩",
    "\ufffe": "⟨U+FFFE⟩",
}


class Reader(HTMLParser):
    """Collects elements, attributes, labels (the text of words) and raw blocks."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[str] = []
        self.attributes: set[str] = set()
        self.labels: dict[str, list[str]] = {"source": [], "target": []}
        self.tips: list[str] = []
        self.text: dict[str, list[str]] = {"script": [], "style": [], "h1": [], "h2": [], "title": []}
        self.stack: list[tuple[str, dict[str, str | None]]] = []
        self.comments = 0
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag != "meta":
            self.stack.append((tag, dict(attrs)))
        kinds = (dict(attrs).get("class") or "").split()
        if tag == "text" and "word" in kinds:
            self.labels[kinds[1]].append("")
        if tag in self.text:
            self.text[tag].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop()[0] == tag

    def handle_comment(self, data: str) -> None:
        self.comments += 1

    def handle_data(self, data: str) -> None:
        for tag, attributes in self.stack:
            kinds = (attributes.get("class") or "").split()
            if "word" in kinds and self.stack[-1][0] == "text":
                self.labels[kinds[1]][-1] += data
            if tag in self.text:
                self.text[tag][-1] += data


def data_of(text: str) -> Any:
    return json.loads(Reader(text).text["script"][0])


def even(N: int, M: int) -> list[list[float]]:
    return [[1 / M] * M for _ in range(N)]


def test_words_that_look_like_markup_are_shown_literally() -> None:
    """No element, attribute or comment comes into being from a word or a title."""
    N = len(HOSTILE)
    tame = Reader(html(even(N, N), ["x"] * N, ["y"] * N, title="z").text)
    wild = Reader(html(even(N, N), HOSTILE, HOSTILE, title="</title><b>" + HOSTILE[9]).text)
    assert [tag for tag in wild.elements if tag != "title"] == [
        tag for tag in tame.elements if tag != "title"
    ]
    assert wild.attributes == tame.attributes
    assert wild.comments == 0
    assert wild.stack == []
    assert wild.labels == {"source": [w for word in HOSTILE for w in (word, word)], "target": HOSTILE}
    assert wild.text["h1"] == ["</title><b>" + HOSTILE[9]]
    assert wild.text["title"][0] == "</title><b>" + HOSTILE[9]


def test_what_cannot_be_seen_is_made_visible() -> None:
    words = INVISIBLE | RARE
    text = html(even(len(words), len(words)), list(words), list(words), title="\u202ea\x00").text
    assert Reader(text).labels["target"] == list(words.values())
    assert not set("\x00\u202e\u2067\u2028\u2029\ud800\ufffe") & set(text)


def test_page_needs_no_network() -> None:
    text = html(
        even(2, 2), ["http://a.example", "b"], ["https://c.example", "d"], title="https://e.example"
    ).text
    assert not re.search("https?://", text)
    assert not re.search(r"@import|url\(|\bsrc=|\bhref=|fetch\(|XMLHttpRequest|innerHTML|\beval\b", text)


def test_page_declares_utf8_and_admits_its_own_script_and_style_only() -> None:
    text = html(even(2, 2), ["a", "b"], ["c", "d"]).text
    assert text.index('<meta charset="utf-8">') < 100
    policy = re.search('Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    reader = Reader(text)
    for kind, block in (("script", reader.text["script"][1]), ("style", reader.text["style"][0])):
        digest = base64.b64encode(hashlib.sha256(block.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy[1]
    assert policy[1].startswith("default-src 'none'; ")
    assert "unsafe" not in policy[1]
    assert "style" not in reader.attributes
    assert not any(name.startswith("on") for name in reader.attributes)


def test_numbers_reach_the_script() -> None:
    weights = np.random.default_rng(0).dirichlet(np.ones(5), (2, 3, 7))  # L = 2, H = 3, N = 7, M = 5
    (item,) = data_of(html(weights, list("abcde"), list("fghijkl")).text)
    np.testing.assert_allclose(item["heads"], weights, rtol=5e-4)
    place = item["place"]
    assert (len(place["sourceY"]), len(place["targetY"]), len(place["ribbonEnd"])) == (5, 7, 7)


@pytest.mark.parametrize("kind", ["lists", "numpy", "torch", "tensors in a list", "array interface"])
def test_any_array_is_taken(kind: str) -> None:
    numbers = [[0.25, 0.75, 0.0], [0.5, 0.25, 0.25]]

    class Foreign:
        def __array__(self) -> np.ndarray[Any, Any]:
            return np.array(numbers, np.float16)

    arrays = {
        "lists": numbers,
        "numpy": np.array(numbers, np.float32),
        "torch": torch.tensor(numbers, dtype=torch.bfloat16, requires_grad=True),
        "tensors in a list": [torch.tensor(row) for row in numbers],
        "array interface": Foreign(),
    }
    (item,) = data_of(html(arrays[kind], ["a", "b", "c"], ["d", "e"]).text)
    assert item["heads"] == [[numbers]]


def test_kept_largest_weights_are_drawn_in_their_places() -> None:
    kept = torch.tensor([[0.5, 0.1, 0.9], [0.2, 0.8, 0.0]]).topk(2)
    (item,) = data_of(html(kept, ["a", "b", "c"], ["d", "e"]).text)
    np.testing.assert_allclose(item["heads"], [[[[0.5, 0.0, 0.9], [0.2, 0.8, 0.0]]]])
    sparse = AttentionMap(["a", "b", "c"], ["d"], values=[[[[0.6, 0.0]]]], indices=[[[[2, -1]]]])
    assert data_of(page([sparse]).text)[0]["heads"] == [[[[0.0, 0.0, 0.6]]]]


def test_script_and_drawing_share_their_numbers() -> None:
    script = Reader(html(even(1, 1), ["a"], ["b"]).text).text["script"][1]
    for name, value in (("LEVELS", LEVELS), ("HUES", HUES), ("THINNEST", THINNEST)):
        assert f"const {name} = {value};" in script


def test_several_sentences_stand_on_one_page() -> None:
    maps = [AttentionMap(["a"] * M, ["b"] * 2, weights=even(2, M), title=f"<{M}>") for M in (2, 3, 5)]
    empty = AttentionMap([], ["b"], weights=np.zeros((1, 0)), title="none")
    text = page([*maps, empty], title="all").text
    reader = Reader(text)
    assert reader.text["h2"] == ["<2>", "<3>", "<5>", "none"]
    assert reader.elements.count("svg") == 3
    assert "Nothing to draw: 0 source words, 1 target words." in text
    assert [item and len(item["place"]["sourceY"]) for item in data_of(text)] == [2, 3, 5, None]


def test_page_without_maps_is_a_page() -> None:
    assert Reader(page([], title="x").text).text["h1"] == ["x"]


def test_links_are_ringed() -> None:
    text = html(even(2, 3), ["a", "b", "c"], ["d", "e"], links=[(0, 0), (2, 1), (2, 1)]).text
    assert text.count('<circle class="link"') == 2


def test_ribbons_of_a_word_fill_its_line() -> None:
    text = html([[0.5, 0.5, 0.0], [0.0, 0.005, 0.995]], ["a", "b", "c"], ["d", "e"]).text
    drawn = re.findall(r'data-row="(\d)" data-column="(\d)"', text)
    assert sorted(drawn) == [("0", "0"), ("0", "1"), ("1", "2")]  # 0.005 is below a hundredth
    # pitch 34 and a row sum of 1: a weight of 0.5 is 0.7 * 34 / 2 = 11.9 pixels thick at its straight end
    edges = []
    for column in (0, 1):
        path = re.search(rf'data-row="0" data-column="{column}"[^>]* d="[^"]*?([\d.]+)H[\d.]+V([\d.]+)', text)
        assert path is not None
        edges.append((float(path[1]), float(path[2])))
    assert edges[0][1] - edges[0][0] == pytest.approx(11.9, abs=0.011)
    assert edges[1] == pytest.approx((edges[0][1], edges[0][1] + 11.9), abs=0.011)  # beside each other


def test_save_writes_utf8_and_replaces(tmp_path: Path) -> None:
    drawn = html(even(1, 1), ["日本"], ["سلام"])
    path = tmp_path / "page.html"
    path.write_text("old")
    assert drawn.save(str(path)) == path
    assert path.read_bytes().decode("utf-8") == drawn.text
    assert [entry.name for entry in tmp_path.iterdir()] == ["page.html"]
    (tmp_path / "plain").touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def test_links_stay_links_modes_stay_and_what_is_no_file_is_written_to(tmp_path: Path) -> None:
    drawn = html(even(1, 1), ["a"], ["b"])
    (tmp_path / "there").mkdir()
    target, link, pipe = tmp_path / "there" / "page.html", tmp_path / "link.html", tmp_path / "pipe.html"
    target.write_text("old")
    target.chmod(0o604)
    link.symlink_to(target)
    assert drawn.save(link) == link
    assert link.is_symlink()
    assert target.read_text(encoding="utf-8") == drawn.text
    assert stat.S_IMODE(target.stat().st_mode) == 0o604
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # so that writing need not wait for a reader
    try:
        drawn.save(pipe)
        assert os.read(reader, 2**16) == drawn.text.encode("utf-8")
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_a_failed_save_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        html(even(1, 1), ["a"], ["b"]).save(tmp_path / "taken")
    assert [entry.name for entry in tmp_path.iterdir()] == ["taken"]


def test_notebook_gets_a_frame_of_its_own() -> None:
    drawn = html(even(1, 1), ['"</iframe>'], ["b"])
    frame = drawn._repr_html_()
    document = re.fullmatch('<iframe srcdoc="([^"]*)" sandbox="allow-scripts" [^>]*></iframe>', frame)
    assert document is not None
    assert unescape(document[1]) == drawn.text


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (
            even(3, 2),
            r"expected shape \(N, M\) = \(2, 3\) or .*, got \(3, 2\); rows are target words: transpose it",
        ),
        ([1.0, 2.0], r"weights: expected shape .*, got \(2,\)"),
        (np.zeros((2, 2, 3)), r"weights: expected shape .* got \(2, 2, 3\)"),
        (np.zeros((0, 1, 2, 3)), "expected at least one layer and one head, got 0 layers of 1 heads"),
        (
            [[[[0.5] * 3] * 2], [[[0.5] * 3] * 2] * 2],
            r"weights: expected 1 heads in every layer, got \[1, 2\]",
        ),
        ([[[[0.5] * 3] * 2, [[0.5] * 3]]], r"weights: expected as many rows in every head, got \[1, 2\]"),
        ([[0.5] * 3, [0.5] * 2], "weights: expected rows of 3 numbers, got 2"),
        ([[0.5] * 3, 0.5], "weights: expected rows of 3 numbers, got a number"),
        ([[0.5, 0.5, float("nan")], [1, 0, 0]], "weights: expected finite numbers of at least 0, got nan"),
        ([[0.5, 0.5, -1], [1, 0, 0]], "weights: expected finite numbers of at least 0, got -1"),
    ],
)
def test_wrong_weights_are_refused(weights: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        html(weights, ["a", "b", "c"], ["d", "e"])


@pytest.mark.parametrize(
    ("values", "indices", "message"),
    [
        ([[1.0]], [[0, 1]], r"expected the same shape .*, got \(1, 1\) and \(1, 2\)"),
        ([[1.0]], [[3]], r"indices: expected whole numbers from -1 \(unused\) to 2, got 3"),
        ([[1.0]], [[0.5]], r"indices: expected whole numbers .* got 0.5"),
    ],
)
def test_wrong_kept_weights_are_refused(values: object, indices: object, message: str) -> None:
    class Kept:
        pass

    kept = Kept()
    kept.values, kept.indices = values, indices  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=message):
        html(kept, ["a", "b", "c"], ["d"])


@pytest.mark.parametrize(
    ("weights", "source", "message"),
    [
        ("words", ["a"], "weights: expected an array or nested lists of numbers, got str"),
        ([[1.0]], "a", "source: expected a list of words, got one string; split it first"),
        ([[1.0]], 3, "source: expected a list of words, got int"),
        ([[1.0]], [3], "source: expected words that are strings, got int"),
    ],
)
def test_wrong_kinds_are_refused(weights: object, source: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        html(weights, source, ["b"])


@pytest.mark.parametrize("link", [(0,), (0, 1, 2), ("a", "b"), 3, (0.5, 0)])
def test_links_that_are_no_pairs_are_refused(link: Any) -> None:
    with pytest.raises(
        ValueError, match=r"links: expected pairs of whole numbers \(source word, target word\), got"
    ):
        html(even(1, 1), ["a"], ["b"], links=[link])


def test_all_is_sorted_and_complete() -> None:
    assert view.__all__ == sorted(view.__all__)
    assert all(hasattr(view, name) for name in view.__all__)
