"""The jobs of the service: created, found, moved from status to status. Every change wakes waiting requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any

from sqlalchemy import delete, func, insert, or_, select
from sqlalchemy.orm import Session, lazyload

from pai_sdk.agent.protocol import Ending
from pai_sdk.agent.reasons import REASON_STOPPED_BY_USER, REASON_USER_REMOVED
from pai_sdk.execution.base import InstanceState
from pai_sdk.schemas.job_retries import MAX_WAIT_S
from pai_sdk.schemas.request import ACCESSIBILITY_LABEL, TrainingJobRequest
from pai_sdk.schemas.status import JobStatus
from pai_sdk.service.identity.principal import OPERATOR, Principal
from pai_sdk.service.identity.visibility import PRIVATE, visible_jobs
from pai_sdk.service.jobs.changes import Changes, FinishTimes
from pai_sdk.service.jobs.host_resources import need_or_instances
from pai_sdk.service.jobs.queueing.fair_share import begun_at, charge
from pai_sdk.service.jobs.queueing.quota_checks import BEGUN, QUEUED
from pai_sdk.service.jobs.queueing.submission import NewJob, Submissions, accessibility_of
from pai_sdk.service.state.database import Database
from pai_sdk.service.state.models import (
    Event,
    Job,
    JobLabel,
    LatestMetric,
    Progress,
    RemovedUserRow,
    Transition,
)
from pai_sdk.service.wire_errors import WireError, invalid_parameter, job_not_found

__all__ = ["LONGEST_LABEL", "Jobs", "existing_job", "latest_metrics", "latest_metrics_of"]

LONGEST_LABEL = 256
"""The most characters of a label's key, and of its value: both fit into an index of any database."""

_NAMES_A_QUERY = 500


class Jobs:
    """All that the service knows of its jobs. Safe to use from several threads.

    Attributes:
        database: where it is kept; for questions that are not asked here.
        changes: notified of every change.
        dedupes: whether a create with the submission label of a job that is there makes no second one.
        finish_times: when jobs have finished since the service started.
        on_status: called with each job that has another status, once that is committed.
    """

    def __init__(self, database: Database, changes: Changes, *, dedupes: bool = True) -> None:
        self.dedupes = dedupes
        self.database = database
        self.changes = changes
        self.finish_times = FinishTimes()
        self.on_status: Callable[[Job], None] = lambda job: None
        self._submissions = Submissions(database, dedupes=dedupes)

    # ---- finding ------------------------------------------------------------------------------------------

    def get(self, job_id: str) -> Job:
        """One job, with its labels and transitions.

        Raises:
            WireError: there is no such job.
        """
        with self.database.read() as session:
            return existing_job(session, job_id)

    def version(self, job_id: str) -> int:
        """The number of the job's last change.

        Raises:
            WireError: there is no such job.
        """
        with self.database.read() as session:
            version = session.scalar(select(Job.version).where(Job.id == job_id))
        if version is None:
            raise job_not_found(job_id)
        return version

    def require_visible(self, job_id: str, principal: Principal, *, changes: bool = False) -> None:
        """Check that a user can see a job.

        Args:
            job_id: which job.
            principal: the user.
            changes: whether they also want to change it; only its owner and administrators may.

        Raises:
            WireError: they cannot, or there is no such job; that is the same to them. 403 if they may only see it.
        """
        if principal.has_right("admin"):
            return  # what reads the job says whether it is there
        with self.database.read() as session:
            mine = Job.id == job_id, visible_jobs(principal)
            found = session.execute(select(Job.owner, Job.workspace_id).where(*mine)).first()
        if found is None:
            raise job_not_found(job_id)
        is_administrator = principal.workspaces.get(found.workspace_id) == "admin"
        if changes and found.owner != principal.user and not is_administrator:
            raise WireError(
                403, "Forbidden.NoPermission", f"Job {job_id} belongs to {found.owner or 'the service'}."
            )

    def versions(self, job_ids: Collection[str], principal: Principal) -> dict[str, int]:
        """The number of the last change of each of these jobs that the user can see."""
        with self.database.read() as session:
            mine = Job.id.in_(job_ids), visible_jobs(principal)
            rows = session.execute(select(Job.id, Job.version).where(*mine))
            return {row.id: row.version for row in rows}

    def owners_in_queue(self) -> list[str]:
        """The users who have jobs that have not begun, by name; found without reading the queue."""
        found: list[str] = []
        of_queue = select(func.min(Job.owner)).where(Job.status == JobStatus.SUBMITTED)
        with self.database.read() as session:
            owner = session.scalar(of_queue)
            while owner is not None:
                found.append(owner)
                owner = session.scalar(of_queue.where(Job.owner > owner))
        return found

    def first_in_queue(self, owner: str = OPERATOR, *, now: float | None = None) -> Job | None:
        """Of a user's jobs that may begin the oldest of the highest priority; None when there are none.

        Args:
            owner: the user.
            now: the time; a job whose next attempt is later is left out.
        """
        now = time.time() if now is None else now
        # A time further away than any wait was noted before the clock was set back.
        is_early = Job.not_before > now + MAX_WAIT_S
        is_due = or_(Job.not_before.is_(None), Job.not_before <= now, is_early)
        queued = select(Job).where(Job.status == JobStatus.SUBMITTED, Job.owner == owner, is_due)
        first = queued.order_by(Job.priority.desc(), Job.number).limit(1).options(lazyload("*"))
        with self.database.read() as session:
            return session.scalars(first).first()

    def begun(self) -> list[Job]:
        """The jobs that have begun and not ended."""
        with self.database.read() as session:
            return list(session.scalars(select(Job).where(Job.status.in_(BEGUN)).order_by(Job.number)))

    def ids(self) -> set[str]:
        """The ids of all jobs."""
        with self.database.read() as session:
            return set(session.scalars(select(Job.id)))

    def has_ended(self, job_id: str) -> bool:
        """True if a job has ended, or is not there."""
        with self.database.read() as session:
            status = session.scalar(select(Job.status).where(Job.id == job_id))
        return status is None or JobStatus(status).is_terminal

    def stop_is_requested(self, job_id: str) -> bool:
        """True if a stop of the job was requested."""
        with self.database.read() as session:
            return bool(session.scalar(select(Job.stop_requested).where(Job.id == job_id)))

    # ---- changing -----------------------------------------------------------------------------------------

    def create(self, submission: NewJob) -> str:
        """Put a job at the end of the queue; returns its id.

        A request that carries the submission label of a job that is there already is the same submission, sent
        again because our response was lost: it makes no second job.

        Raises:
            WireError: the quota of the user does not allow the job.
        """
        return self._submissions.carry_out(submission)

    def move(
        self,
        job_id: str,
        status: JobStatus,
        *,
        text: str,
        reason_code: str | None = None,
        reason_message: str | None = None,
        instances: Sequence[InstanceState] | None = None,
        failed_instance: str | None = None,
        started_at: float | None = None,
        ended_at: float | None = None,
    ) -> bool:
        """Bring a job into another status; False when it has ended already, or is there.

        Args:
            job_id: which job.
            status: the new status.
            text: the event that is noted.
            reason_code: why, for programs.
            reason_message: why, for people.
            instances: their states, when known.
            failed_instance: the first that failed.
            started_at: when the job began to run, if before now.
            ended_at: when the instances ended, if before now.
        """
        with self._changing(job_id) as (session, job):
            if JobStatus(job.status).is_terminal or job.status == status:
                return False
            if instances is not None:
                _set_instances(session, job, instances)
            if failed_instance is not None:
                job.failed_instance = failed_instance
                job.exit_code = next((i["exit_code"] for i in job.instances if i["name"] == failed_instance), None)
            _enter(session, job, status, text, reason_code, reason_message)
            if status == JobStatus.RUNNING:
                job.started_at = started_at or job.started_at
            if status.is_terminal:
                job.ended_at = ended_at or job.ended_at
        return True

    def start_again(
        self, job_id: str, *, attempt: int, wait_s: float, why: Ending, instances: Sequence[InstanceState]
    ) -> bool:
        """Put a job whose attempt has failed back into the queue.

        Args:
            job_id: which job.
            attempt: the one that has failed.
            wait_s: the next one begins after this time at the earliest.
            why: why it has failed.
            instances: what became of its instances.

        Returns:
            False when the job has ended, is to be stopped, or was put back already.
        """
        with self._changing(job_id) as (session, job):
            if JobStatus(job.status).is_terminal or job.stop_requested or job.attempt != attempt:
                return False
            _set_instances(session, job, instances)
            job.attempt, job.not_before = attempt + 1, time.time() + wait_s
            text = f"Attempt {attempt} has failed ({why.code}): {why.message}"
            _enter(session, job, JobStatus.SUBMITTED, text, why.code, why.message)
            _note(session, job_id, f"Attempt {attempt + 1} begins in {wait_s:g} s.", time.time())
        return True

    def next_attempt_in_s(self) -> float | None:
        """The time until the first of the next attempts that have to wait; None when there are none."""
        now = time.time()
        waiting = Job.status == JobStatus.SUBMITTED, Job.not_before.is_not(None)
        with self.database.read() as session:
            found = session.scalar(select(func.min(Job.not_before)).where(*waiting, Job.not_before > now))
        return None if found is None else min(max(0.0, found - now), MAX_WAIT_S)

    def set_instances(self, job_id: str, instances: Sequence[InstanceState]) -> None:
        """Note what became of the instances."""
        with self._changing(job_id) as (session, job):
            _set_instances(session, job, instances)

    def note(self, job_id: str, text: str, *, instance: str | None = None) -> None:
        """Note an event."""
        with self._changing(job_id) as (session, _):
            _note(session, job_id, text, time.time(), instance)

    def set_latest_metrics(self, job_id: str, values: Mapping[str, Mapping[str, Any]]) -> None:
        """Note the last values of metrics: by name the columns of `LatestMetric`.

        Raises:
            WireError: there is no such job.
        """
        names = list(values)
        with self._changing(job_id) as (session, _):
            for begin in range(0, len(names), _NAMES_A_QUERY):
                some = names[begin : begin + _NAMES_A_QUERY]
                session.execute(
                    delete(LatestMetric).where(LatestMetric.job_id == job_id, LatestMetric.name.in_(some))
                )
                session.execute(
                    insert(LatestMetric), [{"job_id": job_id, "name": name, **values[name]} for name in some]
                )

    def set_progress(self, job_id: str, values: Mapping[str, float]) -> None:
        """Note the last figures of a job's progress, by the wire's names."""
        now = time.time()
        with self._changing(job_id) as (session, _):
            for name, value in values.items():
                session.merge(Progress(job_id=job_id, name=name, timestamp=now, value=value))

    def request_stop(self, job_id: str) -> bool:
        """Ask for a job's end; one that has not begun ends at once.

        Returns:
            Whether there is something left to be stopped.
        """
        with self._changing(job_id) as (session, job):
            if JobStatus(job.status).is_terminal or job.stop_requested:
                return False
            job.stop_requested = True
            _note(session, job_id, "A stop was requested.", time.time())
            if job.status not in QUEUED:
                return True
            again = " again" if job.attempt > 1 else ""
            message = f"The job was stopped before it began{again}."
            _enter(session, job, JobStatus.TERMINATED, message, REASON_STOPPED_BY_USER, message)
            return False

    def stop_queued_of_removed(self) -> None:
        """Ends the jobs that wait in the queue and whose user was removed; jobs that have begun are left alone."""
        removed = select(RemovedUserRow.name)
        waiting = select(Job.id).where(Job.status == JobStatus.SUBMITTED, Job.owner.in_(removed))
        with self.database.read() as session:
            found = list(session.scalars(waiting))
        for job_id in found:
            with suppress(WireError), self._changing(job_id) as (session, job):
                if job.status in QUEUED:
                    again = " again" if job.attempt > 1 else ""
                    message = f"The job was stopped before it began{again}: its user {job.owner!r} was removed."
                    _enter(session, job, JobStatus.TERMINATED, message, REASON_USER_REMOVED, message)

    def delete(self, job_id: str) -> None:
        """Forget a job that has ended.

        Raises:
            WireError: it has not ended, or there is no such job.
        """
        with self.database.write() as session:
            job = existing_job(session, job_id)
            if not JobStatus(job.status).is_terminal:
                raise WireError(
                    409, "TRAINING_JOB_NOT_ENDED", f"Job {job_id} is {job.status}; stop it before it is deleted."
                )
            session.execute(delete(Job).where(Job.id == job_id))
        self.changes.publish(job_id)

    def set_labels(self, job_id: str, labels: Mapping[str, str]) -> None:
        """Add labels, or replace those of the same key.

        Raises:
            WireError: one of them is too long, or there is no such job.
        """
        for key, value in labels.items():
            if not key or max(len(key), len(value)) > LONGEST_LABEL:
                message = (
                    f"Labels: key or value of {key[:60]!r} is empty or longer than {LONGEST_LABEL} characters"
                )
                raise invalid_parameter(message)
        accessibility = accessibility_of(labels)
        with self._changing(job_id) as (session, job):
            job.accessibility = accessibility or job.accessibility
            for key, value in labels.items():
                session.merge(JobLabel(job_id=job_id, key=key, value=value))

    def delete_labels(self, job_id: str, keys: Iterable[str]) -> None:
        """Delete labels; those that are not there do no harm."""
        gone = list(keys)
        with self._changing(job_id) as (session, job):
            if ACCESSIBILITY_LABEL in gone:
                job.accessibility = PRIVATE
            session.execute(delete(JobLabel).where(JobLabel.job_id == job_id, JobLabel.key.in_(gone)))

    @contextmanager
    def _changing(self, job_id: str) -> Iterator[tuple[Session, Job]]:
        with self.database.write() as session:
            job = existing_job(session, job_id)
            status = job.status
            yield session, job
            job.modified_at = time.time()
            job.version += 1
            has_finished = job.status != status and JobStatus(job.status).is_terminal
            if has_finished:  # before the commit: whoever reads the status from now on finds the time
                self.finish_times.add(job_id)
        if has_finished:  # what was read between the two may have the status of before
            self.finish_times.add(job_id)
        if job.status != status:
            self.on_status(job)
        self.changes.publish(job_id)


def latest_metrics(session: Session, job_id: str, names: Sequence[str] = ()) -> list[LatestMetric]:
    """The last value of each metric, by name."""
    found = latest_metrics_of(session, [job_id]).get(job_id, [])
    return [metric for metric in found if metric.name in names] if names else found


def latest_metrics_of(session: Session, job_ids: Collection[str]) -> dict[str, list[LatestMetric]]:
    """The last value of each metric of several jobs, by name, by job; by one query."""
    found: dict[str, list[LatestMetric]] = {}
    latest = select(LatestMetric).where(LatestMetric.job_id.in_(job_ids)).order_by(LatestMetric.name)
    for metric in session.scalars(latest):
        found.setdefault(metric.job_id, []).append(metric)
    return found


def existing_job(session: Session, job_id: str) -> Job:
    """One job, in a session that is open already.

    Raises:
        WireError: there is no such job.
    """
    job = session.scalar(select(Job).where(Job.id == job_id))
    if job is None:
        raise job_not_found(job_id)
    return job


def _note(session: Session, job_id: str, text: str, now: float, instance: str | None = None) -> None:
    session.add(Event(job_id=job_id, instance=instance, happened_at=now, text=text))


def _enter(
    session: Session,
    job: Job,
    status: JobStatus,
    text: str,
    reason_code: str | None,
    reason_message: str | None,
) -> None:
    """Let a job be in another status from now on."""
    now = time.time()
    if job.status in BEGUN and status not in BEGUN:
        need = need_or_instances(TrainingJobRequest.model_validate(job.request))
        charge(session, job.owner, need, begun=begun_at(job), ended=now)
    job.transitions[-1].ended_at = now
    job.transitions.append(
        Transition(
            status=status,
            started_at=now,
            ended_at=now if status.is_terminal else None,
            reason_code=reason_code,
            reason_message=reason_message,
        )
    )
    job.status, job.reason_code, job.reason_message = status, reason_code, reason_message
    if status == JobStatus.RUNNING:
        job.started_at = now
    if status.is_terminal:
        job.ended_at = now
    _note(session, job.id, text, now)


def _set_instances(session: Session, job: Job, instances: Sequence[InstanceState]) -> None:
    before = {known["name"]: known["status"] for known in job.instances}
    states: list[dict[str, Any]] = [asdict(instance) for instance in instances]
    if states == job.instances:
        return
    job.instances = states
    for instance in instances:
        if before.get(instance.name) != instance.status:
            ending = "" if instance.exit_code is None else f" (exit code {instance.exit_code})"
            text = f"Instance {instance.name} is {instance.status}{ending}."
            _note(session, job.id, text, time.time(), instance.name)
