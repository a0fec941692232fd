"""A large file while it is downloaded: ranges arrive in any order, and a later process may continue.

Beside the target `dir/name` it is `dir/.pai-sdk-<hash of the name>.part`. The file `….part.done` records what has
arrived: a first line that names the object, then a line for each range, with its checksum. A power failure may
keep a line and lose the bytes of its range, so each range is checked against its checksum before it is used.
"""

from __future__ import annotations

import json
import os
import threading
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pai_sdk.base.files import OPEN_FILES_CAN_BE_MOVED, append_to, open_file, read_at, take_lock
from pai_sdk.storage.leftovers import open_part, resumable_part
from pai_sdk.storage.objects import ObjectInfo, mark_executable, put_in_place

__all__ = ["PartialFile"]

_CHUNK_BYTES = 1 << 20
_TRIES = 3


class PartialFile:
    """Collects the ranges of an object. Use it as a context manager.

    One process at a time writes to it. A second process that downloads to the same target gets a file of its own,
    which no later process continues.

    Args:
        path: the target.
        info: the object.
        part_bytes: the size of its ranges.
    """

    def __init__(self, path: Path, info: ObjectInfo, part_bytes: int) -> None:
        self._target = path
        self._info = info
        self._header = json.dumps([str(info.uri), info.etag, info.size_bytes, part_bytes])
        self._lock = threading.Lock()
        self.path = resumable_part(path)
        self._file = _open_locked(self.path)
        self._is_shared = self._file is not None
        if self._file is None:
            self.path, self._file = open_part(path.parent)
        self._notes = self.path.with_name(f"{self.path.name}.done")
        try:
            self.noted = self._read_notes() if self._is_shared else {}
        except BaseException:
            self._close()  # and with it the lock
            raise

    def __enter__(self) -> PartialFile:
        return self

    def __exit__(self, *exc: object) -> None:
        if not self._is_shared:
            self.discard()
        self._close()

    @property
    def file(self) -> int:
        """The descriptor, to write to."""
        assert self._file is not None  # noqa: S101
        return self._file

    def has(self, start: int, end: int) -> bool:
        """True if these bytes arrived earlier, and still have their checksum."""
        if start not in self.noted:
            return False
        checksum, size_bytes = 0, 0
        for chunk in self.chunks(start, end):
            checksum = zlib.crc32(chunk, checksum)
            size_bytes += len(chunk)
        return size_bytes == end - start and checksum == self.noted[start]

    def chunks(self, start: int, end: int) -> Iterator[bytes]:
        """The bytes on disk, in pieces. On Windows, no other descriptor can read them."""
        while start < end and (chunk := read_at(self.file, min(_CHUNK_BYTES, end - start), start)):
            yield chunk
            start += len(chunk)

    def note(self, start: int, checksum: int) -> None:
        """Record that a range has arrived.

        Args:
            start: its first byte.
            checksum: the CRC-32 of its bytes.
        """
        if self._is_shared:
            with self._lock:
                append_to(self._notes, f"{start} {checksum}\n".encode("ascii"))

    def publish(self) -> None:
        """Make it the target."""
        if not OPEN_FILES_CAN_BE_MOVED:
            self._close()
        mark_executable(self.path, self._info)
        put_in_place(self.path, self._target)
        self._notes.unlink(missing_ok=True)

    def discard(self) -> None:
        """Remove the file and its notes."""
        if not OPEN_FILES_CAN_BE_MOVED:
            self._close()
        for path in (self.path, self._notes):
            path.unlink(missing_ok=True)

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _read_notes(self) -> dict[int, int]:
        """The recorded ranges, each with its checksum. Notes of another object are removed."""
        with suppress(OSError, ValueError):
            header, *lines = self._notes.read_text(encoding="ascii").splitlines()
            if header == self._header:
                # The last line may be cut off; `has` finds a wrong checksum.
                rows = [line.split(" ") for line in lines]
                return {int(row[0]): int(row[1]) for row in rows if len(row) == 2 and all(map(str.isdigit, row))}
        os.ftruncate(self.file, 0)
        self._notes.write_text(f"{self._header}\n", encoding="ascii")
        return {}


def _open_locked(path: Path) -> int | None:
    """Open and lock a file; None when another process has locked it, or locks are not supported."""
    for _ in range(_TRIES):
        try:
            file = open_file(path, os.O_RDWR | os.O_CREAT)
        except OSError:
            return None
        try:
            if not take_lock(file, waits=False):
                os.close(file)
                return None
            # Before it was locked, another process may have finished and renamed it.
            if os.path.samestat(os.fstat(file), path.lstat()):
                return file
        except FileNotFoundError:
            pass
        except OSError:  # no locks here
            os.close(file)
            return None
        os.close(file)
    return None
