"""Both ends of a race in turns: processes that wait for their turn, and the one that gives it to them.

The standard library alone: this also runs in JoeyNMT's environment. Linux only, for what it reads in /proc.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_BUSY = (0, 1, 2, 5, 6, 7)  # columns of /proc/stat: user, nice, system, interrupts, and what the host took
PATIENCE = 30.0
"""Seconds that a worker may take to end when there is nothing more for it to do."""
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")


def peak_mib() -> float:
    """The most memory that this process has held, in MiB; unlike ru_maxrss it knows nothing of the parent."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM:"))) / 1024


class Stopwatch:
    """Seconds of this process, and how many cores others kept busy meanwhile."""

    def __init__(self) -> None:
        self._started = self._now()

    def read(self) -> dict[str, float]:
        seconds, own, busy = (b - a for a, b in zip(self._started, self._now(), strict=True))
        return {"seconds": seconds, "others": round(max(0.0, busy - own) / seconds, 2)}

    @staticmethod
    def _now() -> tuple[float, float, float]:
        ticks = Path("/proc/stat").read_text("ascii").split(maxsplit=9)[1:9]
        busy = sum(int(ticks[column]) for column in _BUSY) / os.sysconf("SC_CLK_TCK")
        return time.perf_counter(), time.process_time(), busy


class Turns:
    """The worker's end: JSON out, a line for each line in. Whatever else it prints goes to its log."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def tell(self, **found: Any) -> None:
        print(json.dumps(found), file=self._out, flush=True)

    def wait(self) -> None:
        """Sleep until the next turn; where there is none, end the process."""
        if not sys.stdin.readline():
            raise SystemExit


class Gate:
    """Stands before every update of a training loop and lets through as many as a turn has.

    Args:
        turns: Who gives the turns.
        warm_up: Updates before the first turn, not timed.
        updates: Of a turn. What lies between two updates (the next batch, the step) is timed with them.
    """

    def __init__(self, turns: Turns, warm_up: int, updates: int) -> None:
        self._turns, self._warm_up, self._updates = turns, warm_up, updates
        self._count = self._tokens = self._pairs = 0
        self._watch = Stopwatch()

    def __call__(self, tokens: int, pairs: int, model: Any) -> None:
        """Let an update through, of so many target tokens and sentence pairs, when it is its turn."""
        done = self._count - self._warm_up
        if done >= 0 and done % self._updates == 0:
            if done:
                done_in_turn = {"tokens": self._tokens, "pairs": self._pairs}
                self._turns.tell(**self._watch.read(), **done_in_turn, peak_mib=peak_mib())
            else:
                self._turns.tell(parameters=sum(each.numel() for each in model.parameters()))
            self._turns.wait()
            self._tokens = self._pairs = 0
            self._watch = Stopwatch()
        self._count += 1
        self._tokens += tokens
        self._pairs += pairs


class Worker:
    """The other end: a process that is told when to work.

    Args:
        python: Whose packages it has.
        script: What it runs, beside this file.
        job: Handed over as JSON.
        threads: Of its computing.
        log: Where its other words go.
        source: Folder of packages that come before those of `python`. Default: none.
    """

    def __init__(
        self, python: str, script: str, job: dict[str, Any], *, threads: int, log: Path, source: str = ""
    ) -> None:
        environment = {**os.environ, **dict.fromkeys(THREADS, str(threads)), "PYTHONPATH": source}
        command = [python, str(Path(__file__).with_name(script)), json.dumps(job)]
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w", encoding="utf-8") as file:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                encoding="utf-8",
                env=environment,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        if kind is not None:
            self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def hear(self) -> dict[str, Any]:
        """Wait for what the worker says next."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            words = self.log.read_text("utf-8", errors="replace").strip().splitlines() or ["it said nothing"]
            raise SystemExit(f"a worker ended before its time: {words[-1]:.200} (all of it: {self.log})")
        found: dict[str, Any] = json.loads(line)
        return found

    def turn(self) -> dict[str, Any]:
        """Give it a turn and wait for what came of it."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self.hear()
