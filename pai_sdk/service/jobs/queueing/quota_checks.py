"""What the quota of a user allows: at the creation of a job, and before it begins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from pai_sdk.schemas.request import TrainingJobRequest
from pai_sdk.schemas.status import JobStatus
from pai_sdk.service.identity.principal import OPERATOR
from pai_sdk.service.identity.quotas import NO_QUOTA, Quota, quota_of
from pai_sdk.service.jobs.host_resources import Need, need_or_instances
from pai_sdk.service.state.models import Job
from pai_sdk.service.wire_errors import WireError

__all__ = [
    "BEGUN",
    "QUEUED",
    "QuotaUse",
    "missing_in_quota",
    "refuse_larger_than_quota",
    "refuse_over_quota",
    "use_of",
]

QUEUED = (JobStatus.CREATING, JobStatus.CREATED, JobStatus.SUBMITTED)
"""The statuses of a job that has not begun."""

BEGUN = (JobStatus.INITIALIZING, JobStatus.RUNNING)
"""The statuses of a job that holds resources."""


@dataclass(frozen=True)
class QuotaUse:
    """How much of a quota is used: by jobs that have begun, and by those that wait."""

    cpus: float
    gpus: int
    running: int
    queued: int


def missing_in_quota(quota: Quota, need: Need, taken: Iterable[Need] = ()) -> Iterator[str]:
    """The parts of a quota that are too small for a job beside those that run, as text; empty when it may begin.

    Example:
        >>> list(missing_in_quota(Quota(cpus=8, running=4), Need(1, cpus=4), [Need(1, cpus=6)]))
        ['4 CPUs (2 of 8 are free)']
    """
    begun = list(taken)
    for what, limit, asked, used in (
        ("CPUs", quota.cpus, need.cpus, sum(other.cpus for other in begun)),
        ("GPUs", quota.gpus, need.gpus, sum(other.gpus for other in begun)),
        ("running job", quota.running, 1, len(begun)),
    ):
        # A job that asks for nothing of a resource never waits for it.
        if limit is not None and asked and asked > max(0, limit - used):
            yield f"{asked:g} {what} ({max(0, limit - used):g} of {limit:g} are free)"


def refuse_over_quota(session: Session, owner: str, request: TrainingJobRequest) -> None:
    """Check that a new job of a user could begin if it were their only one, and that it may wait.

    Raises:
        WireError: it could never begin, or too many of the user's jobs wait already.
    """
    if owner == OPERATOR:
        return  # the service's own key has no quota
    refuse_larger_than_quota(session, owner, request)
    quota = quota_of(session, owner)
    if quota.queued is not None and _count_queued(session, owner) >= quota.queued:
        message = f"The quota of user {owner!r} is {quota.queued} queued jobs, and all of it is used."
        raise _refused(f"{message} Submit the job again when one of them has begun.")


def refuse_larger_than_quota(session: Session, owner: str, request: TrainingJobRequest) -> None:
    """Check that a job of a user could begin if it were their only one.

    Raises:
        WireError: it could never begin.
    """
    quota = NO_QUOTA if owner == OPERATOR else quota_of(session, owner)
    missing = list(missing_in_quota(quota, need_or_instances(request)))
    if missing:
        message = f"The job needs more than the quota of user {owner!r} allows: {', '.join(missing)}."
        raise _refused(f"{message} Ask for less, or ask an administrator for a greater quota.")


def use_of(session: Session, owner: str) -> QuotaUse:
    """How much of their quota a user's jobs use now."""
    requests = session.scalars(select(Job.request).where(Job.owner == owner, Job.status.in_(BEGUN)))
    needs = [need_or_instances(TrainingJobRequest.model_validate(request)) for request in requests]
    return QuotaUse(
        sum(need.cpus for need in needs),
        sum(need.gpus for need in needs),
        len(needs),
        _count_queued(session, owner),
    )


def _count_queued(session: Session, owner: str) -> int:
    queued = select(func.count()).select_from(Job).where(Job.owner == owner, Job.status.in_(QUEUED))
    return session.scalar(queued) or 0


def _refused(message: str) -> WireError:
    return WireError(400, "UserQuotaExceeded", message)
