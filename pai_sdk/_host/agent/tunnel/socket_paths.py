"""Unix sockets at paths of any length: the system allows 107 bytes for the path itself. Standard library only."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Yields a short path of a socket, by a descriptor of its folder. Linux only."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def listen(path: Path, *, backlog: int = 64) -> socket.socket:
    """Returns a socket that listens at a path, for this user only; replaces an earlier one."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # The mode of the file that `bind` creates, so that it never has another one.
        os.fchmod(listener.fileno(), 0o600)
        with short_path(path) as short:
            listener.bind(short)
        listener.listen(backlog)
    except BaseException:
        listener.close()
        raise
    return listener


def connect(path: Path, *, timeout_s: float) -> socket.socket:
    """Returns a connection to a socket at a path; raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        with short_path(path) as short:
            connection.connect(short)
        connection.settimeout(None)
    except BaseException:
        connection.close()
        raise
    return connection
