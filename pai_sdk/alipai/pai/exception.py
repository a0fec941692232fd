"""alipai's exceptions, by the names that its users catch; all errors of pai_sdk are in `pai_sdk.errors`.

Nothing here raises the exceptions defined below: programs that catch them can be imported.
"""

from __future__ import annotations

from pai_sdk.errors import JobFailed as UnexpectedStatusException
from pai_sdk.errors import PaiError as PAIException

__all__ = [
    "DuplicatedMountException",
    "MountPathIsOccupiedException",
    "PAIException",
    "PredictionException",
    "UnexpectedStatusException",
]


class PredictionException(PAIException):
    """A service for predictions failed; pai_sdk has none."""

    code: str | None = None


class DuplicatedMountException(PAIException):
    """A folder was mounted twice; inputs of pai_sdk are channels with a folder each."""


class MountPathIsOccupiedException(PAIException):
    """A folder to mount to was in use already; inputs of pai_sdk are channels with a folder each."""
