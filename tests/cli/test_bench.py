"""`headlights bench`: what it prints and writes, and what it refuses."""

import json
import sys
from pathlib import Path

import pytest
import torch

from headlights.bench import cases
from tests.cli.conftest import Command


def test_quick_run_prints_and_writes_every_row_and_the_sweep(headlights: Command, tmp_path: Path) -> None:
    data, table, picture = tmp_path / "all.json", tmp_path / "table.md", tmp_path / "sweep.svg"
    found = headlights(
        *("bench", "attention", "--quick", "--threads", "1", "--device", "cpu"),
        *("--json", data, "--markdown", table, "--plot", picture),
    )
    assert found.status == 0
    assert "additive scores (2, 5, 7, 11), forward, float32" in found.output
    assert "\nlayer (1, 32, 24, 3), float32" in found.output
    assert "attention (1, 2, 67, 8), window(5, 0)\n" in found.errors
    (run,) = json.loads(data.read_text(encoding="utf-8"))
    assert {each["row"] for each in run["rows"]} == {case.row for case in cases.rows()}
    assert not any(each["wrong"] for each in [*run["rows"], *run["sweep"]])
    for each in run["rows"]:
        assert each["measured"]["headlights"]["timing"]["median"] > 0
    (training,) = (each for each in run["rows"] if each["row"] == "training")
    assert training["measured"]["headlights"]["peak"] is not None
    ours = [name for each in run["rows"] for name in each["measured"] if name.startswith("headlights")]
    assert len(table.read_text(encoding="utf-8").splitlines()) == 2 + len(ours) + 2
    assert picture.read_bytes().startswith(b"<?xml")


def test_rows_are_chosen_and_halves_are_measured(headlights: Command) -> None:
    found = headlights(
        "bench", "--quick", "--rows", "plain, window", "--dtype", "bfloat16", "--device", "cpu"
    )
    assert found.status == 0
    assert "attention (1, 2, 3, 8), nothing observed, bfloat16" in found.output
    assert "layer" not in found.output


def test_crossover_prints_the_constants_of_the_code(headlights: Command) -> None:
    found = headlights("bench", "--crossover", "--quick", "--threads", "1", "--device", "cpu")
    assert found.status == 0
    assert "N = M = 32, window(4, 4): fused " in found.output
    assert "\nMANY_SCORES = " in found.output
    assert "\nSHARES = ((" in found.output


def test_wrong_result_ends_with_status_1_and_is_named(
    headlights: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*_inputs: object, **_options: object) -> torch.Tensor:
        return torch.ones(1, 2, 3, 8)

    monkeypatch.setattr("headlights.bench.attends.attend", wrong)
    found = headlights("bench", "--quick", "--rows", "plain", "--device", "cpu")
    assert found.status == 1
    expected = "headlights: wrong results, not timed: headlights in attention (1, 2, 3, 8), nothing observed"
    assert found.errors.splitlines()[-1] == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["translation"], "Invalid value for 'attention': "),
        (["--rows", "step,steps"], "--rows steps: expected some of additive, additive-words, "),
        (["--plot", "a.pdf"], "--plot a.pdf: expected a name that ends in .svg or .png"),
        (["--plot", "a.svg", "--rows", "step"], "--plot draws the sweep, which --rows step leaves out; "),
        (["--json", "no/such/folder/a.json"], "--json no/such/folder/a.json: there is no folder "),
        (["--docs", "no-such-folder"], "--docs no-such-folder: expected benchmarks.md in it, "),
        (["--device", "gpu7"], "--device gpu7: is no device; try --device cpu"),
        (["--crossover", "--rows", "step"], "--crossover prints its table and takes none of --rows, "),
        (["--dtype", "float16"], "Invalid value for '--dtype': "),
        (["--threads", "0"], "Invalid value for '--threads': "),
    ],
)
def test_mistakes_are_one_line(
    headlights: Command, arguments: list[str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert headlights("bench", *arguments).error.startswith(expected)


def test_missing_matplotlib_is_said_before_anything_is_measured(
    headlights: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    found = headlights("bench", "--plot", tmp_path / "a.svg")
    assert found.error == "--plot draws with matplotlib: pip install 'headlights[view]'"
