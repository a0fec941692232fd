"""The SSH server of one job: it ends SSH on this machine and maps it to the streams of a tunnel."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import asyncssh

from pai_sdk._client.ssh.bridge import StreamTunnel
from pai_sdk._client.ssh.forwards import Acceptor, ForwardSession, ReverseListener, connect
from pai_sdk._client.ssh.sessions import JobSession

# aes128-gcm is the fastest of asyncssh by far; the configuration of the client asks for it first.
_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "chacha20-poly1305@openssh.com", "aes256-ctr")
_LOGIN_TIMEOUT_S = 60
_CLOSE_TIMEOUT_S = 3.0
# OpenSSH 9.2, as the owner of a shared connection, may send the end of a killed client only when it is woken next.
_WAKE_INTERVAL_S = 5.0


class JobServer(asyncssh.SSHServer):
    """Answers the requests of one client. There is no login: only the client's own process reaches the socket."""

    def __init__(self, tunnel: StreamTunnel, acceptor: Acceptor, events: ThreadPoolExecutor) -> None:
        self._tunnel = tunnel
        self._acceptor = acceptor
        self._events = events
        self._connection: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        """Stores the connection."""
        self._connection = conn

    def begin_auth(self, username: str) -> bool:
        """Accepts every user without a key or a prompt."""
        return False

    def session_requested(self) -> JobSession:
        """Returns a new session."""
        return JobSession(self._tunnel, self._events)

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> Coroutine[Any, Any, ForwardSession]:
        """Connects to a port in the job, not on this machine."""
        return connect(self._tunnel, dest_host, dest_port)

    async def _listen(self, host: str, port: int) -> ReverseListener | bool:
        connection = self._connection
        listener = None if connection is None else await self._acceptor.listen(connection, host, port)
        return listener or False

    def server_requested(self, listen_host: str, listen_port: int) -> Coroutine[Any, Any, ReverseListener | bool]:
        """Listens on a port in the job, not on this machine."""
        return self._listen(listen_host, listen_port)

    def unix_connection_requested(self, dest_path: str) -> bool:
        """Refuses sockets of the job's file system."""
        raise asyncssh.ChannelOpenError(
            asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, "pai-sdk forwards TCP ports only, no Unix sockets"
        )


def serve_ssh(sock: socket.socket, tunnel: StreamTunnel, host_key: Path) -> str | None:
    """Serves one SSH connection until the client ends it.

    Args:
        sock: the connected socket of the client.
        tunnel: to an instance of a job; the caller closes it.
        host_key: the file of the server's key.

    Returns:
        Why the tunnel ended, if it ended before the client.
    """
    return asyncio.run(_serve(sock, tunnel, host_key))


async def _serve(sock: socket.socket, tunnel: StreamTunnel, host_key: Path) -> str | None:
    stop = _stop_signal()
    acceptor = Acceptor(tunnel, asyncio.get_running_loop())
    events = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pai-ssh events")
    try:
        connection = await asyncssh.run_server(
            sock,
            config=None,
            server_factory=lambda: JobServer(tunnel, acceptor, events),
            server_host_keys=[str(host_key)],
            encoding=None,
            line_editor=False,
            encryption_algs=_CIPHERS,
            compression_algs=["none"],
            agent_forwarding=False,
            x11_forwarding=False,
            send_server_host_keys=False,
            login_timeout=_LOGIN_TIMEOUT_S,
            keepalive_interval=0,  # a tunnel that is being joined again is a pause, no end
        )
        acceptor.start()
        return await _wait(connection, acceptor, stop)
    except (OSError, asyncssh.Error):  # the client has gone before the login
        return None
    finally:
        acceptor.close()
        events.shutdown(wait=False, cancel_futures=True)


def _stop_signal() -> asyncio.Future[None]:
    """Returns what a signal sets: OpenSSH sends SIGHUP at its end, and the tunnel must be closed first."""
    loop = asyncio.get_running_loop()
    stop = loop.create_future()

    def set_result() -> None:
        if not stop.done():
            stop.set_result(None)

    for name in ("SIGHUP", "SIGTERM"):
        with contextlib.suppress(AttributeError, NotImplementedError, RuntimeError):  # Windows; another thread
            loop.add_signal_handler(getattr(signal, name), set_result)
    return stop


async def _wait(
    connection: asyncssh.SSHServerConnection, acceptor: Acceptor, stop: asyncio.Future[None]
) -> str | None:
    """Waits for the end of the connection or of the tunnel, or a signal; returns why the tunnel ended."""
    closed = asyncio.ensure_future(connection.wait_closed())
    ends: list[asyncio.Future[Any]] = [closed, acceptor.failure, stop]
    while not any(end.done() for end in ends):
        await asyncio.wait(ends, timeout=_WAKE_INTERVAL_S, return_when=asyncio.FIRST_COMPLETED)
        with contextlib.suppress(OSError, asyncssh.Error):
            connection.send_debug("")
    if closed.done() or stop.done():
        connection.abort()
        return None
    reason = acceptor.failure.result()
    connection.disconnect(asyncssh.DISC_CONNECTION_LOST, f"pai-sdk: {reason}")
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(closed, _CLOSE_TIMEOUT_S)
    return reason
