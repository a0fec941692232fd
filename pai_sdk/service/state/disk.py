"""Recognises and logs two errors of a disk: it is full, or it cannot be written."""

from __future__ import annotations

import logging
from pathlib import Path

from pai_sdk.service.state.reserve import Reserve

__all__ = ["DiskWatch", "is_disk_full", "is_read_only"]

logger = logging.getLogger(__name__)

_FULL = ("disk is full", "No space left on device", "Disk quota exceeded")
_READ_ONLY = ("readonly database", "Read-only file system")


def is_disk_full(error: BaseException) -> bool:
    """True if an error says that a disk is full."""
    return any(words in str(error) for words in _FULL)


def is_read_only(error: BaseException) -> bool:
    """True if an error says that nothing can be written where it could be before."""
    return any(words in str(error) for words in _READ_ONLY)


class DiskWatch:
    """Logs errors: one line, once, for a disk that cannot be written; the traceback for any other error.

    Args:
        root: the service's data folder; the reserve in it is released when the disk is full.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._reserve = Reserve.of(root)
        self._told: set[str] = set()

    def tell(self, what: str, error: Exception) -> None:
        """Log what could not be done, and why."""
        if is_disk_full(error):
            self._reserve.release()
            text = f"{what}: the disk of {self._root} is full; free some space"
        elif is_read_only(error):
            text = f"{what}: {self._root} cannot be written any more; make it writable"
        else:
            logger.error("%s", what, exc_info=error)
            return
        if text not in self._told:
            logger.error("%s", text)
            self._told.add(text)

    def all_is_well(self) -> None:
        """A write succeeded: take the reserve again, and log the next failure."""
        self._reserve.hold()
        self._told.clear()
