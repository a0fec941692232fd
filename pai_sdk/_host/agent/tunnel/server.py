"""The server of tunnels into the instances of one job. Standard library only.

It runs in a process with threads, below the spawner. Each connection has a thread that reads it, each stream one
that handles it.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pai_sdk._host.agent.tunnel import pumps, socket_paths
from pai_sdk._host.agent.tunnel.link import ResumableLink, SocketTransport
from pai_sdk._host.agent.tunnel.sessions import Sessions
from pai_sdk._host.agent.tunnel.streams import Stream, Tunnel
from pai_sdk.errors import TunnelClosedError, TunnelError, TunnelRefusedError

Handler = Callable[[Stream], None]
"""Serves one stream: confirms it, or raises TunnelRefusedError. The stream is closed when it returns."""

_MAX_CONNECTIONS = 256
_MAX_HANDLERS = 2048
_TICK_S = 1.0
_PAUSE_S = 0.2
_PEER = struct.Struct("3i")  # of SO_PEERCRED: process, user, group


class TunnelServer:
    """Serves the streams of all sessions by handlers.

    Args:
        listener: a listening Unix socket, or the path where one is created.
        handlers: by kind of stream.
        rejoin_s: seconds for which a session without a connection waits.
        idle_s: seconds without a session after which `serve_forever` returns; None for never.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     server = TunnelServer(Path(folder) / "tunnel.sock", {}, idle_s=0)
        ...     server.serve_forever()
    """

    def __init__(
        self,
        listener: socket.socket | Path,
        handlers: Mapping[str, Handler],
        *,
        rejoin_s: float = 120.0,
        idle_s: float | None = None,
    ) -> None:
        self._listener = socket_paths.listen(listener) if isinstance(listener, Path) else listener
        self._handlers = dict(handlers)
        self._idle_s = idle_s
        self._sessions = Sessions(self._start, rejoin_s=rejoin_s)
        self._connections = threading.Semaphore(_MAX_CONNECTIONS)
        self._num_connections = 0
        self._slots = threading.Semaphore(_MAX_HANDLERS)
        self._reason: TunnelClosedError | None = None
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_writer, False)

    def serve_forever(self) -> None:
        """Serves until `close` is called, or nobody has been connected for `idle_s`."""
        used_at = time.monotonic()
        # Processes that share the listener may accept the connection first.
        self._listener.setblocking(False)
        while self._reason is None:
            waiting: list[Any] = [self._listener, self._wake_reader]
            if self._listener in select.select(waiting, [], [], _TICK_S)[0]:
                self._accept()
            self._sessions.expire()
            now = time.monotonic()
            if len(self._sessions) or self._num_connections:
                used_at = now
            elif self._idle_s is not None and now - used_at >= self._idle_s:
                break
        self._sessions.close(self._reason or TunnelClosedError("Closed", "the server of the tunnel has ended"))
        self._listener.close()
        for descriptor in (self._wake_reader, self._wake_writer):
            os.close(descriptor)

    def close(self, reason: TunnelClosedError | None = None) -> None:
        """Makes `serve_forever` end all sessions and return; may be called by a signal handler."""
        self._reason = reason or TunnelClosedError("Closed", "the server of the tunnel was closed")
        with suppress(OSError):
            os.write(self._wake_writer, b"c")

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:
            # No descriptors: the connection waits, and `select` would return at once.
            time.sleep(_PAUSE_S)
            return
        if not _is_permitted(connection) or not self._connections.acquire(blocking=False):
            connection.close()
            return
        self._num_connections += 1
        try:
            pumps.start(self._serve, connection)
        except TunnelRefusedError:
            # Its client tries again.
            connection.close()
            self._release_connection()

    def _serve(self, connection: socket.socket) -> None:
        try:
            self._sessions.serve(SocketTransport(connection))
        finally:
            self._release_connection()

    def _release_connection(self) -> None:
        self._num_connections -= 1
        self._connections.release()

    def _start(self, link: ResumableLink, instance: str) -> None:
        def on_end(error: Exception) -> None:
            self._sessions.remove(link, error)

        tunnel = Tunnel(link, is_server=True, instance=instance, on_end=on_end)
        pumps.start(self._serve_tunnel, tunnel)

    def _serve_tunnel(self, tunnel: Tunnel) -> None:
        with suppress(TunnelClosedError):
            while True:
                stream = tunnel.accept()
                if not self._slots.acquire(blocking=False):
                    stream.refuse("TooManyStreams", f"{_MAX_HANDLERS} streams of this job are open")
                    continue
                try:
                    pumps.start(self._serve_stream, stream)
                except TunnelRefusedError as error:
                    self._slots.release()
                    stream.refuse(error.code, error.message)

    def _serve_stream(self, stream: Stream) -> None:
        try:
            handler = self._handlers.get(stream.kind)
            if handler is None:
                raise TunnelRefusedError(
                    "NotSupported", f"the instance has no streams of the kind {stream.kind!r}"
                )
            handler(stream)
        except TunnelRefusedError as error:
            self._refuse(stream, error)
        except (TunnelClosedError, OSError) as error:
            self._refuse(stream, TunnelRefusedError("InternalError", str(error)))
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            self._refuse(stream, TunnelRefusedError("InternalError", repr(error)))
        finally:
            stream.close()
            self._slots.release()

    @staticmethod
    def _refuse(stream: Stream, error: TunnelError) -> None:
        """Refuses a stream, or reports the error as an event if it was confirmed."""
        with suppress(TunnelClosedError, OSError):
            if stream.is_open:
                stream.send_event({"error": {"code": error.code, "message": error.message}})
            else:
                stream.refuse(error.code, error.message)


def close_on_signal(server: TunnelServer, reason: TunnelClosedError) -> None:
    """Makes SIGTERM close the server. Called by the main thread."""
    signal.signal(signal.SIGTERM, lambda *_: server.close(reason))


def _is_permitted(connection: socket.socket) -> bool:
    """Returns whether the other end is a process of this user or root."""
    content = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    user: int = _PEER.unpack(content)[1]
    return user in (0, os.geteuid())
