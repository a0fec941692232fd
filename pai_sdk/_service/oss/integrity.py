"""Compares content that is read with what was stored: its size, and its CRC-64 or, without one, its MD5."""

from __future__ import annotations

import hashlib

from pai_sdk._data.storage.crc64 import crc64_of
from pai_sdk._service.oss.error_codes import oss_error
from pai_sdk._service.oss.object_rows import StoredObject
from pai_sdk.errors import StorageError

DAMAGED = "ObjectDamaged"
"""The error code for an object whose stored content was changed or lost."""


class IntegrityCheck:
    """Receives an object's content in chunks, and checks at the end whether it is intact."""

    def __init__(self, info: StoredObject) -> None:
        self._info = info
        self._size_bytes = 0
        self._part_sizes = [size for size, count in info.part_sizes for _ in range(count)]
        self._crc64 = 0
        # For objects of releases without CRC-64. The ETag of one upload is the MD5; for parts it combines the MD5
        # of each part, whose sizes the index has. Of an appended object only the size is checked.
        self._has_single_md5 = info.kind == "Normal"
        self._digests: list[bytes] = []
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._part_bytes = 0

    def update(self, chunk: bytes) -> None:
        """Adds the next chunk."""
        self._size_bytes += len(chunk)
        if self._info.crc64 is not None:
            self._crc64 = crc64_of(chunk, self._crc64)
        elif self._has_single_md5:
            self._md5.update(chunk)
        elif self._part_sizes:
            self._update_parts(memoryview(chunk))

    def problem(self) -> str:
        """Returns the problem of the complete content; empty if it is intact."""
        info = self._info
        if self._size_bytes != info.size_bytes:
            return _problem_message(
                info, f"has {self._size_bytes:,} of its {info.size_bytes:,} bytes on the service's disk"
            )
        is_same = self._crc64 == info.crc64 if info.crc64 is not None else self._etag() in (None, info.etag)
        if not is_same:
            return _problem_message(info, "is not what was stored: its content has changed on the service's disk")
        return ""

    def _update_parts(self, view: memoryview) -> None:
        while view and len(self._digests) < len(self._part_sizes):
            size = self._part_sizes[len(self._digests)]
            current, view = view[: size - self._part_bytes], view[size - self._part_bytes :]
            self._md5.update(current)
            self._part_bytes += len(current)
            if self._part_bytes == size:
                self._digests.append(self._md5.digest())
                self._md5 = hashlib.md5(usedforsecurity=False)
                self._part_bytes = 0

    def _etag(self) -> str | None:
        if self._has_single_md5:
            return self._md5.hexdigest().upper()
        if self._part_sizes:
            combined = hashlib.md5(b"".join(self._digests), usedforsecurity=False)
            return f"{combined.hexdigest().upper()}-{len(self._digests)}"
        return None


def content_is_short(info: StoredObject, size_bytes: int) -> StorageError:
    """Returns the error for an object whose stored content has only so many bytes."""
    message = _problem_message(info, f"has {size_bytes:,} of its {info.size_bytes:,} bytes on the service's disk")
    return oss_error(DAMAGED, message, bucket=info.bucket, key=info.key)


def _problem_message(info: StoredObject, problem: str) -> str:
    return f"oss://{info.bucket}/{info.key} {problem}; upload it again."
