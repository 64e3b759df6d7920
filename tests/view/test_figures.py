"""Matplotlib figures of maps and links: the right cells, legible labels in their places, no global state."""

import io
import subprocess
import sys
import textwrap
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.text import Text

from headlights import view
from headlights.view import _labels
from headlights.view._colours import map_colours
from headlights.view._labels import MISSING, labels_of, nice_step, shorten, written
from headlights.view._text import cell_width

from .test_tiles import kept, names

ODD = [
    "Donaudampfschifffahrtsgesellschaftskapitän", "日本語", "שלום", "العربية", "👩‍🔬", "a\nb", "$x^2$", "",
    "  ", "\u202ecba", "\ud800", "_a_", "\\", "%s",
]  # fmt: skip


def softmax(N: int, M: int, heads: tuple[int, ...] = ()) -> Any:
    scores = np.exp(2 * np.random.default_rng(N + M).normal(size=(*heads, N, M)))
    return scores / scores.sum(-1, keepdims=True)


def links_of(N: int) -> list[tuple[int, int]]:
    return [(i, i) for i in range(0, N, 2)]


DRAWINGS: dict[str, Callable[[int], Figure]] = {
    "matrix": lambda N: view.matrix(softmax(N, N), names(N), names(N), title="A title", links=links_of(N)),
    "sparse": lambda N: view.matrix(kept(softmax(N, N), 8), names(N), names(N)),
    "alignment": lambda N: view.alignment(links_of(N), names(N), names(N), possible=[(0, N - 1)]),
    "heads": lambda N: view.heads(softmax(N, N, (2, 3)), names(N), names(N), title="A title"),
    "one layer": lambda N: view.heads(softmax(N, N, (8,)), names(N), names(N)),
    "lines": lambda N: view.lines(softmax(N, N), names(N), names(N), title="A title"),
    "several lines": lambda N: view.lines(softmax(N, N, (5,)), names(N), names(N)),
    "entropy": lambda N: view.entropy(softmax(N, N, (2, 3)), names(N), title="A title"),
}


def save(figure: Figure, kind: str = "png") -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind)
    return buffer.getvalue()


def shown_texts(figure: Figure) -> list[Text]:
    found = [text for text in figure.findobj(Text) if isinstance(text, Text)]
    return [text for text in found if text.get_visible() and text.get_text()]


@pytest.mark.parametrize("N", [1, 3, 30, 300])
@pytest.mark.parametrize("name", DRAWINGS)
def test_every_label_stands_inside_the_figure_and_none_on_another(name: str, N: int) -> None:
    figure = DRAWINGS[name](N)
    save(figure)
    paper = figure.bbox
    boxes = []
    for text in shown_texts(figure):
        box = text.get_window_extent()
        assert box.x0 >= paper.x0 - 1, text.get_text()
        assert box.y0 >= paper.y0 - 1, text.get_text()
        assert box.x1 <= paper.x1 + 1, text.get_text()
        assert box.y1 <= paper.y1 + 1, text.get_text()
        if text.get_rotation() != 45:  # the boxes of slanted words overlap where the words do not
            boxes.append((box.shrunk(0.8, 0.7), text.get_text()))
    boxes.sort(key=lambda pair: pair[0].y0)
    for index, (box, word) in enumerate(boxes):
        for other, next_word in boxes[index + 1 :]:
            if other.y0 > box.y1:
                break
            assert not box.overlaps(other), (word, next_word)


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
@pytest.mark.parametrize("name", DRAWINGS)
def test_figures_are_saved_as_picture_and_vectors(name: str, kind: str) -> None:
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[kind]
    assert save(DRAWINGS[name](5), kind).startswith(start)


def test_a_small_map_has_every_weight_in_its_cell_and_every_word_beside_it() -> None:
    weights, source, target = softmax(3, 4), ["The", "cat", "sleeps", "."], ["Il", "gatto", "dorme"]
    figure = view.matrix(weights, source, target)
    axes, bar = figure.axes
    cells = next(item for item in axes.collections if isinstance(item, QuadMesh))
    assert np.array_equal(np.asarray(cells.get_array()), weights)
    assert [text.get_text() for text in axes.get_yticklabels()] == target
    assert [text.get_text() for text in axes.get_xticklabels()] == source
    assert axes.get_yticks().tolist() == [0.5, 1.5, 2.5]
    assert axes.get_xticks().tolist() == [0.5, 1.5, 2.5, 3.5]
    assert axes.get_ylim() == (3, 0)  # the first row is at the top
    assert cells.norm.vmin == 0
    assert cells.norm.vmax == weights.max()
    assert bar.get_yticklabels()[-1].get_text() == f"{weights.max():.3g}"


def test_colours_are_those_of_the_other_pictures() -> None:
    axes = view.matrix([[0.0, 0.5, 1.0]], ["a", "b", "c"], ["d"]).axes[0]
    cells = next(item for item in axes.collections if isinstance(item, QuadMesh))
    cells.update_scalarmappable()
    drawn = [to_hex(color) for color in np.asarray(cells.get_facecolor())]
    colours = map_colours(dark=False)
    assert drawn[0] == colours[0]
    assert drawn[2] == colours[-1]
    close = [abs(int(drawn[1][i : i + 2], 16) - int(colours[24][i : i + 2], 16)) for i in (1, 3, 5)]
    assert max(close) <= 3  # 256 steps have none exactly in the middle


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_a_map_finer_than_dots_shows_the_largest_weight_of_each_tile(form: str) -> None:
    weights = np.zeros((1200, 1800))
    weights[7, 1790], weights[1195, 3] = 0.5, 1.0  # single weights, which sampling would miss
    top = weights if form == "dense" else kept(weights, 2)
    figure = view.matrix(top, names(1800), names(1200))
    image = figure.axes[0].images[0]
    assert isinstance(image, AxesImage)
    tiles, (left, right, bottom, top_edge) = np.asarray(image.get_array()), image.get_extent()
    down, across = bottom / tiles.shape[0], right / tiles.shape[1]
    assert (left, top_edge) == (0, 0)
    assert down == int(down) > 1
    assert across == int(across) > 1
    assert tiles[int(7 // down), int(1790 // across)] == 0.5
    assert tiles[int(1195 // down), int(3 // across)] == 1.0
    assert np.count_nonzero(tiles) == 2
    notes = [text.get_text() for text in figure.texts]
    assert f"one dot: the largest of {int(down)} × {int(across)} weights" in notes


def test_tiles_are_not_finer_than_dots_at_100_to_the_inch() -> None:
    figure = view.matrix(kept(softmax(1700, 1900), 3), names(1900), names(1700))
    axes = figure.axes[0]
    tiles = np.asarray(axes.images[0].get_array())
    box, (width, height) = axes.get_position(), figure.get_size_inches()
    assert tiles.shape[1] <= box.width * width * 100
    assert tiles.shape[0] <= box.height * height * 100


def test_sparse_weights_are_drawn_like_dense_ones() -> None:
    weights = softmax(7, 11)
    dense, sparse = (view.matrix(form, names(11), names(7)) for form in (weights, kept(weights, 11)))
    assert save(dense) == save(sparse)


@pytest.mark.parametrize(("N", "M"), [(300, 300), (3000, 3000), (3, 3000), (3000, 3)])
def test_labels_thin_out_evenly_and_bear_their_numbers(N: int, M: int) -> None:
    figure = view.matrix(kept(softmax(N, M), 2), names(M), names(N))
    axes = figure.axes[0]
    for count, ticks, labels in (
        (N, axes.get_yticks(), axes.get_yticklabels()),
        (M, axes.get_xticks(), axes.get_xticklabels()),
    ):
        places = [int(tick - 0.5) for tick in ticks]
        assert [text.get_text() for text in labels] == [f"w{place}" for place in places]
        assert len({b - a for a, b in pairwise(places)}) == 1
        assert len(places) == min(count, len(places))
        if count > 3:
            assert 20 <= len(places) <= 70
            numbers = [text.get_text() for text in axes.texts if text.get_text().isdigit()]
            assert set(numbers) >= {str(place + 1) for place in places}


def test_a_large_map_stays_small_as_svg() -> None:
    figure = view.matrix(softmax(3000, 3000).astype(np.float32), names(3000), names(3000))
    assert len(save(figure, "svg")) < 1_000_000


def test_few_cells_are_vectors_and_many_are_one_picture() -> None:
    few, many = (view.matrix(softmax(N, N), names(N), names(N)).axes[0] for N in (30, 60))
    assert (len(few.collections), len(few.images)) == (1, 0)
    assert (len(many.collections), len(many.images)) == (0, 1)


def test_figures_are_bounded_however_long_the_sentences() -> None:
    for N, M in [(1, 1), (1, 5000), (5000, 1), (5000, 5000)]:
        top = kept(np.ones((N, M), np.float32), 1)
        assert max(view.matrix(top, names(M), names(N)).get_size_inches()) < 12


def test_odd_words_are_drawn_without_a_warning() -> None:
    N = len(ODD)
    for figure in (
        view.matrix(softmax(N, N), ODD, ODD, title="$odd$\n日本"),
        view.heads(softmax(N, N), ODD, ODD),
        view.lines(softmax(N, N), ODD, ODD, title="$odd$"),
        view.alignment([], ODD, ODD),
    ):
        save(figure)
        save(figure, "svg")
        save(figure, "pdf")
        shown = shown_texts(figure)
        assert "$x^2$" in [text.get_text() for text in shown]
        assert not any(text.get_parse_math() for text in shown)  # a dollar sign is no formula


@settings(max_examples=12, deadline=None)
@given(st.lists(st.text(max_size=4), min_size=1, max_size=4))
def test_any_word_can_be_drawn(words: list[str]) -> None:
    save(view.matrix(np.ones((len(words), 1)), ["a"], words))


def test_a_character_that_no_font_has_is_a_box(monkeypatch: pytest.MonkeyPatch) -> None:
    only = tuple(font for font in _labels._plain_fonts() if font[0] == _labels.FAMILY)
    _labels._homes.cache_clear()
    monkeypatch.setattr(_labels, "_plain_fonts", lambda: only)
    try:
        shown = labels_of(["日本", "é👩‍🔬x", "abc"], 9.0)
        assert [label.text for label in shown] == [MISSING * 2, f"é{MISSING}x", "abc"]
        assert {label.families for label in shown} == {(_labels.FAMILY,)}
    finally:
        _labels._homes.cache_clear()


@given(st.text(), st.integers(3, 12))
def test_long_words_lose_their_middle(text: str, width: int) -> None:
    short = shorten(text, width)
    head, _, tail = short.partition("…")
    assert cell_width(short) <= width
    assert short == text or (text.startswith(head) and text.endswith(tail) and "…" in short)


def test_shorten_keeps_as_much_of_both_ends() -> None:
    assert shorten("abcdefghij", 7) == "abc…hij"
    assert shorten("日本語日本語", 6) == "日…語"  # two columns each, one for the ellipsis


def test_a_title_is_shortened_to_the_figure() -> None:
    assert written("word " * 60, 11.0, 4.0).width <= 4.0


@pytest.mark.parametrize(("least", "step"), [(0.3, 1), (1.0, 1), (1.1, 2), (2.1, 5), (5.1, 10), (45.0, 50)])
def test_steps_between_labels_are_round(least: float, step: int) -> None:
    assert nice_step(least) == step


def marks(figure: Figure) -> list[PathCollection]:
    return [item for item in figure.axes[0].collections if isinstance(item, PathCollection)]


def places(mark: PathCollection) -> list[list[float]]:
    return [[float(x), float(y)] for x, y in np.asarray(mark.get_offsets())]


def test_links_stand_in_the_cells_of_their_words() -> None:
    """A link (source 2, target 1) is in column 2 of row 1, whose middle is (2.5, 1.5)."""
    sure, possible = marks(view.alignment([(2, 1), (0, 0)], names(3), names(2), possible=[(1, 1), (0, 0)]))
    assert places(sure) == [[0.5, 0.5], [2.5, 1.5]]
    assert places(possible) == [[1.5, 1.5]]  # the other is sure
    assert len(sure.get_facecolor()) == 1  # filled
    assert len(possible.get_facecolor()) == 0


def test_links_are_rings_on_weights() -> None:
    (ring,) = marks(view.matrix(softmax(2, 3), names(3), names(2), links=[(2, 1)]))
    assert places(ring) == [[2.5, 1.5]]
    sure, possible = marks(view.alignment([(2, 1)], names(3), names(2), softmax(2, 3), possible=[(1, 1)]))
    assert len(sure.get_facecolor()) == len(possible.get_facecolor()) == 0
    assert sure.get_linestyle() != possible.get_linestyle()


def test_links_outside_the_sentences_are_refused() -> None:
    with pytest.raises(ValueError, match=r"links: expected pairs below \(3, 2\)"):
        view.alignment([(2, 2)], names(3), names(2))
    with pytest.raises(ValueError, match=r"weights: expected shape \(N, M\) = \(2, 3\)"):
        view.alignment([], names(3), names(2), softmax(3, 2))


def test_several_heads_are_refused_by_a_picture_of_one() -> None:
    with pytest.raises(ValueError, match=r"got 1 layers of 4 heads; pick one .*view\.heads"):
        view.matrix(softmax(2, 3, (4,)), names(3), names(2))


@pytest.mark.parametrize("name", ["matrix", "heads", "lines", "alignment"])
def test_nothing_to_draw_says_so(name: str) -> None:
    draw = getattr(view, name)
    figure = draw([], ["a", "b"], [], title="Empty")
    save(figure)
    said = [text.get_text() for text in figure.texts]
    assert said == ["Empty", "nothing to draw: 2 source words, 0 target words"]
    assert draw([] if name == "alignment" else [[]], [], ["a"]).texts[0].get_text().startswith("nothing")


@pytest.mark.parametrize("kind", ["float16", "float32", "longdouble", "bool", "int8"])
def test_numbers_of_any_kind_are_drawn(kind: str) -> None:
    weights = np.eye(40).astype(kind)
    for draw in (view.matrix, view.heads, view.lines):
        save(draw(weights, names(40), names(40)))


def test_zeros_are_drawn_on_a_scale_that_ends_with_one() -> None:
    cells = view.matrix([[0.0]], ["a"], ["b"]).axes[0].collections[0]
    assert cells.norm.vmax == 1


def test_a_notebook_shows_figures_without_pyplot() -> None:
    figure: Any = view.matrix([[1.0]], ["a"], ["b"])
    assert figure._repr_png_().startswith(b"\x89PNG")


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_pyplot_and_no_setting_is_touched() -> None:
    assert (
        run("""
        import io, sys
        import matplotlib
        before = dict(dict.items(matplotlib.rcParams))  # reading the backend's entry would choose one
        from headlights import view
        words = ["a", "b"]
        weights = [[0.5, 0.5], [1.0, 0.0]]
        for figure in (
            view.matrix(weights, words, words),
            view.heads(weights, words, words),
            view.lines(weights, words, words),
            view.alignment([(0, 1)], words, words),
            view.entropy([[[0.5, 0.6]]]),
            view.training([{"update": 1, "loss": 2.0}]),
        ):
            figure.savefig(io.BytesIO(), format="png")
        assert dict(dict.items(matplotlib.rcParams)) == before
        assert "matplotlib.pyplot" not in sys.modules
        assert "torch" not in sys.modules
        print("fine")
        """).strip()
        == "fine"
    )


def test_pictures_do_without_matplotlib_and_figures_name_the_extra() -> None:
    assert (
        run("""
        import sys
        sys.modules["matplotlib"] = None
        from headlights import view
        view.svg([[1.0]], ["a"], ["b"])
        try:
            view.matrix
        except ImportError as error:
            print(error)
        """).strip()
        == "view.matrix needs the package matplotlib: pip install 'headlights[view]'"
    )


def test_unknown_names_are_no_attributes() -> None:
    with pytest.raises(AttributeError, match=r"module 'headlights\.view' has no attribute 'matrx'"):
        getattr(view, "matrx")  # noqa: B009
    assert set(view.__all__) == set(dir(view))


def test_users_settings_do_not_spoil_a_figure() -> None:
    with mpl.rc_context({"axes.grid": True, "figure.constrained_layout.use": True, "font.size": 20}):
        styled = save(view.matrix(softmax(4, 4), names(4), names(4), title="A title"))
    assert styled == save(view.matrix(softmax(4, 4), names(4), names(4), title="A title"))
