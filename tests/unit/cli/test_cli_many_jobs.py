"""Commands for several jobs: complete lists, and jobs that are waited for, stopped and deleted together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pai_sdk import Session
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk.cli.root import app
from pai_sdk.errors import NotFoundError
from tests.support.fake_backend import FakeBackend

NUM_JOBS = 25
STATUSES = ("Succeed", "Failed", "Terminated", "Running")


class Backend(FakeBackend):
    """Jobs whose status is by their number, until they are stopped or deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.statuses = {f"train{number:012}": STATUSES[number % 4] for number in range(NUM_JOBS)}

    def get(self, job_id: str, **_: Any) -> JobRecord:
        if job_id not in self.statuses:
            raise NotFoundError("gone", code="TrainingJobNotFound", status_code=404)
        self.status = self.statuses[job_id]
        return super().get(job_id)

    def stop(self, job_id: str) -> None:
        self.statuses[job_id] = "Terminated"

    def delete(self, job_id: str) -> None:
        del self.statuses[job_id]


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Backend:
    backend = Backend()

    def listed(*, status: str | None = None, labels: object = None, **_: object) -> Iterator[TrainingJob]:
        for job_id in [*backend.statuses]:
            record = backend.get(job_id)
            if status in (None, record.status) and labels != {"sweep": "none"}:
                yield TrainingJob(job_id, backend, record=record)

    def get(job_id: str) -> TrainingJob:
        return TrainingJob(job_id, backend, record=backend.get(job_id))

    monkeypatch.setattr(TrainingJob, "list", listed)
    monkeypatch.setattr(TrainingJob, "get", get)
    monkeypatch.setattr("pai_sdk._client.session.default._default", Session("cn-hangzhou"))
    monkeypatch.setenv("COLUMNS", "200")
    return backend


def pai(*arguments: str, input: str | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), input=input)


def test_a_list_says_that_there_are_more_jobs(backend: Backend) -> None:
    short = pai("ps")
    assert short.stdout.count("train0") == 20
    assert "--limit" in short.stderr
    assert pai("ps", "--limit", "20").stderr == ""
    assert pai("ps", "--limit", "100").stdout.count("train0") == NUM_JOBS
    assert pai("ps", "--status", "Running").stderr == ""


@pytest.mark.parametrize("option", ["-q", "--json"])
def test_a_script_gets_all_jobs(backend: Backend, option: str) -> None:
    assert len(pai("ps", option).stdout.splitlines()) == NUM_JOBS
    assert len(pai("ps", option, "-n", "3").stdout.splitlines()) == 3


@pytest.mark.parametrize(
    "options", [["--status", "failed,Terminated"], ["--status", "Failed", "--status", "stopped"]]
)
def test_several_statuses(backend: Backend, options: list[str]) -> None:
    listed = pai("ps", "--json", *options).stdout.splitlines()
    assert {json.loads(line)["Status"] for line in listed} == {"Failed", "Terminated"}
    assert len(listed) == 12


def test_a_wait_for_several_jobs(backend: Backend) -> None:
    succeeded = [job_id for job_id, status in backend.statuses.items() if status == "Succeed"]
    assert pai("wait", *succeeded, "--quiet").exit_code == 0
    both = pai("wait", *succeeded[:2], "train000000000001", "--json")
    assert [json.loads(line)["Status"] for line in both.stdout.splitlines()] == ["Succeed", "Succeed", "Failed"]
    assert both.exit_code == 100
    assert pai("wait", "--status", "Terminated,Succeed").exit_code == 103
    table = pai("wait", *succeeded, "--no-logs")
    assert (table.exit_code, table.stdout) == (0, "")
    assert f"{len(succeeded)} jobs: {len(succeeded)} Succeed" in table.stderr


def test_a_wait_that_is_too_long_or_for_nothing(backend: Backend) -> None:
    late = pai("wait", "--status", "Running", "--timeout", "0.01s")
    assert late.exit_code == 101
    assert "6 jobs" in late.stderr
    assert pai("wait", "--status", "Running", "--timeout", "soon").exit_code == 2
    assert isinstance(pai("wait", "--label", "sweep=none").exception, NotFoundError)
    assert pai("wait").exit_code == 2
    assert pai("wait", "train000000000001", "--status", "Running").exit_code == 2


def test_jobs_that_match_are_deleted_after_a_question(backend: Backend) -> None:
    assert pai("delete", "--status", "Failed,Terminated", input="n\n").exit_code == 1
    assert len(backend.statuses) == NUM_JOBS
    assert pai("delete", "--label", "sweep=lr", input="y\n").exit_code == 0
    assert {*backend.statuses.values()} == {"Running"}  # those that have not ended stay
    assert "no finished job" in pai("delete", "--label", "sweep=lr", "--yes").stdout
    assert pai("delete").exit_code == 2


@pytest.mark.parametrize("command", ["stop", "delete"])
def test_without_a_terminal_the_option_for_scripts_is_named(backend: Backend, command: str) -> None:
    unanswered = pai(command, "--label", "sweep=lr", input="")
    assert unanswered.exit_code == 1
    assert "--yes" in unanswered.stderr


@pytest.mark.parametrize("command", ["stop", "delete", "wait"])
def test_one_wrong_name_and_nothing_happens(backend: Backend, command: str) -> None:
    before = {**backend.statuses}
    result = pai(command, "train000000000003", "nope")
    assert isinstance(result.exception, NotFoundError)
    assert "nothing was done" in result.stderr
    assert backend.statuses == before
