"""Downloads one object to a file, which appears complete and checked, or not at all; a large one in ranges."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pai_sdk._data.storage.crc64 import combine_crc64, has_crc64
from pai_sdk._data.storage.objects import MD5, WRONG_CONTENT, ContentCheck, ObjectInfo, must_accept_file, writing
from pai_sdk._data.storage.partial_file import PartialFile
from pai_sdk._data.storage.pool import TransferPool
from pai_sdk._data.storage.progress import FileShare
from pai_sdk._data.storage.stored_file import chunks_of
from pai_sdk._data.storage.unfinished import can_be_resumed
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.errors import ObjectNotFoundError, StorageError

if TYPE_CHECKING:
    from pai_sdk._data.storage.oss.client import OssClient

# Attempts when the bytes do not have the checksum of the object.
_MAX_FETCHES = 3
# MD5 of a larger file takes longer than a request for its CRC-64.
_MAX_MD5_BYTES = 1 << 20


class FileDownload:
    """The download of one object; with `skip_unchanged`, only if the file has another content."""

    def __init__(
        self,
        client: OssClient,
        entry: ObjectInfo,
        path: Path,
        share: FileShare,
        *,
        skip_unchanged: bool,
    ) -> None:
        self._client = client
        self._entry = entry
        self._path = path
        self._share = share
        self._skip_unchanged = skip_unchanged
        # The version of the object that was fetched.
        self.read = entry

    def in_single_request(self) -> None:
        """Downloads the object in one request."""
        # The target path is checked when the file is moved there, since most files are small.
        if not (self._skip_unchanged and self._is_unchanged()):
            with writing(self._path):
                self.read = self._client.get_file(self._entry.uri, self._path)
        self._share.advance(self._entry.size_bytes)

    def in_parts(self, pool: TransferPool) -> None:
        """Downloads ranges in parallel, except for those that arrived earlier."""
        must_accept_file(self._path)
        if self._skip_unchanged and self._is_unchanged():
            return self._share.advance(self._entry.size_bytes)
        problem: str | None = None
        for _ in range(_MAX_FETCHES):
            with writing(self._path):
                self.read = _head(self._client, self._entry.uri)
                problem = self._fetch_ranges(self.read, pool)
            if problem is None:
                return None
            self._share.restart()
        raise StorageError(
            f"{self._entry.uri}: {problem}, even after {_MAX_FETCHES} downloads", uri=str(self._entry.uri)
        )

    def _fetch_ranges(self, info: ObjectInfo, pool: TransferPool) -> str | None:
        """Fetches the missing ranges; returns the problem of the complete file, or None."""
        part_bytes = self._client.part_sizes.part_bytes
        starts = range(0, info.size_bytes, part_bytes)
        ranges = [(start, min(start + part_bytes, info.size_bytes)) for start in starts]
        with PartialFile(self._path, info, part_bytes) as part:
            self._share.advance(sum(end - start for start, end in ranges if start in part.recorded))
            try:
                fetches = (partial(self._fetch_range, info, part, start, end) for start, end in ranges)
                problem = _problem_of(part, info, ranges, pool.run_all(fetches))
                if problem is None:
                    part.publish()
            except Exception as error:
                if not can_be_resumed(error):
                    part.discard()
                raise
            if problem:
                part.discard()
            return problem

    def _fetch_range(self, info: ObjectInfo, part: PartialFile, start: int, end: int) -> int:
        """Fetches a range, unless it arrived earlier; returns its checksum."""
        if part.has(start, end):
            return part.recorded[start]
        if start in part.recorded:
            self._share.advance(start - end)
        checksum = self._client.get_range(info, start, end, part.file)
        part.record(start, checksum)
        self._share.advance(end - start)
        return checksum

    def _is_unchanged(self) -> bool:
        """Returns True if the file has the content of the object."""
        # The date proves nothing, so the bytes are hashed.
        try:
            status = self._path.lstat()
            if not stat.S_ISREG(status.st_mode) or status.st_size != self._entry.size_bytes:
                return False
            # The ETag of most small objects is their MD5; any other ETag equals no MD5. The listing has it, so
            # this costs no request.
            is_small = status.st_size <= _MAX_MD5_BYTES and MD5.fullmatch(self._entry.etag) is not None
            if is_small and self._is_right(replace(self._entry, content_md5=self._entry.etag)):
                return True
            return self._is_right(_head(self._client, self._entry.uri))
        except OSError:
            # The file does not exist, or cannot be read.
            return False

    def _is_right(self, info: ObjectInfo) -> bool:
        check = ContentCheck(info)
        # Without a checksum, a file counts as changed.
        if not check.has_checksum:
            return False
        for chunk in chunks_of(self._path):
            check.update(chunk)
        return check.error() is None


def _problem_of(
    part: PartialFile, info: ObjectInfo, ranges: Sequence[tuple[int, int]], checksums: Sequence[int]
) -> str | None:
    """Returns the problem of a file whose ranges have all arrived, or None."""
    if info.content_crc64 is not None and has_crc64():
        # Made while the bytes arrived, so they are not read again.
        crc64 = 0
        for (start, end), checksum in zip(ranges, checksums, strict=True):
            crc64 = combine_crc64(crc64, checksum, end - start)
        return None if crc64 == info.content_crc64 else WRONG_CONTENT
    check = ContentCheck(info)
    for chunk in part.chunks(0, info.size_bytes):
        check.update(chunk)
    return check.error()


def _head(client: OssClient, uri: OssUri) -> ObjectInfo:
    """Returns the full metadata of an object; a listing has neither user metadata nor SHA-256."""
    info = client.head(uri)
    if info is None:
        raise ObjectNotFoundError(f"{uri} was deleted meanwhile", uri=str(uri))
    return info
