"""Provides the runs of jobs to a `RunManager`: the record of each job, and the folder that it reports into."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._data.run.watch.records import RunRecord
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk._wire.pai.wire import seconds_of

if TYPE_CHECKING:
    from pai_sdk._data.storage.base import Store

_MAX_AGE_S = 5.0
_CHANNEL = "tensorboard"


class RunsOfJobs:
    """Provides the records of jobs, and opens their folders: `RunManager(records=jobs, opener=jobs.open)`."""

    def __init__(
        self, list_jobs: Callable[[], Iterable[TrainingJob]], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._list_jobs = list_jobs  # called for each poll; unfinished jobs are polled again every few seconds
        self._clock = clock
        # Guards all fields below; held during requests, so that concurrent callers share one poll.
        self._lock = threading.Lock()
        self._ended: dict[str, JobRecord] = {}
        self._records: list[RunRecord] = []
        self._job_of_uri: dict[str, TrainingJob] = {}
        self._requested_at = float("-inf")

    def __call__(self) -> list[RunRecord]:
        """Returns the records of all jobs, which are at most a few seconds old."""
        with self._lock:
            if self._clock() - self._requested_at >= _MAX_AGE_S:
                self._records = [self._record(job) for job in self._list_jobs()]
                self._requested_at = self._clock()  # after the requests, however slow they are
            return self._records

    def open(self, uri: str) -> Store:
        """Opens the folder of a run by its URI."""
        with self._lock:
            job = self._job_of_uri[uri]
        return job.open_output(_CHANNEL)

    def _record(self, job: TrainingJob) -> RunRecord:
        record = self._ended.get(job.id)
        if record is None:
            # An entry of a list may lack fields such as the outputs and the hyperparameters.
            record = job.record if job.record.output_channels else job.refresh()
            if record.status.is_terminal:
                self._ended[job.id] = record
        run = run_record(record)
        if run.uri:
            self._job_of_uri[run.uri] = job
        return run


def run_record(record: JobRecord) -> RunRecord:
    """Converts the record of a job to the record of its run."""
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
