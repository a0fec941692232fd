"""Which failures of one file mean that the others would fail as well."""

from __future__ import annotations

from pai_sdk.errors import (
    CredentialsError,
    PaiError,
    StorageError,
    UnreachableStorageError,
    UntrustedEndpointError,
)

__all__ = ["is_about_all", "may_be_about_all"]

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
# A key may lack the permission for one object only, so one such refusal says nothing about the others.
_OF_THE_KEY_OR_THE_FILE = frozenset({"AccessDenied", "SignatureDoesNotMatch"})


def is_about_all(error: BaseException) -> bool:
    """Whether every other file would fail for the same reason, at once."""
    if isinstance(error, UnreachableStorageError | UntrustedEndpointError | CredentialsError):
        return True
    return isinstance(error, StorageError) and error.code in _OF_NO_SINGLE_FILE


def may_be_about_all(error: BaseException) -> bool:
    """Whether many such errors in a row are due to the store or the key (no response, 503, 403)."""
    if isinstance(error, PaiError) and error.retryable:
        return True
    return isinstance(error, StorageError) and error.code in _OF_THE_KEY_OR_THE_FILE
