"""A job, from its description to its result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pai_sdk.job.compute import (
    AssignNodeSpec,
    ComputeResource,
    CredentialConfig,
    ExperimentConfig,
    InstanceSpec,
    SchedulerConfig,
    Settings,
    SpotSpec,
    UserVpcConfig,
)
from pai_sdk.job.record import JobRecord, LogLine
from pai_sdk.job.request import TrainingJobRequest
from pai_sdk.job.spec import (
    AlgorithmSpec,
    Channel,
    CodeDir,
    DatasetConfig,
    HyperParameterDefinition,
    Label,
    MetricDefinition,
    OssLocation,
    UriInput,
    UriOutput,
)
from pai_sdk.job.status import JobStatus

if TYPE_CHECKING:
    from pai_sdk.job.logs import LogStream
    from pai_sdk.job.training_job import TrainingJob

__all__ = [
    "AlgorithmSpec",
    "AssignNodeSpec",
    "Channel",
    "CodeDir",
    "ComputeResource",
    "CredentialConfig",
    "DatasetConfig",
    "ExperimentConfig",
    "HyperParameterDefinition",
    "InstanceSpec",
    "JobRecord",
    "JobStatus",
    "Label",
    "LogLine",
    "LogStream",
    "MetricDefinition",
    "OssLocation",
    "SchedulerConfig",
    "Settings",
    "SpotSpec",
    "TrainingJob",
    "TrainingJobRequest",
    "UriInput",
    "UriOutput",
    "UserVpcConfig",
]


def __getattr__(name: str) -> Any:
    # These two stand above the backends in the house; importing them here at once would be a circle.
    if name == "TrainingJob":
        from pai_sdk.job.training_job import TrainingJob

        return TrainingJob
    if name == "LogStream":
        from pai_sdk.job.logs import LogStream

        return LogStream
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
