"""The way of a job from the queue to its end, with an executor that does as it is told."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import requests

from pai_sdk._service import server
from pai_sdk._service.background.active_job import Publisher
from pai_sdk._service.background.metrics import MetricsCollector
from pai_sdk._service.background.scheduler import Scheduler
from pai_sdk._service.oss.store import ObjectStore
from pai_sdk._service.services.jobs.changes import Changes, Subscription
from pai_sdk._service.services.jobs.host_resources import Capacity
from pai_sdk._service.services.jobs.job_table import Jobs
from pai_sdk._service.settings import ConnectionLimits, Pace, ServiceSettings
from pai_sdk._service.state.database import Database
from pai_sdk._service.state.folder import DataFolder
from pai_sdk._service.state.models import Job
from tests.service.fakes import ScriptedExecutor
from tests.service.postgres import url_for
from tests.service.services import HELD_S, Client, job_body, running_service
from tests.support.waiting import PATIENCE_S, quickest, until


@pytest.fixture(scope="module")
def executor() -> ScriptedExecutor:
    return ScriptedExecutor()


@pytest.fixture(scope="module")
def service_of_two(executor: ScriptedExecutor, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("scheduler") / "data"
    with running_service(folder, executor, slots=2, max_hold_s=HELD_S) as client:
        yield client


@pytest.fixture
def client(service_of_two: Client, executor: ScriptedExecutor) -> Client:
    """A service with two slots, both of them free."""
    for job_id in executor.running:
        executor.succeed(root(service_of_two, job_id))
        service_of_two.until(job_id)
    executor.begun.clear()
    return service_of_two


def root(client: Client, job_id: str) -> Path:
    return client.info.data_dir / "jobs" / job_id


def statuses(job: dict[str, Any]) -> list[str]:
    return [transition["Status"] for transition in job["StatusTransitions"]]


def test_a_job_goes_through_all_its_states(client: Client, executor: ScriptedExecutor) -> None:
    job_id = client.create(job_body())
    client.until(job_id, "Running")
    executor.succeed(root(client, job_id))
    job = client.until(job_id)
    assert statuses(job) == ["Creating", "Submitted", "Initializing", "Running", "Succeed"]
    ends = [transition["EndTime"] for transition in job["StatusTransitions"]]
    begins = [transition["StartTime"] for transition in job["StatusTransitions"]]
    assert ends[:-1] == begins[1:], "each state ends as the next one begins"
    assert None not in ends
    assert job["Instances"] == [{"Name": f"{job_id}-master-0", "Role": "master", "Status": "Succeed"}]


def test_jobs_begin_in_their_order_and_never_more_than_fit(client: Client, executor: ScriptedExecutor) -> None:
    two = {"EcsSpec": "x", "EcsCount": 2}
    ids = [client.create(job_body()), client.create(job_body(ComputeResource=two)), client.create(job_body())]
    client.until(ids[0], "Running")
    time.sleep(0.15)
    assert executor.begun == ids[:1]  # the second does not fit beside it, and the third does not overtake
    assert client.get(f"/trainingjobs/{ids[2]}")["Status"] == "Submitted"
    for job_id in ids:
        client.until(job_id, "Running")
        executor.succeed(root(client, job_id))
    client.until(ids[2])
    assert executor.begun == ids


def test_a_higher_priority_begins_first_and_the_others_keep_their_order(
    client: Client, executor: ScriptedExecutor
) -> None:
    two = {"EcsSpec": "x", "EcsCount": 2}
    running = client.create(job_body(ComputeResource=two))
    client.until(running, "Running")
    low, first, second, high = (
        client.create(job_body(ComputeResource=two, **fields))
        for fields in ({"Priority": -1}, {}, {}, {"Priority": 5})
    )
    for job_id in (running, high, first, second, low):
        client.until(job_id, "Running")
        executor.succeed(root(client, job_id))
    client.until(low)
    assert executor.begun == [running, high, first, second, low]


def test_a_job_that_waits_tells_for_what(client: Client, executor: ScriptedExecutor) -> None:
    body = job_body(ComputeResource={"EcsSpec": "x", "EcsCount": 2})
    first = client.create(body)
    client.until(first, "Running")
    second = client.create(body)
    until(lambda: len(queue_events(client, second)) == 2)
    third = client.create(body)
    next_up = "The job is next to start; it is waiting for 2 instances (0 of 2 are free)."
    assert queue_events(client, second)[1] == next_up
    assert queue_events(client, third) == ["The job was created and waits in the queue, behind 1 other."]
    for job_id in (third, second):
        client.call("PUT", f"/trainingjobs/{job_id}/stop")
    executor.succeed(root(client, first))
    client.until(first)


def queue_events(client: Client, job_id: str) -> list[str]:
    """Without the notice about the image, which each job of a process executor has."""
    return [event for event in events(client, job_id) if "image" not in event]


def events(client: Client, job_id: str) -> list[str]:
    return [line.partition(" ")[2] for line in client.get(f"/trainingjobs/{job_id}/events")["Events"]]


def test_cpus_and_memory_are_shared_out_too(start: Callable[..., Any]) -> None:
    executor = ScriptedExecutor()

    def job(cpu: str, memory: str) -> dict[str, Any]:
        return job_body(ComputeResource={"InstanceCount": 1, "InstanceSpec": {"CPU": cpu, "Memory": memory}})

    with start(executor, cpus=4.0, memory_gib=8.0) as client:
        ids = [client.create(job(*asked)) for asked in (("3", "1"), ("1", "7GiB"), ("1", "1"))]
        client.until(ids[1], "Running")
        assert client.get(f"/trainingjobs/{ids[2]}")["Status"] == "Submitted"
        executor.succeed(root(client, ids[0]))
        client.until(ids[2], "Running")
        for wrong in (("5", "1"), ("1", "9"), ("many", "1"), ("nan", "1")):
            answer = client.call("POST", "/trainingjobs", body=job(*wrong))
            assert (answer.status_code, answer.json()["Code"]) == (400, "InvalidParameter"), wrong
        for job_id in ids[1:]:
            executor.succeed(root(client, job_id))
            client.until(job_id)


def test_a_failure_tells_where_and_why(client: Client, executor: ScriptedExecutor) -> None:
    job_id = client.create(job_body(ComputeResource={"EcsSpec": "x", "EcsCount": 2}))
    client.until(job_id, "Running")
    executor.fail(root(client, job_id), f"{job_id}-worker-0", 3)
    job = client.until(job_id)
    assert (job["Status"], job["ReasonCode"]) == ("Failed", "NonZeroExit")
    assert "exit code 3" in job["ReasonMessage"]
    info = client.get(f"/trainingjobs/{job_id}/errorinfo")["ErrorInfo"]
    assert info["Code"] == "NonZeroExit"
    assert info["AdditionalInfo"] == f'{{"Instance": "{job_id}-worker-0", "ExitCode": 3}}'


def test_a_disk_that_is_full_when_a_job_begins_is_its_reason(
    client: Client, executor: ScriptedExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(spec: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(executor, "start", full)
    job = client.until(client.create(job_body()))
    assert (job["Status"], job["ReasonCode"]) == ("InitializeFailed", "DiskFull")


def test_a_job_has_run_since_its_instances_began_however_late_that_is_seen(
    client: Client, executor: ScriptedExecutor
) -> None:
    executor.begun_before_s = 30.0
    try:
        job_id = client.create(job_body())
        client.until(job_id, "Running")
    finally:
        executor.begun_before_s = 0.0
    executor.succeed(root(client, job_id))
    assert client.until(job_id)["Duration"] >= 30


@pytest.fixture
def client_of_quick_uploads(executor: ScriptedExecutor, tmp_path: Path) -> Iterator[Client]:
    with running_service(tmp_path / "data", executor, pace=Pace(upload_interval_s=0.01)) as client:
        yield client


def test_what_cannot_be_saved_is_told_once_while_the_job_runs(
    client_of_quick_uploads: Client, executor: ScriptedExecutor
) -> None:
    client = client_of_quick_uploads
    outputs = [{"Name": "checkpoints", "OutputUri": f"oss://{client.info.bucket}/unsaved/"}]
    job_id = client.create(job_body(OutputChannels=outputs))
    client.until(job_id, "Running")
    folder = root(client, job_id) / "ml" / "output" / "checkpoints"
    os.mkfifo(folder / "pipe")
    until(lambda: any("pipe" in event for event in events(client, job_id)))
    (folder / "good").write_text("1")
    bucket = client.bucket()
    until(lambda: bucket.object_exists("unsaved/good"))
    (folder / "better").write_text("2")
    until(lambda: bucket.object_exists("unsaved/better"))
    executor.succeed(root(client, job_id))
    assert client.until(job_id)["ReasonCode"] == "OutputsNotSaved"
    told = [event for event in events(client, job_id) if "Some outputs are not saved yet" in event]
    assert len(told) == 1
    assert "checkpoints: pipe" in told[0]


def test_checkpoints_that_take_long_to_save_hold_up_no_other_job(
    client: Client, executor: ScriptedExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    def slowly(publisher: Publisher, *, live_only: bool) -> str:
        if live_only:
            begun.release()
            assert go_on.wait(PATIENCE_S)
        return ""

    monkeypatch.setattr(Publisher, "upload", slowly)
    outputs = [{"Name": "checkpoints", "OutputUri": f"oss://{client.info.bucket}/slow/"}]
    quick = {"pace": Pace(upload_interval_s=0.01), "copy_threads": 2}
    with running_service(client.info.data_dir.parent / "slow", executor, slots=9, **quick) as other:
        slow = [other.create(job_body(OutputChannels=outputs)) for _ in range(2)]
        try:
            assert all(begun.acquire(timeout=PATIENCE_S) for _ in slow)
            job_id = other.create(job_body())
            other.until(job_id, "Running")
            executor.succeed(root(other, job_id))
            assert other.until(job_id)["Status"] == "Succeed"
        finally:
            go_on.set()
        for each in slow:
            executor.succeed(root(other, each))
            other.until(each)


def test_the_end_is_seen_at_once(client: Client, executor: ScriptedExecutor) -> None:
    def delay_s() -> float:
        job_id = client.create(job_body())
        client.until(job_id, "Running")
        executor.succeed(root(client, job_id))
        begun = time.monotonic()
        client.until(job_id)
        return time.monotonic() - begun

    assert quickest(delay_s, enough_s=0.2) < 1


def test_a_queued_job_is_stopped_without_having_begun(client: Client, executor: ScriptedExecutor) -> None:
    first = client.create(job_body(ComputeResource={"EcsSpec": "x", "EcsCount": 2}))
    client.until(first, "Running")
    queued = client.create(job_body())
    assert client.call("PUT", f"/trainingjobs/{queued}/stop").status_code == 200
    job = client.get(f"/trainingjobs/{queued}")
    assert (job["Status"], job["ReasonCode"]) == ("Terminated", "StoppedByUser")
    executor.succeed(root(client, first))
    client.until(first)
    assert executor.begun == [first]


def test_a_running_job_is_stopped_and_again_does_no_harm(client: Client, executor: ScriptedExecutor) -> None:
    job_id = client.create(job_body())
    client.until(job_id, "Running")
    for _ in range(3):
        assert client.call("PUT", f"/trainingjobs/{job_id}/stop").status_code == 200
    job = client.until(job_id)
    assert (job["Status"], job["ReasonCode"]) == ("Terminated", "StoppedByUser")
    assert client.call("PUT", f"/trainingjobs/{job_id}/stop").status_code == 200
    assert client.get(f"/trainingjobs/{job_id}/errorinfo")["ErrorInfo"] == {}


def test_only_what_has_ended_is_deleted(client: Client, executor: ScriptedExecutor) -> None:
    job_id = client.create(job_body(Labels=[{"Key": "a", "Value": "b"}]))
    client.until(job_id, "Running")
    answer = client.call("DELETE", f"/trainingjobs/{job_id}")
    assert (answer.status_code, answer.json()["Code"]) == (409, "TRAINING_JOB_NOT_ENDED")
    executor.succeed(root(client, job_id))
    client.until(job_id)
    assert client.call("DELETE", f"/trainingjobs/{job_id}").status_code == 200
    until(lambda: not root(client, job_id).exists() and not list(root(client, job_id).parent.glob(".trash*")))
    for path in ("", "/logs", "/events", "/metrics", "/latestmetrics", "/errorinfo", "/outputmodels"):
        answer = client.call("GET", f"/trainingjobs/{job_id}{path}")
        assert (answer.status_code, answer.json()["Code"]) == (404, "TRAINING_JOB_NOT_FOUND"), path


def test_who_waits_for_a_job_is_told_that_it_was_deleted(
    client: Client, executor: ScriptedExecutor, held: set[Subscription]
) -> None:
    job_id = client.create(job_body())
    client.until(job_id, "Running")
    executor.succeed(root(client, job_id))
    client.until(job_id)
    etag = client.call("GET", f"/trainingjobs/{job_id}").headers["ETag"]
    found: list[int] = []

    def wait() -> None:
        headers = {"If-None-Match": etag, "Prefer": f"wait={HELD_S:g}"}
        with closing(requests.Session()) as session:
            answer = Client(client.info, session).call("GET", f"/trainingjobs/{job_id}", headers=headers)
        found.append(answer.status_code)

    waiting = threading.Thread(target=wait)
    held.clear()
    waiting.start()
    until(lambda: held)
    client.call("DELETE", f"/trainingjobs/{job_id}")
    waiting.join(PATIENCE_S)
    assert found == [404]


def test_an_idle_service_ends_but_never_with_a_job(start: Callable[..., Any], tmp_path: Path) -> None:
    executor = ScriptedExecutor()
    with start(executor) as client:
        job_id = client.create(job_body())
        client.until(job_id, "Running")
    # The job is there from the start: a slow client could come too late to bring it.
    service = server.Service(
        ServiceSettings(
            tmp_path / "data",
            idle_timeout_s=0.3,
            database_url=url_for(tmp_path / "data"),
            connections=ConnectionLimits(check_interval_s=0.05),
        ),
        executor,
    )
    thread = threading.Thread(target=service.run)
    thread.start()
    thread.join(1.5)
    assert thread.is_alive()
    executor.succeed(root(client, job_id))
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_it_is_not_idle_while_it_looks_into_the_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the database takes: a service that is not needed ends."""
    asked, go_on = threading.Event(), threading.Event()
    database = Database.in_file(tmp_path / "service.db")
    jobs = Jobs(database, Changes())

    def slowly() -> Job | None:
        asked.set()
        assert go_on.wait(PATIENCE_S)
        return None

    monkeypatch.setattr(jobs, "first_in_queue", slowly)
    with DataFolder(tmp_path / "data") as folder, ObjectStore(folder.objects_dir) as store:
        settings = ServiceSettings(folder.root)
        capacity = Capacity.of(settings, ScriptedExecutor.capabilities)
        tested = Scheduler(
            jobs,
            folder,
            store,
            ScriptedExecutor(),
            MetricsCollector(jobs),
            settings=settings,
            capacity=lambda: capacity,
        )
        tested.start()
        try:
            assert asked.wait(PATIENCE_S)
            assert not tested.is_idle
            go_on.set()
            until(lambda: tested.is_idle)
        finally:
            go_on.set()
            tested.close()
    database.close()


def test_the_queue_is_looked_into_again_after_a_fault(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    executor, first_in_queue, faults = ScriptedExecutor(), Jobs.first_in_queue, [OSError("of the database")]

    def now_and_then(jobs: Jobs) -> Job | None:
        job = first_in_queue(jobs)
        if job is not None and job.name == "unlucky" and faults:
            raise faults.pop()
        return job

    monkeypatch.setattr(Jobs, "first_in_queue", now_and_then)
    with start(executor, pace=Pace(retry_after_error_s=0.01)) as client:
        job_id = client.create(job_body(TrainingJobName="unlucky"))
        client.until(job_id, "Running")
        assert not faults
        executor.succeed(root(client, job_id))
        client.until(job_id)


def test_jobs_are_taken_up_again_after_a_restart(start: Callable[..., Any], tmp_path: Path) -> None:
    executor = ScriptedExecutor()
    with start(executor, slots=1) as client:
        running, queued = client.create(job_body()), client.create(job_body())
        client.until(running, "Running")
    executor.succeed(tmp_path / "data" / "jobs" / running)
    with start(executor, slots=1) as client:
        assert statuses(client.until(running)) == ["Creating", "Submitted", "Initializing", "Running", "Succeed"]
        client.until(queued, "Running")
        executor.succeed(root(client, queued))
        client.until(queued)
    assert executor.begun == [running, queued]


def test_what_a_deleted_job_left_is_removed_after_a_restart(start: Callable[..., Any], tmp_path: Path) -> None:
    for name in ("trainforgotten", ".trash-old"):
        (tmp_path / "data" / "jobs" / name / "ml").mkdir(parents=True)
    with start(ScriptedExecutor()):
        until(lambda: not list((tmp_path / "data" / "jobs").iterdir()))


def test_a_job_that_was_being_staged_begins_after_a_restart(
    start: Callable[..., Any],
) -> None:
    executor = ScriptedExecutor()
    with start(executor) as client:
        job_id = client.create(job_body())
        client.until(job_id, "Running")
    executor.forget()  # as if the service had ended before the executor was told
    with start(executor) as client:
        until(lambda: executor.begun == [job_id, job_id])
        executor.succeed(root(client, job_id))
        client.until(job_id)
