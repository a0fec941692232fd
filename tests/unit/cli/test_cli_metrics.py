"""What `pai-sdk metrics` prints."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from pai_sdk import Session
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._wire.pai.record import MetricPoint
from pai_sdk.cli.root import app
from pai_sdk.errors import InvalidInputError
from tests.support.fake_backend import FakeBackend
from tests.support.messages import refused


class Reporting(FakeBackend):
    """A job that reports a value more each time its metrics are asked for, and ends after the last one."""

    def __init__(self, *values: float) -> None:
        super().__init__()
        self.values = values
        self.asked = 0

    def metrics(self, job_id: str, *, name: str | None = None, since: str | None = None) -> Iterator[MetricPoint]:
        self.asked += 1
        shown = self.values if self.status != "Running" else self.values[: self.asked]
        if self.asked > len(self.values):
            self.status = "Succeed"
        for step, value in enumerate(shown):
            for metric, number in (("loss", value), ("accuracy\x1b[31m", 1 - value)):
                if name in (None, metric):
                    yield MetricPoint(
                        name=metric,
                        value=number,
                        step=step,
                        timestamp=f"2026-01-01T00:00:0{step}.500Z",
                        instance="master-0",
                    )


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Reporting:
    backend = Reporting(1.0, 0.5, 0.25)
    monkeypatch.setattr(TrainingJob, "get", lambda job_id: TrainingJob(job_id, backend))
    monkeypatch.setattr("pai_sdk._client.session.default._default", Session("cn-hangzhou"))
    monkeypatch.setattr("pai_sdk.cli.metric_commands.time", SimpleNamespace(sleep=lambda seconds: None))
    return backend


def pai(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["metrics", "train0123456789ab", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_summary_has_a_row_for_each_metric(backend: Reporting) -> None:
    backend.status = "Succeed"
    titles, loss, accuracy = pai().splitlines()
    assert titles.split() == ["METRIC", "LAST", "MIN", "MAX", "STEP", "VALUES"]
    assert loss.split() == ["loss", "0.25", "0.25", "1", "2", "3", "█▃▁"]
    assert accuracy.split()[:2] == ["accuracy", "0.75"]  # a name cannot colour the terminal


def test_each_value(backend: Reporting) -> None:
    backend.status = "Succeed"
    assert pai("--points", "--name", "loss").splitlines() == [
        "2026-01-01 00:00:00  step 0  loss  1",
        "2026-01-01 00:00:01  step 1  loss  0.5",
        "2026-01-01 00:00:02  step 2  loss  0.25",
    ]


def test_values_for_scripts(backend: Reporting) -> None:
    backend.status = "Succeed"
    points = [json.loads(line) for line in pai("--json", "--name", "loss").splitlines()]
    assert [(point["Name"], point["Value"], point["Step"]) for point in points] == [
        ("loss", 1.0, 0),
        ("loss", 0.5, 1),
        ("loss", 0.25, 2),
    ]


def test_following_prints_each_value_once_until_the_end(backend: Reporting) -> None:
    values = [line.split()[-1] for line in pai("--follow", "--name", "loss").splitlines()]
    assert values == ["1", "0.5", "0.25"]
    assert backend.asked > 3


def test_an_unknown_metric_names_the_nearest(backend: Reporting) -> None:
    assert pai("--name", "los") == "job train0123456789ab has no metric 'los' yet; did you mean 'loss'?\n"
    backend.status = "Succeed"
    for how in (), ("--points",), ("--json",):
        with refused(InvalidInputError):
            raise (CliRunner().invoke(app, ["metrics", "train0123456789ab", "--name", "los", *how])).exception


def test_each_instance_has_a_row(backend: Reporting, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report has the name of its own; what a log says comes after it."""

    def metrics(job_id: str, *, name: str | None = None, since: str | None = None) -> Iterator[MetricPoint]:
        for instance, step, value in (("a-0", None, 7.0), ("a-0", 1, 2.0), ("a-1", 1, 3.0), ("a-1", 2, 4.0)):
            yield MetricPoint(name="loss", value=value, step=step, instance=f"{job_id}-{instance}")

    monkeypatch.setattr(backend, "metrics", metrics)
    rows = [re.split("  +", row)[:2] for row in pai().splitlines()[1:]]
    assert rows == [["loss", "2"], ["loss (a-1)", "4"], ["loss (a-0.log)", "7"]]


def test_a_job_without_metrics(backend: Reporting, monkeypatch: pytest.MonkeyPatch) -> None:
    backend.values = ()
    monkeypatch.setattr(backend, "metrics", lambda job_id, name=None, since=None: iter(()))
    assert pai() == "job train0123456789ab has no metric yet\n"
    job = TrainingJob("train0123456789ab", backend)
    monkeypatch.setattr("pai_sdk.cli.metric_commands.find_job", lambda name: job)
    newest = CliRunner().invoke(app, ["metrics", "-"])
    assert newest.stdout == "job train0123456789ab has no metric yet\n"
    backend.status = "Succeed"
    assert pai("--name", "x") == "job train0123456789ab has no metric 'x'\n"
