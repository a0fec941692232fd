"""Many jobs in a terminal, in a file and in a notebook."""

from __future__ import annotations

import io

import pytest

from pai_sdk._client.display.live_table import NotebookJobs, TerminalJobs, counts_text
from pai_sdk._wire.pai.record import JobRecord

pytestmark = pytest.mark.interpreter


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def record(number: int, status: str, **more: object) -> JobRecord:
    fields = {"TrainingJobId": f"train{number}", "TrainingJobName": f"lr-{number}", "Status": status, **more}
    return JobRecord.model_validate(fields)


def test_in_a_file_each_end_is_a_line() -> None:
    stream = io.StringIO()
    display = TerminalJobs(stream)
    display.changed([record(0, "Running"), record(1, "Submitted")])
    display.changed([record(0, "Running"), record(1, "Failed", Duration=3)])
    display.changed([record(0, "Succeed", Duration=65), record(1, "Failed", Duration=3)])
    display.stop_beat()
    display.ended()
    assert stream.getvalue().splitlines() == [
        "✘ 1/2 train1 lr-1 Failed 3s",
        "✔ 2/2 train0 lr-0 Succeed 1m05s",
        "2 jobs: 1 Succeed, 1 Failed",
    ]


def test_a_terminal_shows_the_most_telling_rows_that_fit() -> None:
    stream = Screen()
    display = TerminalJobs(stream, clock=lambda: 0.0)
    records = [record(n, "Failed" if n == 400 else "Running" if n == 300 else "Succeed") for n in range(500)]
    display.changed(records)
    display.stop_beat()
    display.ended()
    final = stream.getvalue().rpartition("\x1b")[2].splitlines()
    assert any("train300 " in line for line in stream.getvalue().splitlines())
    assert any("train400 " in line for line in stream.getvalue().splitlines())
    assert "498 Succeed" in stream.getvalue()
    assert len(final) < 40


def test_names_of_jobs_move_no_cursor() -> None:
    stream = io.StringIO()
    display = TerminalJobs(stream)
    display.changed([record(0, "Succeed", TrainingJobName="\x1b[2Jevil\nname")])
    assert "\x1b" not in stream.getvalue()
    assert "evil" in stream.getvalue()


def test_a_notebook_has_the_table_of_lists_and_the_counts() -> None:
    display = NotebookJobs()
    display._records = [record(n, "Running") for n in range(300)]
    html = display.html()
    assert "300 jobs: 300 Running" in html
    assert "100 not shown" in html
    assert html.count("<tr>") == 201


def test_a_newer_notice_about_the_same_takes_the_place_of_the_older_one() -> None:
    display = NotebookJobs()
    display._draw = lambda: None  # type: ignore[method-assign] # there is no notebook here
    for text in ("best so far: trial 1", "the log is not readable", "best so far: trial 4"):
        display.notice(text)
    html = display.html()
    assert "trial 1" not in html
    assert "the log is not readable · best so far: trial 4" in html


def test_jobs_without_a_status_are_counted() -> None:
    assert (
        counts_text([record(0, "Succeed"), record(1, "Succeed"), record(2, "")]) == "3 jobs: 2 Succeed, 1 unknown"
    )
