"""Metrics that training jobs report or write into their logs, and metrics of their instances."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from pai_sdk._wire.base import Received
from pai_sdk._wire.pai.record import InstanceMetrics, MetricPoint
from pai_sdk._wire.pai.wire import NullableList, wire_time

__all__ = ["InstanceMetricsList", "LatestMetricsList", "MetricsList", "metric_row", "metrics_page"]


class MetricsList(Received):
    """A page of ListTrainingJobMetrics."""

    metrics: NullableList[MetricPoint] = Field(default_factory=list)
    total_count: int | str | None = None


class LatestMetricsList(Received):
    """The response of GetTrainingJobLatestMetrics."""

    metrics: NullableList[MetricPoint] = Field(default_factory=list)


class InstanceMetricsList(Received):
    """The response of ListTrainingJobInstanceMetrics."""

    instance_metrics: NullableList[InstanceMetrics] = Field(default_factory=list)


def metric_row(
    name: str, time_s: float, value: float, *, step: int | None, rank: int, instance: str
) -> dict[str, Any]:
    """Returns a `MetricPoint` as JSON; rank 0 and the empty instance are left out."""
    # No model is built: a page has up to 10,000 points, and a job can report names that are not valid Unicode.
    row: dict[str, Any] = {"Name": name, "Timestamp": wire_time(time_s), "Value": value}
    if step is not None:
        row["Step"] = step
    if rank:
        row["Rank"] = rank
    if instance:
        row["Instance"] = instance
    return row


def metrics_page(rows: list[dict[str, Any]], total: int) -> dict[str, Any]:
    """Returns a `MetricsList` as JSON, from its rows."""
    return {"Metrics": rows, "TotalCount": total}
