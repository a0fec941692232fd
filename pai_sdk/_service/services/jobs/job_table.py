"""The table of jobs: creates, selects and updates them. Every change notifies waiting requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any

from sqlalchemy import delete, func, insert, or_, select
from sqlalchemy.orm import Session, lazyload

from pai_sdk._core.reasons import REASON_STOPPED_BY_USER, REASON_USER_REMOVED
from pai_sdk._host.agent.protocol import Ending
from pai_sdk._host.execution.base import InstanceState
from pai_sdk._host.lifecycle import stopped_before_start_message
from pai_sdk._service.identity.principal import OPERATOR, Principal
from pai_sdk._service.identity.visibility import PRIVATE, may_change, visible_jobs
from pai_sdk._service.services.jobs.changes import Changes, FinishTimes
from pai_sdk._service.services.jobs.host_resources import need_or_instances
from pai_sdk._service.services.jobs.queueing.fair_share import allocated_at, charge
from pai_sdk._service.services.jobs.queueing.quota_checks import ACTIVE, QUEUED
from pai_sdk._service.services.jobs.queueing.submission import NewJob, Submissions, accessibility_of
from pai_sdk._service.state.database import Database
from pai_sdk._service.state.models import (
    Event,
    Job,
    JobLabel,
    LatestMetric,
    Progress,
    RemovedUserRow,
    Transition,
)
from pai_sdk._service.wire_errors import WireError, invalid_parameter, job_not_found
from pai_sdk._wire.pai.job_retries import MAX_WAIT_S
from pai_sdk._wire.pai.request import ACCESSIBILITY_LABEL, MAX_LABEL_LENGTH, TrainingJobRequest
from pai_sdk._wire.pai.status import JobStatus

_NAMES_PER_QUERY = 500


class Jobs:
    """The jobs of the service. Thread-safe."""

    def __init__(self, database: Database, changes: Changes, *, dedupes: bool = True) -> None:
        self.dedupes = dedupes  # a create that repeats a submission label returns the existing job
        self.database = database
        self.changes = changes
        self.finish_times = FinishTimes()  # since the service started
        # Called after the commit of a new status: a listener never learns of a status that is rolled back.
        self.on_status: Callable[[Job], None] = lambda job: None
        # Called in the transaction in which an attempt starts to run.
        self.record_start: Callable[[Session, Job], None] = lambda session, job: None
        # Called in the transaction that ends a job, and after its commit.
        self.record_finish: Callable[[Session, Job], None] = lambda session, job: None
        self.on_finish: Callable[[], object] = lambda: None
        # Called by rules with what they have detected: job id, code, message, evidence.
        self.on_finding: Callable[[str, str, str, Mapping[str, Any]], object] = lambda *finding: None
        self._submissions = Submissions(database, dedupes=dedupes)

    # ---- finding ------------------------------------------------------------------------------------------

    def get(self, job_id: str) -> Job:
        """Returns a job, with its labels and transitions; raises WireError if there is none."""
        with self.database.read() as session:
            return existing_job(session, job_id)

    def version(self, job_id: str) -> int:
        """Returns the number of the job's last change; raises WireError if there is no such job."""
        with self.database.read() as session:
            version = session.scalar(select(Job.version).where(Job.id == job_id))
        if version is None:
            raise job_not_found(job_id)
        return version

    def require_visible(self, job_id: str, principal: Principal, *, changes: bool = False) -> None:
        """Raises 404 if a user cannot see a job, and 403 with `changes` if they may only see it."""
        if principal.has_right("admin"):
            return  # the query that reads the job checks whether it exists
        with self.database.read() as session:
            mine = Job.id == job_id, visible_jobs(principal)
            job = session.execute(select(Job.owner, Job.workspace_id).where(*mine)).first()
        if job is None:
            raise job_not_found(job_id)
        if changes and not may_change(principal, job.owner, job.workspace_id):
            raise WireError(
                403, "Forbidden.NoPermission", f"Job {job_id} belongs to {job.owner or 'the service'}."
            )

    def versions(self, job_ids: Collection[str], principal: Principal) -> dict[str, int]:
        """Returns the number of the last change of each of these jobs, if the user can see it."""
        with self.database.read() as session:
            mine = Job.id.in_(job_ids), visible_jobs(principal)
            rows = session.execute(select(Job.id, Job.version).where(*mine))
            return {row.id: row.version for row in rows}

    def owners_in_queue(self) -> list[str]:
        """Returns the users with queued jobs, sorted; uses the index instead of reading the queue."""
        # One index lookup per owner (a "loose index scan") instead of a scan of the queue, which may be long.
        owners: list[str] = []
        of_queue = select(func.min(Job.owner)).where(Job.status == JobStatus.SUBMITTED)
        with self.database.read() as session:
            owner = session.scalar(of_queue)
            while owner is not None:
                owners.append(owner)
                owner = session.scalar(of_queue.where(Job.owner > owner))
        return owners

    def first_in_queue(self, owner: str = OPERATOR, *, now: float | None = None) -> Job | None:
        """Returns a user's oldest queued job of the highest priority, or None; later retries are left out."""
        now = time.time() if now is None else now
        # A retry later than the maximum wait was recorded before the clock was set back: it is due.
        is_early = Job.not_before > now + MAX_WAIT_S
        is_due = or_(Job.not_before.is_(None), Job.not_before <= now, is_early)
        queued = select(Job).where(Job.status == JobStatus.SUBMITTED, Job.owner == owner, is_due)
        # lazyload: each relationship with selectin loading would cost another query.
        first = queued.order_by(Job.priority.desc(), Job.number).limit(1).options(lazyload("*"))
        with self.database.read() as session:
            return session.scalars(first).first()

    def active(self) -> list[Job]:
        """Returns the started jobs that have not finished."""
        with self.database.read() as session:
            return list(session.scalars(select(Job).where(Job.status.in_(ACTIVE)).order_by(Job.number)))

    def ids(self) -> set[str]:
        """Returns the ids of all jobs."""
        with self.database.read() as session:
            return set(session.scalars(select(Job.id)))

    def has_finished(self, job_id: str) -> bool:
        """Returns True if a job has finished, or does not exist."""
        with self.database.read() as session:
            status = session.scalar(select(Job.status).where(Job.id == job_id))
        return status is None or JobStatus(status).is_terminal

    def is_stop_requested(self, job_id: str) -> bool:
        """Returns True if a stop of the job was requested."""
        with self.database.read() as session:
            return bool(session.scalar(select(Job.stop_requested).where(Job.id == job_id)))

    # ---- changing -----------------------------------------------------------------------------------------

    def create(self, submission: NewJob) -> str:
        """Adds a job to the queue and returns its id, or the id of the job that has its submission label."""
        return self._submissions.submit(submission)

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
        cause: str | None = None,
    ) -> bool:
        """Sets the status of a job, with the event `text`; returns False if it has finished or has this status."""
        with self.changing(job_id) as (session, job):
            if JobStatus(job.status).is_terminal or job.status == status:
                return False
            if instances is not None:  # None: the states do not change
                _set_instances(session, job, instances)
            if failed_instance is not None:
                job.failed_instance = failed_instance
                job.exit_code = next((i["exit_code"] for i in job.instances if i["name"] == failed_instance), None)
            _enter(session, job, status, text, reason_code, reason_message)
            # `_enter` has set both times to now; the executor may know the exact ones.
            if status == JobStatus.RUNNING:
                job.started_at = started_at or job.started_at
                self.record_start(session, job)
            if status.is_terminal:
                job.ended_at = ended_at or job.ended_at
                job.cause = cause
        return True

    def requeue(
        self,
        job_id: str,
        *,
        attempt: int,
        wait_s: float,
        ending: Ending,
        instances: Sequence[InstanceState],
        ended_at: float | None = None,
    ) -> bool:
        """Puts a job back into the queue after a failed attempt (idempotent); False if it is not to be retried."""
        with self.changing(job_id) as (session, job):
            # `attempt` differs if a step is repeated whose commit succeeded although it raised (PostgreSQL: the
            # connection was lost). With False, the caller would fail a job that waits for its next attempt.
            if job.attempt != attempt:
                return True
            if JobStatus(job.status).is_terminal or job.stop_requested:
                return False
            _set_instances(session, job, instances)
            job.attempt, job.not_before = attempt + 1, time.time() + wait_s
            text = f"Attempt {attempt} has failed ({ending.code}): {ending.message}"
            run = job.transitions[-1]
            _enter(session, job, JobStatus.SUBMITTED, text, ending.code, ending.message)
            if ended_at is not None and run.ended_at is not None:
                # Outputs were saved since, and the service may have been away: no cost of the job.
                run.ended_at = max(run.started_at, min(ended_at, run.ended_at))
            _add_event(session, job_id, f"Attempt {attempt + 1} begins in {wait_s:g} s.", time.time())
        return True

    def next_attempt_in_s(self, since: float) -> float | None:
        """Returns the time until the next retry of any job that was not due at a time; None if there are none."""
        now = time.time()
        waiting = Job.status == JobStatus.SUBMITTED, Job.not_before.is_not(None)
        with self.database.read() as session:
            next_at = session.scalar(
                select(func.min(Job.not_before)).where(*waiting, Job.not_before > min(since, now))
            )
        return None if next_at is None else min(max(0.0, next_at - now), MAX_WAIT_S)

    def set_instances(self, job_id: str, instances: Sequence[InstanceState]) -> None:
        """Stores the states of the instances."""
        with self.changing(job_id) as (session, job):
            _set_instances(session, job, instances)

    def add_event(self, job_id: str, text: str, *, instance: str | None = None) -> None:
        """Adds an event."""
        with self.changing(job_id) as (session, _):
            _add_event(session, job_id, text, time.time(), instance)

    def add_finding(
        self, job_id: str, text: str, *, instance: str | None, attempt: int, reason: tuple[str, str] | None
    ) -> None:
        """Adds the event of a rule; `reason` is the code and message of a condition that is open now.

        It is the reason of the status while the attempt runs, so that clients and pages display it.
        """
        with self.changing(job_id) as (session, job):
            _add_event(session, job_id, text, time.time(), instance)
            if job.status == JobStatus.RUNNING and job.attempt == attempt:
                job.reason_code, job.reason_message = reason or (None, None)

    def set_latest_metrics(self, job_id: str, values: Mapping[str, Mapping[str, Any]]) -> None:
        """Stores the last values of metrics: by name, the columns of `LatestMetric`."""
        names = list(values)
        with self.changing(job_id) as (session, _):
            # Databases limit the number of parameters of a statement (SQLite before 3.32: 999).
            for start in range(0, len(names), _NAMES_PER_QUERY):
                batch = names[start : start + _NAMES_PER_QUERY]
                session.execute(
                    delete(LatestMetric).where(LatestMetric.job_id == job_id, LatestMetric.name.in_(batch))
                )
                session.execute(
                    insert(LatestMetric), [{"job_id": job_id, "name": name, **values[name]} for name in batch]
                )

    def set_progress(self, job_id: str, values: Mapping[str, float]) -> None:
        """Stores the last progress values of a job, by their names in the REST API."""
        now = time.time()
        with self.changing(job_id) as (session, _):
            for name, value in values.items():
                session.merge(Progress(job_id=job_id, name=name, timestamp=now, value=value))

    def request_stop(self, job_id: str) -> bool:
        """Requests a stop; a queued job finishes at once. Returns True if the scheduler has to stop the job."""
        with self.changing(job_id) as (session, job):
            if JobStatus(job.status).is_terminal or job.stop_requested:
                return False
            job.stop_requested = True
            _add_event(session, job_id, "A stop was requested.", time.time())
            if job.status not in QUEUED:
                return True
            message = stopped_before_start_message(job.attempt)
            _enter(session, job, JobStatus.TERMINATED, message, REASON_STOPPED_BY_USER, message)
            return False

    def stop_queued_of_removed(self) -> None:
        """Terminates queued jobs of removed users; started jobs continue."""
        removed = select(RemovedUserRow.name)
        waiting = select(Job.id).where(Job.status == JobStatus.SUBMITTED, Job.owner.in_(removed))
        with self.database.read() as session:
            job_ids = list(session.scalars(waiting))
        for job_id in job_ids:
            # A WireError means that the job was deleted since the query.
            with suppress(WireError), self.changing(job_id) as (session, job):
                # Checked again in the transaction: the job may have started since the query.
                if job.status in QUEUED:
                    cause = f": its user {job.owner!r} was removed"
                    message = stopped_before_start_message(job.attempt, cause)
                    _enter(session, job, JobStatus.TERMINATED, message, REASON_USER_REMOVED, message)

    def delete(self, job_id: str) -> None:
        """Deletes a finished job; raises WireError if it has not finished."""
        with self.database.write() as session:
            job = existing_job(session, job_id)
            if not JobStatus(job.status).is_terminal:
                raise WireError(
                    409, "TRAINING_JOB_NOT_ENDED", f"Job {job_id} is {job.status}; stop it before it is deleted."
                )
            session.execute(delete(Job).where(Job.id == job_id))
        self.changes.publish(job_id)

    def set_labels(self, job_id: str, labels: Mapping[str, str]) -> None:
        """Adds labels, or replaces those of the same key."""
        for key, value in labels.items():
            if not key or max(len(key), len(value)) > MAX_LABEL_LENGTH:
                message = (
                    f"Labels: key or value of {key[:60]!r} is empty or longer than {MAX_LABEL_LENGTH} characters"
                )
                raise invalid_parameter(message)
        accessibility = accessibility_of(labels)
        with self.changing(job_id) as (session, job):
            job.accessibility = accessibility or job.accessibility
            for key, value in labels.items():
                session.merge(JobLabel(job_id=job_id, key=key, value=value))

    def delete_labels(self, job_id: str, keys: Iterable[str]) -> None:
        """Deletes labels; missing ones are ignored."""
        gone = list(keys)
        with self.changing(job_id) as (session, job):
            if ACCESSIBILITY_LABEL in gone:
                job.accessibility = PRIVATE
            session.execute(delete(JobLabel).where(JobLabel.job_id == job_id, JobLabel.key.in_(gone)))

    @contextmanager
    def changing(self, job_id: str) -> Iterator[tuple[Session, Job]]:
        """Opens a transaction that changes a job; notifies waiting requests after it."""
        with self.database.write() as session:
            job = existing_job(session, job_id)
            status = job.status
            yield session, job
            job.modified_at = time.time()
            # The version is the ETag of long polls: every change must increment it.
            job.version += 1
            has_finished = job.status != status and JobStatus(job.status).is_terminal
            if has_finished:  # before the commit: a reader of the new status must find a time
                self.finish_times.add(job_id)
                self.record_finish(session, job)
        if has_finished:  # after the commit: a reader between the two may have read the old status
            self.finish_times.add(job_id)
            self.on_finish()
        if job.status != status:
            self.on_status(job)
        self.changes.publish(job_id)


def latest_metrics_of(session: Session, job_ids: Collection[str]) -> dict[str, list[LatestMetric]]:
    """Returns the last values of metrics of several jobs by job, in one query."""
    metrics_by_job: dict[str, list[LatestMetric]] = {}
    latest = select(LatestMetric).where(LatestMetric.job_id.in_(job_ids)).order_by(LatestMetric.name)
    for metric in session.scalars(latest):
        metrics_by_job.setdefault(metric.job_id, []).append(metric)
    return metrics_by_job


def existing_job(session: Session, job_id: str) -> Job:
    """Returns a job, in an open session; raises WireError if there is none."""
    job = session.scalar(select(Job).where(Job.id == job_id))
    if job is None:
        raise job_not_found(job_id)
    return job


def _add_event(session: Session, job_id: str, text: str, now: float, instance: str | None = None) -> None:
    session.add(Event(job_id=job_id, instance=instance, happened_at=now, text=text))


def _enter(
    session: Session,
    job: Job,
    status: JobStatus,
    text: str,
    reason_code: str | None,
    reason_message: str | None,
) -> None:
    """Sets the status of a job, adds the transition and an event, and charges its resources."""
    now = time.time()
    # The owner is charged once per attempt, when its resources are released.
    if job.status in ACTIVE and status not in ACTIVE:
        need = need_or_instances(TrainingJobRequest.model_validate(job.request))
        charge(session, job.owner, need, start=allocated_at(job), end=now)
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
    _add_event(session, job.id, text, now)


def _set_instances(session: Session, job: Job, instances: Sequence[InstanceState]) -> None:
    before = {previous["name"]: previous["status"] for previous in job.instances}
    states: list[dict[str, Any]] = [asdict(instance) for instance in instances]
    if states == job.instances:
        return
    job.instances = states
    for instance in instances:
        if before.get(instance.name) != instance.status:
            ending = "" if instance.exit_code is None else f" (exit code {instance.exit_code})"
            text = f"Instance {instance.name} is {instance.status}{ending}."
            _add_event(session, job.id, text, time.time(), instance.name)
