"""Metrics of jobs, queue and resources, read at each scrape of Prometheus."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy import Select, case, func, or_, select
from sqlalchemy.exc import SQLAlchemyError

from pai_sdk._service.services.jobs.host_resources import Capacity
from pai_sdk._service.services.jobs.queueing.fair_share import Allocation
from pai_sdk._service.state.database import Database
from pai_sdk._service.state.models import Job, Transition
from pai_sdk._wire.pai.status import STATUSES, JobStatus

logger = logging.getLogger(__name__)

_GIB = 1 << 30


class JobFigures(Collector):
    """Collects the metrics. If the database does not respond, those without it are still exported."""

    def __init__(
        self,
        database: Database,
        allocations: Callable[[], Sequence[Allocation]],
        capacity: Callable[[], Capacity],
    ) -> None:
        self._database = database
        self._allocations = allocations
        self._capacity = capacity

    def describe(self) -> Iterable[Metric]:
        """Returns nothing, so that registering the collector does not read the database."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Yields the current metrics."""
        up = GaugeMetricFamily("pai_database_up", "1 if the database responds")
        try:
            counts, oldest = self._read()
        except SQLAlchemyError as error:
            logger.warning("figures of jobs cannot be read: %s", type(error).__name__)
            up.add_metric([], 0)
        else:
            up.add_metric([], 1)
            yield from _of_jobs(counts, oldest)
        yield up
        yield from self._of_resources()

    def _read(self) -> tuple[dict[str, int], float | None]:
        with self._database.read() as session:
            rows = session.execute(select(Job.status, func.count()).group_by(Job.status))
            counts = {str(status): int(count) for status, count in rows}
            oldest = session.scalar(_oldest_in_queue(time.time()))
        return counts, oldest

    def _of_resources(self) -> Iterable[Metric]:
        capacity = self._capacity()
        cluster = capacity.cluster
        needs = [allocation.need.on(cluster) for allocation in self._allocations()]
        limits = {
            "instances": capacity.slots,
            "cpus": capacity.cpus if cluster is None else cluster.cpus,
            "gpus": capacity.gpus if cluster is None else cluster.gpus,
            "memory_bytes": _bytes(capacity.memory_gib) if cluster is None else cluster.memory_bytes,
        }
        used = {
            "instances": sum(need.instances for need in needs),
            "cpus": sum(need.cpus for need in needs),
            "gpus": sum(need.gpus for need in needs),
            "memory_bytes": sum(need.memory_gib for need in needs) * _GIB,
        }
        of_capacity = GaugeMetricFamily(
            "pai_resources_capacity", "Resources for jobs; missing where there is no limit", labels=["resource"]
        )
        of_use = GaugeMetricFamily("pai_resources_used", "Resources that jobs hold", labels=["resource"])
        for name, limit in limits.items():
            if limit is not None:
                of_capacity.add_metric([name], limit)
        for name, amount in used.items():
            of_use.add_metric([name], amount)
        return of_capacity, of_use


def _oldest_in_queue(now: float) -> Select[float]:
    """Selects since when the oldest job waits for resources."""
    # A job with a later retry waits from the time at which that attempt may start.
    entered = case((Job.not_before > Transition.started_at, Job.not_before), else_=Transition.started_at)
    return (
        select(func.min(entered))
        .join(Transition, Transition.job_id == Job.id)
        .where(
            Job.status == JobStatus.SUBMITTED,
            or_(Job.not_before.is_(None), Job.not_before <= now),
            Transition.status == JobStatus.SUBMITTED,
            Transition.ended_at.is_(None),
        )
    )


def _of_jobs(counts: dict[str, int], oldest: float | None) -> Iterable[Metric]:
    jobs = GaugeMetricFamily("pai_jobs", "Jobs by status", labels=["status"])
    for status in sorted(STATUSES):
        jobs.add_metric([status], counts.get(status, 0))
    yield jobs
    queue = GaugeMetricFamily("pai_queue_jobs", "Jobs in the queue")
    queue.add_metric([], counts.get(JobStatus.SUBMITTED, 0))
    yield queue
    age = GaugeMetricFamily("pai_queue_oldest_seconds", "For how long the oldest job waits; 0 if none does")
    age.add_metric([], 0.0 if oldest is None else max(0.0, time.time() - oldest))
    yield age


def _bytes(gib: float | None) -> float | None:
    return None if gib is None else gib * _GIB
