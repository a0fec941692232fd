"""The quota of a user, which is checked at the creation of a job and before it starts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from pai_sdk._service.identity.principal import OPERATOR
from pai_sdk._service.services.jobs.host_resources import Need, need_or_instances, shortage
from pai_sdk._service.state.models import Job, QuotaRow
from pai_sdk._service.wire_errors import WireError
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.pai.status import JobStatus

QUEUED = (JobStatus.CREATING, JobStatus.CREATED, JobStatus.SUBMITTED)
"""Statuses of a job that has not started."""

ACTIVE = (JobStatus.INITIALIZING, JobStatus.RUNNING)
"""Statuses of a job with allocated resources."""


@dataclass(frozen=True)
class Quota:
    """The maximum resources of one user's jobs at the same time; None means no limit."""

    cpus: float | None = None  # of started jobs, all instances together
    gpus: int | None = None  # of started jobs, all instances together
    running: int | None = None  # jobs that have started and not finished
    queued: int | None = None


NO_QUOTA = Quota()
"""The quota of a user without one, and of the service's own key."""


@dataclass(frozen=True)
class QuotaUse:
    """Usage of a quota: by started and by queued jobs."""

    cpus: float
    gpus: int
    running: int
    queued: int


def quota_of(session: Session, user: str) -> Quota:
    """Returns the quota of a user."""
    row = session.get(QuotaRow, user)
    return NO_QUOTA if row is None else _quota(row)


def all_quotas(session: Session) -> dict[str, Quota]:
    """Returns the quotas that were set, by user."""
    return {row.user: _quota(row) for row in session.scalars(select(QuotaRow))}


def missing_in_quota(quota: Quota, need: Need, running: Iterable[Need] = ()) -> Iterator[str]:
    """Describes what a quota lacks for a job in addition to the running ones; empty if it can start."""
    needs = list(running)
    for resource, limit, amount, used in (
        ("CPUs", quota.cpus, need.cpus, sum(other.cpus for other in needs)),
        ("GPUs", quota.gpus, need.gpus, sum(other.gpus for other in needs)),
        ("running job", quota.running, 1, len(needs)),
    ):
        # A job without this resource never waits for it.
        if limit is not None and amount and amount > max(0, limit - used):
            yield shortage(amount, resource, limit, used)


def check_quota(session: Session, owner: str, request: TrainingJobRequest) -> None:
    """Raises WireError if a new job of a user could never start, or too many of their jobs are queued."""
    if owner == OPERATOR:
        return  # the service's own key has no quota
    refuse_larger_than_quota(session, owner, request)
    quota = quota_of(session, owner)
    if quota.queued is not None and _count_queued(session, owner) >= quota.queued:
        message = f"The quota of user {owner!r} is {quota.queued} queued jobs, and all of it is used."
        raise _refused(f"{message} Submit the job again when one of them has started.")


def refuse_larger_than_quota(session: Session, owner: str, request: TrainingJobRequest) -> None:
    """Raises WireError if a job could not start alone within its user's quota."""
    quota = NO_QUOTA if owner == OPERATOR else quota_of(session, owner)
    missing = list(missing_in_quota(quota, need_or_instances(request)))
    if missing:
        message = f"The job needs more than the quota of user {owner!r} allows: {', '.join(missing)}."
        raise _refused(f"{message} Ask for less, or ask an administrator for a greater quota.")


NO_USE = QuotaUse(0, 0, 0, 0)
"""The usage of a user without unfinished jobs."""


def use_of(session: Session, owner: str) -> QuotaUse:
    """Returns how much of their quota a user's jobs use."""
    requests = session.scalars(select(Job.request).where(Job.owner == owner, Job.status.in_(ACTIVE)))
    return _use(requests, _count_queued(session, owner))


def all_uses(session: Session) -> dict[str, QuotaUse]:
    """Returns the usage of each user with unfinished jobs."""
    requests: dict[str, list[dict[str, Any]]] = {}
    for owner, request in session.execute(select(Job.owner, Job.request).where(Job.status.in_(ACTIVE))):
        requests.setdefault(owner, []).append(request)
    counts = select(Job.owner, func.count()).where(Job.status.in_(QUEUED)).group_by(Job.owner)
    queued = {row[0]: row[1] for row in session.execute(counts)}
    return {owner: _use(requests.get(owner, ()), queued.get(owner, 0)) for owner in {*requests, *queued}}


def _use(requests: Iterable[dict[str, Any]], queued: int) -> QuotaUse:
    needs = [need_or_instances(TrainingJobRequest.model_validate(request)) for request in requests]
    return QuotaUse(sum(need.cpus for need in needs), sum(need.gpus for need in needs), len(needs), queued)


def _quota(row: QuotaRow) -> Quota:
    return Quota(row.cpus, row.gpus, row.running, row.queued)


def _count_queued(session: Session, owner: str) -> int:
    queued = select(func.count()).select_from(Job).where(Job.owner == owner, Job.status.in_(QUEUED))
    return session.scalar(queued) or 0


def _refused(message: str) -> WireError:
    return WireError(400, "UserQuotaExceeded", message)
