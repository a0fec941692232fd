"""Decides which errors of fsspec's libraries are worth another attempt; imports none of these libraries."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterator
from typing import Any

from pai_sdk.errors import PaiError

OVERLOADED = frozenset({408, 429, 500, 502, 503, 504})
"""HTTP statuses that a later attempt may not meet."""

_PERMANENT_ERRORS = (
    FileExistsError,
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
    ssl.SSLCertVerificationError,
)
# s3fs reports SlowDown and ServiceUnavailable as EBUSY.
_TRANSIENT_ERRNOS = frozenset(
    {
        errno.EAGAIN,
        errno.EBUSY,
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EHOSTUNREACH,
        errno.ENETUNREACH,
        errno.EPIPE,
        errno.ETIMEDOUT,
    }
)
# Bases of the connection errors of aiohttp, asyncio, azure, botocore, http.client, oss2, requests and urllib3.
_TRANSIENT_NAMES = frozenset(
    {
        "ClientConnectionError",
        "ClientPayloadError",
        "ConnectionError",
        "HTTPClientError",
        "IncompleteRead",
        "ProtocolError",
        "RequestError",
        "ServiceRequestError",
        "ServiceResponseError",
        "Timeout",
        "TimeoutError",
        "ChunkedEncodingError",
    }
)


def is_transient_error(error: BaseException) -> bool:
    """Returns True if a later attempt may succeed: after a broken connection, a timeout, 429 or 5xx."""
    # A refused key and a missing file never pass. An HTTP status, of the error or of a cause, is more precise than
    # the class of the error, so it decides first.
    chain = list(_with_causes(error))
    if any(isinstance(each, (*_PERMANENT_ERRORS, PaiError)) for each in chain):
        return False
    if any(isinstance(each, socket.gaierror) and each.errno != socket.EAI_AGAIN for each in chain):
        return False  # an unknown host
    status = next((http_status for each in chain if (http_status := _status_of(each))), 0)
    if status:
        return status in OVERLOADED
    return any(_is_connection_error(each) for each in chain)


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    causes: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in causes:
        causes.append(at)
        at = at.__cause__
    return iter(causes)


def _status_of(error: BaseException) -> int:
    """Returns the HTTP status of an error's response, or 0."""
    # `status` of aiohttp, `code` of gcsfs, `status_code` of azure, a dict of botocore.
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        response_status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        response_status = getattr(response, "status_code", None)
    values: list[Any] = [
        response_status,
        *(getattr(error, name, None) for name in ("status_code", "status", "code")),
    ]
    for value in values:
        try:
            status = int(value)
        except (TypeError, ValueError):
            continue
        if 400 <= status < 600:
            return status
    return 0


def _is_connection_error(error: BaseException) -> bool:
    if isinstance(error, OSError) and error.errno in _TRANSIENT_ERRNOS:
        return True
    return any(kind.__name__ in _TRANSIENT_NAMES for kind in type(error).__mro__)
