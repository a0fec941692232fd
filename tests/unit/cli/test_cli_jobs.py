"""What `pai-sdk ps` and `pai-sdk status` print, in a pipe and in a narrow window."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from pai_sdk import Session
from pai_sdk._client.backend.queueing import WaitingReason
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._core.terminal_text import visible_text
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk.cli.root import app
from pai_sdk.errors import InvalidInputError
from tests.support.fake_backend import FakeBackend
from tests.support.messages import refused

LONG = "a-name-of-many-words-" * 4 + "end"
MODEL = "oss://bucket/runs[red]/" + "deep/" * 20 + "model/"


@pytest.fixture
def listed_by() -> dict[str, object]:
    """What jobs were looked for with."""
    return {}


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend()


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, listed_by: dict[str, object], backend: FakeBackend) -> TrainingJob:
    backend.extra = {
        "TrainingJobName": LONG,
        "OutputChannels": [{"Name": "model", "OutputUri": MODEL}],
        "AlgorithmSpec": {"Command": ["sh", "-c", "python train.py --red\nsleep 1"], "Image": "i"},
        "HyperParameters": [{"Name": "lr", "Value": "0.1"}, {"Name": "epochs", "Value": "3"}],
        "Labels": [{"Key": "team", "Value": "vision"}, {"Key": "pai-sdk-submission", "Value": "x"}],
        "LatestMetrics": [{"Name": "loss", "Value": 0.25, "Step": 3}],
        "Environments": {"TOKEN": "secret"},
        "StatusTransitions": [{"Status": "Running", "StartTime": "2026-11-22T05:00:00Z"}],
    }
    backend.lines = {"train0123456789ab-master-0": [f"line {number}" for number in range(10)]}
    known = TrainingJob("train0123456789ab", backend)

    def listed(**filters: object) -> Iterator[TrainingJob]:
        listed_by.update(filters)
        yield known

    monkeypatch.setattr(TrainingJob, "list", listed)
    monkeypatch.setattr(
        TrainingJob, "get", lambda job_id: known if job_id == known.id else TrainingJob(job_id, backend)
    )
    monkeypatch.setattr("pai_sdk._client.session.default._default", Session("cn-hangzhou"))
    monkeypatch.setenv("COLUMNS", "60")
    return known


def pai(*arguments: str) -> str:
    return CliRunner().invoke(app, list(arguments)).stdout


def test_in_a_pipe_nothing_is_cut(job: TrainingJob) -> None:
    row = pai("ps").splitlines()[1]
    assert row.split()[:3] == [job.id, LONG, "Running"]


@pytest.mark.parametrize(("columns", "first"), [(60, "STATUS"), (80, "STATUS"), (150, "NAME")])
def test_names_and_ids_stay_whole_in_any_window(
    job: TrainingJob, monkeypatch: pytest.MonkeyPatch, columns: int, first: str
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # Rich takes any stream for a terminal then
    monkeypatch.setenv("COLUMNS", str(columns))
    titles, row, *below = [visible_text(row) for row in pai("ps").splitlines()]
    assert titles.split()[:2] == ["JOB", first]
    assert row.startswith(job.id)
    assert LONG in (row if first == "NAME" else below[0])
    assert len(row) <= columns


@pytest.mark.parametrize("force", ["", "1"])
def test_a_uri_is_shown_on_one_line_as_it_is(
    job: TrainingJob, monkeypatch: pytest.MonkeyPatch, force: str
) -> None:
    monkeypatch.setenv("FORCE_COLOR", force)
    assert MODEL in [visible_text(row).rpartition("  ")[2] for row in pai("status", job.id).splitlines()]


def test_a_status_shows_command_labels_hyperparameters_and_metrics(job: TrainingJob) -> None:
    shown = {row.partition("  ")[0]: row.partition("  ")[2].strip() for row in pai("status", job.id).splitlines()}
    assert shown["command"] == "python train.py --red …"
    assert shown["parameters"] == "lr=0.1  epochs=3"
    assert shown["labels"] == "team=vision"
    assert shown["metric loss"] == "0.25  step 3"


def test_a_long_text_is_wrapped_at_words_below_itself(job: TrainingJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(TrainingJob, "events", lambda self: ["it waits for " + "one more instance, " * 5])
    rows = [visible_text(row) for row in pai("status", job.id).splitlines()]
    (first,) = (number for number, row in enumerate(rows) if "it waits" in row)
    begin = rows[first].index("it waits")
    assert rows[first + 1][:begin].strip() == ""
    assert rows[first + 1][begin] != " "
    assert max(len(row) for row in rows[first : first + 3]) < 60


def test_describe_shows_all_of_it_and_no_secret(job: TrainingJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrainingJob, "events", lambda self: ["it was created"])
    shown = pai("describe", job.id)
    for text in (LONG, "python train.py --red\nsleep 1", MODEL, "Running  2026-11-22 05:00:00", "it was created"):
        assert text in shown
    assert "secret" not in shown + pai("describe", job.id, "--json")
    assert json.loads(pai("describe", job.id, "--json"))["Environments"] == {"TOKEN": "******"}


def test_labels_and_statuses_go_to_the_service(job: TrainingJob, listed_by: dict[str, object]) -> None:
    pai("ps", "--label", "team=vision", "-l", "night=1", "--status", "succeed")
    assert listed_by == {
        "status": "Succeed",
        "name": None,
        "labels": {"team": "vision", "night": "1"},
        "local": False,
        "api": None,
    }
    assert pai("ps", "-q") == f"{job.id}\n"


def test_a_status_that_there_is_not_is_wrong_usage(job: TrainingJob) -> None:
    result = CliRunner().invoke(app, ["ps", "--status", "foo"])
    assert result.exit_code == 2
    assert all(status in result.stderr for status in ("Creating", "Succeed", "Terminated"))


def test_the_last_lines_of_a_log(job: TrainingJob) -> None:
    assert pai("logs", job.id, "--tail", "2") == "line 8\nline 9\n"
    assert pai("logs", job.id, "--tail", "0") == ""
    assert pai("logs", job.id, "--tail", "99", "--instance", "master-0").count("\n") == 10


def test_times_of_lines(job: TrainingJob, backend: FakeBackend) -> None:
    backend.says_times = True
    assert pai("logs", job.id, "--tail", "2", "--timestamps").splitlines() == [
        "2026-11-22T05:00:08.000Z  line 8",
        "2026-11-22T05:00:09.000Z  line 9",
    ]
    last = json.loads(pai("logs", job.id, "-n", "1", "-t", "--json"))
    assert (last["text"], last["written_at"]) == ("line 9", "2026-11-22T05:00:09.000Z")
    assert "written_at" not in pai("logs", job.id, "-n", "1", "--json")


def test_a_service_that_does_not_say_the_times(job: TrainingJob) -> None:
    result = CliRunner().invoke(app, ["logs", job.id, "--timestamps"])
    assert "does not say when a line was written" in str(result.exception)


def test_deleting_asks_first(job: TrainingJob, monkeypatch: pytest.MonkeyPatch) -> None:
    deleted: list[str] = []
    monkeypatch.setattr(FakeBackend, "delete", lambda self, job_id: deleted.append(job_id))
    refused = CliRunner().invoke(app, ["delete", job.id], input="n\n")
    assert (refused.exit_code, deleted) == (1, [])
    assert LONG in refused.stderr
    assert CliRunner().invoke(app, ["delete", job.id], input="y\n").exit_code == 0
    assert pai("delete", job.id, "train2", job.id, "--yes") == f"deleted {job.id}\ndeleted train2\n"
    assert len(deleted) == 3


def test_a_job_that_cannot_be_deleted_does_not_keep_the_others(job: TrainingJob) -> None:
    result = CliRunner().invoke(app, ["delete", job.id, "train2", "-y"])
    assert result.exit_code == 1
    assert result.stderr.count("error: gone") == 2


def test_downloads_of_one_output_and_of_all(job: TrainingJob) -> None:
    assert pai("download", job.id, "model", "here") == "model: here\n"
    assert pai("download", job.id) == f"model: {job.id}/model\n"


def test_events(job: TrainingJob, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pai("events", job.id) == "no events\n"
    monkeypatch.setattr(TrainingJob, "events", lambda self: ["it was created", "it \x1b[2Jruns"])
    assert pai("events", job.id) == "it was created\nit runs\n"
    assert json.loads(pai("events", job.id, "--json").splitlines()[0]) == {
        "job": job.id,
        "event": "it was created",
    }


def test_why(job: TrainingJob, monkeypatch: pytest.MonkeyPatch) -> None:
    assert json.loads(pai("why", job.id, "--json")) == {"job": job.id, "waits": False}
    assert "is not waiting" in pai("why", job.id)
    monkeypatch.setattr(TrainingJob, "events", lambda self: ["it was created", "it waits for \x1b[2J3 instances"])
    monkeypatch.setattr(job.backend, "status", "Submitted")
    assert pai("why", job.id) == "waiting: it waits for 3 instances\n"
    state = WaitingReason("no GPU", 2, "2026-11-28T09:00:00Z")
    monkeypatch.setattr(job.backend, "waiting_reason", lambda record: state, raising=False)
    shown = json.loads(pai("why", job.id, "--json"))
    assert (shown["position"], shown["reason"], shown["since"]) == (2, "no GPU", "2026-11-28T09:00:00Z")
    assert pai("why", job.id) == "position 2 in the queue, since 2026-11-28T09:00:00Z: no GPU\n"


@pytest.mark.parametrize("columns", ["150", "60"])
def test_diff_names_what_differs(job: TrainingJob, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    other = FakeBackend()
    other.extra = {"TrainingJobName": "other", "HyperParameters": [{"Name": "lr", "Value": "0.2"}]}
    jobs = {job.id: job, "train2": TrainingJob("train2", other)}
    monkeypatch.setattr(TrainingJob, "get", lambda job_id: jobs[job_id])
    monkeypatch.setenv("COLUMNS", columns)
    text = pai("diff", job.id, "train2")
    assert LONG in text
    assert "0.1" in text
    assert "0.2" in text
    rows = [json.loads(row) for row in pai("diff", job.id, "train2", "--json").splitlines()]
    assert {"group": "hyperparameters", "name": "lr", "first": "0.1", "second": "0.2"} in rows
    assert "no differences" in pai("diff", job.id, job.id)


def test_a_job_that_waits_says_for_what(job: TrainingJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrainingJob, "events", lambda self: ["it was created", "it waits for 3 instances"])
    assert "it waits for 3 instances" in pai("status", job.id)


@pytest.mark.parametrize(("option", "shown"), [([], False), (["--verbose"], True)])
def test_what_the_credentials_library_logs_is_for_the_curious(option: list[str], shown: bool) -> None:
    program = """
import logging
from pai_sdk.cli import main
from pai_sdk.errors import CredentialsError
from pai_sdk.errors import InvalidInputError
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._wire.pai.record import JobRecord

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


def test_wait_without_the_log_shows_status_and_end(job: TrainingJob, backend: FakeBackend) -> None:
    looks = []

    def get(job_id: str, **_: object) -> JobRecord:
        looks.append(job_id)
        backend.status = "Running" if len(looks) < 3 else "Succeed"
        return FakeBackend.get(backend, job_id)

    backend.get = get  # type: ignore[method-assign]
    told = CliRunner().invoke(app, ["wait", job.id, "--no-logs"])
    assert "● Running" in told.stderr
    assert f"✔ {job.id} Succeed" in told.stderr
    assert (told.exit_code, told.stdout) == (0, "")


def test_a_quiet_wait_shows_nothing(job: TrainingJob, backend: FakeBackend) -> None:
    backend.status = "Succeed"
    assert pai("wait", job.id, "--quiet") == ""
    assert json.loads(pai("wait", job.id, "--json"))["Status"] == "Succeed"


def test_the_lines_since_a_moment(job: TrainingJob, backend: FakeBackend) -> None:
    backend.says_times = True
    assert pai("logs", job.id, "--since", "2026-11-22T05:00:08") == "line 8\nline 9\n"
    assert pai("logs", job.id, "--since", "2026-11-22T06:00:07.5+01:00", "--tail", "5") == "line 8\nline 9\n"
    assert pai("logs", job.id, "--since", "2026-11-22", "--tail", "1") == "line 9\n"
    assert pai("logs", job.id, "--since", "1s") == ""
    assert pai("logs", job.id, "--since", "9999w").count("\n") == 10
    assert pai("logs", job.id, "--since", "99999999999d").count("\n") == 10


def test_since_needs_a_moment_and_a_service_that_says_times(job: TrainingJob) -> None:
    told = CliRunner().invoke(app, ["logs", job.id, "--since", "yesterday"])
    assert told.exit_code == 2
    assert "10m" in told.stderr
    with refused(InvalidInputError, "times"):
        raise CliRunner().invoke(app, ["logs", job.id, "--since", "5m"]).exception or AssertionError


@pytest.mark.parametrize(("option", "rows"), [("--quiet", 2), ("--json", 2), ("--limit=5", 6)])
def test_a_watched_list_shows_changes_until_ctrl_c(
    job: TrainingJob, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, option: str, rows: int
) -> None:
    statuses = iter(["Running", "Running", "Succeed"])

    def listed(**_: object) -> Iterator[TrainingJob]:
        backend.status = next(statuses)
        yield TrainingJob(job.id, backend)

    def pause(seconds: float) -> None:
        if backend.status == "Succeed":
            raise KeyboardInterrupt

    monkeypatch.setattr(TrainingJob, "list", listed)
    monkeypatch.setattr("pai_sdk.cli.jobs.time.sleep", pause)
    monkeypatch.setenv("COLUMNS", "200")
    told = CliRunner().invoke(app, ["ps", "--watch", option])
    assert told.exit_code == 0
    assert told.stdout.count(f'"TrainingJobId":"{job.id}"' if option == "--json" else job.id) == 2, (
        "the second look has shown nothing new"
    )
    assert len(told.stdout.splitlines()) <= rows
