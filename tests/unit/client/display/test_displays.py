"""What a person sees of a job."""

from __future__ import annotations

import io
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pai_sdk._client.display.base import duration_text, elapsed_s
from pai_sdk._client.display.card import card_html
from pai_sdk._client.display.choice import choose_display
from pai_sdk._client.display.commands import attach_lines, next_commands
from pai_sdk._client.display.curves import MetricCurve
from pai_sdk._client.display.terminal import TerminalDisplay
from pai_sdk._core.terminal_text import visible_text
from pai_sdk._wire.pai.record import JobRecord, LogLine
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.interpreter


def record(status: str = "Running", **more: object) -> JobRecord:
    facts = {"TrainingJobId": "train1", "TrainingJobName": "digits-1", "Status": status}
    return JobRecord.model_validate({**facts, **more})


@pytest.fixture(autouse=True)
def command_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script is on PATH, as after an ordinary install."""
    script = tmp_path / "pai-sdk"
    script.write_text("#!/bin/sh")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))


INSTANCES = {"Instances": [{"Name": "train1-master-0", "Status": "Running"}, {"Name": "train1-worker-0"}]}
OUTPUTS = {"OutputChannels": [{"Name": "model", "OutputUri": "oss://b/m/"}], "Duration": 75}


def test_a_whole_job_in_a_terminal() -> None:
    stream = io.StringIO()
    display = TerminalDisplay(stream)
    display.submitted(record("Creating"))
    display.changed(record("Running", **INSTANCES))
    display.changed(record("Running", **INSTANCES))
    display.line(LogLine("train1-master-0", 0, "epoch 1 [loss=0.5]"))
    display.line(LogLine("train1-worker-0", 0, "10%\r20%\r30%"))
    display.ended(record("Succeed", **INSTANCES, **OUTPUTS))
    assert stream.getvalue().splitlines() == [
        "● train1 (digits-1) submitted: pai-sdk logs -f train1",
        "● Running, 2 instances",
        "master-0 | epoch 1 [loss=0.5]",
        "worker-0 | 30%",
        "✔ train1 Succeed after 1m15s",
        "  model: oss://b/m/",
    ]


FINDING = {"ReasonCode": "NoProgress", "ReasonMessage": "the others wait for <worker-3>"}


def test_what_a_rule_detects_is_printed_once() -> None:
    stream = io.StringIO()
    display = TerminalDisplay(stream)
    display.changed(record("Running"))
    for more in ({}, FINDING, FINDING, {}, {"ReasonCode": "JobRunning", "ReasonMessage": "of another service"}):
        display.changed(record("Running", **more))
    assert stream.getvalue().splitlines() == ["● Running", "! NoProgress: the others wait for <worker-3>"]


def test_a_card_has_what_a_rule_detects() -> None:
    assert "NoProgress: the others wait for &lt;worker-3&gt;" in card_html(record("Running", **FINDING))
    assert "NoProgress" not in card_html(record("Succeed", **FINDING))


def test_a_job_that_has_spoken_is_not_said_to_have_begun() -> None:
    stream = io.StringIO()
    display = TerminalDisplay(stream)
    display.changed(record("Initializing"))
    display.line(LogLine("train1-master-0", 0, "epoch 1"))
    display.changed(record("Running"))
    display.changed(record("Queuing"))  # preempted
    display.changed(record("Running"))
    assert stream.getvalue().splitlines() == ["● Initializing", "epoch 1", "● Queuing", "● Running"]


def test_lines_of_a_single_instance_are_shown_as_they_are() -> None:
    stream = io.StringIO()
    display = TerminalDisplay(stream)
    text = "a very long line " * 40 + "[bold]not markup[/bold]"
    display.line(LogLine("train1-master-0", 0, text))
    assert stream.getvalue() == text + "\n"


def test_what_a_service_calls_things_moves_no_cursor() -> None:
    stream = io.StringIO()
    display = TerminalDisplay(stream)
    hostile = "a\x1b]52;c;cm0gLXJm\x07\x1b]8;;http://x\x1b\\b\x9b2J\x1b[2Jc"
    facts = {
        "TrainingJobName": hostile,
        "TrainingJobUrl": hostile,
        "OutputChannels": [{"Name": hostile, "OutputUri": hostile}],
    }
    display.submitted(record("Creating", **facts))
    display.changed(record(f"Odd{hostile}", **facts))
    display.notice(hostile)
    display.ended(record("Succeed", **facts))
    assert "ab2Jc" in stream.getvalue()
    assert not {"\x1b", "\x07", "\x9b"} & set(stream.getvalue())


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", " JavaScript:alert(1)", "data:text/html,x", "//evil", "http:x"]
)
def test_a_card_leads_to_web_pages_only(url: str) -> None:
    assert "href" not in card_html(record(TrainingJobUrl=url))
    assert 'href="https://pai.example.com/x&quot;"' in card_html(
        record(TrainingJobUrl='https://pai.example.com/x"')
    )


def test_a_card_takes_nothing_for_html() -> None:
    evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
    facts = {
        "TrainingJobId": evil,
        "TrainingJobName": evil,
        "Status": f"Failed{evil}",
        "ReasonMessage": evil,
        "TrainingJobUrl": f"https://x/{evil}",
        "Instances": [{"Name": evil, "Status": evil}, {"Name": evil, "Status": evil}],
        "LatestMetrics": [{"Name": evil, "Value": 1.0}, {"Name": evil, "Value": float("nan")}],
        "OutputChannels": [{"Name": evil, "OutputUri": evil}],
    }
    for status in ("Failed", "Succeed", f"Odd{evil}"):
        html = card_html(
            JobRecord.model_validate({**facts, "Status": status}), tail=[evil], curves={evil: MetricCurve([1, 2])}
        )
        assert "<script" not in html
        assert "<img" not in html


def test_detaching_reports_how_to_come_back() -> None:
    stream = io.StringIO()
    TerminalDisplay(stream).detached(record())
    assert "pai-sdk logs -f train1" in stream.getvalue()
    assert "pai-sdk stop train1" in stream.getvalue()


def test_commands_can_be_typed_where_the_script_is_not_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    words = shlex.split(next_commands(record())[0])
    assert words[1:] == ["-m", "pai_sdk", "logs", "-f", "train1"]
    assert subprocess.run([*words[:3], "--version"], capture_output=True, timeout=PATIENCE_S).returncode == 0


def test_python_on_path_is_named_when_it_is_the_one_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    monkeypatch.setattr("shutil.which", lambda name: sys.executable if name == "python" else None)
    assert next_commands(record())[1] == "python -m pai_sdk status train1"


def test_a_job_with_a_page_is_followed_there() -> None:
    stream = io.StringIO()
    TerminalDisplay(stream).submitted(record("Creating", TrainingJobUrl="https://pai.example/train1"))
    assert stream.getvalue() == "● train1 (digits-1) submitted: https://pai.example/train1\n"


def test_the_way_back_to_a_job_has_its_page() -> None:
    stream = io.StringIO()
    TerminalDisplay(stream).detached(record(TrainingJobUrl="http://127.0.0.1:8765/ui/#run=train1"))
    assert stream.getvalue().splitlines()[-1].strip() == "http://127.0.0.1:8765/ui/#run=train1"
    assert attach_lines(record(TrainingJobUrl="javascript:alert(1)")) == next_commands(record())


def test_a_card_shows_all_and_trusts_nothing() -> None:
    hostile = record(
        "Failed",
        TrainingJobName="<script>alert(1)</script>",
        ReasonMessage="<b>why</b>",
        LatestMetrics=[{"Name": "loss", "Value": 0.25}],
        **INSTANCES,
    )
    html = card_html(hostile, tail=["<img src=x>"], curves={"loss": MetricCurve([3.0, 1.0, 0.25])})
    assert "<script>" not in html
    assert "<img" not in html
    assert "&lt;b&gt;why" in html
    assert "0.25" in html
    assert "<svg" in html
    assert "worker-0" in html
    assert "oss://b/m/" in card_html(record("Succeed", **OUTPUTS))


def test_a_card_breaks_a_name_that_is_wider_than_it_is() -> None:
    box = card_html(record(TrainingJobName="a" * 120)).partition(">")[0]
    assert "overflow-wrap:anywhere" in box


def test_a_flat_line_can_be_drawn() -> None:
    assert MetricCurve([1.0, 1.0]).svg().count("polyline") == 1
    assert MetricCurve([1.0]).svg() == ""


@pytest.mark.parametrize(("text", "seen"), [("a", "a"), ("a\rb", "b"), ("a\r", "a"), ("\r\r", ""), ("", "")])
def test_a_line_shows_its_last_state(text: str, seen: str) -> None:
    assert visible_text(text) == seen


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59.9, "59s"), (60, "1m00s"), (192, "3m12s"), (3600, "1h00m"), (7322, "2h02m")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_an_odd_creation_time_is_no_crash() -> None:
    assert elapsed_s(record(GmtCreateTime="yesterday")) is None
    assert elapsed_s(record(GmtCreateTime="2020-01-01T00:00:00Z")) > 0
    assert elapsed_s(record("Succeed", Duration=7)) == 7


def test_outside_a_notebook_it_is_the_terminal() -> None:
    assert isinstance(choose_display(), TerminalDisplay)


@pytest.mark.parametrize(
    ("text", "plain", "coloured"),
    [
        ("\x1b[32mgreen\x1b[0m", "green", "\x1b[32mgreen\x1b[0m"),
        ("\x1b[2J\x1b[10;10Hmoved", "moved", "moved"),
        ("\x1b]0;title\x07rest", "rest", "rest"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link", "link"),
        ("bell\x07 nul\x00 csi\x9b2J", "bell nul csi2J", "bell nul csi2J"),
        ("a\tb ü 日本", "a\tb ü 日本", "a\tb ü 日本"),
        ("cut off \x1b", "cut off ", "cut off "),
    ],
)
def test_a_line_cannot_steer_the_terminal(text: str, plain: str, coloured: str) -> None:
    assert visible_text(text) == plain
    assert visible_text(text, colours=True) == coloured
    stream = io.StringIO()
    TerminalDisplay(stream).line(LogLine("train1-master-0", 0, text))
    assert stream.getvalue() == plain.expandtabs(8) + "\n" or stream.getvalue() == plain + "\n"


def test_a_line_keeps_colours_on_request_and_nothing_else() -> None:
    line = "10%\r20%\r\x1b[32m30%\x1b[0m\x1b[2J"
    assert visible_text(line) == "30%"
    assert visible_text(line, colours=True) == "\x1b[32m30%\x1b[0m"
