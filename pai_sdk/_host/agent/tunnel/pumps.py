"""Copies bytes between streams and descriptors. Standard library only."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pai_sdk._host.agent.tunnel.frames import MAX_DATA_BYTES
from pai_sdk._host.agent.tunnel.streams import Stream
from pai_sdk.errors import TunnelClosedError, TunnelRefusedError

_F_SETPIPE_SZ = 1031
_PIPE_BYTES = 1 << 20


def start(function: Callable[..., object], *arguments: Any) -> threading.Thread:
    """Starts a thread.

    Raises:
        TunnelRefusedError: the system allows no further one; `code` is `TooManyThreads`.
    """
    thread = threading.Thread(target=function, args=arguments, name=function.__name__, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise TunnelRefusedError(
            "TooManyThreads", f"the limit of processes and threads is reached: {error}"
        ) from error
    return thread


def wait_ready(descriptor: int, event: int, timeout_s: float | None = None) -> None:
    """Waits for an event of `select.poll`; `select` is limited to small descriptors."""
    poll = select.poll()
    poll.register(descriptor, event)
    poll.poll(None if timeout_s is None else timeout_s * 1000)


def open_pipe() -> tuple[int, int]:
    """Returns the reading and the writing end of a pipe with much room, so that both sides wait less often."""
    import fcntl  # Linux only, unlike this module

    reader, writer = os.pipe()
    # A user has a limit for all of its pipes.
    with suppress(OSError):
        fcntl.fcntl(writer, _F_SETPIPE_SZ, _PIPE_BYTES)
    return reader, writer


def copy_out(descriptor: int, stream: Stream, channel: str) -> None:
    """Sends what is read from a descriptor, and closes it at the end or when nobody reads the stream."""
    try:
        # A terminal whose last program has exited raises EIO.
        while data := read(descriptor):
            stream.write(data, channel=channel)
    except (OSError, TunnelClosedError):
        pass
    finally:
        os.close(descriptor)


def read(descriptor: int) -> bytes:
    """Returns the next bytes; waits for them, although the descriptor may not."""
    while True:
        try:
            return os.read(descriptor, MAX_DATA_BYTES)
        except BlockingIOError:
            # Terminals do not block, for the sake of their writers.
            wait_ready(descriptor, select.POLLIN)


def write_all(descriptor: int, data: memoryview) -> None:
    """Writes all bytes to a descriptor."""
    while data:
        data = data[os.write(descriptor, data) :]


def join_socket(stream: Stream, connection: socket.socket) -> None:
    """Copies in both directions until both have ended or one has failed; closes both."""
    has_sent, has_received = threading.Event(), threading.Event()
    receiving = start(_receive, stream, connection, has_sent, has_received)
    try:
        while (message := stream.next_message()) and message[0] != "end":
            if message[0] == "stdout":
                connection.sendall(message[1])
        if message is not None:
            connection.shutdown(socket.SHUT_WR)
            has_sent.set()
            if has_received.is_set():
                stream.close()
            # Until the stream is closed, by the peer or by the other thread.
            while stream.next_message() is not None:
                pass
    except (OSError, TunnelClosedError):
        pass
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    receiving.join()
    stream.close()
    connection.close()


def _receive(
    stream: Stream, connection: socket.socket, has_sent: threading.Event, has_received: threading.Event
) -> None:
    buffer = bytearray(MAX_DATA_BYTES)
    view = memoryview(buffer)
    try:
        while size := connection.recv_into(buffer):
            stream.write(view[:size])
        stream.end()
    except (OSError, TunnelClosedError):
        # Reset by the program, or closed by the peer: the end of one direction is that of both.
        stream.close()
        return
    has_received.set()
    if has_sent.is_set():
        stream.close()
