"""The hashes of a large file that is sent in parts, computed in one pass."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pai_sdk._data.storage.pool import TransferPool
from pai_sdk.errors import StorageError

# MD5 takes longer than SHA-256. With two threads for it, the reading takes the time of the SHA-256 only.
_MD5_THREADS = 2


@dataclass(frozen=True, slots=True)
class FileHash:
    """The hashes of the first `size_bytes` of a file."""

    size_bytes: int
    sha256: str
    part_bytes: int  # the last part may be shorter
    part_md5s: tuple[bytes, ...]

    def size_of_part(self, number: int) -> int:
        """Returns the size of a part in bytes; the first part has the number 1."""
        return min(self.part_bytes, self.size_bytes - (number - 1) * self.part_bytes)


def hash_file(path: Path, size_bytes: int, part_bytes: int, is_stopped: Callable[[], bool]) -> FileHash:
    """Hashes the first `size_bytes` of a file, or all of it if it is shorter; up to three parts are in memory."""
    content = hashlib.sha256()
    md5s: list[Future[bytes]] = []
    # A limit, because a file that still grows would have no end.
    remaining = size_bytes
    with path.open("rb") as stream, TransferPool(_MD5_THREADS) as pool:
        while part := stream.read(min(part_bytes, remaining)):
            if is_stopped():
                raise StorageError("the transfer was stopped")
            if len(md5s) >= _MD5_THREADS:
                md5s[-_MD5_THREADS].result()
            md5s.append(pool.submit(partial(md5_of_part, part)))
            content.update(part)
            remaining -= len(part)
    return FileHash(size_bytes - remaining, content.hexdigest(), part_bytes, tuple(md5.result() for md5 in md5s))


def md5_of_part(content: bytes) -> bytes:
    """Returns the MD5 of a part, as `Content-MD5` has it."""
    return hashlib.md5(content, usedforsecurity=False).digest()
