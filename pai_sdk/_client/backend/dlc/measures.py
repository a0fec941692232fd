"""Metrics in the logs of a DLC job, and its use of the machines."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence

from pai_sdk._client.api.dlc_jobs import DlcJobs
from pai_sdk._client.backend.dlc.logs import DlcLogs
from pai_sdk._wire.body import received
from pai_sdk._wire.dlc.metrics import JobMetricsQuery
from pai_sdk._wire.dlc.times import wire_time
from pai_sdk._wire.pai.record import InstanceUsage, JobRecord, MetricPoint
from pai_sdk._wire.requests import RecordedSpec

_log = logging.getLogger(__name__)

_USAGE_METRICS = ("CpuCoreUsage", "MemoryUsage", "GpuCoreUsage", "GpuMemoryUsage")  # as InstanceUsage has them
_USAGE_OF_LAST_S, _USAGE_STEP = 600.0, "1m"
_PAGE_LINES = 1000
_MAX_LINE = 32 << 10  # the time of a pattern may grow with the square of the length


def log_metrics(record: JobRecord, logs: DlcLogs, name: str | None) -> Iterator[MetricPoint]:
    """Yields the values that the metric definitions of a job match in its logs; their times are unknown."""
    patterns = [*_patterns(record, name)]
    for instance in record.instance_names if patterns else ():
        start = 0
        while lines := logs.read(record.training_job_id, instance, start=start, limit=_PAGE_LINES).lines:
            start += len(lines)
            for line in lines:
                for metric, pattern in patterns:
                    for match in pattern.finditer(line[:_MAX_LINE]):
                        value = _number(match.group(1))
                        if value is not None:
                            yield MetricPoint(name=metric, value=value, instance=instance)


def _patterns(record: JobRecord, name: str | None) -> Iterator[tuple[str, re.Pattern[str]]]:
    for definition in received(RecordedSpec, record.algorithm_spec).metric_definitions:
        metric = definition.name or ""
        try:
            pattern = re.compile(definition.regex or "")
        except re.error as error:
            _log.warning("a metric definition of job %s is ignored: %s", record.training_job_id, error)
            continue
        if pattern.groups and name in (None, metric):
            yield metric, pattern


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


def usage_of(jobs: DlcJobs, job_id: str, now_s: float) -> Sequence[InstanceUsage]:
    """Returns the last values of the resource usage of instances."""
    values: dict[str, dict[str, float]] = {}
    for metric in _USAGE_METRICS:
        query = JobMetricsQuery(
            metric_type=metric, start_time=wire_time(now_s - _USAGE_OF_LAST_S), time_step=_USAGE_STEP
        )
        for pod in jobs.metrics(job_id, query).pod_metrics:
            measured = [each.value for each in pod.metrics if each.value is not None]
            if pod.pod_id and measured:
                values.setdefault(pod.pod_id, {})[metric] = measured[-1]
    return [InstanceUsage(name, *_in_order(each)) for name, each in sorted(values.items())]


def _in_order(values: Mapping[str, float]) -> tuple[float | None, float | None, float | None, float | None]:
    cpu, memory, gpu, gpu_memory = map(values.get, _USAGE_METRICS)
    return cpu, memory, gpu, gpu_memory
