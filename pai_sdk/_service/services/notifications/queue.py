"""The targets of jobs and schedules, and the messages to them that have not been delivered."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from pai_sdk._data.notify.messages import Message, clean_lines
from pai_sdk._data.notify.targets import Target, target_from_wire
from pai_sdk._service.services.jobs.reading import read_model
from pai_sdk._service.services.notifications.sealing import Sealer
from pai_sdk._service.state.database import Database
from pai_sdk._service.state.models import Job, NotifyTargetRow, QueuedMessageRow, ScheduleRow
from pai_sdk._service.wire_errors import invalid_parameter
from pai_sdk._wire.notifications import NOTIFICATIONS, NotificationTarget
from pai_sdk._wire.pai.status import JobStatus
from pai_sdk.errors import InvalidInputError

_MAX_TARGETS = 10  # of a job
_MAX_QUEUED = 200  # of a job; a rule that fires again and again must not fill the database
_MAX_EVIDENCE = 8000  # characters of JSON
_MAX_REASON = 2000


@dataclass(frozen=True)
class Queued:
    """A message to one target, as it was read from the queue."""

    number: int
    job_id: str | None
    sealed: str  # the target
    message: Message
    attempts: int
    created_at: float


class NotificationQueue:
    """The queue. Thread-safe; all but the worker only add to it."""

    def __init__(
        self,
        database: Database,
        sealer: Sealer,
        *,
        link_of: Callable[[str], str | None] = lambda job_id: None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.sealer = sealer
        self.database = database
        self._link_of = link_of
        self._now = now
        self.on_change: Callable[[], object] = lambda: None
        """Called after messages were added; sets the worker to work."""

    # ---- targets ------------------------------------------------------------------------------------------

    def take_targets(self, body: dict[str, Any]) -> list[Target]:
        """Removes the targets from the body of a request, which is stored, and returns them; or WireError."""
        values = body.pop(NOTIFICATIONS, None) or []
        if not isinstance(values, list) or len(values) > _MAX_TARGETS:
            raise invalid_parameter(f"{NOTIFICATIONS}: is not a list of at most {_MAX_TARGETS} targets")
        if values and not self.sealer.is_available:
            raise invalid_parameter(f"{NOTIFICATIONS}: this service lacks the package cryptography to store them")
        targets = []
        for index, value in enumerate(values):
            where = f"{NOTIFICATIONS}[{index}]"
            target = read_model(NotificationTarget, value, where=where)
            try:
                targets.append(target_from_wire(target))
            except InvalidInputError as error:
                raise invalid_parameter(f"{where}: {error}") from None
        return targets

    def attach(
        self,
        session: Session,
        targets: Sequence[Target],
        *,
        job_id: str | None = None,
        schedule_id: str | None = None,
    ) -> None:
        """Stores targets of a job or a schedule, in its transaction; a repeated create adds none."""
        if not targets or self._rows(session, job_id, schedule_id):
            return
        for target in targets:
            wire = target.to_wire()
            session.add(
                NotifyTargetRow(
                    job_id=job_id,
                    schedule_id=schedule_id,
                    identity=self.sealer.identity(wire),
                    occasions=",".join(target.on or ()),
                    sealed=self.sealer.seal(wire),
                )
            )

    def copy_to_job(
        self, session: Session, schedule_id: str | None, job_id: str, *, earlier_job_id: str | None = None
    ) -> None:
        """Gives a job the targets of the schedule that has created it, or of the job that it repeats."""
        if self._rows(session, job_id, None):  # a repeated create
            return
        for row in self._rows(session, earlier_job_id, schedule_id):
            session.add(
                NotifyTargetRow(job_id=job_id, identity=row.identity, occasions=row.occasions, sealed=row.sealed)
            )

    # ---- messages -----------------------------------------------------------------------------------------

    def enqueue(
        self,
        job_id: str,
        code: str,
        message: str,
        evidence: Mapping[str, Any] | None = None,
        *,
        occasion: str = "watch",
    ) -> int:
        """Adds a message about a job for each of its targets that wants the occasion; returns their number.

        Args:
            job_id: the job.
            code: of the rule that has detected something, such as `NoProgress`.
            message: the reason, one or two sentences.
            evidence: details as JSON; `lines` are displayed as the last lines, in place of those of the log.
            occasion: one of `targets.OCCASIONS`.
        """
        with self.database.write() as session:
            job = session.scalar(select(Job).where(Job.id == job_id))
            if job is None:
                return 0
            details = dict(evidence or {})
            lines = details.pop("lines", None) or ()
            content = Message(
                title=f"{job.name}: {code}",
                code=code,
                reason=message[:_MAX_REASON],
                link=self._link_of(job_id),
                lines=[*clean_lines([str(line) for line in lines])],
                fields={**_job_fields(job), "evidence": _limited(details)},
            )
            count = self._add(session, self._rows(session, job_id, None), content, occasion, job_id)
        if count:
            self.on_change()
        return count

    def record_finish(self, session: Session, job: Job) -> None:
        """Adds the messages about the end of a job, in the transaction that ends it."""
        rows = self._rows(session, job.id, None)
        if not rows:
            return
        status = JobStatus(job.status)
        occasion = "succeeded" if status.is_success else "stopped" if status.is_stopped else "failed"
        message = Message(
            title=f"{job.name}: {job.status}",
            code=f"Job{occasion.capitalize()}",
            reason="" if status.is_success else (job.reason_message or "")[:_MAX_REASON],
            link=self._link_of(job.id),
            fields={**_job_fields(job), "duration_s": _duration_s(job), "reason_code": job.reason_code},
        )
        self._add(session, rows, message, occasion, job.id)

    def record_missed(self, session: Session, schedule: ScheduleRow, reason: str) -> None:
        """Adds the messages about a job that a schedule has not created, in the transaction that records this."""
        fields = {"schedule_id": schedule.id, "name": schedule.name, "status": "NotCreated"}
        message = Message(f"{schedule.name}: no job was created", "ScheduleMissed", reason, fields=fields)
        self._add(session, self._rows(session, None, schedule.id), message, "failed", None)

    def _add(
        self,
        session: Session,
        targets: Sequence[NotifyTargetRow],
        message: Message,
        occasion: str,
        job_id: str | None,
    ) -> int:
        now, count = self._now(), 0
        if job_id is not None:
            mine = QueuedMessageRow.job_id == job_id
            if (session.scalar(select(func.count()).select_from(QueuedMessageRow).where(mine)) or 0) > _MAX_QUEUED:
                return 0
        for target in targets:
            if target.occasions and occasion not in target.occasions.split(","):
                continue
            # The id lets a receiver recognise a message that it gets twice, after a response that was lost.
            content = replace(message, fields={**message.fields, "id": uuid.uuid4().hex})
            session.add(
                QueuedMessageRow(
                    target=target.number,
                    identity=target.identity,
                    job_id=job_id,
                    message=content.to_json(),
                    attempts=0,
                    next_at=self._retry_at(session, target.identity, now) or now,
                    created_at=now,
                )
            )
            count += 1
        return count

    @staticmethod
    def _retry_at(session: Session, identity: str, now: float) -> float | None:
        """Returns when a target that has failed is tried again; None for others. New messages wait for that."""
        failed = QueuedMessageRow.identity == identity, QueuedMessageRow.attempts > 0
        return session.scalar(
            select(func.min(QueuedMessageRow.next_at)).where(*failed, QueuedMessageRow.next_at > now)
        )

    @staticmethod
    def _rows(session: Session, job_id: str | None, schedule_id: str | None) -> Sequence[NotifyTargetRow]:
        condition = (
            NotifyTargetRow.schedule_id == schedule_id if job_id is None else NotifyTargetRow.job_id == job_id
        )
        return session.scalars(select(NotifyTargetRow).where(condition).order_by(NotifyTargetRow.number)).all()

    # ---- of the worker ------------------------------------------------------------------------------------

    def next_at(self, after: float = 0.0) -> float | None:
        """Returns when the next message is due that is not due at `after`; None if there is none."""
        later = QueuedMessageRow.next_at > after
        with self.database.read() as session:
            return session.scalar(select(func.min(QueuedMessageRow.next_at)).where(later))

    def due_identities(self, now: float) -> list[str]:
        """Returns the targets with messages that are due, those with the fewest failed attempts first."""
        due = (
            select(QueuedMessageRow.identity)
            .where(QueuedMessageRow.next_at <= now)
            .group_by(QueuedMessageRow.identity)
            .order_by(func.min(QueuedMessageRow.attempts), func.min(QueuedMessageRow.number))
        )
        with self.database.read() as session:
            return list(session.scalars(due))

    def pending(self, identity: str, now: float, limit: int) -> list[Queued]:
        """Returns the messages for a target that are due, the oldest first."""
        query = (
            select(QueuedMessageRow, NotifyTargetRow.sealed)
            .join(NotifyTargetRow, NotifyTargetRow.number == QueuedMessageRow.target)
            .where(QueuedMessageRow.identity == identity, QueuedMessageRow.next_at <= now)
            .order_by(QueuedMessageRow.number)
            .limit(limit)
        )
        with self.database.read() as session:
            return [
                Queued(
                    row.number, row.job_id, sealed, Message.from_json(row.message), row.attempts, row.created_at
                )
                for row, sealed in session.execute(query)
            ]

    def remove(self, messages: Sequence[Queued]) -> None:
        """Removes messages that were delivered, or never will be."""
        with self.database.write() as session:
            numbers = [message.number for message in messages]
            session.execute(delete(QueuedMessageRow).where(QueuedMessageRow.number.in_(numbers)))

    def postpone(self, identity: str, until: float, *, failed: Sequence[Queued] = ()) -> None:
        """Lets all messages for a target wait; counts an attempt of those that have failed."""
        waiting = QueuedMessageRow.identity == identity, QueuedMessageRow.next_at < until
        numbers = [message.number for message in failed]
        with self.database.write() as session:
            session.execute(update(QueuedMessageRow).where(*waiting).values(next_at=until))
            attempts = update(QueuedMessageRow).where(QueuedMessageRow.number.in_(numbers))
            session.execute(attempts.values(attempts=QueuedMessageRow.attempts + 1))


def _job_fields(job: Job) -> dict[str, Any]:
    return {"job_id": job.id, "name": job.name, "status": job.status}


def _duration_s(job: Job) -> int | None:
    if job.started_at is None or job.ended_at is None:
        return None
    return round(max(0.0, job.ended_at - job.started_at))


def _limited(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the entries of the evidence that are JSON and not too large."""
    limited, remaining = {}, _MAX_EVIDENCE
    for name, value in evidence.items():
        try:
            size = len(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError):
            value, size = str(value)[:200], 200
        if size <= remaining:
            limited[name] = value
            remaining -= size
    return limited
