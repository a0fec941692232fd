"""Appendable objects: content is added to the file first, and becomes visible when the row is updated."""

from __future__ import annotations

import hashlib
import io
import threading
import time
from dataclasses import replace
from typing import Any, BinaryIO, cast

from pai_sdk._data.storage.crc64 import combine_crc64
from pai_sdk._service.oss.blobs import Blob, BlobFolder, BlobWriter
from pai_sdk._service.oss.error_codes import WrongPositionError, oss_error
from pai_sdk._service.oss.index import ObjectIndex, replaced_error
from pai_sdk._service.oss.object_rows import StoredObject
from pai_sdk.errors import StorageError

_LOCKS = 256  # objects with the same hash share a lock, which only delays them


class Appender:
    """Appends to objects, one request at a time for each object."""

    def __init__(self, index: ObjectIndex, blobs: BlobFolder) -> None:
        self._index, self._blobs = index, blobs
        self._locks = [threading.Lock() for _ in range(_LOCKS)]

    def lock(self, bucket: str, key: str) -> threading.Lock:
        """Returns the lock to hold from the read of an object's length until the new length is recorded."""
        return self._locks[hash((bucket, key)) % _LOCKS]

    def find_appendable(self, bucket: str, key: str, position: int) -> StoredObject | None:
        """Returns the object to append to, None if it does not exist yet; raises if `position` is not its end."""
        try:
            info = self._index.find(bucket, key)
        except StorageError as error:
            if error.code != "NoSuchKey":
                raise
            if position != 0:
                raise WrongPositionError(bucket=bucket, key=key, size_bytes=0) from None
            return None
        if info.kind != "Appendable":
            raise oss_error("ObjectNotAppendable", bucket=bucket, key=key)
        if info.size_bytes != position:
            raise WrongPositionError(bucket=bucket, key=key, size_bytes=info.size_bytes)
        return info

    def extend(self, info: StoredObject, writer: BlobWriter) -> StoredObject:
        """Appends what was written to the object; a crash before the row is updated leaves it unchanged."""
        # Not durable: `append` copies it into the blob and forces that to the disk; this file is only
        # temporary.
        addition = writer.finish(durable=False)
        try:
            self._blobs.append(info.blob, info.size_bytes, addition.name)
        except FileNotFoundError as error:
            raise replaced_error(info) from error
        finally:
            self._blobs.remove([addition.name])
        longer = replace(
            info,
            size_bytes=info.size_bytes + addition.size_bytes,
            etag=hashlib.md5(f"{info.etag}{addition.etag}".encode(), usedforsecurity=False).hexdigest().upper(),
            modified_at=time.time(),
            crc64=_longer_crc64(info, addition),
        )
        # After the content: readers see only as many bytes as the row says, so a crash in between is
        # invisible.
        self._index.extend(info, longer)
        return longer


def _longer_crc64(info: StoredObject, addition: Blob) -> int | None:
    if info.crc64 is None or addition.crc64 is None:
        return None
    return combine_crc64(info.crc64, addition.crc64, addition.size_bytes)


class BoundedReader(io.RawIOBase):
    """A reader of a growing file that ends where the object ends."""

    def __init__(self, stream: BinaryIO, size_bytes: int) -> None:
        super().__init__()
        self._stream, self._size_bytes = stream, size_bytes

    @classmethod
    def wrap(cls, stream: BinaryIO, info: StoredObject) -> BinaryIO:
        """Returns a buffered reader of as many bytes as the object has."""
        return cast(BinaryIO, io.BufferedReader(cls(stream, info.size_bytes)))

    def readable(self) -> bool:
        """Returns True."""
        return True

    def seekable(self) -> bool:
        """Returns True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Sets the position; SEEK_END is the end of the object."""
        if whence == io.SEEK_END:
            offset, whence = self._size_bytes + offset, io.SEEK_SET
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        """Returns the position."""
        return self._stream.tell()

    def readinto(self, buffer: Any) -> int:
        """Reads up to the end of the object."""
        view = memoryview(buffer).cast("B")
        chunk = self._stream.read(max(0, min(len(view), self._size_bytes - self._stream.tell())))
        view[: len(chunk)] = chunk
        return len(chunk)

    def close(self) -> None:
        """Closes the file too."""
        self._stream.close()
        super().close()
