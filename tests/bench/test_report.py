"""Figures as text, tables and data."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from headlights._errors import InputError
from headlights.bench import plots, report
from headlights.bench.cases import Measured, as_fast, memory_below, rows, time_share
from headlights.bench.crossover import Crossover, Point, table
from headlights.bench.pages import BEGIN, END, check_page, write_page
from headlights.bench.run import Run, row_names
from headlights.bench.running import Outcome, Setting
from headlights.bench.worker import Peak
from tests.bench.conftest import timed


@pytest.fixture
def run(outcome: Outcome, setting: Setting) -> Run:
    """One row and a sweep of two lengths."""
    return Run(setting, (outcome,), (outcome, outcome), 90.0)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12.34, "12.3 s"),
        (1.0, "1.00 s"),
        (0.9996, "1000 ms"),
        (0.0123, "12.3 ms"),
        (4e-6, "4.00 µs"),
        (0, "0.00 µs"),
    ],
)
def test_seconds(value: float, text: str) -> None:
    assert report.seconds(value) == text


def test_sizes_and_ratios() -> None:
    assert report.mebibytes(3 * 2**20 + 2**19) == "4 MiB"
    assert report.mebibytes(3 * 2**29) == "1.50 GiB"
    assert [report.ratio(value) for value in (0.5, 12.34, 123.4)] == ["0.50×", "12.3×", "123×"]


def test_ratio_table_by_hand(outcome: Outcome) -> None:
    # 6 ms against 2 ms is three times as fast, which is enough; 3 of 4 MiB are more than half.
    assert report.rows_of(outcome) == [
        ("the work, float32", "theirs", "6.00 ms", "6.00 ms to 6.00 ms", "1.00×", "4 MiB", "", ""),
        (
            "",
            "headlights",
            "2.00 ms",
            "2.00 ms to 2.00 ms",
            "3.00×",
            "3 MiB",
            "≥ 2× as fast; ≤ 50 % of the memory",
            "yes; no",
        ),
        ("", "another", "–", "–", "–", "–", "", "another is not installed"),
    ]
    assert report.short_table([outcome]).splitlines()[2] == (
        "| the work | theirs: 6.00 ms | 2.00 ms | 3.00× | 4 MiB, 3 MiB "
        "| ≥ 2× as fast; ≤ 50 % of the memory | yes; no |"
    )
    assert len({len(line.split("|")) for line in report.long_table([outcome]).splitlines()}) == 1


def test_goals_at_their_limits() -> None:
    slow, fast = timed(1e-3), timed(0.9e-3)
    assert time_share(1.2).reached(slow, fast) is True  # 1.11 times
    assert time_share(1.1).reached(slow, fast) is False
    assert time_share(1.1).reached(slow, Measured()) is None
    goal = as_fast(0.95, 15e-6)
    assert goal.reached(slow, fast) is False  # 0.9 times as fast, above half a millisecond
    assert goal.reached(timed(100e-6), timed(90e-6)) is True  # 10 µs more, below it
    assert goal.reached(timed(100e-6), timed(80e-6)) is False
    assert goal.reached(Measured(), fast) is None
    assert memory_below(1).reached(timed(1, 2**30 - 1), Measured()) is True
    assert memory_below(1).reached(timed(1, 2**30), Measured()) is False
    assert memory_below(1).reached(timed(1), Measured()) is None


def test_memory_is_added_to_an_outcome(outcome: Outcome) -> None:
    peaks = {("theirs", "name"): Peak(None, note="did not end"), ("headlights", "name"): Peak(7)}
    found = outcome.with_memory(peaks).measured
    assert (found["theirs"].peak, found["theirs"].note) == (None, "did not end")
    assert (found["headlights"].peak, found["headlights"].note) == (7, "")
    assert found["another"] == outcome.measured["another"]


def test_every_case_is_unique_and_quick_cases_have_no_goal() -> None:
    cases, quick = rows(), rows(quick=True)
    assert len({case.name for case in cases}) == len(cases)
    assert all(case.goals for case in cases)
    assert not any(case.goals for case in quick)
    assert list(dict.fromkeys(case.row for case in quick)) == row_names()[:-1]


def test_data_is_plain_and_whole(run: Run) -> None:
    found = json.loads(json.dumps(report.content(run)))
    assert found["rows"][0]["measured"]["headlights"]["timing"]["median"] == 2e-3
    assert found["rows"][0]["goals"]["headlights"][1] == {"text": "≤ 50 % of the memory", "reached": False}
    assert len(found["sweep"]) == 2
    assert found["about"]["threads"] == 1


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_picture_is_drawn_with_or_without_memory(run: Run, kind: str) -> None:
    bare = replace(run, sweep=tuple(replace(o, measured={"theirs": timed(1.0)}) for o in run.sweep))
    for each in (run, bare):
        file = io.BytesIO()
        plots.plot(each, file, kind)
        assert file.getvalue().startswith(b"<?xml" if kind == "svg" else b"\x89PNG")


def test_page_is_filled_between_its_markers_again_and_again(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    with pytest.raises(
        InputError, match=r"--docs .*: expected benchmarks.md in it, with the lines <!-- measured"
    ):
        check_page(tmp_path)
    page.write_text(f"# Before\n\n{BEGIN}\nold\n{END}\n\nafter\n", encoding="utf-8")
    write_page(tmp_path, [run])
    once = page.read_text(encoding="utf-8")
    assert once.startswith(f"# Before\n\n{BEGIN}\n\n")
    assert once.endswith(f"\n\n{END}\n\nafter\n")
    assert "old" not in once
    assert "| headlights | 2.00 ms | 2.00 ms |" in once  # the sweep
    assert "| headlights | 3 MiB | 3 MiB |" in once
    assert "took 1.5 minutes" in once
    assert (tmp_path / "benchmarks-float32.svg").is_file()
    write_page(tmp_path, [run])
    assert page.read_text(encoding="utf-8") == once


def test_crossover_is_where_the_path_for_large_sizes_stays_ahead() -> None:
    def points(*large: float) -> tuple[Point, ...]:
        return tuple(Point(2**power, f"size {power}", 1.0, each) for power, each in enumerate(large, 4))

    def crossover(*large: float, name: str = "MANY") -> Crossover:
        return Crossover(name, "things", ("fused", "blocked"), points(*large))

    assert crossover(2.0, 0.5, 2.0, 0.5, 0.5).measured == 2**7
    assert crossover(0.5, 0.5).measured == 2**4
    assert crossover(0.5, 2.0).measured is None
    text = table([crossover(2.0, 2.0, 0.5), crossover(0.5, name="SHARES, 1 / 2"), crossover(2.0, name="FEW")])
    assert "  2**4   size 4: fused 1.00 s, blocked 2.00 s\n" in text
    assert text.endswith("\nMANY = 2**6\nFEW = math.inf\nSHARES = ((2**4, 1 / 2))")
