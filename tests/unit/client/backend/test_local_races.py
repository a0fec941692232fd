"""Local jobs that one process looks at while another submits or deletes them."""

from __future__ import annotations

import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pai_sdk._client.backend.base import Plan
from pai_sdk._client.backend.local import LocalBackend, jobs
from pai_sdk._client.submission import submit as submit_plan
from pai_sdk._host.execution.base import ExecutionState
from pai_sdk._host.execution.docker.executor import DockerExecutor
from pai_sdk._host.execution.docker.launch import Launch
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk.errors import LocalRunError, NotFoundError
from tests.support.waiting import PATIENCE_S
from tests.unit.client.backend.test_local_submit import PLAN


def backend_on(folder: Path) -> LocalBackend:
    return LocalBackend(folder, executor=DockerExecutor(lambda: SimpleNamespace()))  # type: ignore[arg-type]


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalBackend:
    monkeypatch.setattr(Launch, "run", lambda launch, **_: None)
    return backend_on(tmp_path)


def submit(backend: LocalBackend) -> str:
    return submit_plan(Plan(TrainingJobRequest.model_validate(PLAN)), backend, progress=False)


def test_from_its_first_moment_on_a_job_is_known_to_be_submitted(
    backend: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would be shown as one whose submitter is gone, and `prune` would remove it."""
    write, seen = jobs._write, []

    def write_and_be_looked_at(path: Path, value: Any) -> None:
        write(path, value)
        if path.name == "request.json":
            seen.extend(str(record.status) for record in backend_on(tmp_path).list())

    monkeypatch.setattr(jobs, "_write", write_and_be_looked_at)
    submit(backend)
    assert seen == ["Initializing"]


def test_a_list_is_without_what_is_deleted_meanwhile(backend: LocalBackend) -> None:
    ids = {submit(backend) for _ in range(3)}
    listed = backend.list()
    first = next(listed).training_job_id
    gone, stays = sorted(ids - {first})
    shutil.rmtree(backend.data_dir / "jobs" / gone)
    assert [record.training_job_id for record in listed] == [stays]


def test_a_job_that_is_deleted_while_it_is_looked_at_is_not_there(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_ids = [submit(backend) for _ in range(2)]

    def state(root: Path) -> ExecutionState:
        shutil.rmtree(root)
        raise FileNotFoundError(root / "state")

    monkeypatch.setattr(backend._executor, "state", state)
    with pytest.raises(NotFoundError, match=job_ids[0]):
        backend.get(job_ids[0])
    with pytest.raises(NotFoundError, match=job_ids[1]):
        backend.read_log(job_ids[1], f"{job_ids[1]}-master-0", start=0, limit=1)
    assert list((backend.data_dir / "jobs").iterdir()) == []


def test_a_job_that_is_deleted_is_gone_at_once(backend: LocalBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as its files are being removed, no reader finds a part of them."""
    job_id, remove, seen = submit(backend), shutil.rmtree, []

    def rmtree(path: Path, **options: Any) -> None:
        seen.append([record.training_job_id for record in backend.list()])
        with pytest.raises(NotFoundError):
            backend.get(job_id)
        remove(path, **options)

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    backend.delete(job_id)
    assert seen == [[]]
    assert list((backend.data_dir / "jobs").iterdir()) == []


def test_prune_takes_what_cut_off_submissions_and_removals_have_left(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend._executor, "sweep", lambda: [])
    job_id = submit(backend)
    with monkeypatch.context() as at_this_moment:
        at_this_moment.setattr(shutil, "rmtree", lambda *_, **__: None)  # it is killed there
        backend.delete(job_id)
    folder = backend.data_dir / "jobs"
    for name, age_s in {"local-0123456789ab": 3600, "local-ba9876543210": 0, "notes": 3600}.items():
        (folder / name).mkdir()
        moment = time.time() - age_s
        os.utime(folder / name, (moment, moment))
    assert backend.prune() == []
    left = {entry.name for entry in folder.iterdir()}
    assert left == {"local-ba9876543210", "notes"}, "one may be about to become a job, the other is none of ours"


def plan_of_one_submission() -> Plan:
    wire = {**PLAN, "Labels": [{"Key": "pai-sdk-submission", "Value": "s1"}]}
    return Plan(TrainingJobRequest.model_validate(wire))


def test_one_submission_made_by_several_processes_is_one_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them come while the first one is still starting the job."""
    starting, launches = threading.Event(), []

    def run(launch: Launch, **_: Any) -> None:
        launches.append(launch.spec.job_id)
        starting.set()
        time.sleep(0.2)

    monkeypatch.setattr(Launch, "run", run)

    def submit_once_it_starts(number: int) -> str:
        if number:
            starting.wait(PATIENCE_S)
        return submit_plan(plan_of_one_submission(), backend_on(tmp_path), progress=False)

    with ThreadPoolExecutor(5) as threads:
        ids = list(threads.map(submit_once_it_starts, range(5)))
    assert (ids, len(launches)) == ([launches[0]] * 5, 1)
    assert [record.training_job_id for record in backend_on(tmp_path).list()] == launches


def test_a_submission_whose_start_fails_is_made_by_the_process_that_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starting, launches = threading.Event(), []

    def run(launch: Launch, **_: Any) -> None:
        launches.append(launch.spec.job_id)
        if len(launches) == 1:
            starting.set()
            time.sleep(0.2)
            raise LocalRunError("the engine refused")

    monkeypatch.setattr(Launch, "run", run)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(submit_plan, plan_of_one_submission(), backend_on(tmp_path), progress=False)
        starting.wait(PATIENCE_S)
        assert submit_plan(plan_of_one_submission(), backend_on(tmp_path), progress=False) == launches[-1]
    assert isinstance(first.exception(), LocalRunError)
    assert len(launches) == 2
