"""Fair share between users, by allocated and past resources.

Dominant resource fairness (DRF) with a half-life. For instances, CPUs and GPUs a user's share is

    (resources allocated now + decayed average of past allocations) / capacity of the service

and the largest of the three counts. In the average, the usage `HALF_LIFE_S` ago has half the weight of the current
usage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from pai_sdk._service.services.jobs.host_resources import Capacity, Need
from pai_sdk._service.state.models import Job, UseRow
from pai_sdk._wire.pai.status import JobStatus

HALF_LIFE_S = 24 * 3600.0  # a day: the weight after a week is 2 ** -7, less than 1 %


@dataclass(frozen=True)
class Allocation:
    """The resources that are allocated to one job until it finishes."""

    owner: str
    need: Need
    since: float  # seconds since 1970


@dataclass(frozen=True)
class Use:
    """Decayed average of the resources of a user's finished jobs, at the time `at` in seconds since 1970."""

    instances: float = 0.0
    cpus: float = 0.0
    gpus: float = 0.0
    at: float = 0.0

    def decayed(self, now: float) -> Use:
        """Returns the average decayed to a later time; an earlier `now` (a clock set back) has no effect."""
        if now <= self.at:
            return self
        factor = _weight(now - self.at)
        return Use(self.instances * factor, self.cpus * factor, self.gpus * factor, now)

    def with_use(self, need: Need, *, start: float, end: float) -> Use:
        """Returns the average including a job, decayed to the end of that job or later."""
        before = self.decayed(end)
        # The integral of the weight over the running time, relative to that of endless use.
        average = (1.0 - _weight(max(0.0, end - start))) * _weight(before.at - end)
        return Use(
            before.instances + average * need.instances,
            before.cpus + average * need.cpus,
            before.gpus + average * need.gpus,
            before.at,
        )


def share_of(use: Use, allocations: Iterable[Allocation], capacity: Capacity, now: float) -> float:
    """Returns the share of a user by the rule above."""
    instances, cpus, gpus = 0.0, 0.0, 0.0
    total = use.decayed(now)
    for allocation in allocations:
        need = allocation.need.on(capacity.cluster)
        total = total.with_use(need, start=allocation.since, end=now)
        instances += need.instances
        cpus += need.cpus
        gpus += need.gpus
    cluster = capacity.cluster
    parts = (
        (total.instances + instances, (capacity.slots,)),
        (total.cpus + cpus, (capacity.cpus, cluster.cpus if cluster else None)),
        (total.gpus + gpus, (capacity.gpus, cluster.gpus if cluster else None)),
    )
    return max(
        (amount / min(limits) for amount, candidates in parts if (limits := [*_nonzero(candidates)])), default=0.0
    )


def charge(session: Session, owner: str, need: Need, *, start: float, end: float) -> None:
    """Adds the resources of a job to its owner's usage, in a writing session."""
    row = session.get(UseRow, owner)
    before = Use() if row is None else _use(row)
    use = before.with_use(need, start=start, end=end)
    session.merge(UseRow(owner=owner, instances=use.instances, cpus=use.cpus, gpus=use.gpus, at=use.at))


def all_uses(session: Session) -> dict[str, Use]:
    """Returns the usage of finished jobs by user."""
    return {row.owner: _use(row) for row in session.scalars(select(UseRow))}


def allocated_at(job: Job) -> float:
    """Returns the time of a started job's allocation; for a retried job, the last one."""
    starts = (
        transition.started_at
        for transition in reversed(job.transitions)
        if transition.status == JobStatus.INITIALIZING
    )
    return next(starts, job.created_at)


def _nonzero(limits: Iterable[float | None]) -> Iterator[float]:
    return (limit for limit in limits if limit)


def _weight(age_s: float) -> float:
    return float(2.0 ** (-age_s / HALF_LIFE_S))


def _use(row: UseRow) -> Use:
    return Use(row.instances, row.cpus, row.gpus, row.at)
