"""Large bodies between a client's socket and a file, in a thread: the event loop neither copies nor hashes them.

`GuardedProtocol` creates a transfer with a duplicate of its socket, so that the descriptor stays valid whatever
becomes of the connection. A thread runs it; the event loop reads its progress, and cancels it when the connection
is lost.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from starlette.requests import ClientDisconnect

_BUFFER_BYTES = 1 << 20
# While a client is faster than the disk, a buffer with so much is written without waiting for more.
_ENOUGH_BYTES = 256 << 10
_SEND_BYTES = 8 << 20  # in one call, which lasts until the socket's buffer is full
_POLL_MS = 1000
_NO_SENDFILE = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP})


class _Transfer:
    """Bytes that a thread moves. The thread writes the fields; the event loop reads them and calls `cancel`."""

    def __init__(self, connection: socket.socket, size_bytes: int) -> None:
        self._socket = connection
        self.remaining_bytes = size_bytes
        self.is_waiting = False  # for the client, not for the disk
        self.is_disconnected = False
        # Guards the close of the socket: a closed descriptor may already belong to another connection.
        self._lock = threading.Lock()
        self._has_started = self._is_cancelled = self.has_finished = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """Marks that the thread has started; releases the descriptors at the end."""
        with self._lock:
            self._has_started = True
            if self._is_cancelled:
                raise self._disconnected()
        try:
            yield
        finally:
            with self._lock:
                self._close()
                self.has_finished = True

    def cancel(self) -> None:
        """Ends the transfer and its connection; has no effect after the thread's end."""
        with self._lock:
            self._is_cancelled = True
            if self.has_finished:
                return
            # Wakes the thread, which then closes the socket.
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            if not self._has_started:
                self._close()
                self.has_finished = True

    def _close(self) -> None:
        self._socket.close()

    def _wait(self, event: int) -> None:
        poller = select.poll()
        poller.register(self._socket, event)
        self.is_waiting = True
        poller.poll(_POLL_MS)
        self.is_waiting = False
        if self._is_cancelled:
            raise self._disconnected()

    def _disconnected(self) -> ClientDisconnect:
        self.is_disconnected = True
        return ClientDisconnect()


class IncomingBody(_Transfer):
    """The part of a request's body that has not been read from the socket."""

    def __init__(self, connection: socket.socket, buffered: bytes, size_bytes: int) -> None:
        super().__init__(connection, size_bytes)
        self._buffered = buffered
        self._size_bytes = self._counted_bytes = size_bytes

    @property
    def received_bytes(self) -> int:
        """Returns how much of the body has arrived."""
        return len(self._buffered) + self._size_bytes - self.remaining_bytes

    def new_bytes(self) -> int:
        """Returns how many bytes have arrived since the last call, which the event loop makes."""
        before, self._counted_bytes = self._counted_bytes, self.remaining_bytes
        return before - self._counted_bytes

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Yields the body; a chunk is valid until the next one. Raises `ClientDisconnect` if it ends early."""
        if self._buffered:
            yield self._buffered
        buffer = memoryview(bytearray(min(_BUFFER_BYTES, self.remaining_bytes)))
        while self.remaining_bytes:
            yield buffer[: self._fill(buffer[: self.remaining_bytes])]

    def _fill(self, view: memoryview) -> int:
        size_bytes = 0
        while size_bytes < len(view):
            try:
                received = self._socket.recv_into(view[size_bytes:])
            except BlockingIOError:
                if size_bytes >= _ENOUGH_BYTES:
                    break
                self._wait(select.POLLIN)
                continue
            except OSError as error:
                raise self._disconnected() from error
            if not received:
                raise self._disconnected()
            size_bytes += received
            self.remaining_bytes -= received
        return size_bytes


class OutgoingFile(_Transfer):
    """A range of a file that is sent as the body of a response; it closes the file."""

    def __init__(self, connection: socket.socket, file: int, start: int, size_bytes: int) -> None:
        super().__init__(connection, size_bytes)
        self._file, self._start = file, start

    def send(self) -> None:
        """Sends the range; raises `ClientDisconnect`, or `OSError` if the file cannot be read."""
        with self.running():
            while self.remaining_bytes:
                try:
                    sent = self._send_some()
                except BlockingIOError:
                    self._wait(select.POLLOUT)
                    continue
                except ConnectionError as error:
                    raise self._disconnected() from error
                if not sent:
                    raise OSError(errno.EIO, "a file of the object store is shorter than its record says")
                self._start += sent
                self.remaining_bytes -= sent

    def _close(self) -> None:
        super()._close()
        os.close(self._file)

    def _send_some(self) -> int:
        try:
            size_bytes = min(self.remaining_bytes, _SEND_BYTES)
            return os.sendfile(self._socket.fileno(), self._file, self._start, size_bytes)
        except OSError as error:
            if error.errno not in _NO_SENDFILE:
                raise
        # A file system without sendfile.
        return self._socket.send(os.pread(self._file, min(self.remaining_bytes, _BUFFER_BYTES), self._start))
