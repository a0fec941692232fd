"""Exactly one job for each due time: overlap, missed times, kills between steps, revoked owners."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import create_engine, select
from sqlalchemy.orm import Session

from pai_sdk._service.background.schedules import ScheduleRunner
from pai_sdk._service.http_server import IdleWatch
from pai_sdk._service.identity.audit import AuditLog
from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.services.jobs.changes import Changes
from pai_sdk._service.services.jobs.job_table import Jobs
from pai_sdk._service.services.jobs.queueing.submission import NewJob
from pai_sdk._service.services.jobs.schedule_table import ScheduleTable
from pai_sdk._service.state.database import Database
from pai_sdk._service.state.disk import DiskWatch
from pai_sdk._service.state.models import Job, ScheduleRow
from pai_sdk._service.wire_errors import WireError, invalid_parameter
from pai_sdk._wire.pai.request import SCHEDULE_LABEL, TrainingJobRequest
from pai_sdk._wire.pai.status import JobStatus
from tests.service.postgres import url_for
from tests.service.services import job_body
from tests.support.messages import refused
from tests.support.waiting import until

HOUR = 3600.0
DAY = 24 * HOUR
ALICE = Principal("alice", "", "submit", {"1": "submit"})


class Killed(BaseException):
    """Stands for the end of the process."""


class Place:
    """A database with schedules, and runners on it, with a clock that tests set."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.now = DAY
        self.owner: Principal | None = ALICE
        self.database = database
        self.jobs = Jobs(database, Changes())
        self.audit = AuditLog(database)
        self.disk = DiskWatch(folder)
        self.table = ScheduleTable(database, now=lambda: self.now)
        self.after_insert: Callable[[], None] = lambda: None
        self.refusal: WireError | None = None
        self.runner = self.new_runner()

    def new_runner(self) -> ScheduleRunner:
        return ScheduleRunner(
            self.table,
            self.create_job,
            owner_of=lambda name: self.owner,
            has_finished=self.jobs.has_finished,
            audit=self.audit,
            disk=self.disk,
            now=lambda: self.now,
        )

    def create_job(
        self, body: dict[str, Any], principal: Principal, in_transaction: Callable[[Session, str], None]
    ) -> tuple[str, str]:
        if self.refusal is not None:
            raise self.refusal

        def then(session: Session, job_id: str) -> None:
            in_transaction(session, job_id)
            self.after_insert()

        request = TrainingJobRequest.model_validate(body)
        return self.jobs.create(NewJob(request, "1", principal.user, in_transaction=then)), ""

    def add(self, cron: str = "0 3 * * *", **fields: Any) -> str:
        row = self.table.create(
            "nightly", owner="alice", workspace_id="1", cron=cron, zone="UTC", request=job_body(**fields)
        )
        return row.id

    def run_at(self, now: float) -> None:
        self.now = now
        self.runner.run_due()

    def all_jobs(self) -> list[Job]:
        with self.database.read() as session:
            return list(session.scalars(select(Job).order_by(Job.number)))

    def end_jobs(self) -> None:
        for job in self.all_jobs():
            self.jobs.move(job.id, JobStatus.SUCCEED, text="done")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    url = url_for(tmp_path)
    database = (
        Database.in_file(tmp_path / "x.db") if url is None else Database(create_engine(url), display_name="x")
    )
    with closing(database):
        yield Place(database, tmp_path)


def test_a_job_is_created_at_each_due_time_and_at_no_other(place: Place) -> None:
    schedule_id = place.add(Environments={"TOKEN": "a-secret"})
    for now in (DAY, DAY + 3 * HOUR - 1):
        place.run_at(now)
    assert place.all_jobs() == []
    for now in (DAY + 3 * HOUR, DAY + 3 * HOUR + 1, DAY + 4 * HOUR):
        place.run_at(now)
    (job,) = place.all_jobs()
    assert (job.owner, job.request["Environments"]) == ("alice", {"TOKEN": "a-secret"})
    assert {label.key: label.value for label in job.labels}[SCHEDULE_LABEL] == schedule_id
    row = place.table.get(schedule_id)
    assert (row.last_time, row.next_time, row.last_job_id) == (DAY + 3 * HOUR, 2 * DAY + 3 * HOUR, job.id)
    place.end_jobs()
    place.run_at(2 * DAY + 3 * HOUR)
    assert len(place.all_jobs()) == 2
    entries = place.audit.entries()
    assert [(one.user, one.method, one.path, one.status, one.client) for one in entries] == [
        ("alice", "POST", "/api/v1/trainingjobs", 200, schedule_id)
    ] * 2


def test_each_job_has_a_name_and_output_folders_of_its_own(place: Place) -> None:
    output = {"Name": "model", "OutputUri": "oss://b/fit-3f2a9c/model/"}
    place.add(TrainingJobName="fit-3f2a9c", OutputChannels=[output])
    for day in (1, 2):
        place.run_at(day * DAY + 3 * HOUR)
        place.end_jobs()
    jobs = place.all_jobs()
    assert len({job.name for job in jobs}) == 2
    assert [job.request["OutputChannels"][0]["OutputUri"] for job in jobs] == [
        f"oss://b/{job.name}/model/" for job in jobs
    ]


def test_of_missed_times_only_the_newest_gets_a_job(place: Place) -> None:
    schedule_id = place.add()
    place.run_at(10 * DAY)
    (job,) = place.all_jobs()
    row = place.table.get(schedule_id)
    assert (row.last_time, row.next_time, row.last_job_id) == (9 * DAY + 3 * HOUR, 10 * DAY + 3 * HOUR, job.id)


def test_a_time_is_skipped_while_the_last_job_has_not_ended(place: Place) -> None:
    schedule_id = place.add()
    place.run_at(DAY + 3 * HOUR)
    place.run_at(2 * DAY + 3 * HOUR)
    (job,) = place.all_jobs()
    row = place.table.get(schedule_id)
    said = f"No job was created for 1970-01-03T03:00:00.000Z: job {job.id} had not finished"
    assert (row.last_error, row.last_time, row.next_time) == (said, DAY + 3 * HOUR, 3 * DAY + 3 * HOUR)
    place.end_jobs()
    place.jobs.delete(job.id)
    place.run_at(3 * DAY + 3 * HOUR)
    row = place.table.get(schedule_id)
    assert (row.last_error, row.last_time) == (None, 3 * DAY + 3 * HOUR)


@pytest.mark.parametrize(
    "owner", [None, Principal("alice", "", "read", {"1": "submit"}), Principal("alice", "", "submit")]
)
def test_the_schedule_of_a_user_without_the_right_is_disabled(place: Place, owner: Principal | None) -> None:
    schedule_id = place.add()
    place.owner = owner
    place.run_at(DAY + 3 * HOUR)
    row = place.table.get(schedule_id)
    assert (row.next_time, place.all_jobs()) == (None, [])
    assert str(row.last_error).startswith("The schedule was disabled: user 'alice' has no key that may submit")
    assert [(one.user, one.status) for one in place.audit.entries()] == [("alice", 403)]
    place.owner = ALICE
    place.run_at(2 * DAY + 3 * HOUR)
    assert place.all_jobs() == [], "it stays disabled"
    place.table.change(schedule_id, enabled=True)
    place.run_at(3 * DAY + 3 * HOUR)
    assert len(place.all_jobs()) == 1


def test_a_job_that_is_refused_is_tried_again_at_the_next_time_only(place: Place) -> None:
    schedule_id = place.add()
    place.refusal = invalid_parameter("there is no bucket 'x' here")
    place.run_at(DAY + 3 * HOUR)
    place.refusal = None
    place.run_at(DAY + 3 * HOUR + 5)
    row = place.table.get(schedule_id)
    assert (place.all_jobs(), row.next_time) == ([], 2 * DAY + 3 * HOUR)
    assert str(row.last_error).endswith("1970-01-02T03:00:00.000Z: there is no bucket 'x' here")
    assert [one.status for one in place.audit.entries()] == [400]
    place.run_at(2 * DAY + 3 * HOUR)
    assert len(place.all_jobs()) == 1


def test_an_unexpected_error_delays_no_other_schedule_and_is_tried_again(place: Place) -> None:
    place.add()
    other = place.table.create(
        "other", owner="alice", workspace_id="1", cron="0 3 * * *", zone="UTC", request=job_body()
    )
    errors = [OSError("No space left on device")]

    def once() -> None:
        if errors:
            raise errors.pop()

    place.after_insert = once
    place.run_at(DAY + 3 * HOUR)
    assert [job.id for job in place.all_jobs()] == [place.table.get(other.id).last_job_id]
    place.run_at(DAY + 3 * HOUR + 5)
    assert len(place.all_jobs()) == 2


# ---- kills and takeovers --------------------------------------------------------------------------------------


def test_a_kill_before_the_commit_leaves_nothing_and_the_next_service_creates_the_job(place: Place) -> None:
    schedule_id = place.add()

    def kill() -> None:
        raise Killed

    place.after_insert = kill  # job, schedule and audit entry are written, and not committed
    with pytest.raises(Killed):
        place.run_at(DAY + 3 * HOUR)
    assert (place.all_jobs(), place.audit.entries()) == ([], [])
    assert place.table.get(schedule_id).next_time == DAY + 3 * HOUR
    place.after_insert = lambda: None
    place.new_runner().run_due()
    assert len(place.all_jobs()) == len(place.audit.entries()) == 1


def test_a_kill_after_the_commit_leaves_one_job(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.add()
    create = place.jobs.create

    def killed_after(*args: Any, **given: Any) -> str:
        create(*args, **given)
        raise Killed

    monkeypatch.setattr(place.jobs, "create", killed_after)
    with pytest.raises(Killed):
        place.run_at(DAY + 3 * HOUR)
    monkeypatch.undo()
    place.new_runner().run_due()
    place.end_jobs()
    place.new_runner().run_due()
    assert len(place.all_jobs()) == 1


def test_a_service_that_was_taken_over_creates_no_second_job(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read that the schedule is due; then the standby creates the job, which ends at once."""
    schedule_id = place.add()
    get = place.table.get

    def then_taken_over(found: str) -> ScheduleRow:
        row = get(found)
        monkeypatch.undo()
        place.new_runner().run_due()
        place.end_jobs()
        return row

    monkeypatch.setattr(place.table, "get", then_taken_over)
    place.run_at(DAY + 3 * HOUR)
    (job,) = place.all_jobs()
    assert place.table.get(schedule_id).last_job_id == job.id


def test_two_services_at_once_create_one_job(place: Place) -> None:
    place.add()
    place.now = DAY + 3 * HOUR
    threads = [threading.Thread(target=place.new_runner().run_due) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(place.all_jobs()) == 1


def test_the_job_of_a_due_time_that_is_there_already_is_taken_for_it(place: Place) -> None:
    """The label of its submission is made of the schedule and the time."""
    schedule_id = place.add()
    place.run_at(DAY + 3 * HOUR)
    (job,) = place.all_jobs()
    place.end_jobs()
    with place.database.write() as session:  # as in a table that was restored from an older copy
        row = session.get(ScheduleRow, 1)
        assert row is not None
        row.next_time, row.last_job_id = DAY + 3 * HOUR, None
    place.run_at(DAY + 3 * HOUR)
    assert len(place.all_jobs()) == 1
    assert place.table.get(schedule_id).last_job_id == job.id


@pytest.mark.parametrize("change", ["pause", "delete"])
def test_a_schedule_that_is_paused_or_deleted_meanwhile_gets_no_job(
    place: Place, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    schedule_id = place.add()
    get = place.table.get

    def then_changed(found: str) -> ScheduleRow:
        row = get(found)
        if change == "pause":
            place.table.change(schedule_id, enabled=False)
        else:
            place.table.delete(schedule_id)
        return row

    monkeypatch.setattr(place.table, "get", then_changed)
    place.run_at(DAY + 3 * HOUR)
    assert place.all_jobs() == []


# ---- pauses and changes ---------------------------------------------------------------------------------------


def test_times_during_a_pause_are_not_made_up_for(place: Place) -> None:
    schedule_id = place.add()
    assert place.table.change(schedule_id, enabled=False).next_time is None
    place.run_at(5 * DAY + 3 * HOUR)
    assert place.table.change(schedule_id, enabled=True).next_time == 6 * DAY + 3 * HOUR
    place.runner.run_due()
    assert place.all_jobs() == []


def test_a_change_of_the_times_counts_from_now_on(place: Place) -> None:
    schedule_id = place.add()
    place.now = 5 * DAY + 12 * HOUR
    row = place.table.change(schedule_id, cron="0 6 * * *", zone="Asia/Shanghai")
    assert row.next_time == 5 * DAY + 22 * HOUR
    assert place.table.change(schedule_id, enabled=False).next_time is None
    assert place.table.change(schedule_id, cron="0 7 * * *").next_time is None, "it stays disabled"
    with refused(WireError):
        place.table.change(schedule_id, zone="Mars")
    assert place.table.get(schedule_id).cron == "0 7 * * *"


def test_the_thread_waits_for_the_next_time_and_for_news(place: Place) -> None:
    place.now = time.time()
    assert place.runner.is_idle
    place.runner.task.start()
    try:
        until(lambda: place.runner.is_idle)
        schedule_id = place.add("* * * * *")
        until(lambda: not place.runner.is_idle)
        place.now += 60
        place.runner.task.wake()
        until(lambda: len(place.all_jobs()) == 1)
        place.table.delete(schedule_id)
        until(lambda: place.runner.is_idle)
    finally:
        place.runner.task.close()


def test_a_service_with_an_enabled_schedule_does_not_end_by_itself() -> None:
    dispatcher: Any = SimpleNamespace(requests_answered=0, requests_under_way=0)
    idle, waiting = SimpleNamespace(is_idle=True), SimpleNamespace(is_idle=False)
    assert IdleWatch(0.0, dispatcher, idle, idle).is_expired()
    assert not IdleWatch(1e-9, dispatcher, idle, waiting).is_expired()


def test_a_service_that_may_not_act_creates_nothing(place: Place) -> None:
    place.add()
    standby = ScheduleRunner(
        place.table,
        place.create_job,
        owner_of=lambda name: ALICE,
        has_finished=place.jobs.has_finished,
        audit=place.audit,
        disk=place.disk,
        can_act=lambda: False,
        now=lambda: DAY + 3 * HOUR,
    )
    standby.run_due()
    assert place.all_jobs() == []
