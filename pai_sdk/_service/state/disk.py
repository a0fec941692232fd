"""Recognises and logs two errors of a disk: it is full, or it cannot be written."""

from __future__ import annotations

import logging
from pathlib import Path

from pai_sdk._service.state.reserve import Reserve

__all__ = ["DiskWatch", "is_disk_full", "is_read_only"]

logger = logging.getLogger(__name__)

_FULL = ("disk is full", "No space left on device", "Disk quota exceeded")
_READ_ONLY = ("readonly database", "Read-only file system")


def is_disk_full(error: BaseException) -> bool:
    """Returns True if an error reports a full disk."""
    return any(phrase in str(error) for phrase in _FULL)


def is_read_only(error: BaseException) -> bool:
    """Returns True if an error reports a database or a file system that became read-only."""
    return any(phrase in str(error) for phrase in _READ_ONLY)


class DiskWatch:
    """Logs errors: one line, once, for a disk that cannot be written; with a traceback for any other error."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._reserve = Reserve.of(root)
        self._logged: set[str] = set()

    def log_error(self, message: str, error: Exception) -> None:
        """Logs a failed operation and its error."""
        if is_disk_full(error):
            self._reserve.release()
            line = f"{message}: the disk of {self._root} is full; free some space"
        elif is_read_only(error):
            line = f"{message}: {self._root} cannot be written any more; make it writable"
        else:
            logger.error("%s", message, exc_info=error)
            return
        # The scheduler retries every few seconds; a full disk would also be filled by its own log.
        if line not in self._logged:
            logger.error("%s", line)
            self._logged.add(line)

    def record_success(self) -> None:
        """Records a successful write: allocates the reserve again, and lets the next failure be logged."""
        # A successful write does not mean much free space: `allocate` checks it.
        self._reserve.allocate()
        self._logged.clear()
