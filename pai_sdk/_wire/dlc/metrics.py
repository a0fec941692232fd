"""The usage of resources by jobs."""

from __future__ import annotations

from pydantic import Field

from pai_sdk._wire.body import Body, Boolean, Integer, Number, Query, String

__all__ = ["JobMetrics", "JobMetricsQuery", "MetricValue", "MetricsPage", "MetricsQuery", "PodMetric"]


class JobMetricsQuery(Query):
    """The parameters of GetJobMetrics."""

    metric_type: String = None
    start_time: String = None
    end_time: String = None
    time_step: String = None
    token: String = Field(default=None, repr=False)


class MetricValue(Body):
    """A value, and its time in milliseconds."""

    time: Integer = None
    value: Number = None


class PodMetric(Body):
    """The values of one pod."""

    keeps_empty = frozenset({"Metrics", "metrics"})

    pod_id: String = None
    metrics: list[MetricValue] = Field(default_factory=list)


class JobMetrics(Body):
    """The response of GetJobMetrics."""

    keeps_empty = frozenset({"PodMetrics", "pod_metrics"})

    job_id: String = None
    pod_metrics: list[PodMetric] = Field(default_factory=list)
    request_id: String = None


class MetricsQuery(Query):
    """The parameters of GetMetrics, which asks CloudMonitor."""

    dimensions: String = None
    end_time: String = None
    job_id: String = None
    length: String = None
    metric_name: String = None
    namespace: String = None
    next_token: String = None
    period: String = None
    start_time: String = None
    token: String = Field(default=None, repr=False)


class MetricsPage(Body):
    """The response of GetMetrics; the data points are JSON text."""

    code: String = None
    data_points: String = None
    message: String = None
    next_token: String = None
    period: String = None
    request_id: String = None
    success: Boolean = None
