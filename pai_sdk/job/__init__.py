"""A job, from its description to its result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pai_sdk.job.alipai_names import TrainingJobStatus
    from pai_sdk.job.logs import LogStream
    from pai_sdk.job.training_job import TrainingJob
    from pai_sdk.schemas.compute import (
        AssignNodeSpec,
        ComputeResource,
        CredentialConfig,
        ExperimentConfig,
        InstanceSpec,
        ResourceType,
        SchedulerConfig,
        Settings,
        SpotSpec,
        SpotStrategy,
        UserVpcConfig,
    )
    from pai_sdk.schemas.filesystems import CpfsFileSystemInput, FileSystemInput, FileSystemInputBase
    from pai_sdk.schemas.record import JobRecord, LogLine
    from pai_sdk.schemas.request import TrainingJobRequest
    from pai_sdk.schemas.spec import (
        AlgorithmSpec,
        Channel,
        CodeDir,
        DatasetConfig,
        HyperParameter,
        HyperParameterDefinition,
        Label,
        MetricDefinition,
        OssLocation,
        UriInput,
        UriOutput,
    )
    from pai_sdk.schemas.status import JobStatus

__all__ = [
    "AlgorithmSpec",
    "AssignNodeSpec",
    "Channel",
    "CodeDir",
    "ComputeResource",
    "CpfsFileSystemInput",
    "CredentialConfig",
    "DatasetConfig",
    "ExperimentConfig",
    "FileSystemInput",
    "FileSystemInputBase",
    "HyperParameter",
    "HyperParameterDefinition",
    "InstanceSpec",
    "JobRecord",
    "JobStatus",
    "Label",
    "LogLine",
    "LogStream",
    "MetricDefinition",
    "OssLocation",
    "ResourceType",
    "SchedulerConfig",
    "Settings",
    "SpotSpec",
    "SpotStrategy",
    "TrainingJob",
    "TrainingJobRequest",
    "TrainingJobStatus",
    "UriInput",
    "UriOutput",
    "UserVpcConfig",
]


_HOMES = (
    "pai_sdk.schemas.filesystems",
    "pai_sdk.schemas.spec",
    "pai_sdk.schemas.compute",
    "pai_sdk.schemas.status",
    "pai_sdk.schemas.request",
    "pai_sdk.schemas.record",
    "pai_sdk.job.logs",
    "pai_sdk.job.training_job",
    "pai_sdk.job.alipai_names",
)


# Of alipai's, and left out: what each is, and what replaces it.
_LEFT_OUT = {
    "LocalTrainingJob": "local jobs are a TrainingJob like all others: fit() returns it",
    "ModelRecipeSpec": "give the algorithm of a recipe to AlgorithmEstimator(…, algorithm_provider='pai')",
}


def __getattr__(name: str) -> Any:
    # Loaded when first asked for: Estimator and Processor need no pydantic until they make a plan.
    if name in __all__:
        from importlib import import_module

        for home in _HOMES:
            module = import_module(home)
            if hasattr(module, name):
                return getattr(module, name)
    if name in _LEFT_OUT:
        from pai_sdk.base.left_out import left_out

        return left_out(f"{__name__}.{name}", _LEFT_OUT[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
