"""The command that OpenSSH starts to connect (`ProxyCommand`): it serves SSH for one client, then ends."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from pai_sdk._client.ssh import endpoints
from pai_sdk._client.ssh.bridge import StreamTunnel
from pai_sdk._client.ssh.host_key import ensure_host_key
from pai_sdk._client.ssh.server import serve_ssh

_READY = b"1"
_SERVER_VARIABLE = "_PAI_SSH_READY"
"""Has the number of the descriptor on which a second process reports that it serves."""

_PUMP_TIMEOUT_S = 3.0


def run_proxy(
    open_tunnel: Callable[[], StreamTunnel], folder: Path, *, can_fork: bool = sys.platform == "linux"
) -> int:
    """Serves SSH on the standard streams, or on a socket that OpenSSH gets (`ProxyUseFdpass`).

    Args:
        open_tunnel: connects to the job; its errors leave this function before OpenSSH has a connection.
        folder: where the host key is.
        can_fork: macOS cannot use its network libraries in a forked process, so a second process is started.

    Returns:
        The exit code.
    """
    if not endpoints.expects_descriptor():
        endpoints.ignore_terminal_signals()
        return _serve(open_tunnel, folder, lambda server, client: endpoints.pump_standard_streams(client))
    # OpenSSH waits for the end of its command after it has received the socket: another process must serve.
    ready = _ready_descriptor()
    if ready is None:
        reader, ready = os.pipe()
        child = os.fork() if can_fork else _spawn(ready)  # type: ignore[attr-defined, unused-ignore]
        if child != 0:
            os.close(ready)
            return _wait_until_ready(reader)
        os.close(reader)
    endpoints.ignore_terminal_signals()

    def connect(server: socket.socket, client: socket.socket) -> None:
        endpoints.pass_descriptor(client)
        os.write(ready, _READY)
        os.close(ready)

    return _serve(open_tunnel, folder, connect)


def _serve(
    open_tunnel: Callable[[], StreamTunnel],
    folder: Path,
    connect: Callable[[socket.socket, socket.socket], object],
) -> int:
    host_key = ensure_host_key(folder)
    tunnel = open_tunnel()
    try:
        server, client = socket.socketpair()
        threads = connect(server, client)
        failure = serve_ssh(server, tunnel, host_key)
        server.close()
        if isinstance(threads, list):  # the last bytes to the client
            threads[-1].join(_PUMP_TIMEOUT_S)
    finally:
        tunnel.close()
    return 0 if failure is None else 1


def _ready_descriptor() -> int | None:
    number = os.environ.pop(_SERVER_VARIABLE, "")
    return int(number) if number.isdigit() else None


def _spawn(ready: int) -> int:
    """Starts this command again in a process that serves; returns its id."""
    environment = {**os.environ, _SERVER_VARIABLE: str(ready)}
    command = [sys.executable, *sys.orig_argv[1:]]
    return subprocess.Popen(command, env=environment, pass_fds=[ready]).pid


def _wait_until_ready(reader: int) -> int:
    """Waits until the other process serves or has ended; returns the exit code of this one."""
    with contextlib.closing(os.fdopen(reader, "rb")) as pipe:
        return 0 if pipe.read(1) == _READY else 1
