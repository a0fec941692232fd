"""The estimators, where users of alipai look for them."""

from pai_sdk.schemas.filesystems import CpfsFileSystemInput, FileSystemInput, FileSystemInputBase
from pai_sdk.submit.algorithm_estimator import AlgorithmEstimator
from pai_sdk.submit.estimator import Estimator

__all__ = ["AlgorithmEstimator", "CpfsFileSystemInput", "Estimator", "FileSystemInput", "FileSystemInputBase"]
