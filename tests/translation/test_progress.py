"""What people are told, how often, and how they stop it."""

import contextlib
import io
import os
import signal
import sys
import threading
import time

import pytest
from rich.console import Console

from headlights.translation import progress
from headlights.translation.progress import (
    BarReporter,
    LineReporter,
    Meter,
    StopSignals,
    clock,
    default_reporter,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (59.4, "0:59"), (59.6, "1:00"), (599, "9:59"), (3600, "1:00:00"), (float("inf"), "–")],
)
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def _update(reporter: progress.Reporter, number: int) -> None:
    reporter.update(number=number, done=number / 10, loss=1.5, tokens_per_second=1234.5, seconds_left=61)


def test_lines_come_now_and_then(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([100.0, 107.0, 115.5])
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    reporter = LineReporter(every=15.0)
    for number in (1, 2, 3):
        _update(reporter, number)
    reporter.validation(number=3, loss=1.25, bleu=34.56, best=True)
    reporter.finish()
    output, lines = capsys.readouterr()
    assert output == ""
    assert lines.splitlines() == [
        " 10%  update 1  loss 1.500  1,234 tokens/s  1:01 left",
        " 30%  update 3  loss 1.500  1,234 tokens/s  1:01 left",
        "      update 3  validation loss 1.250  BLEU 34.6  best yet",
    ]


def test_bar_is_drawn_from_the_first_update_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(
        progress, "Console", lambda stderr: Console(file=screen, force_terminal=True, width=100)
    )
    reporter = BarReporter()
    reporter.note("[a] note")
    assert screen.getvalue() == "[a] note\n"  # an error before training finds no bar in its way
    _update(reporter, 3)
    _update(reporter, 4)
    reporter.validation(number=4, loss=1.25, bleu=34.56, best=False)
    reporter.finish()
    drawn = screen.getvalue()
    assert "update 4" in drawn
    assert "loss 1.500" in drawn
    assert "update 4: validation loss 1.250, BLEU 34.6" in drawn
    assert drawn.rstrip("\n").endswith("\x1b[?25h")  # the cursor is back


def test_terminal_gets_the_bar_and_all_else_the_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert isinstance(default_reporter(), BarReporter)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    assert isinstance(default_reporter(), LineReporter)


def test_first_signal_is_noted_and_second_interrupt_leaves() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    seen: list[int | None] = []
    with contextlib.suppress(KeyboardInterrupt), StopSignals() as signals:
        seen.append(signals.received)
        for sent in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            signal.raise_signal(sent)
            seen.append(signals.received)
    assert seen == [None, signal.SIGTERM, signal.SIGTERM]  # the interrupt, second to come, left at once
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_signals_are_left_alone_outside_the_main_thread() -> None:
    found: list[int | None] = []

    def work() -> None:
        with StopSignals() as signals:
            found.append(signals.received)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [None]


def test_meter_gives_loss_per_token_and_speed_since_its_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 14.0)
    meter = Meter(since=10.0)
    meter.add(6.0, 3)
    meter.add(2.0, 5)
    assert meter.loss == 1.0  # (6 + 2) / (3 + 5)
    assert meter.speed == 2.0  # 8 tokens in 4 s
    meter.reset()
    assert (meter.total, meter.tokens, meter.since) == (0.0, 0, 14.0)


def test_lines_that_nobody_reads_end_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    closed = os.fdopen(writer, "w")
    monkeypatch.setattr(sys, "stderr", closed)
    LineReporter().note("going on at update 7")
    with contextlib.suppress(BrokenPipeError):  # it says so again of what is still in its buffer
        closed.close()
