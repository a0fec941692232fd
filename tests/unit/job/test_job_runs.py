"""The jobs of a session as runs that are watched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pai_sdk.job.job_runs import JobRuns, run_record
from pai_sdk.schemas.record import JobRecord
from tests.unit.fake_backend import FakeBackend
from tests.unit.run.event_runs import write_run


def job(number: int, **more: object) -> JobRecord:
    facts = {
        "TrainingJobId": f"train-{number}",
        "TrainingJobName": "first",
        "Status": "Succeed",
        "GmtCreateTime": "2026-11-22T00:00:00Z",
        "GmtModifiedTime": "2026-11-22T02:00:00Z",
        "StatusTransitions": [{"Status": "Succeed", "EndTime": "2026-11-22T01:00:00Z"}],
        "HyperParameters": [{"Name": "lr", "Value": "0.1"}],
        "Labels": [{"Key": "team", "Value": "nlp"}],
    }
    return JobRecord.model_validate({**facts, **more})


def test_what_a_job_says_about_its_run() -> None:
    record = run_record(job(1, OutputChannels=[{"Name": "tensorboard", "OutputUri": "oss://b/x/tensorboard/"}]))
    assert (record.id, record.status, record.name) == ("train-1", "Succeed", "first")
    assert (record.hparams, record.labels) == ({"lr": "0.1"}, {"team": "nlp"})
    assert (record.created_at, record.ended_at) == (1795305600.0, 1795309200.0)
    assert record.uri == "oss://b/x/tensorboard/"
    running = run_record(job(2, Status="Running", StatusTransitions=[], GmtCreateTime=None))
    assert (running.created_at, running.ended_at, running.uri) == (None, None, "")
    assert run_record(job(3, StatusTransitions=[])).ended_at == 1795312800.0


class Listed(FakeBackend):
    """A backend with jobs that were listed."""

    def __init__(self, *jobs: JobRecord) -> None:
        super().__init__()
        self.jobs = list(jobs)
        self.lists = 0

    def list(self, **asked: object) -> Iterator[JobRecord]:  # type: ignore[override]
        self.lists += 1
        return iter(self.jobs)


def test_the_list_is_not_asked_for_in_every_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("pai_sdk.job.job_runs.time.monotonic", lambda: now[0])
    backend = Listed(*(job(number) for number in range(5)))
    records = JobRuns(backend, most=3)
    assert [record.id for record in records()] == ["train-0", "train-1", "train-2"]
    assert [len(records()) for _ in range(3)] == [3, 3, 3]
    assert backend.lists == 1
    now[0] += 6
    records()
    assert backend.lists == 2


def test_jobs_are_watched(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    from pai_sdk import RunManager

    folder = tmp_path / "train-1" / "tensorboard"
    write_run(folder, {"loss": [1.0, 0.5]})
    backend = Listed(job(1, OutputChannels=[{"Name": "tensorboard", "OutputUri": folder.as_uri()}]), job(2))
    with RunManager(records=JobRuns(backend, 10), opener=backend.store, refresh_s=0) as manager:
        manager.refresh()
        found = {run.id: run for run in manager.runs().runs}
        assert found.keys() == {"train-1", "train-2"}
        assert found["train-1"].tags["loss"].min == 0.5
        assert manager.runs("loss<1 hparams.lr=0.1 status=Succeeded").total == 1
