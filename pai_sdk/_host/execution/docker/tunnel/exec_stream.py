"""The stream of a program that the engine runs in a container: its input, and its output by source.

Without docker-py, which loses output that arrives together with the headers of the answer.
"""

from __future__ import annotations

import json
import select
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from pai_sdk._host.execution.docker.engine import Engine

STDOUT, STDERR = 1, 2
_RESPONSE_TIMEOUT_S = 60.0
_MAX_HEAD_BYTES = 1 << 16
_CHUNK_BYTES = 1 << 16
_IDLE_MS = 1000
_FRAME_HEADER = struct.Struct(">BxxxI")


class EngineRefusedError(Exception):
    """The engine has refused a call; `status` is that of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ExecStream:
    """The connection to one program; one thread reads, any thread writes and closes."""

    def __init__(self, connection: socket.socket, received: bytes, *, is_terminal: bool) -> None:
        self._connection = connection
        self._received = received
        self._is_terminal = is_terminal
        self._should_stop: Callable[[], bool] = lambda: False

    @classmethod
    def start(cls, engine: Engine, exec_id: str, settings: Mapping[str, Any]) -> ExecStream:
        """Starts a program that was created, and returns its stream.

        Raises:
            EngineRefusedError: the engine has refused it.
            OSError: the engine does not respond.
        """
        body = json.dumps({"Detach": False, **settings}).encode()
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(_RESPONSE_TIMEOUT_S)
            connection.connect(engine.url.removeprefix("unix://"))
            connection.sendall(
                f"POST /v{engine.client.api.api_version}/exec/{exec_id}/start HTTP/1.1\r\nHost: engine\r\n"
                "Content-Type: application/json\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
                f"Content-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            received = _read_head(connection)
            connection.settimeout(None)
        except BaseException:
            connection.close()
            raise
        return cls(connection, received, is_terminal=bool(settings.get("Tty")))

    def output(self, should_stop: Callable[[], bool] = lambda: False) -> Iterator[tuple[int, bytes]]:
        """Yields the output as it arrives, with its source; ends with it, or when this is closed.

        `should_stop` is called each second without output.
        """
        self._should_stop = should_stop
        if self._is_terminal:
            while chunk := self._receive(_CHUNK_BYTES):
                yield STDOUT, chunk
            return
        while header := self._receive_exactly(_FRAME_HEADER.size):
            source, size = _FRAME_HEADER.unpack(header)
            while size:
                chunk = self._receive(min(size, _CHUNK_BYTES))
                if not chunk:
                    return
                size -= len(chunk)
                yield (STDERR if source == STDERR else STDOUT), chunk

    def write(self, data: bytes | memoryview) -> None:
        """Writes to the input of the program; raises `OSError` if it has ended, or this was closed."""
        self._connection.sendall(data)

    def end_input(self) -> None:
        """Closes the input of a program without a terminal; its output continues."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)

    def disconnect(self) -> None:
        """Ends a waiting `output` or `write`; the program continues."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the connection, which no other thread may use any more."""
        self._connection.close()

    def _receive(self, limit: int) -> bytes:
        if self._received:
            chunk, self._received = self._received[:limit], self._received[limit:]
            return chunk
        try:
            while not _wait(self._connection, select.POLLIN):
                if self._should_stop():
                    return b""
            return self._connection.recv(limit)
        except OSError:  # closed
            return b""

    def _receive_exactly(self, count: int) -> bytes:
        """Returns so many bytes; nothing if the stream ends before."""
        data = b""
        while len(data) < count:
            chunk = self._receive(count - len(data))
            if not chunk:
                return b""
            data += chunk
        return data


def _wait(connection: socket.socket, event: int) -> bool:
    """Waits until a connection is ready; returns False after a second."""
    poll = select.poll()
    try:
        poll.register(connection, event)
    except ValueError as error:
        raise ConnectionError("the connection was closed") from error
    return bool(poll.poll(_IDLE_MS))


def _read_head(connection: socket.socket) -> bytes:
    """Reads the head of the answer; returns the bytes of the stream that came with it."""
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = connection.recv(4096)
        if not chunk or len(data) > _MAX_HEAD_BYTES:
            raise ConnectionError("the engine has closed the connection")
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    parts = head.split(None, 2)
    status = int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0
    if status in (101, 200):
        return body
    with suppress(OSError):
        while len(body) < _MAX_HEAD_BYTES and (chunk := _body_chunk(connection, head, body)):
            body += chunk
    try:
        message = str(json.loads(body[body.index(b"{") : body.rindex(b"}") + 1])["message"])
    except (ValueError, KeyError, TypeError):
        message = f"the engine has answered {status}"
    raise EngineRefusedError(status, message)


def _body_chunk(connection: socket.socket, head: bytes, received: bytes) -> bytes:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:") and len(received) >= int(line.partition(b":")[2]):
            return b""
    return b"" if received.endswith(b"0\r\n\r\n") else connection.recv(4096)
