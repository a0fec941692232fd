"""Failures of OSS by what may be done about them: asked again, or not even that."""

from __future__ import annotations

from pai_sdk.errors import (
    CredentialsError,
    CredentialsRenewalError,
    StorageError,
    UnreachableStorageError,
    UntrustedEndpointError,
)

__all__ = ["TransientStorageError", "is_about_all", "is_transient", "is_unanswered"]

_OF_NO_SINGLE_FILE = frozenset({"InvalidAccessKeyId", "NoSuchBucket", "RequestTimeTooSkewed", "UserDisable"})


class TransientStorageError(StorageError):
    """A failure that another attempt may mend.

    Attributes:
        retry_after_s: when OSS asked to come back, if it did.
        refused: whether nothing listens at the endpoint.
        strange: whether something answered that is not OSS.
    """

    retry_after_s: float | None = None
    refused = False
    strange = False


def is_transient(error: BaseException) -> bool:
    """Whether another attempt makes sense."""
    return isinstance(error, TransientStorageError | CredentialsRenewalError)


def is_about_all(error: BaseException) -> bool:
    """Whether every other file would fail for the same reason, at once."""
    if isinstance(error, UnreachableStorageError | UntrustedEndpointError | CredentialsError):
        return True
    return isinstance(error, StorageError) and error.code in _OF_NO_SINGLE_FILE


def is_unanswered(error: BaseException) -> bool:
    """Whether it tells of the line or the endpoint, and so of all files and not of one."""
    if isinstance(error, TransientStorageError):
        return not error.status_code
    return isinstance(error, UnreachableStorageError)
