"""The jobs of a backend as runs that a `RunManager` watches."""

from __future__ import annotations

import time
from itertools import islice

from pai_sdk.backend.base import Backend
from pai_sdk.run.records import RunRecord
from pai_sdk.schemas.record import JobRecord
from pai_sdk.schemas.wire import seconds_of

__all__ = ["JobRuns", "run_record"]

_PAUSE_S = 5.0
"""The service is asked no more often for its list of jobs; their event files are looked at in every pass."""


class JobRuns:
    """The newest jobs of a backend, as `RunManager` takes records.

    Args:
        backend: which has the jobs.
        most: how many of them.
    """

    def __init__(self, backend: Backend, most: int) -> None:
        self._backend = backend
        self._most = most
        self._records: list[RunRecord] = []
        self._next_at = 0.0

    def __call__(self) -> list[RunRecord]:
        """The records, not older than some seconds.

        Raises:
            PaiError: the backend refuses, or does not answer.
        """
        if time.monotonic() >= self._next_at:
            self._records = [run_record(job) for job in islice(self._backend.list(), self._most)]
            self._next_at = time.monotonic() + _PAUSE_S
        return self._records


def run_record(job: JobRecord) -> RunRecord:
    """What a job says about its run."""
    last = job.status_transitions[-1] if job.status_transitions else None
    ended = (last.end_time if last else None) or job.gmt_modified_time
    return RunRecord(
        job.training_job_id,
        status=job.status,
        name=job.training_job_name or "",
        labels={label.key: label.value or "" for label in job.labels if label.key},
        hparams={pair.name: pair.value for pair in job.hyperparameters if pair.name},
        created_at=seconds_of(job.gmt_create_time),
        ended_at=seconds_of(ended) if job.status.is_terminal else None,
        uri=job.outputs.get("tensorboard", ""),
    )
