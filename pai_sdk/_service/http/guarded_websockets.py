"""Limits for WebSockets: the size of a message, the memory of unread ones, and how slowly a client may read.

`GuardedWebSocket` builds on internals of uvicorn. pyproject.toml pins the versions that have them, and
`tests/service/http/test_uvicorn_internals.py` checks them.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any, cast

from starlette.types import Message
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.frames import Frame

from pai_sdk._service.settings import ConnectionLimits

MAX_MESSAGE_BYTES = 128 << 10
"""The largest message; a larger one closes the WebSocket with 1009."""

PING_INTERVAL_S = 20.0
"""Between two pings of a WebSocket: proxies close a connection without traffic after 60 seconds."""

PING_TIMEOUT_S = 40.0
"""How long a client may take for its pong."""

# Unsigned requests are not logged one by one: anybody can send them, and they could fill the disk.
_logger = logging.getLogger(f"{__name__}.wire")
_logger.setLevel(logging.ERROR)
# Of each refusal by an HTTP error, which is a complete response.
_logger.addFilter(lambda record: "without completing handshake" not in str(record.msg))

_SLICE_BYTES = 16 << 10
_MAX_FRAGMENTS = 256
_MAX_UNREAD_PONGS = 64
_TOO_BIG = 1009
_BAD_HANDSHAKE = b"The request is not one that opens a WebSocket."


class GuardedWebSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket, with limits. uvicorn serves a client within the limits unchanged."""

    def __init__(self, *args: Any, limits: ConnectionLimits, **options: Any) -> None:
        super().__init__(*args, **options)
        self.logger = _logger
        self._limits = limits
        self._unparsed = bytearray()
        self._unread_pongs = 0
        self._unsent_bytes, self._unsent_since = 0, 0.0  # while the client does not read
        self._closing_since: float | None = None

    # ---- received bytes ----------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._unparsed += data
        self._parse()
        if self._unparsed and not self.read_paused:
            self.read_paused = True  # `receive` resumes
            self.transport.pause_reading()

    def _parse(self) -> None:
        """Parses the received bytes up to the next message; the rest follows when the application has read it."""
        # In slices: as objects in a queue, thousands of tiny messages need a hundred times their bytes.
        while self._unparsed and (self.queue.empty() or self.close_sent):
            if self.transport.is_closing():
                self._unparsed.clear()
                return
            part = bytes(self._unparsed[:_SLICE_BYTES])
            del self._unparsed[:_SLICE_BYTES]
            super().data_received(part)
        if not self.handshake_initiated and self.conn.handshake_exc is not None:
            self._refuse_handshake()

    async def receive(self) -> Any:
        message = await super().receive()
        self._parse()
        return message

    async def send(self, message: Any) -> None:
        await super().send(message)
        if self.close_sent:
            self._parse()  # the client's own close may be behind messages that nobody reads any more

    async def run_asgi(self) -> None:
        # Code that measures, logs and checks requests reads the method, which ASGI does not have for WebSockets.
        cast("Message", self.scope)["method"] = "GET"
        await super().run_asgi()

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) <= _MAX_FRAGMENTS:
            super().handle_cont(event)
        elif not self.transport.is_closing():
            self._fail("The message has too many fragments.")

    def handle_ping(self) -> None:
        self._unread_pongs = 0 if self.writable.is_set() else self._unread_pongs + 1
        if self._unread_pongs > _MAX_UNREAD_PONGS:  # it sends pings and reads none of the answers
            self.transport.abort()
            return
        super().handle_ping()

    def _fail(self, reason: str) -> None:
        if self.conn.close_sent is None:
            with suppress(InvalidState):
                self.conn.fail(_TOO_BIG, reason)
        if self.conn.close_sent is not None:
            self.handle_parser_exception()
        self.transport.close()

    def _refuse_handshake(self) -> None:
        """Responds to a request that the WebSocket's parser refuses without a response."""
        self._unparsed.clear()
        if not self.transport.is_closing():
            head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\n"
            length = f"content-length: {len(_BAD_HANDSHAKE)}\r\n\r\n".encode()
            self.transport.write(head + length + _BAD_HANDSHAKE)
            self.transport.close()

    # ---- slow clients and the end ------------------------------------------------------------------------------

    def close_if_slow(self, now: float) -> None:
        """Closes the connection if its client does not read, or does not close it in turn."""
        if self.transport.is_closing():
            self._closing_since = self._closing_since or now
            if now - self._closing_since > 2 * self._limits.stall_s:
                self.transport.abort()
        unsent_bytes = self.transport.get_write_buffer_size()
        if not unsent_bytes or unsent_bytes != self._unsent_bytes:
            self._unsent_bytes, self._unsent_since = unsent_bytes, now
        elif now - self._unsent_since > 2 * self._limits.stall_s:
            self.transport.abort()

    def shutdown(self) -> None:
        if not self.transport.is_closing():
            with suppress(InvalidState):
                super().shutdown()

    def close_for_shutdown(self) -> None:
        """Closes the connection, whose client knows for the grace period that the service stops."""
        self.transport.abort()


def guarded_websocket(limits: ConnectionLimits) -> type[asyncio.Protocol]:
    """Returns the WebSocket class for uvicorn's configuration."""

    class Limited(GuardedWebSocket):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, limits=limits, **options)

    return Limited
