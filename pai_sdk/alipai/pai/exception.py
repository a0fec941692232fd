"""alipai's exceptions, by the names that its users catch; all errors of pai_sdk are in `pai_sdk.errors`."""

from pai_sdk.alipai.exceptions import DuplicatedMountException, MountPathIsOccupiedException, PredictionException
from pai_sdk.errors import JobFailed as UnexpectedStatusException
from pai_sdk.errors import PaiError as PAIException

__all__ = [
    "DuplicatedMountException",
    "MountPathIsOccupiedException",
    "PAIException",
    "PredictionException",
    "UnexpectedStatusException",
]
