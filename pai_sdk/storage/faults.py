"""Failures of OSS by what may be done about them: asked again, or not even that."""

from __future__ import annotations

from pai_sdk.errors import (
    CredentialsError,
    CredentialsRenewalError,
    StorageError,
    UnreachableStorageError,
    UntrustedEndpointError,
)

__all__ = ["TransientStorageError", "is_about_all", "is_transient", "may_be_about_all"]

_OF_NO_SINGLE_FILE = frozenset(
    {
        "InvalidAccessKeyId",
        "InvalidSecurityToken",
        "NoSuchBucket",
        "RequestTimeTooSkewed",
        "SecurityTokenExpired",
        "UserDisable",
    }
)
# A key may lack the right for one object only. That it is refused again and again is another matter.
_OF_THE_KEY_OR_THE_FILE = frozenset({"AccessDenied", "SignatureDoesNotMatch"})


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


def may_be_about_all(error: BaseException) -> bool:
    """Whether many of them in a row tell of the store or the key, and so of all files: no answer, 503, 403."""
    return is_transient(error) or (isinstance(error, StorageError) and error.code in _OF_THE_KEY_OR_THE_FILE)
