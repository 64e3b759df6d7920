"""Maps and alignments as text."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from headlights.view import alignment_text, terminal

WORDS = [
    "the",
    "日本語",
    "سلام",
    "👩‍🔬",
    "e\u0301te\u0301",
    "नमस्ते",
    "שלום",
    "\u202eevil",
    "a\tb\n",
    "",
    "  ",
    "🇮🇹",
    "<unk>",
]


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_map_is_drawn_as_documented() -> None:
    # 0.75 and 0.25 of the largest weight, 1, are the third and the first of four shades
    drawn = terminal([[0.75, 0.25], [0, 1]], ["the", "cat"], ["il", "gatto"], color=False, width=40)
    assert drawn.splitlines() == ["      the cat", "il    ▓▓▓ ░░░", "gatto     ███", "shades up to 1.00"]


def test_numbers_are_written_into_the_cells() -> None:
    drawn = terminal(
        [[0.75, 0.25], [0, 1]], ["the", "cat"], ["il", "gatto"], color=False, width=40, numbers=True
    )
    assert drawn.splitlines()[1:] == ["il    .75 .25", "gatto  ·  1.0", "weights up to 1.00"]


@pytest.mark.parametrize(
    ("weight", "text"),
    [(3.14, "3.1"), (9.96, "10"), (42.4, "42"), (999.4, "999"), (1e9, ">1k"), (0.996, "1.0")],
)
def test_numbers_take_three_columns(weight: float, text: str) -> None:
    assert (
        terminal([[weight]], ["a"], ["b"], color=False, width=20, numbers=True).splitlines()[1] == f"b {text}"
    )


@given(
    source=st.lists(st.sampled_from(WORDS) | st.text(max_size=9), min_size=1, max_size=47),
    target=st.lists(st.sampled_from(WORDS) | st.text(max_size=40), min_size=1, max_size=5),
    width=st.integers(20, 120),
    numbers=st.booleans(),
    color=st.booleans(),
    seed=st.integers(0, 99),
)
def test_no_line_is_wider_than_asked(
    source: list[str], target: list[str], width: int, numbers: bool, color: bool, seed: int
) -> None:
    weights = np.random.default_rng(seed).dirichlet(np.ones(len(source)), len(target))
    drawn = terminal(weights, source, target, color=color, width=width, numbers=numbers)
    assert all(cell_len(line) <= width for line in plain(drawn).splitlines())
    links = [(j, 0) for j in range(len(source))]
    assert all(
        cell_len(line) <= width for line in alignment_text(links, source, target, width=width).splitlines()
    )


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("M", [3, 11, 25])
def test_cells_stand_below_their_column_in_any_script(M: int, width: int) -> None:
    source = (WORDS * 2)[:M]
    drawn = terminal(np.eye(M), source, source, color=False, width=width).splitlines()
    starts = [cell_len(line[: line.index("█")]) for line in drawn if "█" in line]
    assert len(starts) == M
    assert starts == sorted(set(starts))
    if "1" not in drawn[0]:  # the columns bear words
        shown = [drawn[0].index(word) for word in ("the", "日本語", "👩‍🔬") if word in source[:M]]
        places = [cell_len(drawn[0][:at]) for at in shown]
        assert places == [starts[source.index(w)] for w in ("the", "日本語", "👩‍🔬") if w in source[:M]]


def test_words_that_do_not_fit_become_numbers_with_a_legend() -> None:
    source = [f"word{i}" for i in range(1, 24)]
    drawn = terminal(np.eye(23), source, source, color=False, width=80).splitlines()
    assert drawn[0].split() == [str(i) for i in range(1, 24)]
    legend = " ".join(drawn[24:])
    assert all(f"{i} word{i}" in legend for i in range(1, 24))


def test_numbers_of_narrow_columns_stand_upright() -> None:
    drawn = terminal([[0] * 28 + [1.0]], ["abc"] * 29, ["x"], color=False, width=40).splitlines()
    assert drawn[0].rstrip() == " " * 11 + "1" * 10 + "2" * 10
    assert drawn[1].strip() == "12345678901234567890123456789"
    assert drawn[2] == "x" + " " * 29 + "█"


def test_wide_maps_continue_in_panels() -> None:
    drawn = terminal(np.eye(41), ["a"] * 41, ["b"] * 41, color=False, width=20)
    panels = drawn.split("\n\n")
    assert len(panels) == 3  # 18 columns in each
    assert sum(panel.count("█") for panel in panels) == 41


def test_color_only_where_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in terminal([[1.0]], ["a"], ["b"])  # captured output is no terminal
    colored = terminal([[1.0, 0.5]], ["a", "b"], ["c"], color=True, width=40)
    assert "\x1b[30;48;2;251;240;182m" in colored  # the largest weight has the brightest colour, #fbf0b6
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b" in terminal([[1.0]], ["a"], ["b"])
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in terminal([[1.0]], ["a"], ["b"])


def test_control_characters_of_words_are_made_visible() -> None:
    drawn = terminal(np.eye(3), ["\x1b[31m", "\u202eevil", "a\nb"], ["x", "y", "z"], color=False, width=80)
    assert not set("\x1b\u202e") & set(drawn)
    assert all(shown in drawn for shown in ("␛[31m", "⟨U+202E⟩evil", "a␊b"))
    assert len(drawn.splitlines()) == 5


def test_right_to_left_words_leave_their_neighbours_in_place() -> None:
    """A left-to-right mark, which takes no column, on both sides: in heads, rows, legends and alignments."""
    mark, word = "\u200e", "سلام"
    wide = terminal(np.eye(2), [word, "b"], [word, "c"], color=False, width=40).splitlines()
    assert wide[0] == f"     {mark}{word} {mark}b"
    assert wide[1] == f"{mark}{word} {mark}████"
    narrow = terminal(np.eye(9), [word] * 9, ["x"] * 9, color=False, width=30)
    assert f"1 {mark}{word}{mark}  2 {mark}{word}{mark}" in narrow
    assert alignment_text([], [word], ["c"], width=20).splitlines()[0] == f"source  {mark}{word}{mark}¹"


def test_nothing_to_draw_says_so() -> None:
    assert terminal(np.zeros((0, 2)), ["a", "b"], []) == "nothing to draw: 2 source words, 0 target words"


def test_zero_map_is_drawn() -> None:
    assert terminal([[0, 0]], ["a", "b"], ["c"], color=False).splitlines()[1:] == ["c", "shades up to 0.00"]


def test_alignment_numbers_source_words() -> None:
    drawn = alignment_text(
        [(0, 0), (2, 1), (1, 2), (2, 2)], ["the", "red", "cat"], ["il", "gatto", "rosso", "x"], width=60
    )
    assert drawn.splitlines() == ["source  the¹ red² cat³", "target  il¹ gatto³ rosso²⁺³ x"]


def test_alignment_wraps_under_its_first_word() -> None:
    drawn = alignment_text([], ["aaaa", "bbbb", "cccc"], ["d"], width=20)
    assert drawn.splitlines() == ["source  aaaa¹ bbbb²", "        cccc³", "target  d"]


def test_alignment_refuses_links_outside_the_sentence() -> None:
    with pytest.raises(
        ValueError, match=r"links: expected pairs below \(2, 1\).*got \(2, 0\); words are counted from 0"
    ):
        alignment_text([(2, 0)], ["a", "b"], ["c"])


def test_narrow_width_is_refused() -> None:
    with pytest.raises(ValueError, match="width: expected at least 20 columns, got 19"):
        terminal([[1.0]], ["a"], ["b"], width=19)
