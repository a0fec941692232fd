"""Stops many jobs at once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from pai_sdk._wire.pai.record import JobRecord
from pai_sdk.errors import ConflictError, PaiError

_MAX_REQUESTS = 8  # at the same time


class Stoppable(Protocol):
    """A `TrainingJob`, whose module imports this one."""

    @property
    def record(self) -> JobRecord: ...

    def refresh(self) -> JobRecord: ...

    def stop(self) -> None: ...


def stop_each(jobs: Sequence[Stoppable]) -> list[PaiError | None]:
    """Requests the stop of jobs; returns the error of each, None where the stop is requested."""
    with ThreadPoolExecutor(_MAX_REQUESTS, thread_name_prefix="pai-stop") as pool:
        return [*pool.map(_try_stop, jobs)]


def stop_unfinished(jobs: Sequence[Stoppable]) -> None:
    """Requests the stop of the jobs that have not finished; raises the first error after all requests."""
    unfinished = [job for job in jobs if not job.record.status.is_terminal]
    errors = [error for error in map(_unless_finished, unfinished, stop_each(unfinished)) if error is not None]
    if errors:
        raise errors[0]


def _unless_finished(job: Stoppable, error: PaiError | None) -> PaiError | None:
    # The job may have finished since its last snapshot.
    return None if isinstance(error, ConflictError) and job.refresh().status.is_terminal else error


def _try_stop(job: Stoppable) -> PaiError | None:
    try:
        job.stop()
    except PaiError as error:
        return error
    return None
