"""Disk space that is reserved, so that the end of a job can still be recorded when the disk is full."""

from __future__ import annotations

import logging
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from pai_sdk.errors import ServiceStartError

__all__ = ["Reserve"]

logger = logging.getLogger(__name__)

_SIZE_BYTES = 4 << 20
_TO_BEGIN_BYTES = 2 << 20  # what empty databases take, with their journals
_FREE_BYTES = 16 * _SIZE_BYTES


class Reserve:
    """A file of some megabytes, released when the disk is full, and taken again when there is space.

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
        """Take the space, if there is more than enough."""
        with suppress(OSError):
            disk = os.statvfs(self._path.parent)
            if self._path.exists() or disk.f_bavail * disk.f_frsize < _FREE_BYTES:
                return
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, _SIZE_BYTES)
            finally:
                os.close(descriptor)

    def is_writable(self) -> bool:
        """True if the folder can be written, and its disk has space for small files."""
        disk = os.statvfs(self._path.parent)
        return os.access(self._path.parent, os.W_OK) and disk.f_bavail * disk.f_frsize >= _TO_BEGIN_BYTES

    def require_space(self) -> None:
        """Check that a service can begin on this disk; the reserve is released for it.

        Raises:
            ServiceStartError: the disk is full all the same.
        """
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
        with tempfile.TemporaryFile(dir=self._path.parent) as file:
            os.posix_fallocate(file.fileno(), 0, _TO_BEGIN_BYTES)

    def release(self) -> None:
        """Release the space."""
        with suppress(OSError):
            self._path.unlink()
            logger.error("the disk of %s is full; the last reserve is used up now", self._path.parent)
