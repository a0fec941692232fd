"""The runs of jobs, for a `RunManager`: what is known of each job, and the folder that it reports into."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pai_sdk.job.training_job import TrainingJob
from pai_sdk.run.watch.records import RunRecord
from pai_sdk.schemas.record import JobRecord
from pai_sdk.schemas.wire import seconds_of

if TYPE_CHECKING:
    from pai_sdk.storage.base import Store

__all__ = ["RunsOfJobs", "run_record"]

_MAX_AGE_S = 5.0
_CHANNEL = "tensorboard"


class RunsOfJobs:
    """Gives the records of jobs, and opens their folders: `RunManager(records=jobs, opener=jobs.open)`.

    Jobs are asked for again every few seconds; those that have ended are not.

    Args:
        list_jobs: the jobs; called again each time.
        clock: monotonic time in seconds.

    Example:
        >>> from pai_sdk.run.watch.manager import RunManager
        >>> def watch(jobs: list[TrainingJob]) -> RunManager:
        ...     runs = RunsOfJobs(lambda: jobs)
        ...     return RunManager(records=runs, opener=runs.open)
    """

    def __init__(
        self, list_jobs: Callable[[], Iterable[TrainingJob]], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._list_jobs = list_jobs
        self._clock = clock
        self._lock = threading.Lock()  # guards all that follows; held while jobs are asked for
        self._ended: dict[str, JobRecord] = {}
        self._records: list[RunRecord] = []
        self._job_of_uri: dict[str, TrainingJob] = {}
        self._requested_at = float("-inf")

    def __call__(self) -> list[RunRecord]:
        """The records of all jobs, as of a few seconds ago at most."""
        with self._lock:
            if self._clock() - self._requested_at >= _MAX_AGE_S:
                self._records = [self._record(job) for job in self._list_jobs()]
                self._requested_at = self._clock()
            return self._records

    def open(self, uri: str) -> Store:
        """The folder that a record names."""
        with self._lock:
            job = self._job_of_uri[uri]
        return job.open_output(_CHANNEL)

    def _record(self, job: TrainingJob) -> RunRecord:
        record = self._ended.get(job.id)
        if record is None:
            # A list may leave out what a job has: its outputs, its hyperparameters.
            record = job.record if job.record.output_channels else job.refresh()
            if record.status.is_terminal:
                self._ended[job.id] = record
        run = run_record(record)
        if run.uri:
            self._job_of_uri[run.uri] = job
        return run


def run_record(record: JobRecord) -> RunRecord:
    """The record of a job's run, made of the job's record.

    Example:
        >>> run_record(JobRecord.model_validate({"TrainingJobId": "train1", "Status": "Running"})).status
        'Running'
    """
    created = seconds_of(record.gmt_create_time)
    has_ended = record.status.is_terminal and created is not None and record.duration is not None
    return RunRecord(
        record.training_job_id,
        status=str(record.status),
        name=record.training_job_name or "",
        labels={label.key: label.value or "" for label in record.labels if label.key},
        hparams=record.hyperparameter_values,
        created_at=created,
        ended_at=(created or 0.0) + (record.duration or 0) if has_ended else None,
        uri=record.outputs.get(_CHANNEL, ""),
    )
