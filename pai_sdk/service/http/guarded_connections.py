"""Limits for connections: their number, the size of a request's head, and how slowly a client may send or read.

`GuardedProtocol` builds on internals of uvicorn. pyproject.toml pins the versions that have them, and
`tests/service/http/test_uvicorn_internals.py` checks them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pai_sdk.service.settings import ConnectionLimits

__all__ = ["cut_the_slow", "end_all_for_shutdown", "guarded_protocol"]

# Unsigned requests are not logged one by one: they could fill the disk.
_logger = logging.getLogger(f"{__name__}.wire")
_logger.setLevel(logging.ERROR)

_LINGER_S = 5.0  # how long the rest of a refused body is read and dropped: closing at once can lose the response


@dataclass
class _Span:
    """The bytes that were transferred since a point in time."""

    since: float
    moved_bytes: int = 0


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with limits. A connection within the limits is served by uvicorn unchanged.

    `cut_if_slow` is to be called every second or so: one timer for all connections costs less than one for each.
    """

    def __init__(self, *args: Any, limits: ConnectionLimits, **options: Any) -> None:
        super().__init__(*args, **options)
        self.logger = _logger
        self._limits = limits
        self._head: _Span | None = None  # while a head is awaited or incomplete
        self._body: _Span | None = None  # while a body is incomplete
        self._unread: _Span | None = None  # while the other side does not read
        self._closing_since: float | None = None

    # ---- what comes in --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        super().connection_made(transport)
        self._head = _Span(time.monotonic())
        if len(self.connections) > self._limits.max_connections and not self._close_oldest_idle():
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "All connections of the service are in use.")

    def data_received(self, data: bytes) -> None:
        if self._body is not None:
            self._body.moved_bytes += len(data)
        else:
            # Before on_message_begin: line breaks ahead of a request begin none, and must not keep a connection.
            self._head = self._head or _Span(time.monotonic())
            self._head.moved_bytes += len(data)
        super().data_received(data)
        if self._head is not None and self._head.moved_bytes > self._limits.head_bytes:
            self._refuse_head()

    def on_headers_complete(self) -> None:
        self._head, self._body = None, _Span(time.monotonic())
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > self._limits.head_bytes:
            self._refuse_head()
            raise ValueError("the head is too large")  # ends the parser
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._body = None
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if not self.transport.is_closing():
            super().send_400_response(msg)

    # ---- slow clients ---------------------------------------------------------------------------------------

    def cut_if_slow(self, now: float) -> None:
        """End the connection if its client holds it without using it."""
        if self.transport.is_closing():
            self._abort_if_closing_lasts(now)
        elif self._head is not None and now - self._head.since > self._limits.head_s:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "The request was not received in time.")
        elif self._body is not None and self._is_stalled(self._body, now):
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "The body came too slowly.")
        elif self._does_not_read(now):
            self.transport.abort()

    def _is_stalled(self, body: _Span, now: float) -> bool:
        is_answered = self.cycle is not None and self.cycle.response_complete
        if is_answered:
            return now - body.since > _LINGER_S
        if self.flow.read_paused or (self.cycle is not None and self.cycle.waiting_for_100_continue):
            self._body = _Span(now)  # the service itself has paused reading
        elif now - body.since > self._limits.stall_s:
            if body.moved_bytes < self._limits.min_bytes:
                return True
            self._body = _Span(now)
        return False

    def _does_not_read(self, now: float) -> bool:
        left_bytes = self.transport.get_write_buffer_size()
        if not left_bytes or self._unread is None or self._unread.moved_bytes != left_bytes:
            self._unread = _Span(now, left_bytes) if left_bytes else None
            return False
        return now - self._unread.since > 2 * self._limits.stall_s

    def _abort_if_closing_lasts(self, now: float) -> None:
        """With TLS, a connection stays until its client has closed it too, and some clients never do."""
        self._closing_since = self._closing_since or now
        if now - self._closing_since > 2 * self._limits.stall_s:
            self.transport.abort()

    def end_for_shutdown(self) -> None:
        """End the connection, since the service ends; with a response, unless one is under way."""
        is_responding = self.cycle is not None and self.cycle.response_started
        if is_responding or self.transport.is_closing():  # with TLS, closing waits for the client
            self.transport.abort()
        else:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "The service is stopping. Send the request again.")

    def _close_oldest_idle(self) -> bool:
        """Close the connection that has waited longest for a head; False when all are in use."""
        idle = [
            peer
            for peer in self.connections
            if isinstance(peer, GuardedProtocol) and peer is not self and peer.is_idle
        ]
        if not idle:
            return False
        oldest = min(idle, key=lambda peer: peer._head.since if peer._head is not None else 0.0)
        oldest.transport.abort()
        return True

    @property
    def is_idle(self) -> bool:
        """True while no request is handled or read beyond its head."""
        return self._body is None and (self.cycle is None or self.cycle.response_complete)

    # ---- refusals -------------------------------------------------------------------------------------------

    def _refuse_head(self) -> None:
        most = self._limits.head_bytes
        self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"The request's head has more than {most} bytes.")

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        """End the connection; with a response, unless one is under way."""
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            head = (
                f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: text/plain\r\nretry-after: 1\r\n"
                f"content-length: {len(message)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write((head + message).encode())
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # the application learns that no more will come
            self.cycle.message_event.set()
        self.transport.close()


def guarded_protocol(limits: ConnectionLimits) -> type[asyncio.Protocol]:
    """The protocol, as uvicorn's configuration takes it."""

    class Limited(GuardedProtocol):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, limits=limits, **options)

    return Limited


def cut_the_slow(connections: set[Any]) -> None:
    """End the slow ones of all connections."""
    now = time.monotonic()
    for connection in list(connections):
        cast("GuardedProtocol", connection).cut_if_slow(now)


def end_all_for_shutdown(connections: set[Any]) -> None:
    """End all connections: the service ends, and its grace period is over."""
    for connection in list(connections):
        cast("GuardedProtocol", connection).end_for_shutdown()
