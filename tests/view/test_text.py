"""Labels: what they show and how wide they are."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from headlights.view import _text
from headlights.view._text import cell_width, clip, clusters, estimated_width, label, visible

INVISIBLE = [
    ("", "∅"),
    ("  ", "␣␣"),
    ("\t", "␉"),
    ("\u2066x\u2069", "⟨U+2066⟩x⟨U+2069⟩"),
    ("\ud83d", "⟨U+D83D⟩"),
]
KEPT = [
    "نمی\u200cخواهم",
    "👩\u200d🔬",
    "क्\u200dष",
    " the",
    "🏴\U000e0067\U000e0062\U000e007f",
    "a\u00a0b",
    "\ue000",
]


@pytest.mark.parametrize(("word", "shown"), INVISIBLE, ids=ascii)
def test_what_cannot_be_seen_is_shown(word: str, shown: str) -> None:
    assert label(word) == shown


@pytest.mark.parametrize("word", KEPT, ids=ascii)
def test_what_shapes_words_is_kept(word: str) -> None:
    assert label(word) == word


@given(st.text())
def test_visible_is_printable_and_stable(word: str) -> None:
    assert visible(visible(word)) == visible(word)
    assert not set(visible(word)) & {chr(code) for code in (*range(32), 127, 0x202E, 0x2066, 0x2028, 0x200F)}


@given(st.text())
def test_clusters_join_to_the_text(text: str) -> None:
    assert "".join(clusters(text)) == text


def test_clusters_keep_together_what_is_drawn_together() -> None:
    assert list(clusters("e\u0301a👩🏽‍🚀🇮🇹🇫🇷")) == ["e\u0301", "a", "👩🏽‍🚀", "🇮🇹", "🇫🇷"]


@given(st.text(), st.integers(1, 12))
def test_clip_is_narrow_enough_and_whole_if_it_can_be(text: str, width: int) -> None:
    text = visible(text)
    short = clip(text, width)
    assert cell_width(short) <= width
    assert short == text or (short.endswith("…") and text.startswith(short[:-1]))
    assert short == text or cell_width(text) > width


@pytest.mark.parametrize(
    "text", ["abc", "日本語", "e\u0301", "👩‍🔬", "👍🏽", "🇮🇹", "❤️", "سلام", "שָׁלוֹם", "⟨U+202E⟩"]
)
def test_estimate_without_rich_agrees_with_rich(text: str) -> None:
    assert estimated_width(text) == cell_len(text)


def test_width_is_estimated_where_rich_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.cells", None)
    _text._measure.cache_clear()
    try:
        assert _text._measure() is estimated_width
    finally:
        _text._measure.cache_clear()
