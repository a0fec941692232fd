"""A lock on a file, which ends with its holder. Standard library only."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["locked"]


@contextmanager
def locked(path: Path, how: int = fcntl.LOCK_EX) -> Iterator[bool]:
    """Hold a lock; gives False where it is not to be waited for, and somebody else has it.

    Args:
        path: the file; made when missing.
        how: as for `fcntl.flock`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with locked(Path(folder, "lock")) as ours:
        ...         with locked(Path(folder, "lock"), fcntl.LOCK_EX | fcntl.LOCK_NB) as too:
        ...             ours, too
        (True, False)
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, how)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # a process that another thread just forks has a copy of it
        os.close(descriptor)
