"""Jobs that are being read or waited for while another process prunes."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from pai_sdk._client.backend.base import Plan
from pai_sdk._client.backend.local import LocalBackend
from pai_sdk._client.backend.local.jobs import LocalJob
from pai_sdk._client.submission import submit
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.execution.base import ExecutionState, InstanceState
from pai_sdk._host.execution.docker.executor import DockerExecutor
from pai_sdk._host.execution.docker.launch import Launch
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk.errors import NotFoundError
from tests.unit.client.backend.test_local_submit import PLAN

LINES = ["one", "two", "three"]
ENDED = ExecutionState("ended", succeeded=True, instances=(InstanceState("i", "master", "Succeed", 0),))
RUNS = ExecutionState("running", instances=(InstanceState("i", "master", "Running"),))


@pytest.fixture
def backends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[LocalBackend, LocalBackend]]:
    """Two on one folder, as two processes have them: one reads, the other prunes."""
    monkeypatch.setattr(Launch, "run", lambda launch, **_: None)
    monkeypatch.setattr(DockerExecutor, "sweep", lambda executor: [])
    monkeypatch.setattr(DockerExecutor, "state", lambda executor, root: ENDED)
    pair = [
        LocalBackend(tmp_path, executor=DockerExecutor(lambda: SimpleNamespace(close=lambda: None)))  # type: ignore[arg-type, return-value]
        for _ in range(2)
    ]
    yield pair[0], pair[1]
    for backend in pair:
        backend.close()


@pytest.fixture
def job_id(backends: tuple[LocalBackend, LocalBackend]) -> str:
    """A job with a short log."""
    reader, _ = backends
    job_id = submit(Plan(TrainingJobRequest.model_validate(PLAN)), reader, progress=False)
    log = Sandbox(reader.data_dir / "jobs" / job_id).log_file("i")
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("".join(f"{line}\n" for line in LINES))
    return job_id


def test_a_log_is_not_pruned_while_it_is_read(backends: tuple[LocalBackend, LocalBackend], job_id: str) -> None:
    reader, pruner = backends
    seen: list[str] = []
    while True:
        page = reader.read_log(job_id, "i", start=len(seen), limit=1)
        seen += page.lines
        if page.complete:
            break
        assert pruner.prune() == []
    assert seen == LINES
    assert pruner.prune() == [job_id]


def test_a_job_is_not_pruned_before_who_waits_for_it_knows_its_end(
    backends: tuple[LocalBackend, LocalBackend], job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, pruner = backends
    with monkeypatch.context() as earlier:
        earlier.setattr(DockerExecutor, "state", lambda executor, root: RUNS)
        assert reader.get(job_id).status == "Running"
    assert pruner.prune() == []
    assert reader.get(job_id).status == "Succeed"
    assert pruner.prune() == [job_id]
    with pytest.raises(NotFoundError):
        reader.get(job_id)


def test_a_job_that_is_deleted_while_it_is_looked_at_is_not_found(
    backends: tuple[LocalBackend, LocalBackend], job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, _ = backends
    record = LocalJob.record

    def deleted(job: LocalJob, state: ExecutionState) -> JobRecord:
        found = record(job, state)
        shutil.rmtree(job.root)  # by another process
        return found

    monkeypatch.setattr(LocalJob, "record", deleted)
    with pytest.raises(NotFoundError):
        reader.get(job_id)


@pytest.mark.parametrize("leaves_by", ["ending", "not coming back"])
def test_a_reader_that_has_gone_keeps_nothing(
    backends: tuple[LocalBackend, LocalBackend], job_id: str, leaves_by: str, caplog: pytest.LogCaptureFixture
) -> None:
    reader, pruner = backends
    reader.read_log(job_id, "i", start=0, limit=1)
    assert pruner.prune() == []
    assert f"{job_id} is being read" in caplog.text
    if leaves_by == "ending":
        reader.close()
    else:
        long_ago = time.time() - 3600
        os.utime(reader.data_dir / "jobs" / job_id / "readers.lock", (long_ago, long_ago))
    assert pruner.prune() == [job_id]


def test_a_job_that_is_read_can_be_deleted(backends: tuple[LocalBackend, LocalBackend], job_id: str) -> None:
    """By its name, and so on purpose."""
    reader, _ = backends
    reader.read_log(job_id, "i", start=0, limit=1)
    reader.delete(job_id)
    with pytest.raises(NotFoundError):
        reader.read_log(job_id, "i", start=1, limit=1)


def test_the_log_of_a_job_that_was_interrupted_has_an_end(
    backends: tuple[LocalBackend, LocalBackend], job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its submitter was killed: no instance of it will ever tell its exit code."""
    reader, pruner = backends
    monkeypatch.setattr(DockerExecutor, "state", lambda executor, root: ExecutionState("absent"))
    assert reader.read_log(job_id, "i", start=0, limit=100).complete
    assert pruner.prune() == [job_id]
