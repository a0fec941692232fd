"""Why a queued job waits: one reason for its events, its page, the list and `pai-sdk top`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.identity.visibility import visible_jobs
from pai_sdk._service.services.jobs.host_resources import Capacity
from pai_sdk._service.services.jobs.job_table import Jobs
from pai_sdk._service.services.jobs.queueing.fair_share import Allocation
from pai_sdk._service.services.jobs.queueing.queue import FairQueue, WaitingReason
from pai_sdk._service.services.jobs.queueing.quota_checks import QUEUED
from pai_sdk._service.state.models import Job
from pai_sdk._wire.dlc.times import wire_time
from pai_sdk._wire.pai.job_retries import MAX_WAIT_S

_FRESH_S = 0.5  # many pages read the queue when one job changes


@dataclass(frozen=True)
class WaitingJob:
    """A queued job, as far as its reason depends on it."""

    id: str
    position: int  # in the queue of its owner, from 1
    not_before: float | None = None  # of its next attempt


class QueueReader:
    """Reads the state of the queue for requests. Thread-safe: it changes nothing."""

    def __init__(
        self,
        jobs: Jobs,
        capacity: Callable[[], Capacity],
        allocations: Callable[[], Sequence[Allocation]],
        nodes: Callable[[str], Mapping[str, str]],
    ) -> None:
        self.capacity = capacity
        self.allocations = allocations
        self.nodes = nodes  # of the instances of a job on other machines
        self._queue = FairQueue(jobs)
        self._lock = threading.Lock()
        self._read_at = -_FRESH_S  # on the monotonic clock
        self._heads: Mapping[str, WaitingReason] = {}

    def reason(self, job: WaitingJob) -> WaitingReason:
        """Returns why a queued job has not started."""
        head = self._reasons_of_heads().get(job.id)
        if head is not None:
            return head
        # A retry later than the maximum wait was recorded before the clock was set back: it is due.
        if job.not_before is not None and 0 < job.not_before - time.time() <= MAX_WAIT_S:
            return WaitingReason("NextAttempt", f"The next attempt starts at {wire_time(job.not_before)}.")
        if job.position > 1:
            ahead = "1 job" if job.position == 2 else f"{job.position - 1} jobs"
            return WaitingReason("EarlierJobs", f"The job waits behind {ahead} of the same user.")
        return WaitingReason("Starting", "The job is about to start.")

    def _reasons_of_heads(self) -> Mapping[str, WaitingReason]:
        with self._lock:
            if time.monotonic() - self._read_at >= _FRESH_S:
                self._heads = self._queue.reasons(self.capacity, self.allocations())
                self._read_at = time.monotonic()
            return self._heads


def queue_positions(session: Session, principal: Principal) -> Mapping[str, WaitingJob]:
    """Returns the queued jobs that a user can see, with their positions in the queues of their owners."""
    position = func.row_number().over(partition_by=Job.owner, order_by=(Job.priority.desc(), Job.number))
    columns = Job.id, Job.not_before, position.label("position"), visible_jobs(principal).label("is_visible")
    rows = session.execute(select(*columns).where(Job.status.in_(QUEUED)))
    return {row.id: WaitingJob(row.id, row.position, row.not_before) for row in rows if row.is_visible}
