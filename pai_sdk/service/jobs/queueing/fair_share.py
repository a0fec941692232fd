"""Fair share between users: how much of the service each has used and holds, recent use counting more.

The rule is that of dominant resources (DRF) with a half-life. For instances, CPUs and GPUs a user's share is

    (what their jobs hold now + the average that they held in the past) / what the service has

and the greatest of the three counts. In the average, use of `HALF_LIFE_S` ago counts half as much as use of now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from pai_sdk.schemas.status import JobStatus
from pai_sdk.service.jobs.host_resources import Capacity, Need
from pai_sdk.service.state.models import Job, UseRow

__all__ = ["HALF_LIFE_S", "HeldResources", "Use", "all_uses", "begun_at", "charge", "share_of"]

HALF_LIFE_S = 24 * 3600.0  # a day: yesterday's use counts half, that of a week ago less than a hundredth


@dataclass(frozen=True)
class HeldResources:
    """The resources that one job holds from its start to its end.

    Attributes:
        owner: the user whose job it is.
        need: its resources.
        since: when it began, in seconds since 1970.
    """

    owner: str
    need: Need
    since: float


@dataclass(frozen=True)
class Use:
    """The average of what a user's jobs held, up to a time.

    Attributes:
        instances: of instances.
        cpus: of CPUs.
        gpus: of GPUs.
        at: up to this time, in seconds since 1970.

    Example:
        >>> day = 24 * 3600
        >>> use = Use().with_use(Need(1, cpus=8), begun=0, ended=day)
        >>> use.cpus, use.decayed(2 * day).cpus
        (4.0, 2.0)
    """

    instances: float = 0.0
    cpus: float = 0.0
    gpus: float = 0.0
    at: float = 0.0

    def decayed(self, now: float) -> Use:
        """The same as it counts later; a clock that was set back changes nothing."""
        if now <= self.at:
            return self
        factor = _weight(now - self.at)
        return Use(self.instances * factor, self.cpus * factor, self.gpus * factor, now)

    def with_use(self, need: Need, *, begun: float, ended: float) -> Use:
        """Together with a job that held its resources for some time; counted up to its end."""
        before = self.decayed(ended)
        average = (1.0 - _weight(max(0.0, ended - begun))) * _weight(before.at - ended)
        return Use(
            before.instances + average * need.instances,
            before.cpus + average * need.cpus,
            before.gpus + average * need.gpus,
            before.at,
        )


def share_of(use: Use, held: Iterable[HeldResources], capacity: Capacity, now: float) -> float:
    """The share of a user by the rule above.

    Args:
        use: that of jobs that have ended.
        held: those of the user's jobs that have not.
        capacity: what the service has.
        now: the time, in seconds since 1970.
    """
    instances, cpus, gpus = 0.0, 0.0, 0.0
    total = use.decayed(now)
    for one in held:
        need = one.need.on(capacity.cluster)
        total = total.with_use(need, begun=one.since, ended=now)
        instances += need.instances
        cpus += need.cpus
        gpus += need.gpus
    cluster = capacity.cluster
    parts = (
        (total.instances + instances, (capacity.slots,)),
        (total.cpus + cpus, (capacity.cpus, cluster.cpus if cluster else None)),
        (total.gpus + gpus, (capacity.gpus, cluster.gpus if cluster else None)),
    )
    return max((amount / min(limits) for amount, given in parts if (limits := [*_known(given)])), default=0.0)


def charge(session: Session, owner: str, need: Need, *, begun: float, ended: float) -> None:
    """Note that a job has held its resources for some time, in a session that writes."""
    row = session.get(UseRow, owner)
    before = Use() if row is None else _use(row)
    use = before.with_use(need, begun=begun, ended=ended)
    session.merge(UseRow(owner=owner, instances=use.instances, cpus=use.cpus, gpus=use.gpus, at=use.at))


def all_uses(session: Session) -> dict[str, Use]:
    """The use of each user's jobs that have ended."""
    return {row.owner: _use(row) for row in session.scalars(select(UseRow))}


def begun_at(job: Job) -> float:
    """The time at which a job that holds resources began to hold them; of a job that was retried, the last one."""
    begins = (one.started_at for one in reversed(job.transitions) if one.status == JobStatus.INITIALIZING)
    return next(begins, job.created_at)


def _known(limits: Iterable[float | None]) -> Iterator[float]:
    return (limit for limit in limits if limit)


def _weight(age_s: float) -> float:
    return float(2.0 ** (-age_s / HALF_LIFE_S))


def _use(row: UseRow) -> Use:
    return Use(row.instances, row.cpus, row.gpus, row.at)
