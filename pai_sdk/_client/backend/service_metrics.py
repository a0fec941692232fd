"""The metrics of jobs of a service: values of a training, and use of the instances."""

from __future__ import annotations

import heapq
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from pai_sdk._client.api.training_jobs import TrainingJobs
from pai_sdk._data.storage.uri import OssUri
from pai_sdk._wire.pai.record import InstancePoint, InstanceUsage, JobRecord, MetricPoint, from_time
from pai_sdk._wire.pai.wire import seconds_of, wire_time
from pai_sdk.errors import StorageError

if TYPE_CHECKING:
    from pai_sdk._data.storage.oss.client import OssClient

_log = logging.getLogger(__name__)

_POINTS_A_PAGE = 2000  # limit of this package's service; the limit of Alibaba Cloud's is not documented
_USAGE_METRICS = ("CpuCoreUsage", "MemoryUsage", "GpuCoreUsage", "GpuMemoryUsage")  # as InstanceUsage has them
_USAGE_OF_LAST_S, _USAGE_STEP = 600.0, "10s"  # clocks may differ by minutes
_CURRENT_S = 120.0  # values that are this much older than the newest one of their instance are not current
_CLOCKS_DIFFER_S = 300.0  # of service and instance


class ServiceMetrics:
    """Reads the metric values of jobs: from the service, and from event files that the service does not read."""

    def __init__(self, jobs: TrainingJobs) -> None:
        self._jobs = jobs
        self._reads_reports = False  # True after the service has announced it

    def read(
        self, job_id: str, files: Callable[[], OssClient], *, name: str | None = None, since: str | None = None
    ) -> Iterator[MetricPoint]:
        """Yields the job's metric values, oldest first; `files` gives the client of the object storage."""
        # `files` is a method of the backend that has this object: kept here, it would make a cycle, and a session
        # that is dropped would keep its sockets until the collector runs.
        record = None if self._reads_reports else self._jobs.get(job_id)
        self._reads_reports = record is None or record.source.reads_reports
        if record is None or self._reads_reports:
            return self._jobs.metrics(job_id, name=name, since=since, page_size=_POINTS_A_PAGE)
        log_points = self._jobs.metrics(job_id, name=name, since=since)
        return with_reported(record, log_points, files, name, since)


def with_reported(
    record: JobRecord,
    log_points: Iterator[MetricPoint],
    files: Callable[[], OssClient],
    name: str | None,
    since: str | None,
) -> Iterator[MetricPoint]:
    """Merges the values in the log of a job with those that it has reported."""
    reported = _reported(record, files, name, since)
    if reported is None:
        return log_points
    # Both are sorted by time already.
    return heapq.merge(log_points, reported, key=lambda point: point.timestamp or "")


def _reported(
    record: JobRecord, files: Callable[[], OssClient], name: str | None, since: str | None
) -> Iterator[MetricPoint] | None:
    """Returns the values in the event files of the job's output `tensorboard`; None if they cannot be read."""
    # A service that does not announce that it reads reports is Alibaba Cloud's.
    from pai_sdk._data.run.events.points import JobPoints, metric_points
    from pai_sdk._data.storage.stores.oss import OssStore

    uri = record.outputs.get("tensorboard", "")
    if not uri.startswith("oss://"):
        return None
    try:
        store = OssStore(files(), OssUri.parse(uri))
        # Older event files in a shared output folder are those of earlier jobs.
        created_s = (seconds_of(record.gmt_create_time) or 0.0) - _CLOCKS_DIFFER_S
        parts = [part for part in JobPoints(store, since=created_s).read_on() if not part.is_from_log]
    except StorageError as error:
        _log.warning("the metrics that job %s has reported cannot be read: %s", record.training_job_id, error)
        return None
    return from_time(metric_points(parts, name), since)


def usage_of(jobs: TrainingJobs, job_id: str) -> Sequence[InstanceUsage]:
    """Returns the resource usage of instances, from the last 10 minutes of the service's metrics."""
    since = wire_time(time.time() - _USAGE_OF_LAST_S) or ""
    metrics = [
        jobs.instance_metrics(job_id, metric, start_time=since, step=_USAGE_STEP) for metric in _USAGE_METRICS
    ]
    names = sorted({name for values in metrics for name in values})
    usage = []
    for name in names:
        cpu, memory, gpu, gpu_memory = _values([points.get(name) for points in metrics])
        usage.append(InstanceUsage(name, cpu, memory, gpu, gpu_memory))
    return usage


def _values(last: Sequence[InstancePoint | None]) -> list[float | None]:
    """Returns the last values of the metrics of an instance; None where it was no longer measured then."""
    times = [None if point is None else seconds_of(point.time) for point in last]
    newest = max((at for at in times if at is not None), default=0.0)
    return [
        None if point is None or newest - (newest if at is None else at) > _CURRENT_S else point.value
        for point, at in zip(last, times, strict=True)
    ]
