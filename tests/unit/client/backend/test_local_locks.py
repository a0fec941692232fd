"""The locks of a local job: two files, and those that processes of an earlier release hold."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pai_sdk._client.backend.base import Plan
from pai_sdk._client.backend.local import LocalBackend
from pai_sdk._client.submission import submit as submit_plan
from pai_sdk._core.files import locked
from pai_sdk._host.execution.base import ExecutionState, InstanceState
from pai_sdk._host.execution.docker.executor import DockerExecutor
from pai_sdk._host.execution.docker.launch import Launch
from pai_sdk._wire.pai.request import TrainingJobRequest
from tests.unit.client.backend.test_local_submit import PLAN

OUTPUT = {"Name": "tensorboard", "OutputUri": "oss://bucket/events/"}
SUBMISSION = {"Key": "pai-sdk-submission", "Value": "s1"}
RUNS = ExecutionState("running", instances=(InstanceState("i", "master", "Running"),))
ENDED = ExecutionState("ended", succeeded=True, instances=(InstanceState("i", "master", "Succeed", 0),))


class Machine:
    """Backends on one folder, as processes have them, and the uploaders that they start."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.uploaders = folder, list[str]()
        self.backends: list[LocalBackend] = []

    def process(self) -> LocalBackend:
        executor = DockerExecutor(lambda: SimpleNamespace(close=lambda: None))  # type: ignore[arg-type, return-value]
        backend = LocalBackend(self.folder, executor=executor, files=lambda embedded: None)  # type: ignore[arg-type, return-value]
        backend.steps._start_uploader = lambda job: self.uploaders.append(job.id)  # type: ignore[method-assign]
        self.backends.append(backend)
        return backend

    def submit(self, backend: LocalBackend, **fields: Any) -> str:
        request = TrainingJobRequest.model_validate({**PLAN, "Labels": [SUBMISSION], **fields})
        return submit_plan(Plan(request), backend, progress=False)

    def root(self, job_id: str) -> Path:
        return self.folder / "jobs" / job_id


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setattr(Launch, "run", lambda launch, **_: None)
    monkeypatch.setattr(DockerExecutor, "sweep", lambda executor: [])
    machine = Machine(tmp_path)
    yield machine
    for backend in machine.backends:
        backend.close()


def runs(monkeypatch: pytest.MonkeyPatch, state: ExecutionState = RUNS) -> None:
    monkeypatch.setattr(DockerExecutor, "state", lambda executor, root: state)


def test_a_job_has_two_lock_files(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = machine.process()
    job_id = machine.submit(backend)
    runs(monkeypatch)
    backend.get(job_id)
    backend.read_log(job_id, "i", start=0, limit=1)
    backend.update_labels(job_id, {"a": "b"})
    assert sorted(path.name for path in machine.root(job_id).glob("*.lock")) == ["readers.lock", "submit.lock"]


@pytest.mark.parametrize("held", ["uploader.log", "uploader.lock", None])
def test_a_job_has_one_uploader_also_if_an_earlier_release_has_started_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, held: str | None
) -> None:
    job_id = machine.submit(machine.process(), OutputChannels=[OUTPUT], Labels=[])
    machine.uploaders.clear()
    runs(monkeypatch)
    with locked(machine.root(job_id) / (held or "other.lock")):
        machine.process().get(job_id)
    assert machine.uploaders == ([] if held else [job_id])


def test_a_list_starts_the_uploader_of_a_job_that_another_process_is_about_to_start(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That process may be killed right after the start."""
    job_id = machine.submit(machine.process(), OutputChannels=[OUTPUT], Labels=[])
    machine.uploaders.clear()
    runs(monkeypatch, ExecutionState("absent"))
    with locked(machine.root(job_id) / "submit.lock"):
        assert [record.status for record in machine.process().list()] == ["Initializing"]
    assert machine.uploaders == [job_id]


def test_a_step_waits_for_the_upload_of_an_earlier_release(machine: Machine) -> None:
    backend = machine.process()
    job_id = machine.submit(backend)
    with locked(machine.root(job_id) / "sync.lock"), backend._jobs.get(job_id).step_lock(waits=False) as is_ours:
        assert not is_ours
    with backend._jobs.get(job_id).step_lock(waits=False) as is_ours:
        assert is_ours


def test_a_long_upload_delays_neither_labels_nor_the_same_submission(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = machine.process()
    job_id = machine.submit(backend)
    runs(monkeypatch)
    with backend._jobs.get(job_id).step_lock():
        backend.update_labels(job_id, {"a": "b"})
        assert machine.submit(machine.process()) == job_id
        assert machine.process().get(job_id).status == "Running"


@pytest.mark.parametrize(
    ("reads_log", "age_s", "is_removed"),
    [(False, 29, False), (False, 31, True), (True, 31, False), (True, 601, True)],
)
def test_a_reader_that_does_not_return_protects_a_log_longer_than_a_state(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, reads_log: bool, age_s: float, is_removed: bool
) -> None:
    reader = machine.process()
    job_id = machine.submit(reader)
    runs(monkeypatch)
    if reads_log:
        reader.read_log(job_id, "i", start=0, limit=1)
    reader.get(job_id)
    file = machine.root(job_id) / "readers.lock"
    moment = file.stat().st_mtime - age_s
    os.utime(file, (moment, moment))
    runs(monkeypatch, ENDED)
    assert machine.process().prune() == ([job_id] if is_removed else [])


def test_a_process_of_an_earlier_release_that_waits_protects_the_job(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = machine.process()
    job_id = machine.submit(backend)
    runs(monkeypatch, ENDED)
    file = machine.root(job_id) / "waiting.lock"
    with locked(file, shared=True):
        assert backend.prune() == []
        long_ago = time.time() - 60
        os.utime(file, (long_ago, long_ago))
        assert backend.prune() == [job_id]
