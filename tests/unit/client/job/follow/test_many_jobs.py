"""Waiting for many jobs, on services of several kinds and made-up time: what is asked, and what is found.

`PAI_SIMULATIONS=2000` draws more services than the few of every day.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from pai_sdk._client.backend.base import JobChanges
from pai_sdk._client.job.follow.follower import Follower
from pai_sdk._client.job.follow.poller import Subscription, Update, shared_pollers
from pai_sdk._client.job.follow.polling import FollowPolicy
from pai_sdk._client.job.follow.workers import Workers
from pai_sdk._client.job.gather import as_completed, gather
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._wire.pai.record import JobRecord, RecordSource
from pai_sdk.errors import (
    ConnectionFailedError,
    InvalidInputError,
    JobFailed,
    JobsFailed,
    JobStopped,
    NotFoundError,
    WaitTimeoutError,
)
from tests.support.fake_backend import FakeBackend
from tests.support.messages import refused
from tests.support.simulated_time import SimulatedTime
from tests.support.waiting import PATIENCE_S, until
from tests.unit.client.job.follow.many_jobs_service import (
    MadeUpJob,
    ManyJobsBackend,
    ManyJobsService,
    made_up_jobs,
)

SEEDS = range(int(os.environ.get("PAI_SIMULATIONS", "24")))


def policy(clock: SimulatedTime) -> FollowPolicy:
    return FollowPolicy(schedule=clock, retry=RetryPolicy(sleep=clock.sleep, clock=clock.now))


def outcomes(service: ManyJobsService) -> tuple[dict[str, str], float]:
    """The end of each job as `as_completed` gives it, and the longest time that one was late."""
    backend = ManyJobsBackend(service)
    found, late_s = {}, 0.0
    by_id = {job.id: job for job in service.jobs}
    for job in as_completed(backend.handles(), policy=policy(service.clock)):
        found[job.id] = str(job.record.status)
        late_s = max(late_s, service.clock.time - by_id[job.id].ends_at)
        assert job.outputs, "the end is confirmed by get: a list has fewer fields"
    assert shared_pollers()._pollers == {}, "nothing is left behind"
    return found, late_s


def expected(service: ManyJobsService) -> dict[str, str]:
    return {job.id: job.ends_as for job in service.jobs if job.is_ours}


def draw(seed: int) -> ManyJobsService:
    dice = random.Random(seed)
    clock = SimulatedTime()
    jobs = [*made_up_jobs(dice.choice([1, 3, 20, 120]), dice, others=dice.choice([0, 0, 50, 300]), until=200.0)]
    if dice.random() < 0.3:
        for job in dice.sample(jobs, len(jobs) // 10):
            job.listed_late_s = dice.choice([30.0, 1e12])  # late, or never
    return ManyJobsService(
        clock,
        dice,
        jobs,
        offers_changes=seed % 4 == 0,
        lag_s=dice.choice([0.0, 2.0, 40.0]),
        shuffled=dice.choice([0.0, 0.5]),
        repeats=dice.choice([0.0, 0.0, 0.3]),
        counts=dice.random() < 0.6,
        tells_times=dice.random() < 0.5,
        faults=dice.choice([0.0, 0.0, 0.1]),
        refuses_list=dice.random() < 0.1,
        stale_get_s=dice.choice([0.0, 1.0]),
        largest_page=dice.choice([10, 100, 100]),
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_each_end_is_found_once_and_as_it_is_however_the_list_behaves(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = draw(seed)
    monkeypatch.setattr("pai_sdk._core.retry.random", random.Random(seed))
    found, _ = outcomes(service)
    assert found == expected(service)
    gets = service.gets()
    looks = sum(gets.values()) - len(found)
    pages = len(service.asked) - sum(gets.values())
    assert pages + looks < 1.1 * service.clock.time + 20, "no more than one request a second, but for the ends"


@pytest.mark.parametrize("offers_changes", [True, False])
def test_500_jobs_cost_no_more_than_one_request_a_second(offers_changes: bool) -> None:
    clock, dice = SimulatedTime(), random.Random(7)
    jobs = [MadeUpJob(f"train{n:03}", begins_at=1 + n / 100, ends_at=250 + n / 4) for n in range(500)]
    service = ManyJobsService(clock, dice, jobs, offers_changes=offers_changes)
    found, late_s = outcomes(service)
    assert found == expected(service)
    assert service.rate(0, 250) <= 1.0
    assert service.rate(100, 250) < (0.12 if offers_changes else 0.6), "a quiet service is asked less often"
    if offers_changes:
        assert service.rate(250, 350) <= 1.0
        assert {*service.gets()} <= {"train499"}, "the last one, when it is the only one"
    else:
        looks = service.gets().total() - 500
        assert looks < 400 / 10 + 20, "one get for each end, and one every ten seconds"
        assert service.rate(250, 375) - 500 / 125 <= 1.0
    assert late_s < (2 if offers_changes else 20)


def test_jobs_that_all_end_at_once_are_confirmed_a_few_a_second() -> None:
    clock = SimulatedTime()
    jobs = [MadeUpJob(f"train{n:03}", ends_at=100) for n in range(300)]
    service = ManyJobsService(clock, random.Random(7), jobs)
    found, late_s = outcomes(service)
    assert found == expected(service)
    assert service.rate(105, 150) <= 6.5
    assert late_s < 300 * 0.25 + 15


def test_a_few_jobs_of_another_service_are_found_soon() -> None:
    clock = SimulatedTime()
    jobs = [MadeUpJob(f"train{n}", ends_at=200.0 + 100 * n) for n in range(3)]
    service = ManyJobsService(clock, random.Random(7), jobs)
    _, late_s = outcomes(service)
    assert late_s < 8 + 2, "the longest pause"
    assert len(service.asked) < 400 / 8 * 2 + 80, "few requests while nothing happens"


def test_a_job_that_no_list_shows_is_asked_for_by_get() -> None:
    clock = SimulatedTime()
    jobs = [MadeUpJob(f"train{n}", ends_at=50.0 + n, listed_late_s=1e12 if n == 3 else 0.0) for n in range(6)]
    service = ManyJobsService(clock, random.Random(7), jobs)
    found, late_s = outcomes(service)
    assert found == expected(service)
    assert late_s < 20
    assert service.gets()["train3"] < 20


def test_a_list_that_never_moves_on_does_not_hide_an_end() -> None:
    clock = SimulatedTime()
    jobs = [MadeUpJob(f"train{n}", created_at=-1e6, begins_at=-9e5, ends_at=50.0) for n in range(20)]
    service = ManyJobsService(clock, random.Random(7), jobs, lag_s=1e5)
    found, _ = outcomes(service)
    assert found == expected(service)
    assert clock.time < 50 + 20 * 10


def test_a_list_that_is_behind_does_not_put_a_job_back() -> None:
    clock = SimulatedTime()
    jobs = [MadeUpJob(f"train{n}", begins_at=-5.0, ends_at=100.0, created_at=-1000) for n in range(6)]
    service = ManyJobsService(clock, random.Random(7), jobs, lag_s=30.0)
    backend = ManyJobsBackend(service)
    handles = backend.handles()
    for job in handles:
        assert job.status == "Running"
    seen: list[str] = []

    def note() -> None:
        seen.extend(str(job.last_record.status) for job in handles if job.last_record)

    service.on_call = note
    assert {job.id for job in as_completed(handles, policy=policy(clock))} == {job.id for job in jobs}
    assert "Submitted" not in seen


def test_the_end_in_a_status_that_is_not_known_is_found() -> None:
    clock = SimulatedTime()
    jobs = [MadeUpJob(f"train{n}", ends_at=50.0, ends_as="Evicted" if n == 2 else "Succeed") for n in range(6)]
    service = ManyJobsService(clock, random.Random(7), jobs)
    whole = service._whole

    def with_transitions(job: MadeUpJob, moment: float) -> dict[str, Any]:
        end = [{"Status": job.status(moment), "EndTime": "x"}] if moment >= job.ends_at else []
        return {**whole(job, moment), "StatusTransitions": end}

    service._whole = with_transitions  # type: ignore[method-assign]
    found, late_s = outcomes(service)
    assert found == expected(service)
    assert late_s < 60


def test_a_key_that_may_not_list_jobs_asks_for_each() -> None:
    clock = SimulatedTime()
    service = ManyJobsService(clock, random.Random(7), [*made_up_jobs(10, random.Random(3))], refuses_list=True)
    found, late_s = outcomes(service)
    assert found == expected(service)
    assert late_s < 20


def test_gather_gives_the_records_in_order() -> None:
    clock = SimulatedTime()
    jobs = [MadeUpJob(f"train{n}", ends_at=100.0 - n) for n in range(6)]
    service = ManyJobsService(clock, random.Random(7), jobs, offers_changes=True)
    handles = ManyJobsBackend(service).handles()
    records = gather([*handles, handles[0]], show=False, policy=policy(clock))
    assert [record.training_job_id for record in records] == [*(job.id for job in jobs), jobs[0].id]
    assert all(job.record is record for job, record in zip(handles, records, strict=False))
    asked = len(service.asked)
    assert gather(handles, show=False, policy=policy(clock)) == records[:-1]
    assert len(service.asked) == asked, "jobs that have ended are not asked for again"
    assert gather([], show=False) == []


def test_one_error_has_all_failures() -> None:
    clock = SimulatedTime()
    ends = ["Succeed", "Failed", "Terminated", "Failed", "Succeed", "Succeed"]
    jobs = [MadeUpJob(f"train{n}", ends_at=20.0 + n, ends_as=end) for n, end in enumerate(ends)]
    jobs[5].deleted_at = 10.0
    service = ManyJobsService(clock, random.Random(7), jobs)
    with pytest.raises(JobsFailed) as caught:
        gather(ManyJobsBackend(service).handles(), show=False, policy=policy(clock))
    failures = caught.value.failures
    assert {job_id: type(error) for job_id, error in failures.items()} == {
        "train1": JobFailed,
        "train2": JobStopped,
        "train3": JobFailed,
        "train5": NotFoundError,
    }
    assert str(caught.value).splitlines()[:2] == [
        "4 of 6 jobs did not succeed:",
        "  - job name of train1 (train1) Failed: it broke",
    ]
    assert caught.value.unfinished == ()


@pytest.mark.parametrize("fail_fast", [True, "stop"])
def test_the_first_failure_ends_the_wait(fail_fast: Any) -> None:
    clock = SimulatedTime()
    jobs = [MadeUpJob(f"train{n}", ends_at=1000.0) for n in range(6)]
    jobs[2].ends_at, jobs[2].ends_as = 30.0, "Failed"
    service = ManyJobsService(clock, random.Random(7), jobs, offers_changes=True)
    backend = ManyJobsBackend(service)
    with pytest.raises(JobsFailed) as caught:
        gather(backend.handles(), show=False, fail_fast=fail_fast, policy=policy(clock))
    assert [*caught.value.failures] == ["train2"]
    assert clock.time < 100
    others = [job.id for job in jobs if job.id != "train2"]
    if fail_fast == "stop":
        assert sorted(backend.calls) == [f"stop {job_id}" for job_id in others]
        assert caught.value.unfinished == ()
    else:
        assert backend.calls == []
        assert [*caught.value.unfinished] == others


def test_a_timeout_names_what_has_not_ended() -> None:
    clock = SimulatedTime()
    jobs = [MadeUpJob(f"train{n}", ends_at=20.0 if n < 4 else 1000.0) for n in range(6)]
    service = ManyJobsService(clock, random.Random(7), jobs)
    handles = ManyJobsBackend(service).handles()
    with refused(WaitTimeoutError):
        gather(handles, timeout=60, show=False, policy=policy(clock))
    assert [job.record.status.is_terminal for job in handles] == [True] * 4 + [False] * 2
    with refused(WaitTimeoutError):
        [*as_completed(handles, timeout=1, policy=policy(clock))]
    assert shared_pollers()._pollers == {}


def test_waits_for_many_jobs_share_the_requests() -> None:
    """Each of them has a follower of its own; a few would poll by themselves."""
    clock = SimulatedTime()
    jobs = [MadeUpJob(f"train{n}", ends_at=300.0 + n) for n in range(20)]
    service = ManyJobsService(clock, random.Random(7), jobs, offers_changes=True)
    backend = ManyJobsBackend(service)
    followers = [Follower(backend, job.id, lambda record: [], {}, policy(clock)) for job in jobs]
    streams = [follower.updates() for follower in followers]
    last: dict[str, str] = {}
    for stream in streams:
        next(stream)  # all of them have begun
    assert service.rate(0, clock.time) < 30
    for follower, stream in zip(followers, streams, strict=True):
        for update in stream:
            last[follower._job_id] = str(update.status) if isinstance(update, JobRecord) else "?"
        follower.close()
    assert last == expected(service)
    assert service.rate(20, 300) < 0.3
    assert shared_pollers()._pollers == {}


def test_a_follower_raises_the_error_of_the_poller() -> None:
    clock = SimulatedTime()
    jobs = [MadeUpJob(f"train{n}", ends_at=1e6) for n in range(8)]
    service = ManyJobsService(clock, random.Random(7), jobs)
    backend = ManyJobsBackend(service)
    times = policy(clock)
    crowd = [shared_pollers().subscribe(backend, times, job.id, lambda _: None) for job in jobs]
    follower = Follower(backend, "train3", lambda record: record.instance_names, {}, times)
    jobs[3].deleted_at = 100.0
    with pytest.raises(NotFoundError):
        [*follower.updates()]
    follower.close()
    assert clock.time < 100 + 60
    for subscription in crowd:
        subscription.close()
    assert shared_pollers()._pollers == {}


def test_a_service_out_of_reach_is_waited_for_and_then_reported() -> None:
    clock = SimulatedTime()
    jobs = [MadeUpJob(f"train{n}", ends_at=300.0) for n in range(8)]
    service = ManyJobsService(clock, random.Random(7), jobs)
    backend = ManyJobsBackend(service)

    def away() -> None:
        if clock.time > 30:
            raise ConnectionFailedError("no answer", endpoint="made-up")

    service.on_call = away
    with refused(WaitTimeoutError):
        gather(backend.handles(), timeout=100, show=False, policy=policy(clock))
    with refused(JobsFailed) as caught:
        gather(backend.handles(), show=False, policy=policy(clock))
    assert len(caught.value.failures) == 8
    assert 600 < clock.time < 900, "as long as one job is waited for"


@pytest.mark.parametrize("on_interrupt", ["detach", "stop"])
def test_ctrl_c_is_that_of_one_job(on_interrupt: Any) -> None:
    class Pressed(SimulatedTime):
        """Ctrl-C comes when one job has ended, and the same finger is impatient."""

        is_pressed = False

        def wait(self, *args: Any) -> bool:
            if self.time > 10 and not self.is_pressed:
                self.is_pressed = True
                try:
                    signal.raise_signal(signal.SIGINT)
                finally:
                    signal.raise_signal(signal.SIGINT)
            return super().wait(*args)

    clock = Pressed()
    jobs = [MadeUpJob(f"train{n}", ends_at=10.0 if n == 0 else 1e6) for n in range(6)]
    backend = ManyJobsBackend(ManyJobsService(clock, random.Random(7), jobs, offers_changes=True))
    before = signal.getsignal(signal.SIGINT)
    with refused(KeyboardInterrupt):
        gather(backend.handles(), show=False, on_interrupt=on_interrupt, policy=policy(clock))
    assert signal.getsignal(signal.SIGINT) is before
    assert shared_pollers()._pollers == {}
    if on_interrupt == "stop":
        assert len(backend.calls) == 5
    else:
        assert backend.calls == []


def test_one_job_that_goes_on_is_named() -> None:
    clock = SimulatedTime()
    service = ManyJobsService(clock, random.Random(7), [MadeUpJob("train0", ends_at=1e6)])
    backend = ManyJobsBackend(service)

    class Pressed(SimulatedTime):
        def wait(self, *_: Any) -> bool:
            raise KeyboardInterrupt

    service.clock = Pressed()
    for wait in (gather, as_completed):
        with refused(KeyboardInterrupt):
            list(wait(backend.handles(), policy=policy(service.clock)))


@pytest.mark.parametrize(
    ("jobs", "more", "where"),
    [
        ("train1", {}, ("jobs",)),
        (["train1", 7], {}, ("jobs[0]", "jobs[1]")),
        ([], {"fail_fast": "now"}, ("fail_fast",)),
        ([], {"on_interrupt": "kill"}, ("on_interrupt",)),
        ([], {"timeout": "soon"}, ("timeout",)),
    ],
)
def test_what_cannot_be_waited_for_is_an_error_at_once(
    jobs: Any, more: dict[str, Any], where: tuple[str, ...]
) -> None:
    with refused(InvalidInputError, *where):
        gather(jobs, show=False, **more)


class HoldingBackend(FakeBackend):
    """Holds every response back until a job differs; a test writes the statuses."""

    def __init__(self) -> None:
        super().__init__()
        self.statuses: dict[str, str] = {}
        self.changed = threading.Condition()
        self.held: list[frozenset[str]] = []

    def set(self, job_id: str, status: str) -> None:
        with self.changed:
            self.statuses[job_id] = status
            self.changed.notify_all()

    def get(self, job_id: str, *, changed_from: JobRecord | None = None, wait_s: float = 0.0) -> JobRecord:
        return self.changes({job_id: changed_from}, wait_s=wait_s).records.get(job_id) or changed_from  # type: ignore[return-value]

    def changes(
        self, known: Mapping[str, JobRecord | None], since: JobChanges | None = None, *, wait_s: float = 0.0
    ) -> JobChanges:
        def changed() -> dict[str, JobRecord]:
            return {
                job_id: self._record(job_id)
                for job_id, before in known.items()
                if before is None or before.status != self.statuses.get(job_id, "Running")
            }

        with self.changed:
            if wait_s > 0 and not changed():
                self.held.append(frozenset(known))
            self.changed.wait_for(changed, wait_s)
            return JobChanges(changed())

    def _record(self, job_id: str) -> JobRecord:
        record = JobRecord.model_validate(
            {"TrainingJobId": job_id, "Status": self.statuses.get(job_id, "Running")}
        )
        record.from_source(RecordSource(lists_all=True))
        return record


def test_a_job_that_is_added_while_a_response_is_held_back_is_not_kept_waiting() -> None:
    backend, times = HoldingBackend(), FollowPolicy(hold_s=PATIENCE_S, schedule=Workers())
    seen: dict[str, list[str]] = {"train1": [], "train2": [], "train3": []}

    def subscribe(job_id: str) -> Subscription:
        def note(update: Update) -> None:
            assert isinstance(update, JobRecord)
            seen[job_id].append(str(update.status))

        return shared_pollers().subscribe(backend, times, job_id, note, needs_full_records=True)

    subscriptions = [subscribe("train1")]
    until(lambda: backend.held == [frozenset({"train1"})])
    for job_id in ("train2", "train3"):
        subscriptions.append(subscribe(job_id))
        until(lambda job_id=job_id: seen[job_id] == ["Running"])
        until(lambda job_id=job_id: any(job_id in one for one in backend.held), "one request holds for all")
    backend.set("train3", "Succeed")
    until(lambda: seen["train3"] == ["Running", "Succeed"])
    subscriptions.pop().close()
    backend.set("train1", "Failed")
    until(lambda: seen["train1"] == ["Running", "Failed"])
    assert seen["train2"] == ["Running"]
    for subscription in subscriptions:
        subscription.close()
    assert shared_pollers()._pollers == {}
    backend.set("train2", "Succeed")  # what is still held ends, and nothing comes of it
    assert seen["train2"] == ["Running"]


def test_a_refresh_asks_for_a_job_though_a_response_is_held_back() -> None:
    backend, times = HoldingBackend(), FollowPolicy(hold_s=PATIENCE_S, schedule=Workers())
    seen: list[str] = []
    subscription = shared_pollers().subscribe(backend, times, "train1", lambda update: seen.append(repr(update)))
    until(lambda: len(backend.held) == 1)
    backend.statuses["train1"] = "Succeed"  # the held request is not told
    subscription.refresh()
    until(lambda: len(seen) == 2)
    subscription.close()
    backend.set("train1", "Succeed")
