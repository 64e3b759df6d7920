"""The figure of a training: what a log holds, and no more."""

import math
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from headlights import view

from .test_figures import save

LOG = [
    {"update": 10, "epoch": 0, "loss": 4.0, "learning_rate": 0.001, "tokens_per_second": 900},
    {"update": 20, "validation_loss": 3.5, "validation_bleu": 12.5, "best": True, "seconds": 2.0},
    {"update": 20, "epoch": 0, "loss": 3.0, "learning_rate": 0.002, "tokens_per_second": 1100},
    {"update": 30, "validation_loss": 2.5, "validation_bleu": 11.5, "best": False, "seconds": 3.0},
]


def curves(figure: Figure) -> list[list[tuple[str, list[Any], list[Any]]]]:
    """Name, updates and numbers of the curves of each panel."""
    return [
        [
            (str(line.get_label()), list(np.asarray(line.get_xdata())), list(np.asarray(line.get_ydata())))
            for line in axes.lines
            if not str(line.get_label()).startswith("_")
        ]
        for axes in figure.axes
    ]


def units(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.texts]


def test_each_panel_holds_the_numbers_of_its_keys() -> None:
    figure = view.training(LOG)
    assert save(figure)
    assert curves(figure) == [
        [("training", [10, 20], [4.0, 3.0]), ("validation", [20, 30], [3.5, 2.5])],
        [("validation", [20, 30], [12.5, 11.5])],
        [("training", [10, 20], [900, 1100])],
        [("training", [10, 20], [0.001, 0.002])],
    ]
    assert [unit.split(",")[0].split(" of")[0] for unit in units(figure)] == [
        "loss", "BLEU", "speed", "learning rate",
    ]  # fmt: skip
    assert len({axes.get_xlim() for axes in figure.axes}) == 1
    assert all(axes.get_ylim()[0] == 0 for axes in figure.axes)


def test_the_best_bleu_is_ringed() -> None:
    axes = view.training(LOG).axes[1]
    ring = axes.lines[-1]
    assert (ring.get_xdata(), ring.get_ydata()) == ([20], [12.5])
    assert [text.get_text() for text in axes.texts] == ["12.5"]


def test_missing_keys_and_numbers_that_are_none_are_left_out() -> None:
    rows: list[dict[str, Any]] = [
        {"update": 1, "loss": 2.0},
        {"update": 2},
        {"loss": 1.0},
        {"update": 3, "loss": math.nan},
        {"update": 4, "loss": None},
        {"update": 5, "loss": "low"},
        {"update": 6, "loss": 1.5, "validation_bleu": None},
    ]
    assert curves(view.training(iter(rows), title="A run")) == [[("training", [1, 6], [2.0, 1.5])]]


@pytest.mark.parametrize("rows", [[], [{"update": 3}, {"loss": 1.0}]])
def test_a_log_without_numbers_says_so(rows: list[dict[str, Any]]) -> None:
    assert units(view.training(rows)) == [
        f"nothing to draw: none of {len(rows)} rows holds update and something to draw"
    ]


def test_losses_of_zero_at_update_zero_are_drawn() -> None:
    assert save(view.training([{"update": 0, "loss": 0.0, "validation_bleu": 0.0}]))


def test_lines_of_text_are_refused() -> None:
    with pytest.raises(
        TypeError, match=r"^rows: expected mappings, .*got str; read each line with json\.loads$"
    ):
        view.training(['{"update": 1}'])  # type: ignore[list-item]
