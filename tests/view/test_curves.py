"""Curves: the points that were given, names beside their ends and never upon each other."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from headlights import view

SERIES = {
    "plain": [(5.0, 30.0), (15.0, 20.0), (25.0, 10.0)],
    "attending": [(15.0, 31.0), (5.0, 32.0), (25.0, 30.0)],
    "nearly the same": [(5.0, 33.0), (25.0, 30.2)],
    "empty": [],
}


def test_each_point_is_drawn_from_left_to_right() -> None:
    figure = view.curves(SERIES, x="words", y="BLEU", title="Lengths")
    (axes,) = figure.axes
    lines = {line.get_label(): np.asarray(line.get_xydata()).tolist() for line in axes.get_lines()}
    assert lines == {name: [list(p) for p in sorted(points)] for name, points in SERIES.items() if points}
    assert axes.get_ylim()[0] == 0
    assert axes.get_xlabel() == "words"


def test_names_stand_at_the_ends_and_apart() -> None:
    figure = view.curves(SERIES, x="words", y="BLEU", title="Lengths")
    figure.canvas.draw()
    boxes = {text.get_text(): text.get_window_extent() for text in figure.texts}
    names = [boxes[name] for name in ("plain", "attending", "nearly the same")]
    assert boxes["plain"].y1 < boxes["attending"].y0  # 10 ends far below 30
    assert boxes["attending"].y1 <= boxes["nearly the same"].y0
    for box in boxes.values():
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= figure.bbox.x1
        assert box.y1 <= figure.bbox.y1
    assert min(box.x0 for box in names) > figure.axes[0].get_window_extent().x1


def test_nothing_to_draw_is_said_and_numbers_that_are_none_refused() -> None:
    figure = view.curves({"a": []}, x="words", y="BLEU")
    assert [text.get_text() for text in figure.texts] == ["nothing to draw: none of 1 curves has a point"]
    with pytest.raises(ValueError, match=r"series: expected finite numbers, got .* for 'a'"):
        view.curves({"a": [(1.0, float("nan"))]}, x="words", y="BLEU")
