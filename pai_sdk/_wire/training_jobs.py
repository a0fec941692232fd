"""Bodies of training jobs, except for the request of a create (`pai.request`) and a job (`pai.record`)."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from pai_sdk._wire.base import Received, Sent, Strings
from pai_sdk._wire.pai.record import ErrorInfo, InstanceMetrics, JobRecord, KeyValue, MetricPoint, OutputModel
from pai_sdk._wire.pai.spec import Label
from pai_sdk._wire.pai.wire import NullableList, wire_time


class CreatedJob(Received):
    """The response of CreateTrainingJob. Only services of this package have notices."""

    training_job_id: str | None = None
    notices: Strings = None


class JobList(Received):
    """A page of ListTrainingJobs."""

    training_jobs: NullableList[JobRecord] = Field(default_factory=list)
    total_count: int | None = None


class ChangesRequest(Sent):
    """The body of ListTrainingJobChanges: job id to the ETag that the client has; the empty string for none."""

    known: dict[str, str]


class ChangedJobs(Received):
    """The response of ListTrainingJobChanges: jobs as GetTrainingJob returns them, and their ETags.

    `missing` has the ids that are those of no job.
    """

    training_jobs: NullableList[JobRecord] = Field(default_factory=list)
    etags: dict[str, str] | None = Field(default=None, alias="ETags")
    missing: NullableList[str] = Field(default_factory=list)


class JobLabels(Sent):
    """The body of UpdateTrainingJobLabels."""

    labels: list[Label]


class ProgressFigure(Received):
    """A number of a job's log: the completed part of its work, or the remaining time in seconds."""

    timestamp: str | None = None
    value: int | float | None = None


class JobErrorInfo(Received):
    """The response of GetTrainingJobErrorInfo; without fields for a job that has not failed."""

    error_info: ErrorInfo | None = None


class OutputModelRecord(OutputModel):
    """A model that a job has left in an output channel."""

    source_type: str | None = None
    source_id: str | None = None
    labels: NullableList[KeyValue] = Field(default_factory=list)
    metrics: dict[str, Any] | None = None


class OutputModelList(Received):
    """The response of ListTrainingJobOutputModels."""

    output_models: NullableList[OutputModelRecord] = Field(default_factory=list)


class LogLines(Received):
    """The response of ListTrainingJobLogs. Only services of this package have the times of the lines."""

    logs: Strings = None
    total_count: Any = Field(default=None, json_schema_extra={"type": "string"})
    line_times: Strings = None


class EventList(Received):
    """The response of ListTrainingJobEvents and ListTrainingJobInstanceEvents."""

    events: NullableList[str] = Field(default_factory=list)
    total_count: int | str | None = None


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
