"""Why a job has not started yet."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from pai_sdk._wire.body import received
from pai_sdk._wire.dlc.times import wire_time
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk._wire.requests import RecordedCompute
from pai_sdk.errors import NotFoundError, PermissionDeniedError

if TYPE_CHECKING:
    # The handle of a job imports this module, and these import requests.
    from pai_sdk._client.api.capacity import Quotas
    from pai_sdk._client.api.transport import Transport
    from pai_sdk._wire.resources.queue import QueueState
    from pai_sdk._wire.resources.workloads import Workload

__all__ = ["HasQueue", "ReportsQueue", "WaitingReason", "read_reason", "reason_at_service", "reason_in_quota"]


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WaitingReason:
    """Why a job waits, as far as its service says it.

    Attributes:
        reason: what it waits for, in words; "" if the service says nothing.
        position: position in the queue, from 1; None if there is no queue, or it is not known.
        since: when it began to wait: UTC, ISO 8601.
        code: of the reason, for programs, such as `roleMaximumResource`.

    Example:
        >>> print(WaitingReason("4 CPUs are missing", 2, "2026-11-28T19:30:00Z"))
        position 2 in the queue, since 2026-11-28T19:30:00Z: 4 CPUs are missing
    """

    reason: str = ""
    position: int | None = None
    since: str | None = None
    code: str | None = None

    def __str__(self) -> str:
        parts = [
            "waiting" if self.position is None else f"position {self.position} in the queue",
            *([f"since {self.since}"] if self.since else []),
        ]
        return ", ".join(parts) + (f": {self.reason}" if self.reason else "")


@runtime_checkable
class ReportsQueue(Protocol):
    """A backend that can say more about a waiting job than its events do."""

    def waiting_reason(self, record: JobRecord) -> WaitingReason | None:
        """Returns why a job waits; None if the backend does not know."""


@runtime_checkable
class HasQueue(Protocol):
    """A backend that can say what all of its jobs hold and wait for."""

    def queue(self) -> QueueState | None:
        """Returns the state of the queue; None if the service does not report it."""


def read_reason(transport: Transport, quotas: Quotas | None, record: JobRecord) -> WaitingReason | None:
    """Returns why a job waits, by the API of training jobs; None if that API does not say it.

    `quotas` are those of the cloud, None for a service of this package.
    """
    quota_id = received(RecordedCompute, record.compute_resource).resource_id
    ids = [each for each in (record.dlc_job_id, record.training_job_id) if each]
    try:
        if quotas is None:
            return reason_at_service(transport, record.training_job_id)
        return reason_in_quota(quotas, quota_id, ids) if quota_id else None
    except (NotFoundError, PermissionDeniedError) as error:
        _log.info("the queue of job %s cannot be read: %s", record.training_job_id, error)
        return None


def reason_in_quota(quotas: Quotas, quota_id: str, ids: Sequence[str]) -> WaitingReason | None:
    """Returns why the job with one of these ids waits in a quota; None if it is not in the queue."""
    for workload in quotas.workloads(quota_id, ids=ids):
        # Compared again: a service may ignore the filter.
        if workload.workload_id in ids and workload.gmt_dequeued_time is None:
            return _of_workload(workload)
    return None


def reason_at_service(transport: Transport, job_id: str) -> WaitingReason | None:
    """Returns why a job of a service of this package waits; `NotFoundError` from another service."""
    job = transport.call("GetJobOfRun", "GET", "/api/v1/runs/{run_id}/job", {"run_id": job_id}).json
    position, created_at, events = job.get("queue_place"), job.get("created_at"), job.get("events") or []
    last = events[-1].get("text") if isinstance(events[-1:], list) and events else None
    since = wire_time(created_at) if isinstance(created_at, int | float) else None
    return WaitingReason(job.get("message") or last or "", position, since)


def _of_workload(workload: Workload) -> WaitingReason:
    since = workload.gmt_enqueued_time or workload.gmt_created_time
    return WaitingReason(workload.reason or "", workload.position, since, workload.code)
