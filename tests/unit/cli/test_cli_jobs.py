"""What `pai-sdk ps` and `pai-sdk status` print, in a pipe and in a narrow window."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from pai_sdk.cli.root import app
from pai_sdk.display.base import visible_text
from pai_sdk.job.training_job import TrainingJob
from tests.unit.fake_backend import FakeBackend

LONG = "a-name-of-many-words-" * 4 + "end"
MODEL = "oss://bucket/runs[red]/" + "deep/" * 20 + "model/"


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> TrainingJob:
    backend = FakeBackend()
    backend.extra = {
        "TrainingJobName": LONG,
        "OutputChannels": [{"Name": "model", "OutputUri": MODEL}],
    }
    known = TrainingJob("train0123456789ab", backend)

    def listed(**_: object) -> Iterator[TrainingJob]:
        yield known

    monkeypatch.setattr(TrainingJob, "list", listed)
    monkeypatch.setattr(TrainingJob, "get", lambda job_id: known)
    monkeypatch.setenv("COLUMNS", "60")
    return known


def pai(*arguments: str) -> str:
    return CliRunner().invoke(app, list(arguments)).stdout


def test_in_a_pipe_nothing_is_cut(job: TrainingJob) -> None:
    row = pai("ps").splitlines()[1]
    assert row.split()[:3] == [job.id, LONG, "Running"]


def test_in_a_narrow_window_the_name_gives_way(job: TrainingJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # Rich takes any stream for a terminal then
    rows = [visible_text(row) for row in pai("ps").splitlines()]
    assert job.id in rows[1]
    assert "…" in rows[1]
    assert max(map(len, rows)) <= 60


@pytest.mark.parametrize("force", ["", "1"])
def test_a_uri_is_shown_on_one_line_as_it_is(
    job: TrainingJob, monkeypatch: pytest.MonkeyPatch, force: str
) -> None:
    monkeypatch.setenv("FORCE_COLOR", force)
    assert MODEL in [visible_text(row).rpartition("  ")[2] for row in pai("status", job.id).splitlines()]


def test_a_job_that_waits_says_for_what(job: TrainingJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrainingJob, "events", lambda self: ["it was created", "it waits for 3 instances"])
    assert "it waits for 3 instances" in pai("status", job.id)


@pytest.mark.parametrize(("option", "shown"), [([], False), (["--verbose"], True)])
def test_what_the_credentials_library_logs_is_for_the_curious(option: list[str], shown: bool) -> None:
    program = """
import logging
from pai_sdk.cli import main
from pai_sdk.errors import CredentialsError
from pai_sdk.job.training_job import TrainingJob

def look_for_a_key(**_):
    logging.getLogger("credentials").error("Traceback of theirs")
    raise CredentialsError("no access key was found")

TrainingJob.list = look_for_a_key
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, *option, "ps"], capture_output=True, text=True, timeout=60
    )
    assert done.stderr.endswith("error: no access key was found\n")
    assert ("Traceback of theirs" in done.stderr) is shown
