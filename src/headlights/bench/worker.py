"""A fresh process that measures the memory of one contestant: `python -m headlights.bench.worker JOB`."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import torch

from headlights.bench.cases import Case
from headlights.bench.contestant import Out, Place
from headlights.bench.memory import RETURN_MEMORY, can_reset, peak_of

if TYPE_CHECKING:
    from headlights.bench.running import Setting

MOST_BYTES = 4 * 2**30
MOST_SECONDS = 20.0


@dataclass(frozen=True)
class Job:
    """What the process is to do.

    Attributes:
        contestant: Whom to measure.
        cases: Names of the cases, in this order.
        growth: How many times more the next case takes than the one before, to leave out what would take too
            much. Default: no telling.
        quick: Whether the cases have toy sizes.
        threads: Processor threads.
        device: As torch writes it.
        dtype: As torch writes it, without "torch.".
    """

    contestant: str
    cases: tuple[str, ...]
    quick: bool
    threads: int
    device: str
    dtype: str
    growth: float = 0.0

    @classmethod
    def of(cls, contestant: str, cases: tuple[str, ...], setting: "Setting", growth: float = 0.0) -> "Job":
        """A job in the same setting as the rest of the run.

        Args:
            contestant: Whom to measure.
            cases: Names of the cases.
            setting: The setting.
            growth: As above.

        Returns:
            The job.
        """
        place = setting.place
        return cls(
            contestant,
            cases,
            setting.quick,
            setting.threads,
            str(place.device),
            str(place.dtype).removeprefix("torch."),
            growth,
        )


@dataclass(frozen=True)
class Peak:
    """What the process found in one case.

    Attributes:
        peak: Bytes, None where not measured.
        seconds: How long the measured call took; a hint only, for nothing else took turns with it.
        note: Why it was not measured, "" if it was.
    """

    peak: int | None
    seconds: float = 0.0
    note: str = ""


def too_much(peak: int | None, seconds: float, growth: float) -> str:
    """Say why the next, larger case should be left out.

    Args:
        peak: Bytes of the last case, None if unknown.
        seconds: Seconds of the last case.
        growth: How many times more the next will take.

    Returns:
        A few words, "" if it may run.
    """
    if peak is not None and peak * growth > MOST_BYTES:
        return f"would need about {peak * growth / 2**30:.1f} GiB"
    if seconds * growth > MOST_SECONDS:
        return f"would take about {seconds * growth:.0f} s"
    return ""


Peaks = dict[tuple[str, str], Peak]
"""Peaks by the names of contestant and case."""


def peaks_of(cases: Sequence[Case], setting: "Setting", growth: float = 0.0) -> Peaks:
    """Measure the memory of every contestant in every case.

    A process serves one contestant, and all its cases where the peak can be reset between them. Two processes
    run at a time: memory, unlike time, does not depend on the neighbours.

    Args:
        cases: The cases.
        setting: How to measure.
        growth: How many times more each case takes than the one before. Default: no telling.

    Returns:
        The peaks.
    """
    names: dict[str, list[str]] = {}
    for case in cases:
        for contestant in case.contestants(setting.place):
            names.setdefault(contestant, []).append(case.name)
    together = can_reset() or setting.place.device.type == "cuda"
    jobs = [
        Job.of(contestant, tuple(part), setting, growth)
        for contestant, every in names.items()
        for part in ([every] if together else [[name] for name in every])
    ]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(peaks, jobs))
    return {
        (job.contestant, name): peak
        for job, each in zip(jobs, found, strict=True)
        for name, peak in zip(job.cases, each, strict=True)
    }


def peaks(job: Job) -> list[Peak]:
    """Start the process and wait for what it finds.

    Args:
        job: What it is to do.

    Returns:
        One peak for each case.
    """
    done = subprocess.run(
        [sys.executable, "-m", "headlights.bench.worker", json.dumps(asdict(job))],
        env={**os.environ, **RETURN_MEMORY},
        capture_output=True,
        text=True,
        check=False,
    )
    found = [Peak(**json.loads(line)) for line in done.stdout.splitlines() if line.startswith('{"peak"')]
    if len(found) < len(job.cases):
        reason = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        missing = Peak(None, note=f"memory not measured: the process ended with {reason:.80}")
        found += [missing] * (len(job.cases) - len(found))
    return found


def work(job: Job, cases: dict[str, Case]) -> Iterator[Peak]:
    """Measure in this process.

    Args:
        job: What to do.
        cases: All cases by name.

    Yields:
        A peak for each case of the job.
    """
    place = Place(torch.device(job.device), getattr(torch, job.dtype))
    last: Peak | None = None
    for name in job.cases:
        reason = _out_of_reach(last, job.growth)
        if reason:
            last = Peak(None, note=reason)
        else:
            warmed = last is not None and last.seconds * job.growth > 1.0  # by the case before
            last = _measure(job.contestant, cases[name], place, warm=not warmed)
        yield last


def _out_of_reach(last: Peak | None, growth: float) -> str:
    """Why the next case is left out: the one before was, or the next would take too much."""
    if last is None or not growth:
        return ""
    return last.note or too_much(last.peak, last.seconds, growth)


@torch.no_grad()
def _measure(contestant: str, case: Case, place: Place, *, warm: bool) -> Peak:
    build = case.contestants(place)[contestant]
    if isinstance(build, Out):
        return Peak(None, note=build.reason)
    call = build()
    seconds = []

    def timed() -> None:
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)

    return replace(Peak(peak_of(timed, place.device, warm=warm)), seconds=seconds[-1])


def main() -> None:
    """Read the job from the command line and print a line of JSON for each case."""
    from headlights.bench.cases import rows
    from headlights.bench.sweep import sweep_cases

    content = json.loads(sys.argv[1])
    job = Job(**{**content, "cases": tuple(content["cases"])})
    torch.set_num_threads(job.threads)
    cases = {case.name: case for case in [*rows(job.quick), *sweep_cases(job.quick)]}
    for peak in work(job, cases):
        print(json.dumps(asdict(peak)), flush=True)


if __name__ == "__main__":
    main()
