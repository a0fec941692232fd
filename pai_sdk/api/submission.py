"""Creating a job so that faults on the way never make two of it."""

from __future__ import annotations

import logging
import uuid

from pai_sdk.api.training_jobs import TrainingJobs
from pai_sdk.errors import (
    ApiError,
    BadAnswerError,
    ConnectionFailedError,
    PaiError,
    ServiceFaultError,
    ThrottledError,
)
from pai_sdk.job.record import JobRecord
from pai_sdk.job.request import SUBMISSION_LABEL, TrainingJobRequest

__all__ = ["create"]

_log = logging.getLogger(__name__)

# A request that is cut off may still be on its way into the service; only after these looks it counts as lost.
_LOOK_PAUSES_S = (0.2, 0.8, 2.0)


def create(jobs: TrainingJobs, request: TrainingJobRequest) -> str:
    """Create a job; exactly one, even where answers are lost.

    The request carries a label of this one submission. After a fault that leaves open whether the request has
    arrived, the job is looked up by the label before the request is sent again.

    Args:
        jobs: the API.
        request: the job; it gets the label if it has none.

    Returns:
        The job's id.

    Raises:
        ApiError: the service refused the job.
        ConnectionFailedError: it stays open whether the job was created; the text tells the label to look for.
    """
    labelled = _with_submission_label(request)
    return _Submission(jobs, labelled).run()


class _Submission:
    """One create, through all its attempts."""

    def __init__(self, jobs: TrainingJobs, request: TrainingJobRequest) -> None:
        self._jobs = jobs
        self._request = request
        self._label = next(each.value for each in request.labels if each.key == SUBMISSION_LABEL)
        self._in_doubt: PaiError | None = None

    def run(self) -> str:
        try:
            return self._jobs.transport.retry.call(self._attempt, is_transient=_is_in_doubt)
        except (ConnectionFailedError, BadAnswerError, ServiceFaultError, ThrottledError) as error:
            if self._in_doubt is None:
                raise
            raise ConnectionFailedError(
                f"{error}; the job may have been created all the same. "
                f"Look for one with the label {SUBMISSION_LABEL}={self._label} before you submit it again",
                endpoint=self._jobs.transport.endpoint,
                maybe_arrived=True,
            ) from error

    def _attempt(self) -> str:
        if self._in_doubt is not None and (job_id := self._look()):
            return job_id
        try:
            return self._jobs.create_once(self._request.to_wire())
        except PaiError as error:
            if self._in_doubt is not None and isinstance(error, ApiError) and (job_id := self._find()):
                return job_id  # refused, because the one before had arrived
            if _is_in_doubt(error):
                self._in_doubt = error
            raise

    def _look(self) -> str | None:
        for pause_s in _LOOK_PAUSES_S:
            if job_id := self._find():
                _log.info("the answer to CreateTrainingJob was lost; the job is %s", job_id)
                return job_id
            self._jobs.transport.retry.sleep(pause_s)
        return self._find()

    def _find(self) -> str | None:
        # The service's own window of 7 days is enough for a job of this minute.
        wanted = {SUBMISSION_LABEL: self._label}
        found = self._jobs.list(labels=wanted, workspace_id=self._request.workspace_id, start_time=None)
        # The oldest: what was created first is what the others would repeat.
        ids = [record.training_job_id for record in found if self._is_ours(record)]
        return ids[-1] if ids else None

    def _is_ours(self, record: JobRecord) -> bool:
        labels = {label.key: label.value for label in record.labels}
        if not labels:  # not every list shows labels; the name has a random part
            return record.training_job_name == self._request.training_job_name
        return labels.get(SUBMISSION_LABEL) == self._label


def _with_submission_label(request: TrainingJobRequest) -> TrainingJobRequest:
    if any(label.key == SUBMISSION_LABEL for label in request.labels):
        return request
    return request.with_label(SUBMISSION_LABEL, uuid.uuid4().hex)


def _is_in_doubt(error: BaseException) -> bool:
    """Whether a create that ended so may have been carried out."""
    if isinstance(error, ConnectionFailedError):
        return error.maybe_arrived
    if isinstance(error, BadAnswerError):
        return error.status_code < 300 or error.status_code >= 500
    return isinstance(error, ServiceFaultError)
