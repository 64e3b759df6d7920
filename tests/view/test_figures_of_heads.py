"""Figures of many heads: small maps, ribbons, entropies."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure

from headlights import view
from headlights.view._entropy import _entropies

from .test_figures import save, softmax
from .test_tiles import kept, names


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.texts]


def test_heads_stand_in_a_grid_of_layers_and_heads() -> None:
    weights = softmax(3, 5, (2, 4))
    figure = view.heads(weights, names(5), names(3))
    images = figure.axes[0].images
    assert len(images) == 8
    corners = []
    for panel, image in enumerate(images):
        assert np.array_equal(np.asarray(image.get_array()), weights[panel // 4, panel % 4])
        assert (image.norm.vmin, image.norm.vmax) == (0, weights.max())  # one scale for all
        left, _, _, top = image.get_extent()
        corners.append((round(top, 6), round(left, 6)))
    assert corners == sorted(corners)
    assert len({top for top, _ in corners}) == 2
    assert len({left for _, left in corners}) == 4
    assert [text for text in texts(figure) if text.startswith(("head", "layer"))] == [
        "head 1", "head 2", "head 3", "head 4", "layer 1", "layer 2",
    ]  # fmt: skip


def test_words_of_heads_stand_at_their_rows_and_columns() -> None:
    figure = view.heads(softmax(3, 5, (1, 2)), ["a", "b", "c", "d", "e"], ["x", "y", "z"])
    width, height = figure.get_size_inches()
    images = figure.axes[0].images
    left, right, bottom, top = images[0].get_extent()
    rows = {text.get_text(): (1 - text.get_position()[1]) * height for text in figure.texts}
    for i, word in enumerate("xyz"):
        assert rows[word] == pytest.approx(top + (i + 0.5) * (bottom - top) / 3)
    columns = [text.get_position()[0] * width for text in figure.texts if text.get_text() == "d"]
    starts = [image.get_extent()[0] for image in images]
    assert columns == pytest.approx([start + 3.5 * (right - left) / 5 for start in starts])


def test_heads_of_one_layer_are_wrapped() -> None:
    tops = [image.get_extent()[3] for image in view.heads(softmax(3, 3, (8,))).axes[0].images]
    assert len(set(tops[:4])) == len(set(tops[4:])) == 1
    assert tops[0] < tops[4]


def test_heads_without_words_say_how_many_there_are() -> None:
    assert "down: 3 target words, across: 5 source words" in texts(view.heads(softmax(3, 5, (2,))))


def test_heads_finer_than_dots_are_tiles() -> None:
    weights = np.zeros((1, 2, 700, 700))
    weights[0, 1, 699, 0] = 0.5
    for form in (weights, kept(weights, 2)):
        figure = view.heads(form, names(700), names(700))
        tiles = np.asarray(figure.axes[0].images[1].get_array())
        assert tiles[-1, 0] == tiles.max() == 0.5
        assert np.count_nonzero(tiles) == 1
        assert any("one dot: the largest of" in text for text in texts(figure))


def test_many_heads_stay_on_one_page() -> None:
    for L, H in [(1, 1), (24, 16), (12, 1), (1, 32)]:
        width, height = view.heads(np.ones((L, H, 2, 2)), title="word " * 80).get_size_inches()
        assert width < 12
        assert height < 16


def ribbons(figure: Figure) -> PathCollection:
    return next(item for item in figure.axes[0].collections if isinstance(item, PathCollection))


def test_ribbons_run_from_source_words_to_target_words() -> None:
    """The curve's ends are at the heights of the words; the strongest ribbon is drawn last."""
    figure = view.lines([[0.0, 0.0, 0.25], [1.0, 0.5, 0.0]], ["a", "b", "c"], ["x", "y"])
    height = figure.get_size_inches()[1]
    at = {text.get_text(): (1 - text.get_position()[1]) * height for text in figure.texts}
    drawn = ribbons(figure)
    paths = drawn.get_paths()
    ends = [(path.vertices[0][1], path.vertices[-1][1]) for path in paths]  # type: ignore[index]
    expected = [("c", "x"), ("b", "y"), ("a", "y")]
    assert ends == [pytest.approx((at[source], at[target])) for source, target in expected]
    opacity = np.asarray(drawn.get_edgecolor())[:, 3]
    assert opacity.tolist() == pytest.approx([0.06 + 0.84 * share for share in (0.25, 0.5, 1.0)])
    width: Any = drawn.get_linewidth()
    assert width[2] == pytest.approx(2 * width[1])


def test_ribbons_of_several_heads_have_a_colour_each_and_a_legend() -> None:
    figure = view.lines(np.eye(2)[None].repeat(3, 0), ["a", "b"], ["x", "y"])
    colours = {tuple(color[:3]) for color in np.asarray(ribbons(figure).get_edgecolor())}
    assert len(colours) == 3
    legend = [text for text in figure.texts if text.get_text().startswith("■")]
    assert [text.get_text() for text in legend] == ["■ head 1", "■ head 2", "■ head 3"]


def test_faint_ribbons_are_left_out() -> None:
    figure = view.lines([[1.0, 0.011, 0.009, 0.0]], ["a", "b", "c", "d"], ["x"])
    assert len(ribbons(figure).get_paths()) == 2
    assert save(view.lines([[0.0]], ["a"], ["x"]))  # nothing at all to draw


def test_of_very_many_ribbons_the_strongest_are_drawn_and_a_line_says_so() -> None:
    weights = np.random.default_rng(3).random((100, 100))
    figure = view.lines(weights, names(100), names(100))
    drawn = ribbons(figure)
    assert len(drawn.get_paths()) == 4000
    least = np.asarray(drawn.get_edgecolor())[0, 3]
    assert least == pytest.approx(0.06 + 0.84 * np.sort(weights.ravel())[-4000] / weights.max())
    assert "the 4,000 strongest of 10,000 weights" in texts(figure)
    assert drawn.get_rasterized()  # one picture in SVG and PDF, beside words that stay vectors
    assert not ribbons(view.lines([[1.0]], ["a"], ["x"])).get_rasterized()


def test_ribbons_of_several_layers_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"^weights: expected one layer, got 2; pick one as weights\[layer\]$"
    ):
        view.lines(softmax(2, 2, (2, 3)), ["a", "b"], ["x", "y"])


def table(figure: Figure) -> Any:
    return np.asarray(figure.axes[0].collections[0].get_array())


def test_entropy_of_weights_is_that_of_the_formula() -> None:
    weights = softmax(3, 7, (2, 5))
    expected = [
        [[-sum(w * math.log(w) for w in row) for row in head] for head in layer] for layer in weights.tolist()
    ]
    assert np.allclose(table(view.entropy(weights, names(3))), np.reshape(expected, (10, 3)), atol=1e-12)
    figure = view.entropy(torch.tensor(weights))
    assert np.allclose(table(figure), np.mean(expected, -1), atol=1e-12)
    assert figure.axes[0].collections[0].norm.vmax == pytest.approx(math.log(7))
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["1", "2"]
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["1", "2", "3", "4", "5"]
    cell = [text for text in figure.axes[0].texts if text.get_position() == (2.5, 1.5)]
    assert [text.get_text() for text in cell] == [f"{np.mean(expected[1][2]):.2f}"]


def test_entropy_of_edges() -> None:
    """One word: 0; two alike: ln 2, also if the row's sum is not 1; nothing: 0; all of four: ln 4."""
    rows = np.array([[0, 1, 0, 0], [0.2, 0.2, 0, 0], [0, 0, 0, 0], [0.25] * 4])
    assert _entropies(rows).tolist() == pytest.approx([0, math.log(2), 0, math.log(4)], abs=1e-12)


def test_entropies_are_drawn_as_they_are() -> None:
    values = np.array([[[0.5, 1.0]], [[1.5, 0.25]]])  # (L, H, N) = (2, 1, 2)
    figure = view.entropy([*torch.tensor(values)], ["a", "b"], M=5)
    assert table(figure).tolist() == values[:, 0].tolist()
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == [
        "layer 1 head 1",
        "layer 2 head 1",
    ]
    assert "ln 5 = 1.61" in texts(figure)[-1]
    assert view.entropy(values).axes[0].collections[0].norm.vmax == 0.875  # the mean of 1.5 and 0.25
    assert texts(view.entropy(np.zeros((2, 3, 0)))) == [
        "nothing to draw: 2 layers of 3 heads, 0 target words"
    ]


@pytest.mark.parametrize(
    ("values", "more", "message"),
    [
        ([[0.5]], {}, r"^values: expected entropies of shape \(L, H, N\) or weights .*got \(1, 1\)$"),
        ([[[float("nan")]]], {}, r"^values: expected finite numbers of at least 0, got nan$"),
        ([[[-0.5]]], {}, r"^values: expected finite numbers of at least 0, got -0\.5$"),
        ([[[2.0]]], {"M": 4}, r"^values: expected entropies in nats of at most ln 4 = 1\.386, got 2; bits"),
        ([[[2.0]]], {"M": 0}, r"^M: expected at least 1 key, got 0$"),
        ([[[[0.5, 0.5]]]], {"M": 3}, r"^M: expected 2 for weights of shape \(1, 1, 1, 2\), got 3$"),
        ([[[2.0]]], {"target": ["a", "b"]}, r"^target: expected 1 words for entropies of shape \(1, 1, 1\)"),
        (SimpleNamespace(values=[[1.0]], indices=[[0]]), {}, r"^values: .*kept largest weights, which lack"),
    ],
)
def test_what_is_no_entropy_is_refused_in_one_line(
    values: object, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        view.entropy(values, **more)
