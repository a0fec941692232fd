"""A large file while it is downloaded: ranges arrive in any order, and a later process may continue.

Beside the target `dir/name` it is `dir/.pai-sdk-<hash of the name>.part`. The file `….part.done` records what has
arrived: a first line that names the object, then a line for each range, with its checksum. A power failure may
keep a line and lose the bytes of its range, so each range is checked against its checksum before it is used.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pai_sdk._core.files import OPEN_FILES_CAN_BE_MOVED, append_to, open_file, read_at, take_lock
from pai_sdk._data.storage.crc64 import checksum_of, has_crc64
from pai_sdk._data.storage.leftovers import open_part, resumable_part
from pai_sdk._data.storage.objects import ObjectInfo, mark_executable, publish_file

_CHUNK_BYTES = 1 << 20
_MAX_ATTEMPTS = 3


class PartialFile:
    """Collects the ranges of an object. Use it as a context manager.

    One process at a time writes to it. A second process that downloads to the same target gets its own file,
    which no later process continues.
    """

    def __init__(self, path: Path, info: ObjectInfo, part_bytes: int) -> None:
        self._target = path
        self._info = info
        # With the kind of the checksums: an earlier release recorded CRC-32, without saying so.
        kind = "crc64" if has_crc64() else "crc32"
        self._header = json.dumps([str(info.uri), info.etag, info.size_bytes, part_bytes, kind])
        self._lock = threading.Lock()
        self.path = resumable_part(path)
        self._file = _open_locked(self.path)
        self._is_shared = self._file is not None
        if self._file is None:
            self.path, self._file = open_part(path.parent)
        self._record_path = self.path.with_name(f"{self.path.name}.done")
        try:
            self.recorded = self._read_record() if self._is_shared else {}
        except BaseException:
            # Closing the descriptor also releases the lock.
            self._close()
            raise

    def __enter__(self) -> PartialFile:
        return self

    def __exit__(self, *exc: object) -> None:
        if not self._is_shared:
            self.discard()
        self._close()

    @property
    def file(self) -> int:
        """Returns the descriptor, to write to."""
        assert self._file is not None  # noqa: S101
        return self._file

    def has(self, start: int, end: int) -> bool:
        """Returns True if these bytes arrived earlier, and still have the recorded checksum."""
        if start not in self.recorded:
            return False
        checksum, size_bytes = 0, 0
        for chunk in self.chunks(start, end):
            checksum = checksum_of(chunk, checksum)
            size_bytes += len(chunk)
        return size_bytes == end - start and checksum == self.recorded[start]

    def chunks(self, start: int, end: int) -> Iterator[bytes]:
        """Yields the bytes on disk. On Windows, no other descriptor can read them."""
        while start < end and (chunk := read_at(self.file, min(_CHUNK_BYTES, end - start), start)):
            yield chunk
            start += len(chunk)

    def record(self, start: int, checksum: int) -> None:
        """Records that a range has arrived."""
        if self._is_shared:
            # Several ranges arrive at a time, and `append_to` allows one writer.
            with self._lock:
                append_to(self._record_path, f"{start} {checksum}\n".encode("ascii"))

    def publish(self) -> None:
        """Moves the file to the target."""
        if not OPEN_FILES_CAN_BE_MOVED:
            self._close()
        mark_executable(self.path, self._info)
        publish_file(self.path, self._target)
        # After the move: a process killed in between leaves a record whose checksums match no file.
        self._record_path.unlink(missing_ok=True)

    def discard(self) -> None:
        """Removes the file and its record."""
        if not OPEN_FILES_CAN_BE_MOVED:
            self._close()
        for path in (self.path, self._record_path):
            path.unlink(missing_ok=True)

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _read_record(self) -> dict[int, int]:
        """Returns the recorded ranges, each with its checksum; removes a record of another object."""
        with suppress(OSError, ValueError):
            header, *lines = self._record_path.read_text(encoding="ascii").splitlines()
            if header == self._header:
                # The last line may be cut off; `has` finds a wrong checksum.
                rows = [line.split(" ") for line in lines]
                return {int(row[0]): int(row[1]) for row in rows if len(row) == 2 and all(map(str.isdigit, row))}
        # Ranges of another version of the object must not be mixed with those of this one.
        os.ftruncate(self.file, 0)
        self._record_path.write_text(f"{self._header}\n", encoding="ascii")
        return {}


def _open_locked(path: Path) -> int | None:
    """Opens and locks a file; None when another process has locked it, or locks are not supported."""
    for _ in range(_MAX_ATTEMPTS):
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
        except OSError:
            # The file system has no locks, so no other process can be excluded.
            os.close(file)
            return None
        os.close(file)
    return None
