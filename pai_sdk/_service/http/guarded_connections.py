"""Limits for connections: their number, the size of a request's head, and how slowly a client may send or read.

`GuardedProtocol` builds on internals of uvicorn. pyproject.toml pins the versions that have them, and
`tests/service/http/test_uvicorn_internals.py` checks them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Protocol, cast

import httptools
from starlette.requests import ClientDisconnect
from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from pai_sdk._service.http.socket_transfers import IncomingBody, OutgoingFile
from pai_sdk._service.oss.oss_request import CONNECTION_EXTENSION, FileSender, Run
from pai_sdk._service.settings import ConnectionLimits

# Unsigned requests are not logged one by one: anybody can send them, and they could fill the disk.
_logger = logging.getLogger(f"{__name__}.wire")
_logger.setLevel(logging.ERROR)

_FLUSH_INTERVAL_S = 0.01
TRANSFERRED_IN, TRANSFERRED_OUT = "transferred_in", "transferred_out"
"""In the state of a request: the bytes of its body, and of that of its response, that threads moved."""

_LINGER_S = 5.0  # how long the rest of a refused body is read: closing at once can lose the response


@dataclass
class _Span:
    """The bytes that were transferred since a point in time."""

    since: float
    transferred_bytes: int = 0


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with limits. uvicorn serves a connection within the limits unchanged."""

    def __init__(self, *args: Any, limits: ConnectionLimits, **options: Any) -> None:
        super().__init__(*args, **options)
        self.logger = _logger
        self._limits = limits
        self._head: _Span | None = None  # while a head is expected or incomplete
        self._body: _Span | None = None  # while a body is incomplete
        self._unread: _Span | None = None  # while the client does not read
        self._closing_since: float | None = None
        self._body_bytes = 0  # of the current body, that the parser has had
        self._skipped_bytes = 0  # of a body, that the parser must not get
        self._incoming: IncomingBody | None = None  # while a thread reads the body
        self._outgoing: OutgoingFile | None = None  # while a thread sends the body of the response

    # ---- received bytes ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        super().connection_made(transport)
        self._head = _Span(time.monotonic())
        if len(self.connections) > self._limits.max_connections and not self._close_oldest_idle():
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "All connections of the service are in use.")

    def data_received(self, data: bytes) -> None:
        if self._body is not None:
            self._body.transferred_bytes += len(data)
        else:
            # Not in on_message_begin: line breaks before a request do not start one, and must not keep a
            # connection open.
            self._head = self._head or _Span(time.monotonic())
            self._head.transferred_bytes += len(data)
        if self._skipped_bytes:
            data = self._skip(data)
            if not data:
                return
        super().data_received(data)
        if self._head is not None and self._head.transferred_bytes > self._limits.head_bytes:
            self._refuse_head()

    def on_headers_complete(self) -> None:
        self._head, self._body = None, _Span(time.monotonic())
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > self._limits.head_bytes:
            self._refuse_head()
            raise ValueError("the head is too large")  # ends the parser
        self._body_bytes = 0
        cast("dict[str, Any]", self.scope)["extensions"] = {CONNECTION_EXTENSION: self}
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._body = None
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        for transfer in (self._incoming, self._outgoing):
            if transfer is not None:
                transfer.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        if self._is_responding():
            # Behind the head of a response, the client would take this one for content.
            self.transport.abort()
        elif not self.transport.is_closing():
            super().send_400_response(msg)

    # ---- large bodies in threads ------------------------------------------------------------------------------

    #   the event loop reads --> take_body() --> a thread reads --> return_body() --> the event loop reads
    #
    # `flow` believes that the connection is read all the time, so that no `receive` resumes the transport while
    # the thread reads. The parser does not see the thread's bytes: a new one continues behind the body.

    def take_body(self, scope: Scope, size_bytes: int) -> IncomingBody | None:
        """Stops reading the request's body, so that a thread can read the rest; None where that is not possible.

        Args:
            scope: of the request, nothing of whose body was received.
            size_bytes: the length of the complete body.
        """
        cycle = self.cycle
        if not self._can_transfer(scope) or not cycle.more_body or cycle.response_started:
            return None
        try:
            connection = self.transport.get_extra_info("socket").dup()
        except OSError:  # too many open files
            return None
        if cycle.waiting_for_100_continue:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            cycle.waiting_for_100_continue = False
        self.transport.pause_reading()
        self.flow.read_paused = False
        self._incoming = IncomingBody(connection, bytes(cycle.body), size_bytes - self._body_bytes)
        cycle.body = bytearray()
        return self._incoming

    def return_body(self, body: IncomingBody) -> None:
        """Continues behind a body. What its thread has not read is skipped."""
        self._incoming = None
        self.cycle.scope["state"][TRANSFERRED_IN] = body.received_bytes
        if self.transport.is_closing():
            return
        if body.is_disconnected or not body.has_finished:
            body.cancel()  # the request was cancelled
            self._disconnect_application()
            self.transport.close()
            return
        self.parser = _new_parser(self)
        self._skipped_bytes = body.remaining_bytes
        if not self._skipped_bytes:
            self.on_message_complete()
        self.transport.resume_reading()

    def _skip(self, data: bytes) -> bytes:
        """Returns what follows the skipped bytes."""
        skipped_bytes = min(len(data), self._skipped_bytes)
        self._skipped_bytes -= skipped_bytes
        if not self._skipped_bytes:
            self.on_message_complete()
        return data[skipped_bytes:]

    def file_sender(self, scope: Scope) -> FileSender | None:
        """Returns a function that sends a file as the body of a response; None where that is not possible."""
        # With the cycle of this request: a pipelined one may become the current one before the response ends.
        return partial(self._send_file, self.cycle) if self._can_transfer(scope) else None

    async def _send_file(
        self, cycle: RequestResponseCycle, file: int, start: int, size_bytes: int, run: Run
    ) -> None:
        # The head of the response is still in the transport's buffer if the client does not read.
        while self.transport.get_write_buffer_size() and not self.transport.is_closing():
            await asyncio.sleep(_FLUSH_INTERVAL_S)
        if self.transport.is_closing():
            cycle.disconnected = True
            return
        connection = self.transport.get_extra_info("socket").dup()
        self._outgoing = outgoing = OutgoingFile(connection, os.dup(file), start, size_bytes)
        try:
            await run(outgoing.send)
            cycle.expected_content_length -= size_bytes
        except ClientDisconnect:
            cycle.disconnected = True
            self.transport.abort()
        finally:
            self._outgoing = None
            cycle.scope["state"][TRANSFERRED_OUT] = size_bytes - outgoing.remaining_bytes
            if not outgoing.has_finished:
                outgoing.cancel()

    def _can_transfer(self, scope: Scope) -> bool:
        """Returns whether the request is the connection's current one, and its bytes are not encrypted."""
        cycle = self.cycle
        return (
            self.scheme == "http"
            and cycle is not None
            and cycle.scope is scope
            and not cycle.disconnected
            and not self.transport.is_closing()
        )

    # ---- slow clients ---------------------------------------------------------------------------------------

    # Called about every second by one timer for all connections, which costs less than one for each.
    def close_if_slow(self, now: float) -> None:
        """Closes the connection if its client keeps it open without using it."""
        if self.transport.is_closing():
            self._abort_if_closing_lasts(now)
        elif self._head is not None and now - self._head.since > self._limits.head_s:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "The request was not received in time.")
        elif self._body is not None and self._is_stalled(self._body, now):
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "The body was received too slowly.")
        elif self._does_not_read(now):
            self.transport.abort()

    def _is_stalled(self, body: _Span, now: float) -> bool:
        is_answered = self.cycle is not None and self.cycle.response_complete
        if is_answered:
            return now - body.since > _LINGER_S
        if self._incoming is not None:
            body.transferred_bytes += self._incoming.new_bytes()
        if self._is_reading_paused():
            self._body = _Span(now)
        elif now - body.since > self._limits.stall_s:
            if body.transferred_bytes < self._limits.min_bytes:
                return True
            self._body = _Span(now)
        return False

    def _is_reading_paused(self) -> bool:
        """Returns whether the service itself does not read the body, for example because its disk is slow."""
        if self._incoming is not None:
            return not self._incoming.is_waiting
        return self.flow.read_paused or (self.cycle is not None and self.cycle.waiting_for_100_continue)

    def _does_not_read(self, now: float) -> bool:
        unsent_bytes = self.transport.get_write_buffer_size()
        if self._outgoing is not None and self._outgoing.is_waiting:
            unsent_bytes += self._outgoing.remaining_bytes
        if not unsent_bytes or self._unread is None or self._unread.transferred_bytes != unsent_bytes:
            self._unread = _Span(now, unsent_bytes) if unsent_bytes else None
            return False
        return now - self._unread.since > 2 * self._limits.stall_s

    def _abort_if_closing_lasts(self, now: float) -> None:
        """Aborts a connection that stays in the closing state."""
        # With TLS, a connection is closed when its client has closed it too, and some clients never do.
        self._closing_since = self._closing_since or now
        if now - self._closing_since > 2 * self._limits.stall_s:
            self.transport.abort()

    def close_for_shutdown(self) -> None:
        """Closes the connection, since the service stops; with a response, unless one is in progress."""
        if self._is_responding() or self.transport.is_closing():  # with TLS, closing waits for the client
            self.transport.abort()
        else:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "The service is stopping. Send the request again.")

    def _close_oldest_idle(self) -> bool:
        """Closes the connection that has waited longest for a head; returns False when all are in use."""
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
        max_bytes = self._limits.head_bytes
        self._refuse(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"The request's head has more than {max_bytes} bytes."
        )

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        """Closes the connection; with a response, unless one is in progress."""
        if self.transport.is_closing():
            return
        if not self._is_responding():
            head = (
                f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: text/plain\r\nretry-after: 1\r\n"
                f"content-length: {len(message)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write((head + message).encode())
        if self.cycle is not None and not self.cycle.response_complete:
            self._disconnect_application()
        self.transport.close()

    def _is_responding(self) -> bool:
        """Returns whether a response is in progress, which may be that of an earlier request than the last."""
        is_last = self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
        return is_last or bool(self.pipeline)

    def _disconnect_application(self) -> None:
        self.cycle.disconnected = True  # the application receives http.disconnect
        self.cycle.message_event.set()


def _new_parser(protocol: HttpToolsProtocol) -> httptools.HttpRequestParser:
    """Returns a parser as uvicorn creates it for a connection."""
    parser = httptools.HttpRequestParser(protocol)
    with suppress(AttributeError):  # httptools before 0.6.3
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def guarded_protocol(limits: ConnectionLimits) -> type[asyncio.Protocol]:
    """Returns the protocol class for uvicorn's configuration."""

    class Limited(GuardedProtocol):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, limits=limits, **options)

    return Limited


class _Guarded(Protocol):
    """A connection with limits: one of HTTP, or a WebSocket."""

    def close_if_slow(self, now: float, /) -> None: ...

    def close_for_shutdown(self) -> None: ...


def close_slow_connections(connections: set[Any]) -> None:
    """Closes those connections that are too slow."""
    now = time.monotonic()
    for connection in list(connections):
        cast("_Guarded", connection).close_if_slow(now)


def close_all_for_shutdown(connections: set[Any]) -> None:
    """Closes all connections after the grace period."""
    for connection in list(connections):
        cast("_Guarded", connection).close_for_shutdown()
