"""Creates the jobs of schedules when they are due: exactly one for each due time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from sqlalchemy.orm import Session

from pai_sdk._service.identity.audit import AuditLog
from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.periodic_task import PeriodicTask
from pai_sdk._service.services.jobs.rerun import RerunChanges, changed_request
from pai_sdk._service.services.jobs.schedule_table import ScheduleTable, newest_time, next_time
from pai_sdk._service.state.disk import DiskWatch
from pai_sdk._service.state.models import ScheduleRow
from pai_sdk._service.wire_errors import WireError
from pai_sdk._wire.pai.request import SCHEDULE_LABEL
from pai_sdk._wire.pai.wire import wire_time
from pai_sdk._wire.requests import RecordedRequest

_MAX_PAUSE_S = 30.0  # the system clock may be set, and waits do not count suspend
_RETRY_AFTER_ERROR_S = 5.0
_PATH = "/api/v1/trainingjobs"


class CreateJob(Protocol):
    """Creates a job of a user, with all checks; returns its id and a notice for the user."""

    def __call__(
        self, body: dict[str, Any], principal: Principal, in_transaction: Callable[[Session, str], None], /
    ) -> tuple[str, str]:
        """Calls `in_transaction` in the transaction that creates the job; its error rolls that back."""
        ...


class _Superseded(Exception):
    """Raised when a schedule was changed, or another service has created the job."""


@dataclass(frozen=True)
class _Due:
    """A schedule that is due."""

    row: ScheduleRow  # as it was read: `_unchanged` compares
    at: float  # the newest one if several have passed
    next_at: float


class ScheduleRunner:
    """Creates jobs at the times of the schedules, in a separate thread.

    One transaction creates the job, sets the schedule's next time and writes the audit log. It is rolled back if
    the schedule is no longer due at this time. So each due time has one job, even if this process is killed or a
    second service runs. Of the times that have passed while no service ran, only the newest one counts. A time is
    skipped if the last job of the schedule has not finished.
    """

    def __init__(
        self,
        table: ScheduleTable,
        create: CreateJob,
        *,
        owner_of: Callable[[str], Principal | None],
        has_finished: Callable[[str], bool],
        audit: AuditLog,
        disk: DiskWatch,
        on_job: Callable[[], None] = lambda: None,
        on_created: Callable[[Session, str, str], None] = lambda session, schedule_id, job_id: None,
        on_missed: Callable[[Session, ScheduleRow, str], None] = lambda session, schedule, reason: None,
        after_missed: Callable[[], object] = lambda: None,
        can_act: Callable[[], bool] = lambda: True,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._table = table
        self._create = create
        self._owner_of = owner_of
        self._has_finished = has_finished
        self._audit = audit
        self._disk = disk
        self._on_job = on_job
        # In the transaction that records the outcome of a due time.
        self._on_created, self._on_missed = on_created, on_missed
        self._after_missed = after_missed
        self._can_act = can_act  # True while no other service can hold the lease
        self._now = now
        self._next_time: float | None = None
        self.task = PeriodicTask(
            "schedules",
            self._pause_s,
            self._run,
            retry_s=_RETRY_AFTER_ERROR_S,
            on_error=partial(disk.log_error, "the schedules cannot be read, and are tried again"),
            can_act=can_act,
        )
        table.on_change = self.task.wake

    @property
    def is_idle(self) -> bool:
        """Returns True if no schedule is enabled."""
        return self._next_time is None and not self.task.is_pending

    def run_due(self) -> None:
        """Creates the jobs of all schedules that are due now."""
        for schedule_id in self._table.due(self._now()):
            if self.task.closing.is_set() or not self._can_act():
                return
            try:
                self._run_schedule(schedule_id)
            except _Superseded:
                continue
            # The next pass retries it; the other schedules must not wait for it.
            except Exception as error:
                self._disk.log_error(
                    f"the job of schedule {schedule_id} cannot be created, and is tried again", error
                )

    # ---- the thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        self.run_due()
        self._next_time = self._table.next_time()

    def _pause_s(self) -> float | None:
        if self._next_time is None:
            return None
        remaining_s = self._next_time - self._now()
        # A schedule that is still due has just failed.
        return _RETRY_AFTER_ERROR_S if remaining_s <= 0 else min(remaining_s, _MAX_PAUSE_S)

    # ---- one schedule -------------------------------------------------------------------------------------

    def _run_schedule(self, schedule_id: str) -> None:
        try:
            row = self._table.get(schedule_id)
        except WireError:  # deleted since
            return
        now = self._now()
        if row.next_time is None or row.next_time > now:
            return
        # At each due time: the key may have been revoked since the schedule was created.
        owner = self._owner_of(row.owner)
        try:
            at = newest_time(row.cron, row.zone, now, since=row.next_time)
            due = _Due(row, at, next_time(row.cron, row.zone, now))
        except WireError as error:  # this machine lacks the time zone, for example after an update
            self._disable(row, error.message)
            return
        if owner is None or not owner.has_right_in(row.workspace_id, "submit"):
            self._disable(row, _lacks_right(row))
        elif row.last_job_id is not None and not self._has_finished(row.last_job_id):
            self._skip(due, f"job {row.last_job_id} had not finished")
        else:
            self._create_job(due, owner)

    def _create_job(self, due: _Due, owner: Principal) -> None:
        body = _body(due)
        try:
            self._create(body, owner, partial(self._record_job, due, owner))
        # A refused job must not be retried at each pass: the schedule advances with the error.
        except WireError as error:
            self._skip(due, error.message, refused=(owner, error.status_code))
        else:
            self._disk.record_success()
            self._on_job()

    def _record_job(self, due: _Due, owner: Principal, session: Session, job_id: str) -> None:
        row = _unchanged(session, due.row)
        row.next_time, row.last_time = due.next_at, due.at
        row.last_job_id, row.last_error = job_id, None
        self._on_created(session, row.id, job_id)
        self._audit.record_in(session, owner, "POST", _PATH, 200, row.id, job_id)

    def _skip(self, due: _Due, reason: str, *, refused: tuple[Principal, int] | None = None) -> None:
        """Advances to the next time, without a job for this one."""
        with self._table.transaction() as session:
            row = _unchanged(session, due.row)
            row.next_time = due.next_at
            row.last_error = f"No job was created for {wire_time(due.at)}: {reason}"
            self._on_missed(session, row, row.last_error)
            if refused is not None:
                owner, status = refused
                self._audit.record_in(session, owner, "POST", _PATH, status, row.id)
        self._after_missed()

    def _disable(self, expected: ScheduleRow, reason: str) -> None:
        with self._table.transaction() as session:
            row = _unchanged(session, expected)
            row.next_time = None
            row.last_error = f"The schedule was disabled: {reason}"
            self._on_missed(session, row, row.last_error)
            self._audit.record_in(session, Principal(row.owner, "", "read"), "POST", _PATH, 403, row.id)
        self._after_missed()


def _unchanged(session: Session, expected: ScheduleRow) -> ScheduleRow:
    """Returns the schedule, locked for this transaction; raises _Superseded if it is no longer due then."""
    # FOR UPDATE: a second service waits for this transaction, and then finds another next time.
    row = session.get(ScheduleRow, expected.number, with_for_update=True)
    if row is None or row.next_time != expected.next_time:
        raise _Superseded
    return row


def _body(due: _Due) -> dict[str, Any]:
    """Returns the request of the job: a name and output folders of its own, and a label with the schedule."""
    row = due.row
    stored = RecordedRequest.model_validate(row.request).model_copy(update={"workspace_id": row.workspace_id})
    request = changed_request(stored, RerunChanges(), f"{row.id} {due.at}")
    return request.with_label(SCHEDULE_LABEL, row.id).to_wire()


def _lacks_right(row: ScheduleRow) -> str:
    return (
        f"user {row.owner!r} has no key that may submit jobs in workspace {row.workspace_id}; "
        "enable the schedule again when they have one"
    )
