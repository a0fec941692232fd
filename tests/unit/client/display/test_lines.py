r"""Log lines on a stream: what is drawn over stays in one place in a terminal, and is rare in a file."""

from __future__ import annotations

import io
import re
import sys
from datetime import datetime, timezone
from types import SimpleNamespace

import pytest

from pai_sdk._client.display.jupyter import JupyterDisplay
from pai_sdk._client.display.lines import LogWriter
from pai_sdk._client.display.terminal import TerminalDisplay
from pai_sdk._wire.pai.record import JobRecord, LogLine
from pai_sdk._wire.pai.status import JobStatus

pytestmark = pytest.mark.interpreter


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.delenv("NO_COLOR", raising=False)


def show(writer: LogWriter, *texts: str, instance: str = "t-master-0") -> None:
    for number, text in enumerate(texts):
        writer.line(LogLine(instance, number, text))


def two_instances() -> JobRecord:
    names = [{"Name": "t-master-0"}, {"Name": "t-worker-0"}]
    return JobRecord.model_validate({"TrainingJobId": "t", "Status": "Running", "Instances": names})


def screen(stream: io.StringIO) -> list[str]:
    """What a terminal shows in the end; it knows what we and Rich write, and nothing more."""
    rows, row = [""], 0
    for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", stream.getvalue()):
        if part == "\n":
            row += 1
            rows += [""] * (row + 1 - len(rows))
        elif part == "\x1b[2K":
            rows[row] = ""
        elif part == "\x1b[1A":
            row -= 1
        elif part != "\r" and not part.startswith("\x1b"):
            rows[row] += part
    while not rows[-1]:
        rows.pop()
    return rows


def test_a_file_gets_a_state_now_and_then_and_the_last_one(clock: Clock) -> None:
    stream = io.StringIO()
    writer = LogWriter(stream, clock=clock)
    show(writer, "epoch 1")
    for percent in range(1, 100):
        clock.now += 1
        show(writer, f"\r{percent}%\r")
    show(writer, "\r100%", "epoch 2")
    shown = stream.getvalue().splitlines()
    assert shown == ["epoch 1", *(f"{p}%" for p in range(1, 100, 10)), "100%", "epoch 2"]


def test_a_terminal_shows_states_in_one_place(clock: Clock) -> None:
    stream = FakeTerminal()
    writer = LogWriter(stream, clock=clock)
    show(writer, "epoch 1", "\r10%\r", "\r20%\r")
    assert screen(stream) == ["epoch 1", "20%"]
    show(writer, "\r30%\r", "\r100%", "epoch 2", "\r10%\r", "")
    assert screen(stream) == ["epoch 1", "100%", "epoch 2", "10%"]


def test_each_instance_has_its_row_below_all_lines(clock: Clock) -> None:
    stream = FakeTerminal()
    writer = LogWriter(stream, clock=clock)
    writer.set_instances(two_instances())
    show(writer, "\r10%\r")
    show(writer, "\r50%\r", instance="t-worker-0")
    show(writer, "\r20%\r")
    assert screen(stream) == ["master-0 | 20%", "worker-0 | 50%"]
    show(writer, "\r99%", "a line", instance="t-worker-0")
    assert screen(stream) == ["worker-0 | 99%", "worker-0 | a line", "master-0 | 20%"]
    writer.print_text("done", "bold")
    writer.settle()
    assert screen(stream) == ["worker-0 | 99%", "worker-0 | a line", "done", "master-0 | 20%"]


def test_a_state_wider_than_the_terminal_does_not_wrap(clock: Clock) -> None:
    stream = FakeTerminal()
    writer = LogWriter(stream, clock=clock)
    show(writer, "\r" + "#" * 100 + "\r", "\r" + "=" * 100 + "\r")
    (row,) = screen(stream)
    assert len(row) < 40


def test_colours_end_with_their_line(clock: Clock) -> None:
    stream = FakeTerminal()
    show(LogWriter(stream, clock=clock), "\x1b[31mred")
    assert stream.getvalue() == "\x1b[31mred\x1b[0m\n"


def test_a_card_keeps_a_progress_bar_on_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    display = JupyterDisplay()
    monkeypatch.setattr(display, "_draw", lambda: None)
    for text in ("begun", "\r10%\r", "\r20%\r", "\r100%", "end", "\r1%\r", ""):
        display.line(LogLine("t-master-0", 0, text))
    assert [row.text for row in display._rows] == ["begun", "100%", "end", "1%"]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_a_stream_has_no_sign_for_becomes_a_question_mark(encoding: str) -> None:
    """A line that cannot be shown must not end the following of a job that goes on."""
    written = io.BytesIO()
    writer = LogWriter(io.TextIOWrapper(written, encoding=encoding, newline="\n"))
    writer.print_text("● Running", "dim")
    show(writer, "损失 0.5", "half a character: \ud83d")
    writer.set_instances(two_instances())
    show(writer, "损失 0.4")
    texts = ["● Running", "损失 0.5", "half a character: \ud83d", "master-0 | 损失 0.4"]
    assert written.getvalue().decode(encoding).splitlines() == [
        text.encode(encoding, "replace").decode(encoding) for text in texts
    ]


def test_a_silent_job_shows_that_time_passes_until_it_says_something(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = datetime(2026, 1, 31, 23, 59, tzinfo=timezone.utc)
    now_s = created.timestamp() + 75
    monkeypatch.setattr("pai_sdk._client.display.base.time", SimpleNamespace(time=lambda: now_s))
    stream = FakeTerminal()
    display = TerminalDisplay(stream, clock=clock)
    display.changed(JobRecord(training_job_id="t", status=JobStatus.RUNNING, gmt_create_time=created.isoformat()))
    display.beat()
    assert screen(stream) == ["● Running"], "a moment of silence is nothing to tell"
    clock.now += 3
    display.beat()
    display.beat()
    assert screen(stream) == ["● Running", "● Running 1m15s"]
    display.line(LogLine("t-master-0", 0, "epoch 1"))
    display.beat()
    assert screen(stream) == ["● Running", "epoch 1"]
    clock.now += 3
    display.beat()
    display.stop_beat()
    assert screen(stream) == ["● Running", "epoch 1"]


def test_the_time_stands_below_progress_bars_that_do_not_move(clock: Clock) -> None:
    stream = FakeTerminal()
    writer = LogWriter(stream, clock=clock)
    show(writer, "\r10%\r")
    writer.show_status("● Running 5s")
    assert screen(stream) == ["10%", "● Running 5s"]
    show(writer, "\r20%\r")
    assert screen(stream) == ["20%"]


def test_a_warning_stands_above_the_row_of_time(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = FakeTerminal()
    monkeypatch.setattr(sys, "stderr", stream)
    writer = LogWriter(stream, clock=clock)
    writer.show_status("● Running 5s")
    sys.stderr.write("the engine does not answer\n")
    assert screen(stream) == ["the engine does not answer", "● Running 5s"]
    writer.settle()
    assert sys.stderr is stream


def test_errors_that_go_to_a_file_still_do(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, errors = FakeTerminal(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", errors)
    LogWriter(stream, clock=clock).show_status("● Running 5s")
    sys.stderr.write("the engine does not answer\n")
    assert errors.getvalue() == "the engine does not answer\n"


def test_a_file_shows_no_passing_time(clock: Clock) -> None:
    stream = io.StringIO()
    LogWriter(stream, clock=clock).show_status("● Running 5s")
    assert stream.getvalue() == ""
