"""Parses a request of the OSS protocol: bucket, key and parameters."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias
from urllib.parse import parse_qsl, unquote_to_bytes

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from pai_sdk._service.oss.error_codes import oss_error

_DOMAINS = ("localhost",)
"""Hosts below which the first label is the bucket, as in `bucket.localhost`."""

_MAX_PARAMETERS = 64

CONNECTION_EXTENSION = "pai_sdk.connection"
"""The extension of an ASGI scope with the `Connection` of the request."""


Run: TypeAlias = Callable[[Callable[[], None]], Awaitable[None]]
"""Runs a function in a thread."""

FileSender: TypeAlias = Callable[[int, int, int, Run], Awaitable[None]]
"""Sends the range of a file with this descriptor, start and length, once the response has started."""


class IncomingBody(Protocol):
    """A body that a thread reads, inside of `running`."""

    def running(self) -> AbstractContextManager[None]:
        """Marks the time in which the thread uses the body."""

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Yields chunks, each valid until the next; raises `ClientDisconnect` if the body ends early."""


class Connection(Protocol):
    """What a server offers beyond ASGI: threads receive and send large bodies."""

    def file_sender(self, scope: Scope) -> FileSender | None:
        """Returns a function that sends a file as the body of a response; None where that is not possible."""

    def take_body(self, scope: Scope, size_bytes: int) -> IncomingBody | None:
        """Returns the body of a request, for a thread; None where the event loop has to receive it."""

    def return_body(self, body: Any) -> None:
        """Continues with the next request, once the thread has finished."""


def connection_of(scope: Scope) -> Connection | None:
    """Returns the connection of a request; None under a server without the extension."""
    connection: Connection | None = scope.get("extensions", {}).get(CONNECTION_EXTENSION)
    return connection


@dataclass(frozen=True)
class OssSignedRequest:
    """The signed parts of a request."""

    method: str
    bucket: str  # empty for the service itself
    key: str  # decoded; empty for a bucket
    query: Sequence[tuple[str, str]]  # decoded
    headers: Mapping[str, bytes]  # names in lower case, values unchanged

    def header(self, name: str) -> str:
        """Returns a header decoded as Latin-1; empty if it is missing."""
        return self.headers.get(name, b"").decode("latin-1")

    @property
    def resource(self) -> str:
        """Returns `/bucket/key`."""
        return f"/{self.bucket}/{self.key}" if self.bucket else "/"


@dataclass(frozen=True)
class OssRequest:
    """A request whose body has not been read."""

    signed: OssSignedRequest
    query: Mapping[str, str]
    host: str
    scheme: str  # of the client's URL, `http` or `https`
    receive: Receive
    scope: Scope
    key_id: str = ""  # empty until the signature is verified

    @property
    def method(self) -> str:
        """Returns the HTTP method in upper case."""
        return self.signed.method

    @property
    def bucket(self) -> str:
        """Returns the bucket; empty for the service itself."""
        return self.signed.bucket

    @property
    def key(self) -> str:
        """Returns the key; empty for a bucket."""
        return self.signed.key

    def header(self, name: str) -> str:
        """Returns a header by its lower-case name; empty if missing."""
        value = self.signed.headers.get(name)
        return value.decode("latin-1") if value else ""

    def number(self, name: str, default: int, low: int, high: int) -> int:
        """Returns a numeric parameter, or raises `InvalidArgument` outside of `low` to `high`."""
        text = self.query.get(name, "")
        if not text:
            return default
        if not re.fullmatch("[0-9]{1,18}", text) or not low <= int(text) <= high:
            raise oss_error("InvalidArgument", f"{name} must be a number from {low} to {high}.")
        return int(text)

    @property
    def content_length(self) -> int | None:
        """Returns the announced length of the body; None for a chunked body."""
        text = self.header("content-length")
        if not text:
            return None if self.header("transfer-encoding") else 0
        if not re.fullmatch("[0-9]{1,18}", text):
            raise oss_error("InvalidArgument", "Content-Length is not a number.")
        return int(text)

    async def stream(self) -> AsyncIterator[bytes]:
        """Yields the body as it arrives; raises `ClientDisconnect` if the client disconnected before its end."""
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            if body := message.get("body", b""):
                yield body
            if not message.get("more_body", False):
                return


def read_request(
    scope: Scope, receive: Receive, key_id_of: Callable[[OssSignedRequest], str] = lambda signed: ""
) -> OssRequest:
    """Parses an ASGI request; below `_DOMAINS`, the first label of the host is the bucket.

    `key_id_of` checks the signature and returns the access key id.
    """
    headers: dict[str, bytes] = {}
    for raw_name, value in scope["headers"]:
        name = raw_name.decode("latin-1").lower()
        headers[name] = headers[name] + b"," + value if name in headers else value
    host = headers.get("host", b"").decode("latin-1")
    bucket, key = _address(scope, host)
    try:
        # As in HTML forms, clients encode a space of the query as + or %20.
        query = parse_qsl(
            scope.get("query_string", b"").decode("latin-1"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=_MAX_PARAMETERS,
        )
    except ValueError as error:
        raise oss_error("InvalidArgument", "The query cannot be read.") from error
    signed = OssSignedRequest(scope["method"], bucket, key, query, headers)
    return OssRequest(signed, dict(query), host, scope.get("scheme", "http"), receive, scope, key_id_of(signed))


def is_signed(scope: Scope) -> bool:
    """Returns whether the request has a signature, in its headers or in a presigned URL."""
    query = scope.get("query_string", b"")
    return (
        b"OSSAccessKeyId" in query
        or b"x-oss-signature" in query
        or any(name.lower() == b"authorization" for name, _ in scope["headers"])
    )


def host_of(scope: Scope) -> str:
    """Returns the host in the client's URL."""
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")


def bucket_in_host(host: str) -> str | None:
    """Returns the bucket in a host such as `bucket.localhost:8765`; None if the path names it."""
    name = host.rpartition(":")[0] or host
    return next((name.removesuffix(f".{domain}") for domain in _DOMAINS if name.endswith(f".{domain}")), None)


def _address(scope: Scope, host: str) -> tuple[str, str]:
    # Not scope["path"], where %2F and / are the same: a key may contain either.
    raw = scope.get("raw_path") or scope["path"].encode()
    path = raw.removeprefix(scope.get("root_path", "").encode()).removeprefix(b"/")
    try:
        bucket_name = bucket_in_host(host)
        if bucket_name is not None:
            return bucket_name, unquote_to_bytes(path).decode()
        bucket, _, key = path.partition(b"/")
        return unquote_to_bytes(bucket).decode(), unquote_to_bytes(key).decode()
    except UnicodeDecodeError as error:
        raise oss_error("InvalidObjectName") from error
