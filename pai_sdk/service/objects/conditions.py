"""The conditions and ranges a client may put to reading or copying."""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime

from pai_sdk.service.objects.error_codes import fault
from pai_sdk.service.objects.index import StoredObject
from pai_sdk.service.objects.oss_request import OssRequest

__all__ = ["byte_range", "check_conditions", "check_source", "copy_range"]

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})(,.*)?")


def check_conditions(request: OssRequest, info: StoredObject, prefix: str = "") -> bool:
    """Whether the client needs the content; False when it has it already.

    Args:
        request: the request.
        info: the object it is about.
        prefix: what the headers' names begin with: `x-oss-copy-source-` in a copy.

    Raises:
        StorageError: `PreconditionFailed`.
    """
    match, none_match = request.header(f"{prefix}if-match"), request.header(f"{prefix}if-none-match")
    if match and not _names(match, info.etag):
        raise fault("PreconditionFailed")
    before = _time(request.header(f"{prefix}if-unmodified-since"))
    if before is not None and not match and int(info.modified_at) > before:
        raise fault("PreconditionFailed")
    if none_match:
        return not _names(none_match, info.etag)
    since = _time(request.header(f"{prefix}if-modified-since"))
    return since is None or int(info.modified_at) > since


def check_source(request: OssRequest, source: StoredObject) -> None:
    """Check what a client demands of the object that it copies.

    Raises:
        StorageError: `PreconditionFailed`; `NotModified` when the object is still the one that the client knows.
    """
    if not check_conditions(request, source, "x-oss-copy-source-"):
        raise fault("NotModified")


def byte_range(request: OssRequest, size_bytes: int) -> tuple[int, int] | None:
    """First byte and length of what is asked for; None for all of it.

    A range that does not fit is no range at all, as in OSS; a client that sends `x-oss-range-behavior: standard`
    gets what HTTP says instead.

    Raises:
        StorageError: `InvalidRange`, in the standard behaviour only.
    """
    text = request.header("range")
    found = _RANGE.fullmatch(text)
    if not found or (not found[1] and not found[2]):
        return None
    standard = request.header("x-oss-range-behavior") == "standard"
    if found[1]:
        first, last = int(found[1]), int(found[2] or size_bytes - 1)
    else:
        first, last = size_bytes - int(found[2]), size_bytes - 1
        if standard and int(found[2]) > 0:
            first = max(first, 0)
    if standard and found[1] and found[2] and last < first:
        return None  # HTTP: such a range is not even one
    if standard:
        last = min(last, size_bytes - 1)
    if 0 <= first <= last < size_bytes:
        return first, last - first + 1
    if standard:
        raise fault("InvalidRange")
    return None


def copy_range(request: OssRequest, size_bytes: int) -> tuple[int, int]:
    """First byte and length of what `x-oss-copy-source-range` names; all without it.

    Raises:
        StorageError: `InvalidRange`.
    """
    text = request.header("x-oss-copy-source-range")
    if not text:
        return 0, size_bytes
    found = _RANGE.fullmatch(text)
    if not found or not found[1] or found[3]:
        raise fault("InvalidArgument", "x-oss-copy-source-range must be like bytes=0-99.")
    first, last = int(found[1]), int(found[2] or size_bytes - 1)
    if not first <= last < size_bytes:
        raise fault("InvalidRange")
    return first, last - first + 1


def _names(header: str, etag: str) -> bool:
    return any(each.strip() == "*" or each.strip().strip('"').upper() == etag for each in header.split(","))


def _time(text: str) -> int | None:
    """Seconds since 1970; None for no date, or one that cannot be read, which HTTP says to pass over."""
    try:
        return int(parsedate_to_datetime(text).timestamp()) if text else None
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
