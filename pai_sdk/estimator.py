"""The estimators, and what they are described with, where users of alipai look for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pai_sdk.schemas.filesystems import CpfsFileSystemInput, FileSystemInput, FileSystemInputBase
from pai_sdk.submit.algorithm_estimator import AlgorithmEstimator
from pai_sdk.submit.estimator import Estimator
from pai_sdk.submit.estimator_base import EstimatorBase

if TYPE_CHECKING:
    from pai_sdk.schemas.compute import (
        ExperimentConfig,
        InstanceSpec,
        ResourceType,
        SpotSpec,
        SpotStrategy,
        UserVpcConfig,
    )
    from pai_sdk.schemas.spec import DatasetConfig, MetricDefinition

__all__ = [
    "AlgorithmEstimator",
    "CpfsFileSystemInput",
    "DatasetConfig",
    "Estimator",
    "EstimatorBase",
    "ExperimentConfig",
    "FileSystemInput",
    "FileSystemInputBase",
    "InstanceSpec",
    "MetricDefinition",
    "ResourceType",
    "SpotSpec",
    "SpotStrategy",
    "UserVpcConfig",
]


def __getattr__(name: str) -> Any:
    # These need pydantic; an estimator needs it when it makes a plan.
    if name in __all__:
        from pai_sdk import job

        return getattr(job, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
