"""Room that is kept for the day the disk is full, so that what has ended can still be said to have ended."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

__all__ = ["Reserve", "is_about_room"]

logger = logging.getLogger(__name__)

_SIZE_BYTES = 4 << 20
_FREE_BYTES = 16 * _SIZE_BYTES
_WORDS = ("disk is full", "No space left on device", "Disk quota exceeded")


class Reserve:
    """A file of some megabytes, given up when nothing else is left, and taken again when there is room.

    Example:
        >>> Reserve.of(Path("/srv/pai")).hold()  # doctest: +SKIP
    """

    @classmethod
    def of(cls, data_dir: Path) -> Reserve:
        """The one of a service's data folder."""
        return cls(data_dir / "reserve")

    def __init__(self, path: Path) -> None:
        self._path = path

    def hold(self) -> None:
        """Take the room, if there is more than enough."""
        with suppress(OSError):
            disk = os.statvfs(self._path.parent)
            if self._path.exists() or disk.f_bavail * disk.f_frsize < _FREE_BYTES:
                return
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, _SIZE_BYTES)
            finally:
                os.close(descriptor)

    def give_up(self) -> None:
        """Let the room be used now."""
        with suppress(OSError):
            self._path.unlink()
            logger.error("the disk of %s is full; the last reserve is used up now", self._path.parent)


def is_about_room(error: BaseException) -> bool:
    """Whether an error says that a disk is full, whoever says so."""
    return any(word in str(error) for word in _WORDS)
