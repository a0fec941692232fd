"""The asyncio twins: real event loops, cancelled at any time, and no thread that waits."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from pai_sdk._client.backend.base import JobChanges
from pai_sdk._client.job.follow.poller import shared_pollers
from pai_sdk._client.job.follow.polling import FollowPolicy
from pai_sdk._client.job.follow.stream import LogStream
from pai_sdk._client.job.follow.workers import Workers
from pai_sdk._client.job.gather import gather_async
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk.errors import JobFailed, JobsFailed, JobStopped, WaitTimeoutError
from tests.support.fake_backend import FAST, FakeBackend
from tests.support.messages import refused
from tests.support.waiting import PATIENCE_S, until


class Jobs(FakeBackend):
    """Many jobs; a test writes their statuses. One that is not named goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.statuses: dict[str, str] = {}
        self.changed = threading.Condition()

    def set(self, job_id: str, status: str) -> None:
        with self.changed:
            self.statuses[job_id] = status
            self.changed.notify_all()

    def get(self, job_id: str, *, changed_from: JobRecord | None = None, wait_s: float = 0.0) -> JobRecord:
        return self._of(job_id)

    def changes(
        self, known: Mapping[str, JobRecord | None], since: JobChanges | None = None, *, wait_s: float = 0.0
    ) -> JobChanges:
        def news() -> dict[str, JobRecord]:
            found = {job_id: self._of(job_id) for job_id in known}
            return {key: one for key, one in found.items() if (before := known[key]) is None or one != before}

        with self.changed:
            self.changed.wait_for(news, wait_s)
            return JobChanges(news())

    def _of(self, job_id: str) -> JobRecord:
        status = self.statuses.get(job_id, "Running")
        return JobRecord.model_validate(
            {"TrainingJobId": job_id, "Status": status, "Instances": [{"Name": f"{job_id}-master-0"}]}
        )

    def stop(self, job_id: str) -> None:
        self.set(job_id, "Terminated")

    def handles(self, count: int) -> list[TrainingJob]:
        return [TrainingJob(f"train{number}", self) for number in range(count)]


@pytest.fixture
def backend() -> Jobs:
    return Jobs()


def later(backend: Jobs, job_id: str, status: str) -> None:
    asyncio.get_running_loop().call_later(0.05, partial(backend.set, job_id, status))


def test_many_jobs_are_waited_for_by_the_threads_that_there_are(backend: Jobs) -> None:
    before = threading.active_count()
    most = 0

    async def wait() -> list[TrainingJob]:
        nonlocal most
        tasks = [asyncio.create_task(job.wait_async(policy=FAST)) for job in backend.handles(200)]
        await asyncio.sleep(0.1)
        most = threading.active_count()
        for number in range(200):
            backend.set(f"train{number}", "Succeed")
        return await asyncio.gather(*tasks)

    jobs = asyncio.run(wait())
    assert all(job.status.is_success for job in jobs)
    assert most - before <= 16, "the shared workers"
    assert shared_pollers()._pollers == {}


def test_gather_async_gives_the_records_in_order(backend: Jobs) -> None:
    async def wait() -> list[JobRecord]:
        jobs = backend.handles(6)
        for job in reversed(jobs):
            later(backend, job.id, "Succeed")
        return await gather_async([*jobs, jobs[0]], policy=FAST)

    assert [record.training_job_id for record in asyncio.run(wait())] == [
        *(f"train{n}" for n in range(6)),
        "train0",
    ]
    assert asyncio.run(gather_async([])) == []


def test_failures_are_those_of_the_other_twin(backend: Jobs) -> None:
    backend.lines = {"train1-master-0": ["Traceback (most recent call last):", "KeyError: 'age'"]}
    backend.lines["train0-master-0"] = backend.lines["train2-master-0"] = []
    backend.statuses = {"train0": "Succeed", "train1": "Failed", "train2": "Terminated"}

    with refused(JobsFailed) as caught:
        asyncio.run(gather_async(backend.handles(3), policy=FAST))
    assert [*caught.value.failures] == ["train1", "train2"]
    with pytest.raises(JobFailed) as failure:
        asyncio.run(TrainingJob("train1", backend).wait_async(policy=FAST))
    assert str(failure.value) == str(caught.value.failures["train1"])
    with pytest.raises(JobFailed) as other:
        TrainingJob("train1", backend).wait(show_logs=False, policy=FAST)
    assert str(other.value) == str(failure.value)
    with pytest.raises(JobStopped):
        asyncio.run(TrainingJob("train2", backend).wait_async(policy=FAST))


@pytest.mark.parametrize("fail_fast", [True, "stop"])
def test_the_first_failure_ends_the_wait(backend: Jobs, fail_fast: Any) -> None:
    backend.statuses = {"train3": "Failed"}
    backend.lines = {f"train{n}-master-0": [] for n in range(6)}
    with pytest.raises(JobsFailed) as caught:
        asyncio.run(gather_async(backend.handles(6), fail_fast=fail_fast, policy=FAST))
    assert [*caught.value.failures] == ["train3"]
    assert len(caught.value.unfinished) == (0 if fail_fast == "stop" else 5)
    assert sum(status == "Terminated" for status in backend.statuses.values()) == (5 if fail_fast == "stop" else 0)


def test_a_timeout_is_that_of_a_wait(backend: Jobs) -> None:
    with refused(WaitTimeoutError):
        asyncio.run(TrainingJob("train0", backend).wait_async(timeout=0.05, policy=FAST))
    with refused(WaitTimeoutError):
        asyncio.run(gather_async(backend.handles(2), timeout=0.05, policy=FAST))
    assert shared_pollers()._pollers == {}


@pytest.mark.parametrize("kind", ["wait", "gather", "logs"])
def test_a_cancelled_await_leaves_nothing_behind(backend: Jobs, kind: str) -> None:
    workers = Workers(idle_s=0.05)
    policy = FollowPolicy(hold_s=0.2, pause_s=0.01, quiet_s=0.05, patience_s=PATIENCE_S, schedule=workers)
    backend.lines = {"train0-master-0": ["one"]}
    job = TrainingJob("train0", backend)
    seen = asyncio.Event()

    async def read() -> None:
        async for line in LogStream(backend, "train0", follow=True, policy=policy):
            assert line.text == "one"
            seen.set()

    waits: dict[str, Callable[[], Any]] = {
        "wait": lambda: job.wait_async(policy=policy),
        "gather": lambda: gather_async(backend.handles(8), policy=policy),
        "logs": read,
    }

    async def cancel() -> None:
        task = asyncio.create_task(waits[kind]())
        await (seen.wait() if kind == "logs" else asyncio.sleep(0.05))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert shared_pollers()._pollers == {}, "at once"

    asyncio.run(cancel())
    until(lambda: workers._threads == 0, "the end of the threads")
    assert workers._due == []


def test_the_log_comes_line_by_line(backend: Jobs) -> None:
    backend.lines = {"train0-master-0": ["one", "two"]}
    job = TrainingJob("train0", backend)

    async def read() -> list[str]:
        stream = LogStream(backend, "train0", follow=True, policy=FAST)
        found = []
        async for line in stream:
            found.append(line.text)
            if line.text == "two":
                backend.lines["train0-master-0"].append("three")
                backend.status = "Succeed"
                backend.set("train0", "Succeed")
        assert stream.cursor == {"train0-master-0": 3}
        return found

    assert asyncio.run(read()) == ["one", "two", "three"]

    async def so_far() -> list[str]:
        return [line.text async for line in job.logs_async(start={"master-0": 1})]

    assert asyncio.run(so_far()) == ["two", "three"] == [line.text for line in job.logs(start={"master-0": 1})]


def test_a_stream_that_is_left_early_is_closed(backend: Jobs) -> None:
    backend.lines = {"train0-master-0": ["one", "two"]}

    async def read() -> None:
        async for line in TrainingJob("train0", backend).logs_async(follow=True):
            assert line.text == "one"
            break
        deadline = time.monotonic() + PATIENCE_S
        while shared_pollers()._pollers and time.monotonic() < deadline:
            await asyncio.sleep(0.01)

    asyncio.run(read())
    assert shared_pollers()._pollers == {}


def test_faults_are_waited_out(backend: Jobs) -> None:
    backend.lines = {"train0-master-0": [f"line {number}" for number in range(50)]}
    backend.statuses = {"train0": "Succeed"}
    backend.status = "Succeed"
    backend.faults = 0.5

    async def read() -> list[str]:
        stream = LogStream(backend, "train0", policy=FAST)
        return [line.text async for line in stream]

    assert asyncio.run(read()) == backend.lines["train0-master-0"]


def test_the_last_lines_only(backend: Jobs) -> None:
    backend.lines = {"train0-master-0": ["one", "two", "three"]}

    async def read() -> list[str]:
        return [line.text async for line in TrainingJob("train0", backend).logs_async(tail=2)]

    assert asyncio.run(read()) == ["two", "three"]
