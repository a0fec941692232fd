"""Open files on Linux, macOS and Windows alike: opening for bytes, locks, reading and writing at a place.

A lock belongs to the open file and ends with its process, however that ends.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

__all__ = ["OPEN_FILES_CAN_BE_MOVED", "locked_folder", "open_file", "read_at", "take_lock", "write_at"]

OPEN_FILES_CAN_BE_MOVED = sys.platform != "win32"
"""Whether a file can be renamed and removed while it is open. Windows refuses both."""


def open_file(path: Path, flags: int, mode: int = 0o666) -> int:
    """Open a file for bytes; a link is not followed, and a pipe not waited for.

    Args:
        path: the file.
        flags: as for `os.open`.
        mode: of a file that is made.

    Example:
        >>> os.close(open_file(Path(os.devnull), os.O_RDONLY))
    """
    for name in ("O_BINARY", "O_NOFOLLOW", "O_NONBLOCK"):  # those that the system has
        flags |= getattr(os, name, 0)
    return os.open(path, flags, mode)


def take_lock(file: int, *, waits: bool) -> bool:
    """Lock an open file for its process alone; closing the file ends the lock.

    Args:
        file: the descriptor.
        waits: wait for as long as another process has the lock.

    Returns:
        False when another process has it, or when the file system has no locks.
    """
    import portalocker  # not above: it takes longer to load than all that uses it

    flags = portalocker.LockFlags.EXCLUSIVE
    try:
        portalocker.lock(file, flags if waits else flags | portalocker.LockFlags.NON_BLOCKING)
    except portalocker.LockException:
        return False
    return True


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Let no other process into the block that asks the same. Without locks in the file system, all are let in."""
    if sys.platform == "win32":  # where folders cannot be opened
        file = open_file(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    else:
        file = os.open(folder, os.O_RDONLY)
    try:
        take_lock(file, waits=True)
        yield
    finally:
        os.close(file)


if sys.platform == "win32":
    _one_at_a_time = threading.Lock()  # the place in a file belongs to all that have it open

    def read_at(file: int, size_bytes: int, at: int) -> bytes:
        """Read some bytes of an open file; fewer, or none, at its end."""
        with _one_at_a_time:
            os.lseek(file, at, os.SEEK_SET)
            return os.read(file, size_bytes)

    def write_at(file: int, content: bytes | memoryview, at: int) -> int:
        """Write into an open file, from any thread; returns how much was written."""
        with _one_at_a_time:
            os.lseek(file, at, os.SEEK_SET)
            return os.write(file, content)

else:

    def read_at(file: int, size_bytes: int, at: int) -> bytes:
        """Read some bytes of an open file; fewer, or none, at its end."""
        return os.pread(file, size_bytes, at)

    def write_at(file: int, content: bytes | memoryview, at: int) -> int:
        """Write into an open file, from any thread; returns how much was written."""
        return os.pwrite(file, content, at)
