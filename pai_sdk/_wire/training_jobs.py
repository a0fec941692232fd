"""Training jobs: create, get, list, changes, labels, errors, output models."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from pai_sdk._wire.base import Received, Sent, Strings
from pai_sdk._wire.pai.record import ErrorInfo, JobRecord, KeyValue, OutputModel
from pai_sdk._wire.pai.spec import Label
from pai_sdk._wire.pai.wire import NullableList

__all__ = [
    "ChangedJobs",
    "ChangesRequest",
    "CreatedJob",
    "JobErrorInfo",
    "JobLabels",
    "JobList",
    "OutputModelList",
    "OutputModelRecord",
    "ProgressFigure",
]


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
