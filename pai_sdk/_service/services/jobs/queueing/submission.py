"""Adds new jobs to the queue. Concurrent submissions share one transaction."""

from __future__ import annotations

import secrets
import string
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, select
from sqlalchemy.orm import Session

from pai_sdk._service.identity.principal import OPERATOR
from pai_sdk._service.identity.visibility import PRIVATE, PUBLIC
from pai_sdk._service.services.jobs.queueing.quota_checks import check_quota
from pai_sdk._service.state.database import Database
from pai_sdk._service.state.dlc_models import DlcJobRow
from pai_sdk._service.state.models import Event, Job, JobAlgorithm, JobLabel, Transition
from pai_sdk._service.wire_errors import invalid_parameter
from pai_sdk._wire.dlc import names as dlc_names
from pai_sdk._wire.dlc.jobs import NewJob as NewDlcJob
from pai_sdk._wire.pai.request import ACCESSIBILITY_LABEL, SUBMISSION_LABEL, TrainingJobRequest
from pai_sdk._wire.pai.status import JobStatus

_MAX_COUNTED = 1000  # jobs ahead of a new one
_ID_ALPHABET = string.digits + string.ascii_lowercase
_ID_LENGTH = 12

# Built once: building a statement takes longer than running it, and each submission needs all of them.
_NEW_JOB, _NEW_STATUSES, _NEW_LABELS = insert(Job), insert(Transition), insert(JobLabel)
_NEW_ALGORITHM, _NEW_EVENTS, _NEW_DLC_JOB = insert(JobAlgorithm), insert(Event), insert(DlcJobRow)
_COUNT_QUEUED = select(func.count()).select_from(
    select(Job.number)
    .where(
        Job.owner == bindparam("owner"),
        Job.status == JobStatus.SUBMITTED,
        Job.priority >= bindparam("priority"),
    )
    # Two more: the new job itself, and one that shows that the count is incomplete.
    .limit(_MAX_COUNTED + 2)
    .subquery()
)
_SUBMITTED_BEFORE = (
    select(Job.id)
    .join(JobLabel, JobLabel.job_id == Job.id)
    .where(
        JobLabel.key == SUBMISSION_LABEL,
        JobLabel.value == bindparam("submission"),
        Job.owner == bindparam("owner"),
    )
    .limit(1)
)


def new_job_id() -> str:
    """Returns an id in PAI's format: `train` and 12 letters or digits."""
    number, text = secrets.randbelow(len(_ID_ALPHABET) ** _ID_LENGTH), ""
    for _ in range(_ID_LENGTH):
        number, digit = divmod(number, len(_ID_ALPHABET))
        text += _ID_ALPHABET[digit]
    return f"train{text}"


@dataclass(eq=False)
class NewJob:
    """A job that is submitted; afterwards `job_id` or `error` is set."""

    request: TrainingJobRequest
    workspace_id: str
    owner: str = OPERATOR
    algorithm_id: str | None = None
    notices: Iterable[str] = ()  # further events; empty ones are left out
    # Called with the job's id in the transaction of the creation; again in another one if that was rolled back.
    # An error of it rolls the creation back.
    in_transaction: Callable[[Session, str], None] = lambda session, job_id: None
    dlc_job: NewDlcJob | None = None  # as CreateJob has it, for a job of the API of DLC
    job_id: str | None = None
    error: BaseException | None = None

    @property
    def is_done(self) -> bool:
        """Returns True if it has an id or an error."""
        return self.job_id is not None or self.error is not None


class Submissions:
    """Group commit of submissions from any number of threads.

    The thread that holds `_leader_lock` writes all waiting submissions in one transaction; the other threads find
    theirs done when they acquire the lock. If one submission fails, the transaction is rolled back, and each
    submission gets its own transaction.

    Lock order: `_leader_lock`, then the write lock of the database. No transaction submits a job.
    """

    def __init__(self, database: Database, *, dedupes: bool) -> None:
        self._database = database
        self._dedupes = dedupes  # a repeated submission label returns the existing job
        self._waiting: deque[NewJob] = deque()
        self._leader_lock = threading.Lock()

    def submit(self, submission: NewJob) -> str:
        """Adds a job to the queue; returns its id after the commit, or raises the error of the submission."""
        # deque.append and popleft are atomic, so `_waiting` needs no lock.
        self._waiting.append(submission)
        with self._leader_lock:
            if not submission.is_done:
                # Each thread appends before it waits for the lock, so this submission is among them.
                self._submit_all([self._waiting.popleft() for _ in range(len(self._waiting))])
        if submission.error is not None:
            raise submission.error
        return submission.job_id or ""

    def _submit_all(self, submissions: Sequence[NewJob]) -> None:
        is_committing = False
        try:
            with self._database.write() as session:
                # In the order of arrival, which is the order of job numbers.
                ids = [self._put(session, submission) for submission in submissions]
                session.flush()
                is_committing = True
        except BaseException as error:
            # A failed commit may have succeeded on the server: these jobs must not be created again.
            is_retried_singly = len(submissions) > 1 and not is_committing
            # Only the invalid submission may fail: the others must not get its error.
            for submission in submissions:
                if is_retried_singly:
                    self._submit_all([submission])
                else:
                    submission.error = error
        else:
            for submission, job_id in zip(submissions, ids, strict=True):
                submission.job_id = job_id

    def _put(self, session: Session, submission: NewJob) -> str:
        request, owner = submission.request, submission.owner
        labels = {label.key: label.value for label in request.labels}
        job_id = self._submitted_before(session, labels, owner)
        if job_id is None:
            check_quota(session, owner, request)
            job_id = new_job_id() if submission.dlc_job is None else dlc_names.new_job_id()
            _insert(session.connection(), job_id, submission, labels)
        submission.in_transaction(session, job_id)
        return job_id

    def _submitted_before(self, session: Session, labels: Mapping[str, str], owner: str) -> str | None:
        label = labels.get(SUBMISSION_LABEL)
        if label is None or not self._dedupes:
            return None
        # The client repeats a request whose response was lost.
        return session.scalar(_SUBMITTED_BEFORE, {"submission": label, "owner": owner})


def accessibility_of(labels: Mapping[str, str]) -> str | None:
    """Returns the accessibility of a job by its labels, None if it is not set; refuses invalid values."""
    accessibility = labels.get(ACCESSIBILITY_LABEL)
    if accessibility not in (None, PRIVATE, PUBLIC):
        raise invalid_parameter(
            f"Labels: {ACCESSIBILITY_LABEL} is {accessibility[:60]!r}, and not {PRIVATE} or {PUBLIC}."
        )
    return accessibility


def _insert(connection: Connection, job_id: str, submission: NewJob, labels: Mapping[str, str]) -> None:
    """Inserts the rows of a job without the ORM's unit of work, which is slower than all statements together."""
    request, owner, now = submission.request, submission.owner, time.time()
    created = connection.execute(
        _NEW_JOB,
        {
            "id": job_id,
            "name": request.training_job_name,
            "workspace_id": submission.workspace_id,
            "owner": owner,
            "request": request.to_wire(),
            "instance_count": request.instance_count,
            "priority": request.priority or 0,
            "status": JobStatus.SUBMITTED,
            "created_at": now,
            "modified_at": now,
            "instances": [],
            "accessibility": accessibility_of(labels) or PRIVATE,
        },
    )
    statuses = [(JobStatus.CREATING, now), (JobStatus.SUBMITTED, None)]
    connection.execute(
        _NEW_STATUSES, [{"job_id": job_id, "status": s, "started_at": now, "ended_at": end} for s, end in statuses]
    )
    if labels:
        rows = [{"job_id": job_id, "key": key, "value": value} for key, value in labels.items()]
        connection.execute(_NEW_LABELS, rows)
    if submission.algorithm_id is not None:
        connection.execute(_NEW_ALGORITHM, _algorithm(job_id, submission.algorithm_id, request))
    if submission.dlc_job is not None:
        (number,) = created.inserted_primary_key or (0,)
        connection.execute(_NEW_DLC_JOB, _dlc_job(number, submission.dlc_job))
    ahead = _ahead(connection, owner, request.priority or 0)
    messages = [f"The job was created and waits in the queue{ahead}.", *filter(None, submission.notices)]
    connection.execute(_NEW_EVENTS, [{"job_id": job_id, "happened_at": now, "text": text} for text in messages])


def _ahead(connection: Connection, owner: str, priority: int) -> str:
    """Describes how many jobs of a user start before a new one, which is already in the queue."""
    count = (connection.scalar(_COUNT_QUEUED, {"owner": owner, "priority": priority}) or 1) - 1
    if not count:
        return ""
    number = f"{count}" if count <= _MAX_COUNTED else f"more than {_MAX_COUNTED:,}"
    of_owner = f" of user {owner!r}" if owner else ""
    return f", behind {number} other{'s' if count > 1 else ''}{of_owner}"


def _algorithm(job_id: str, algorithm_id: str, request: TrainingJobRequest) -> dict[str, Any]:
    return {
        "job_id": job_id,
        "algorithm_id": algorithm_id,
        "name": request.algorithm_name,
        "provider": request.algorithm_provider,
        "version": request.algorithm_version,
    }


def _dlc_job(number: int, job: NewDlcJob) -> dict[str, Any]:
    images = "\n".join(dict.fromkeys(spec.image for spec in job.job_specs if spec.image))
    return {"number": number, "job_type": job.job_type or "", "images": images, "body": job.to_wire()}
