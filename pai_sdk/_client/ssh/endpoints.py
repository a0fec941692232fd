"""How OpenSSH reaches the server: through the standard streams, or by a socket (`ProxyUseFdpass`)."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import sys
import threading

_CHUNK_BYTES = 64 * 1024
_STDIN, _STDOUT, _STDERR = 0, 1, 2


def expects_descriptor() -> bool:
    """Returns whether OpenSSH waits for a socket: its end of standard output is one then, and a pipe otherwise."""
    # Windows has no such sockets; its OpenSSH has no ProxyUseFdpass.
    return sys.platform != "win32" and stat.S_ISSOCK(os.fstat(_STDOUT).st_mode)


def ignore_terminal_signals() -> None:
    """Leaves the terminal's process group: Ctrl-C is for the client, which a ControlMaster outlives."""
    if sys.platform != "win32":
        with contextlib.suppress(OSError):  # the leader of a group
            os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def pass_descriptor(client: socket.socket) -> None:
    """Sends OpenSSH its end of a connection, and releases the streams, so that it does not wait for them."""
    channel = socket.socket(fileno=os.dup(_STDOUT))
    try:
        if sys.platform != "win32":  # see `expects_descriptor`
            socket.send_fds(channel, [b"\0"], [client.fileno()])
    finally:
        channel.close()
        client.close()
    release_streams()


def release_streams() -> None:
    """Points the standard streams to nowhere."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    try:
        for stream in (_STDIN, _STDOUT, _STDERR):
            os.dup2(nowhere, stream)
    finally:
        os.close(nowhere)


def pump_standard_streams(client: socket.socket) -> list[threading.Thread]:
    """Copies between the standard streams and a socket, by a thread for each direction; returns the threads."""
    threads = [
        threading.Thread(target=_copy_input, args=(client,), name="pai-ssh stdin", daemon=True),
        threading.Thread(target=_copy_output, args=(client,), name="pai-ssh stdout", daemon=True),
    ]
    for thread in threads:
        thread.start()
    return threads


def _copy_input(client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(_STDIN, _CHUNK_BYTES):
            client.sendall(data)
    with contextlib.suppress(OSError):  # the server has closed its end
        client.shutdown(socket.SHUT_WR)


def _copy_output(client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := client.recv(_CHUNK_BYTES):
            view = memoryview(data)
            while view:
                view = view[os.write(_STDOUT, view) :]
    # OpenSSH sees the end of the connection by the end of this stream.
    with contextlib.suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)
