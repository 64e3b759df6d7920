"""Telling people how a training goes, and letting them stop it."""

import math
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn


class Reporter:
    """Told how a training goes; this one keeps it to itself, others say it."""

    def note(self, text: str) -> None:
        """Take something worth a line."""

    def update(
        self, *, number: int, done: float, loss: float, tokens_per_second: float, seconds_left: float
    ) -> None:
        """Take where training stands.

        Args:
            number: Updates done.
            done: Share of the training, in 0..1.
            loss: Cross-entropy of the last updates, in nats per target token.
            tokens_per_second: Target tokens.
            seconds_left: As it looks now.
        """

    def validation(
        self, *, number: int, loss: float, bleu: float, best: bool, averaged: bool = False
    ) -> None:
        """Take the result of a validation.

        Args:
            number: Updates done.
            loss: Cross-entropy in nats per target token.
            bleu: Of greedy translations, 0..100.
            best: Whether it is the best yet.
            averaged: Whether these are of averaged parameters, which were better.
        """

    def finish(self) -> None:
        """Take note that training has ended, one way or another."""


class LineReporter(Reporter):
    """A line now and then on standard error, for logs and pipes.

    Args:
        every: Seconds between lines on progress, at least.
    """

    def __init__(self, every: float = 15.0) -> None:
        self._every, self._last = every, -float("inf")

    def note(self, text: str) -> None:  # noqa: D102
        with suppress(OSError):  # nobody listens any more; the training goes on
            print(text, file=sys.stderr, flush=True)

    def update(  # noqa: D102
        self, *, number: int, done: float, loss: float, tokens_per_second: float, seconds_left: float
    ) -> None:
        now = time.monotonic()
        if now - self._last >= self._every:
            self._last = now
            self.note(
                f"{done:4.0%}  update {number}  loss {loss:.3f}  {tokens_per_second:,.0f} tokens/s  "
                f"{clock(seconds_left)} left"
            )

    def validation(  # noqa: D102
        self, *, number: int, loss: float, bleu: float, best: bool, averaged: bool = False
    ) -> None:
        self.note(
            f"      update {number}  validation loss {loss:.3f}  BLEU {bleu:.1f}"
            f"{'  averaged' if averaged else ''}{'  best yet' if best else ''}"
        )


class BarReporter(Reporter):
    """A progress bar on standard error, for terminals."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:3.0f} %"),
            TextColumn("loss {task.fields[loss]}  {task.fields[speed]} tokens/s  {task.fields[left]} left"),
            console=Console(stderr=True),
        )
        self._task = self._progress.add_task("training", total=1.0, loss="–", speed="–", left="–")

    def note(self, text: str) -> None:  # noqa: D102
        self._progress.console.print(text, highlight=False, markup=False)

    def update(  # noqa: D102
        self, *, number: int, done: float, loss: float, tokens_per_second: float, seconds_left: float
    ) -> None:
        self._progress.start()  # once is enough, more does nothing
        self._progress.update(
            self._task,
            completed=done,
            description=f"update {number}",
            loss=f"{loss:.3f}",
            speed=f"{tokens_per_second:,.0f}",
            left=clock(seconds_left),
        )

    def validation(  # noqa: D102
        self, *, number: int, loss: float, bleu: float, best: bool, averaged: bool = False
    ) -> None:
        self.note(
            f"update {number}: validation loss {loss:.3f}, BLEU {bleu:.1f}"
            f"{', averaged' if averaged else ''}{', best yet' if best else ''}"
        )

    def finish(self) -> None:  # noqa: D102
        self._progress.stop()


def default_reporter() -> Reporter:
    """A bar where standard error is a terminal, lines elsewhere."""
    return BarReporter() if sys.stderr.isatty() else LineReporter()


def clock(seconds: float) -> str:
    """Seconds as people read them: 9:59 or 1:00:00; a dash for what nobody can tell."""
    if not math.isfinite(seconds):
        return "–"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class StopSignals:
    """Inside this block SIGINT and SIGTERM only set `received`: the work at hand can be finished and saved.

    A second SIGINT interrupts at once. Outside the main thread, where Python allows no handlers, it does
    nothing.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = number


@dataclass(slots=True)
class Meter:
    """Loss and speed since the last reset.

    Attributes:
        total: Summed cross-entropy, in nats.
        tokens: Target tokens.
        since: When it began, on the monotonic clock.
    """

    total: float = 0.0
    tokens: int = 0
    since: float = field(default_factory=time.monotonic)

    def add(self, loss: float, tokens: int) -> None:
        """Count the summed cross-entropy of some tokens."""
        self.total += loss
        self.tokens += tokens

    @property
    def loss(self) -> float:
        """Nats per token."""
        return self.total / max(1, self.tokens)

    @property
    def speed(self) -> float:
        """Tokens per second."""
        return self.tokens / max(1e-9, time.monotonic() - self.since)

    def reset(self) -> None:
        """Begin anew: after a line of the log, and after work that is not training."""
        self.total, self.tokens, self.since = 0.0, 0, time.monotonic()
