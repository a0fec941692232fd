"""A WebSocket to a service, opened from a node: each binary message is a frame. Standard library only."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pai_sdk._host.agent.tunnel.frames import ProtocolError

_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # of RFC 6455
_BINARY, _CLOSE, _PING, _PONG, _CONTINUATION = 0x2, 0x8, 0x9, 0xA, 0x0
_FINAL, _MASKED = 0x80, 0x80
_MAX_MESSAGE_BYTES = 128 * 1024
_MAX_RESPONSE_BYTES = 16 * 1024
_SWITCHING_PROTOCOLS = "101"
_SILENCE_S = 75.0  # both ends of a tunnel send something every 20 seconds


class WebSocket:
    """An open WebSocket. One thread sends, another one receives, any thread may close.

    `_lock` guards each call of the socket, since a TLS connection is no object for two threads at once; calls that
    wait are made without it. It also guards the number of threads that use the descriptor, which is closed after
    the last of them has left.
    """

    def __init__(self, connection: socket.socket, received: bytes = b"") -> None:
        connection.setblocking(False)
        self._socket = connection
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._buffer = bytearray(received)
        self._users = 0
        self._is_closed = False

    @classmethod
    def open(
        cls, address: tuple[str, int], path: str, *, token: str, fingerprint: str, timeout_s: float
    ) -> WebSocket:
        """Opens a WebSocket that a token admits.

        Args:
            address: host and port.
            path: of the request.
            token: in the header `Authorization`.
            fingerprint: SHA-256 of the server's certificate in hexadecimal; "" for a connection without TLS.
            timeout_s: until it is open.

        Raises:
            OSError: it could not be opened.
        """
        deadline = time.monotonic() + timeout_s
        connection = socket.create_connection(address, timeout=timeout_s)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if fingerprint:
                connection = _with_tls(connection, fingerprint)
            return cls(connection, _upgrade(connection, address, path, token, deadline))
        except BaseException:
            connection.close()
            raise

    def send(self, message: bytes) -> None:
        """Sends a binary message; raises OSError."""
        with self._in_use():
            self._send_frame(_BINARY, message)

    def receive(self) -> bytes:
        """Returns the next binary message; raises ConnectionError at the end, and after a long silence."""
        with self._in_use():
            return self._receive()

    def _receive(self) -> bytes:
        message = bytearray()
        while True:
            code, content = self._read_frame()
            if code & 0x0F == _PING:
                self._send_frame(_PONG, content)
            elif code & 0x0F == _CLOSE:
                with suppress(OSError):
                    self._send_frame(_CLOSE, content[:2])
                raise ConnectionError("the service has closed the WebSocket")
            elif code & 0x0F in (_BINARY, _CONTINUATION):
                message += content
                if len(message) > _MAX_MESSAGE_BYTES:
                    raise ProtocolError("the message is too large")
                if code & _FINAL:
                    return bytes(message)
            elif code & 0x0F != _PONG:
                raise ProtocolError("not a binary message")

    def close(self) -> None:
        """Closes the connection; `send` and `receive` of other threads raise then."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            # Wakes the threads that wait for the socket.
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            if not self._users:
                self._socket.close()

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        with self._lock:
            self._require_open()
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._is_closed and not self._users:
                    self._socket.close()

    def _send_frame(self, code: int, content: bytes) -> None:
        mask = os.urandom(4)
        size = len(content)
        if size < 126:
            header = struct.pack(">BB", _FINAL | code, _MASKED | size)
        elif size < 1 << 16:
            header = struct.pack(">BBH", _FINAL | code, _MASKED | 126, size)
        else:
            header = struct.pack(">BBQ", _FINAL | code, _MASKED | 127, size)
        # Pongs are sent by the thread that receives.
        with self._sending:
            self._send_all(header + mask + masked(content, mask))

    def _send_all(self, content: bytes) -> None:
        remaining = memoryview(content)
        while remaining:
            try:
                with self._lock:
                    self._require_open()
                    sent = self._socket.send(remaining)
                remaining = remaining[sent:]
            except (BlockingIOError, ssl.SSLWantWriteError):
                self._wait(select.POLLOUT)
            except ssl.SSLWantReadError:
                self._wait(select.POLLIN)

    def _read_frame(self) -> tuple[int, bytes]:
        """Returns the first byte of a frame, and its content."""
        code, size = self._read(2)
        if size & _MASKED:
            raise ProtocolError("a service masks nothing")
        if size == 126:
            (size,) = struct.unpack(">H", self._read(2))
        elif size == 127:
            (size,) = struct.unpack(">Q", self._read(8))
        if size > _MAX_MESSAGE_BYTES:
            raise ProtocolError("the message is too large")
        return code, self._read(size)

    def _read(self, size: int) -> bytes:
        while len(self._buffer) < size:
            try:
                with self._lock:
                    self._require_open()
                    content = self._socket.recv(_MAX_MESSAGE_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError):
                self._wait(select.POLLIN)
                continue
            except ssl.SSLWantWriteError:
                self._wait(select.POLLOUT)
                continue
            if not content:
                raise ConnectionError("the connection was closed")
            self._buffer += content
        content = bytes(self._buffer[:size])
        del self._buffer[:size]
        return content

    def _wait(self, event: int) -> None:
        poll = select.poll()
        poll.register(self._socket, event)
        if not poll.poll(_SILENCE_S * 1000):
            raise ConnectionError("the service does not respond")

    def _require_open(self) -> None:
        if self._is_closed:
            raise ConnectionError("the connection was closed")


def masked(content: bytes, mask: bytes) -> bytes:
    """Returns the exclusive or of a message and a mask of 4 bytes, by one operation of large integers."""
    size = len(content)
    repeated = mask * (size // 4 + 1)
    number = int.from_bytes(content, "little") ^ int.from_bytes(repeated[:size], "little")
    return number.to_bytes(size, "little")


def _with_tls(connection: socket.socket, fingerprint: str) -> ssl.SSLSocket:
    """Starts TLS with the server that has this very certificate, whoever has signed it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    secured = context.wrap_socket(connection)
    certificate = secured.getpeercert(binary_form=True) or b""
    if not hmac.compare_digest(hashlib.sha256(certificate).hexdigest(), fingerprint):
        secured.close()
        raise ConnectionError("another server responds there: it has another certificate")
    return secured


def _upgrade(connection: socket.socket, address: tuple[str, int], path: str, token: str, deadline: float) -> bytes:
    """Requests a WebSocket; returns what the server has sent after its response."""
    key = base64.b64encode(os.urandom(16)).decode()
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    lines = (
        f"GET {path} HTTP/1.1",
        f"Host: {host}:{address[1]}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {key}",
        "Sec-WebSocket-Version: 13",
        f"Authorization: Bearer {token}",
        "",
        "",
    )
    connection.sendall("\r\n".join(lines).encode())
    response = bytearray()
    while b"\r\n\r\n" not in response:
        connection.settimeout(max(0.01, deadline - time.monotonic()))
        content = connection.recv(4096)
        if not content or len(response) > _MAX_RESPONSE_BYTES:
            raise ConnectionError("no WebSocket could be opened")
        response += content
    head, _, remaining = bytes(response).partition(b"\r\n\r\n")
    first, *headers = head.decode("latin-1").split("\r\n")
    status = first.split(" ")[1] if " " in first else ""
    if status != _SWITCHING_PROTOCOLS:
        raise ConnectionError(f"HTTP {status[:10]} in place of a WebSocket")
    accepted = base64.b64encode(hashlib.sha1(f"{key}{_GUID}".encode(), usedforsecurity=False).digest()).decode()
    values = dict(line.lower().partition(":")[::2] for line in headers)
    if values.get("sec-websocket-accept", "").strip() != accepted.lower():
        raise ConnectionError("the response is not that of a WebSocket")
    return remaining
