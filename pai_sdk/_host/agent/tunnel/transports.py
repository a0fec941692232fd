"""Transports carry frames; `SocketTransport` carries them on a stream socket, each with its length in front.

Standard library only.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol, runtime_checkable

from pai_sdk._host.agent.tunnel.frames import MAX_FRAME_BYTES, ProtocolError

_LENGTH = struct.Struct(">I")
_BUFFER_BYTES = 512 * 1024
_MAX_PARTS = 512  # of one sendmsg; the system allows 1,024


def with_length(frame: bytes) -> bytes:
    """Returns a frame as it is sent on a stream socket."""
    return _LENGTH.pack(len(frame)) + frame


class Transport(Protocol):
    """A connection that carries frames. One thread sends, another one receives, any thread may close."""

    def send(self, frame: bytes) -> None:
        """Sends a frame; raises ConnectionError after the end."""
        ...

    def receive(self, timeout_s: float | None) -> bytes:
        """Returns the next frame; raises TimeoutError, or ConnectionError at the end."""
        ...

    def close(self) -> None:
        """Closes the connection; `send` and `receive` of other threads raise ConnectionError then."""
        ...


@runtime_checkable
class BatchTransport(Transport, Protocol):
    """A transport that sends several frames by one call."""

    def send_many(self, frames: Sequence[bytes]) -> None:
        """Sends frames in their order."""
        ...


class SocketTransport:
    """Frames on a connected stream socket, which it owns.

    `_lock` guards the number of threads that use the descriptor: it is closed only after the last of them has
    left, since another file could get its number in the meantime.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(True)
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        self._socket = connection
        self._lock = threading.Lock()
        self._users = 0
        self._is_closed = False
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0

    def send(self, frame: bytes) -> None:
        """Sends a frame; raises ConnectionError after the end."""
        self.send_many((frame,))

    def send_many(self, frames: Sequence[bytes]) -> None:
        """Sends frames in their order."""
        parts: list[bytes | memoryview] = []
        for frame in frames:
            parts += (_LENGTH.pack(len(frame)), frame)
        with self._in_use():
            for start in range(0, len(parts), _MAX_PARTS):
                self._send_all(parts[start : start + _MAX_PARTS])

    def receive(self, timeout_s: float | None) -> bytes:
        """Returns the next frame; raises TimeoutError, or ConnectionError at the end."""
        with self._in_use():
            while True:
                size = self._frame_size()
                available = self._end - self._start - _LENGTH.size
                if size is not None and available >= size:
                    start = self._start + _LENGTH.size
                    self._start = start + size
                    return bytes(self._view[start : self._start])
                self._fill(timeout_s)

    def close(self) -> None:
        """Closes the connection; `send` and `receive` of other threads raise ConnectionError then."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            # Wakes the threads that are in a call of the socket.
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            if not self._users:
                self._socket.close()

    def _frame_size(self) -> int | None:
        if self._end - self._start < _LENGTH.size:
            return None
        size: int = _LENGTH.unpack_from(self._buffer, self._start)[0]
        if not 0 < size <= MAX_FRAME_BYTES:
            raise ProtocolError("not a frame")
        return size

    def _fill(self, timeout_s: float | None) -> None:
        """Receives more bytes into the buffer."""
        if self._start == self._end:
            self._start = self._end = 0
        elif _BUFFER_BYTES - self._end < MAX_FRAME_BYTES:
            remaining = self._end - self._start
            self._view[:remaining] = bytes(self._view[self._start : self._end])
            self._start, self._end = 0, remaining
        try:
            size = self._socket.recv_into(self._view[self._end :], 0, socket.MSG_DONTWAIT)
        except BlockingIOError:
            # A timeout of the socket itself would hold for `send` too.
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            if not poll.poll(None if timeout_s is None else timeout_s * 1000):
                raise TimeoutError("no frame arrived in time") from None
            size = self._socket.recv_into(self._view[self._end :])
        if not size:
            raise ConnectionError("the connection was closed")
        self._end += size

    def _send_all(self, parts: list[bytes | memoryview]) -> None:
        sent = self._socket.sendmsg(parts)
        # Most calls send all. Otherwise the remaining bytes are sent, without a copy.
        while parts:
            for index, part in enumerate(parts):
                if sent < len(part):
                    parts = [memoryview(part)[sent:], *parts[index + 1 :]]
                    break
                sent -= len(part)
            else:
                return
            sent = self._socket.sendmsg(parts)

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        with self._lock:
            if self._is_closed:
                raise ConnectionError("the connection was closed")
            self._users += 1
        try:
            yield
        except OSError as error:
            if isinstance(error, (ConnectionError, TimeoutError)):
                raise
            raise ConnectionError(str(error)) from error
        finally:
            with self._lock:
                self._users -= 1
                if self._is_closed and not self._users:
                    self._socket.close()
