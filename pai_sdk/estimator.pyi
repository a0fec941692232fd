# The names of the module, each with its home; `pai_sdk.base.lazy_names` reads this file, and type checkers do.

from pai_sdk.schemas.compute import ExperimentConfig as ExperimentConfig
from pai_sdk.schemas.compute import InstanceSpec as InstanceSpec
from pai_sdk.schemas.compute import ResourceType as ResourceType
from pai_sdk.schemas.compute import SpotSpec as SpotSpec
from pai_sdk.schemas.compute import SpotStrategy as SpotStrategy
from pai_sdk.schemas.compute import UserVpcConfig as UserVpcConfig
from pai_sdk.schemas.filesystems import CpfsFileSystemInput as CpfsFileSystemInput
from pai_sdk.schemas.filesystems import FileSystemInput as FileSystemInput
from pai_sdk.schemas.filesystems import FileSystemInputBase as FileSystemInputBase
from pai_sdk.schemas.spec import DatasetConfig as DatasetConfig
from pai_sdk.schemas.spec import MetricDefinition as MetricDefinition
from pai_sdk.submit.algorithm_estimator import AlgorithmEstimator as AlgorithmEstimator
from pai_sdk.submit.estimator import Estimator as Estimator
from pai_sdk.submit.submitter import EstimatorBase as EstimatorBase
