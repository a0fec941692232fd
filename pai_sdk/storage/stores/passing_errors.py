"""Which errors of the libraries behind fsspec are worth another attempt. None of these libraries is imported."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterator
from typing import Any

from pai_sdk.errors import PaiError

__all__ = ["OVERLOADED", "may_pass"]

OVERLOADED = frozenset({408, 429, 500, 502, 503, 504})
"""HTTP statuses that a later attempt may not meet."""

_NEVER = (
    FileExistsError,
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
    ssl.SSLCertVerificationError,
)
# s3fs reports SlowDown and ServiceUnavailable as EBUSY.
_PASSING = frozenset(
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
_NAMES = frozenset(
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


def may_pass(error: BaseException) -> bool:
    """True if a later attempt may succeed: a broken connection, a timeout, 429 or 5xx.

    A refused key and a missing file never pass. A status of HTTP, of the error or of its cause, decides before its
    class.

    Example:
        >>> may_pass(ConnectionResetError()), may_pass(PermissionError())
        (True, False)
    """
    chain = list(_with_causes(error))
    if any(isinstance(one, (*_NEVER, PaiError)) or _is_unknown_host(one) for one in chain):
        return False
    status = next((found for one in chain if (found := _status_of(one))), 0)
    if status:
        return status in OVERLOADED
    return any(_is_of_connection(one) for one in chain)


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in seen:
        seen.append(at)
        at = at.__cause__
    return iter(seen)


def _is_unknown_host(error: BaseException) -> bool:
    return isinstance(error, socket.gaierror) and error.errno != socket.EAI_AGAIN


def _status_of(error: BaseException) -> int:
    """The HTTP status of a response: `status` of aiohttp, `code` of gcsfs, `status_code` of azure, botocore's."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        found = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        found = getattr(response, "status_code", None)
    values: list[Any] = [found, *(getattr(error, name, None) for name in ("status_code", "status", "code"))]
    for value in values:
        try:
            status = int(value)
        except (TypeError, ValueError):
            continue
        if 400 <= status < 600:
            return status
    return 0


def _is_of_connection(error: BaseException) -> bool:
    if isinstance(error, OSError) and error.errno in _PASSING:
        return True
    return any(kind.__name__ in _NAMES for kind in type(error).__mro__)
