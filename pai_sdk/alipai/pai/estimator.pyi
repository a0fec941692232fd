# The names of the module, each with its home. Read by type checkers and by `pai_sdk._core.names.lazy_names`.

from pai_sdk._client.submit.algorithm_estimator import AlgorithmEstimator as AlgorithmEstimator
from pai_sdk._client.submit.estimator import Estimator as Estimator
from pai_sdk._client.submit.submitter import EstimatorBase as EstimatorBase
from pai_sdk._wire.pai.compute import ExperimentConfig as ExperimentConfig
from pai_sdk._wire.pai.compute import InstanceSpec as InstanceSpec
from pai_sdk._wire.pai.compute import ResourceType as ResourceType
from pai_sdk._wire.pai.compute import SpotSpec as SpotSpec
from pai_sdk._wire.pai.compute import SpotStrategy as SpotStrategy
from pai_sdk._wire.pai.compute import UserVpcConfig as UserVpcConfig
from pai_sdk._wire.pai.filesystems import CpfsFileSystemInput as CpfsFileSystemInput
from pai_sdk._wire.pai.filesystems import FileSystemInput as FileSystemInput
from pai_sdk._wire.pai.filesystems import FileSystemInputBase as FileSystemInputBase
from pai_sdk._wire.pai.spec import DatasetConfig as DatasetConfig
from pai_sdk._wire.pai.spec import MetricDefinition as MetricDefinition
