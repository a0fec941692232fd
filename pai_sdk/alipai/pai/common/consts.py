"""alipai's constants, under the path that code written for it imports."""

from __future__ import annotations

import os
from enum import Enum

from pai_sdk._core.config.file import config_path_of

__all__ = [
    "DEFAULT_CONFIG_PATH",
    "INSTANCE_TYPE_LOCAL",
    "INSTANCE_TYPE_LOCAL_GPU",
    "DataSourceType",
    "DataType",
    "DatasetSourceType",
    "DefaultChannelName",
    "FileProperty",
    "FileSystemInputScheme",
    "FrameworkTypes",
    "JobType",
    "ModelFormat",
    "Network",
    "ResourceAccessibility",
    "StoragePathCategory",
]

DEFAULT_CONFIG_PATH = str(config_path_of(os.environ))
INSTANCE_TYPE_LOCAL = "local"
INSTANCE_TYPE_LOCAL_GPU = "local_gpu"


class Network(str, Enum):
    """The hosts of a region that are used; a text too, so that `Session(network=…)` takes it."""

    VPC = "VPC"
    PUBLIC = "PUBLIC"

    def __str__(self) -> str:
        return str(self.value)

    @classmethod
    def from_string(cls, s: str) -> Network:
        """The member of that name, in upper or lower case.

        Raises:
            ValueError: there is none.
        """
        return cls(s.upper())


class JobType:
    """How the instances of a job find each other."""

    TFJob = "TFJob"
    PyTorchJob = "PyTorchJob"
    XGBoostJob = "XGBoostJob"
    MPIJob = "MPIJob"
    SUPPORTED_JOB_TYPEs = (TFJob, PyTorchJob, XGBoostJob, MPIJob)

    @classmethod
    def normalize(cls, job_type: str) -> str:
        """Returns the type in its usual spelling; an unknown one unchanged."""
        return {name.lower(): name for name in cls.SUPPORTED_JOB_TYPEs}.get(job_type.lower(), job_type)


class ResourceAccessibility:
    """Who may see a resource of a workspace."""

    PRIVATE = "PRIVATE"
    PUBLIC = "PUBLIC"


class DataSourceType:
    """Where a data set lies."""

    NAS = "NAS"
    OSS = "OSS"


class FileProperty:
    """The form of a data set."""

    FILE = "FILE"
    DIRECTORY = "DIRECTORY"
    TABULAR = "TABULAR"


class DataType:
    """The content of a data set."""

    COMMON = "COMMON"
    PIC = "PIC"
    TEXT = "TEXT"
    VIDEO = "VIDEO"
    AUDIO = "AUDIO"


class DatasetSourceType:
    """The origin of a data set."""

    USER = "USER"
    ITAG = "ITAG"
    PAI_PUBLIC_DATASET = "PAI_PUBLIC_DATASET"


class ModelFormat:
    """The formats of models."""

    SavedModel = "SavedModel"
    FrozenPb = "FrozenPb"
    KerasH5 = "KerasH5"
    CaffePrototxt = "Caffe"
    ONNX = "ONNX"
    BladeModel = "BladeModel"
    PMML = "PMML"
    TorchScript = "TorchScript"
    TFLite = "TFLite"


class FrameworkTypes:
    """The frameworks of models."""

    PyTorch = "PyTorch"
    TFLite = "TFLite"
    Keras = "Keras"
    Caffe = "Caffe"
    Blade = "Blade"
    Alink = "Alink"
    TensorFlow = "TensorFlow"


class FileSystemInputScheme:
    """The schemes of file systems in URIs."""

    NAS = "nas"
    CPFS = "cpfs"
    BMCPFS = "bmcpfs"


class DefaultChannelName:
    """The outputs that every job of an `Estimator` has."""

    MODEL = "model"
    CHECKPOINT = "checkpoints"
    TENSORBOARD = "tensorboard"


class StoragePathCategory:
    """The folders of `session.get_storage_path_by_category`."""

    InferenceSrc = "inference_src"
    EvaluationSrc = "evaluation_src"
    TrainingSrc = "training_src"
    TrainingJob = "training_job"
    TrainData = "train_data"
    ModelData = "model_data"
    ProcessingJob = "processing_job"
    ProcessingSrc = "processing_src"
    InputData = "input_data"
