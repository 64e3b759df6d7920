"""Who takes part, who is wrong, and what is left out."""

import pytest
import torch

from headlights.bench.contestant import Out, if_installed
from headlights.bench.running import Setting, difference, time_case
from headlights.bench.worker import Job, Peak, peaks, too_much, work
from tests.bench.conftest import case_of, returns


def test_wrong_results_are_named_and_not_timed(setting: Setting) -> None:
    case = case_of({"headlights": returns(1.0, 2.1), "theirs": returns(1.0, 2.0), "peer": returns(1.0, 2.0)})
    outcome = time_case(case, case.contestants(setting.place), setting)
    assert outcome.wrong == ("headlights",)
    wrong = outcome.measured["headlights"]
    assert wrong.timing is None
    assert wrong.note == "wrong result: off by 0.1 where the largest number is 2"
    assert outcome.measured["peer"].timing is not None
    assert list(outcome.measured) == ["headlights", "theirs", "peer"]
    assert outcome.goals("headlights")[0] == ("≥ 2× as fast", None)


def test_peers_that_fail_are_left_out_and_ours_is_not_forgiven(setting: Setting) -> None:
    def broken() -> tuple[torch.Tensor, ...]:
        raise NotImplementedError("no kernel here\nand more")

    case = case_of({"theirs": returns(1.0), "peer": lambda: broken, "headlights": returns(1.0)})
    outcome = time_case(case, case.contestants(setting.place), setting)
    assert outcome.measured["peer"].note == "does not run here: no kernel here"
    assert outcome.wrong == ()
    case = case_of({"theirs": returns(1.0), "headlights": lambda: broken})
    with pytest.raises(NotImplementedError, match="no kernel here"):
        time_case(case, case.contestants(setting.place), setting)


def test_package_that_is_missing_names_the_extra() -> None:
    build = returns(1.0)
    assert if_installed("torch", build) is build
    assert if_installed("no_such_peer", build) == Out(
        "no-such-peer is not installed: pip install 'headlights[bench]'"
    )


@pytest.mark.parametrize(
    ("found", "wanted", "note"),
    [
        ([0.0, 4.0], [1e-5, 4.0], ""),
        ([0.0, 4.0], [1e-3, 4.0], "wrong result: off by 0.001 where the largest number is 4"),
        ([float("nan"), 4.0], [0.0, 4.0], "wrong result: off by nan where the largest number is 4"),
        ([0.0], [0.0, 4.0], "wrong result: shape (1,) instead of (2,)"),
    ],
    ids=["rounding", "off", "nan", "shape"],
)
def test_difference(found: list[float], wanted: list[float], note: str) -> None:
    assert difference([torch.tensor(found)], [torch.tensor(wanted)], torch.float32) == note


def test_only_what_the_baseline_returns_is_compared() -> None:
    assert difference([torch.ones(2), torch.ones(3)], [torch.ones(2)], torch.float32) == ""


@pytest.mark.parametrize(
    ("peak", "seconds", "expected"),
    [
        (2**30, 5.0, ""),  # four times are 4 GiB and 20 s, which is not yet too much
        (2**30 + 2**28, 1.0, "would need about 5.0 GiB"),
        (None, 5.5, "would take about 22 s"),
        (None, 0.0, ""),
    ],
)
def test_next_length_is_left_out_if_four_times_is_too_much(
    peak: int | None, seconds: float, expected: str
) -> None:
    assert too_much(peak, seconds, 4.0) == expected


def test_what_is_left_out_once_stays_out_in_a_sweep_only() -> None:
    cases = {name: case_of({"peer": Out("no")}) for name in ("a", "b")}
    cases["c"] = case_of({"peer": returns(1.0)})
    job = Job("peer", ("a", "c"), quick=True, threads=1, device="cpu", dtype="float32", growth=4.0)
    assert [each.note for each in work(job, cases)] == ["no", "no"]
    job = Job("peer", ("a", "c"), quick=True, threads=1, device="cpu", dtype="float32")
    assert [each.note for each in work(job, cases)] == ["no", ""]


def test_a_process_that_ends_early_is_reported_for_every_case() -> None:
    job = Job("headlights", ("no such case", "another"), True, 1, "cpu", "float32")
    expected = Peak(None, note="memory not measured: the process ended with KeyError: 'no such case'")
    assert peaks(job) == [expected, expected]
