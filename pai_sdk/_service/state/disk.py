"""Recognises and logs two errors of a disk: it is full, or it cannot be written.

Some disk space is in reserve, so that the result of a job can still be recorded when the disk is full.
"""

from __future__ import annotations

import logging
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from pai_sdk.errors import ServiceStartError

logger = logging.getLogger(__name__)
_FULL = ("disk is full", "No space left on device", "Disk quota exceeded")
_READ_ONLY = ("readonly database", "Read-only file system")
_RESERVE_BYTES = 4 << 20
_STARTUP_BYTES = 2 << 20  # of empty databases with their journals
_MIN_FREE_BYTES = 16 * _RESERVE_BYTES


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


class Reserve:
    """A file of 4 MiB that is deleted when the disk is full, and created again when there is space."""

    @classmethod
    def of(cls, data_dir: Path) -> Reserve:
        """Returns the reserve in the data folder of a service."""
        return cls(data_dir / "reserve")

    def __init__(self, path: Path) -> None:
        self._path = path

    def allocate(self) -> None:
        """Allocates the space, if much more than that is free."""
        with suppress(OSError):
            disk = os.statvfs(self._path.parent)
            if self._path.exists() or disk.f_bavail * disk.f_frsize < _MIN_FREE_BYTES:
                return
            # Allocated blocks, not a sparse file: only those are free for others after the file is deleted.
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, _RESERVE_BYTES)
            finally:
                os.close(descriptor)

    def is_writable(self) -> bool:
        """Returns True if the folder can be written and its disk has space for small files."""
        disk = os.statvfs(self._path.parent)
        return os.access(self._path.parent, os.W_OK) and disk.f_bavail * disk.f_frsize >= _STARTUP_BYTES

    def require_space(self) -> None:
        """Checks that a service can start on this disk, after a release of the reserve if needed."""
        try:
            self._probe()
        except OSError as error:
            self.release()
            try:
                self._probe()
            except OSError:
                folder = self._path.parent
                raise ServiceStartError(
                    f"the data folder {folder} cannot be used: {error.strerror}; free some space, or choose "
                    "another one"
                ) from error

    def _probe(self) -> None:
        # posix_fallocate() also counts quotas, which statvfs() does not report.
        with tempfile.TemporaryFile(dir=self._path.parent) as file:
            os.posix_fallocate(file.fileno(), 0, _STARTUP_BYTES)

    def release(self) -> None:
        """Deletes the file, which frees the space."""
        with suppress(OSError):
            self._path.unlink()
            logger.error("the disk of %s is full; its reserved space is released now", self._path.parent)
