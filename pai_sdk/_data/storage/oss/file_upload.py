"""Uploads a large file in parts, which a later process may continue."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pai_sdk._data.storage.base import FileMove
from pai_sdk._data.storage.crc64 import checksum_of, has_crc64
from pai_sdk._data.storage.objects import META_SHA256
from pai_sdk._data.storage.oss.file_range import FileRange
from pai_sdk._data.storage.oss.parts import PartInfo, checksum_of_parts
from pai_sdk._data.storage.unfinished import UnfinishedUpload, can_be_resumed
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.errors import FileChangedError, StorageError

if TYPE_CHECKING:
    from pai_sdk._data.storage.oss.client import OssClient

_log = logging.getLogger(__name__)

_FINISHED_CODES = ("NoSuchUpload", "InvalidPart")


class _WithoutCrc64Error(Exception):
    """Raised when the first parts show that the store returns no CRC-64: the upload starts again."""


class FileUpload:
    """The upload of one file in parallel parts; the object exists when the last step has joined them.

    Each part is read once, while it is sent. Parts that arrived earlier, from any process, are compared with the
    file and not sent again. After the last part, what was read must be of one moment (`FileMove.check`); otherwise
    there is no object of it. A second process that sends the same file joins the same upload. If it ends the
    upload first, this process checks the object, or sends it again.

    For a store without CRC-64, the file is hashed first: downloads are checked by its SHA-256 in the metadata.
    """

    def __init__(self, client: OssClient, move: FileMove, file: int, uri: OssUri, meta: Mapping[str, str]) -> None:
        self._client = client
        self._move = move
        self._file = file  # the open descriptor of `move.local`
        assert move.local is not None  # noqa: S101 - `file` is a file of this machine
        self._path = move.local
        self._uri = uri
        self._meta = meta
        self._share = move.share
        self._part_bytes = client.part_sizes.for_upload(move.size_bytes)
        self._expected: int | None = None  # the checksum of a file that was hashed first

    def run(self) -> str:
        """Sends the parts on the threads of the pool; returns the ETag of the object."""
        try:
            return self._run()
        except _WithoutCrc64Error:
            self._share.restart()
            return self._run()

    def _run(self) -> str:
        if not self._client.parts.returns_crc64(self._uri):
            sha256, self._expected = self._move.read_hashes()
            self._meta = {**self._meta, META_SHA256: sha256}
        status = os.fstat(self._file)
        version = f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}"
        self._record = UnfinishedUpload(self._uri, self._meta, self._part_bytes, self._path, version)
        upload_id, arrived = self._resume() or self._start()
        try:
            return self._send_all(upload_id, arrived)
        except StorageError as error:
            if error.code not in _FINISHED_CODES:
                raise
            # Finished by a process that sent the same file, by a rule of the bucket, or here with a lost
            # response.
            etag = self._etag_of_same() or self._send_again()
            # Dropped after the object exists: other processes that use this upload then find the complete object.
            self._drop(upload_id)
            return etag

    def _send_again(self) -> str:
        self._share.restart()
        try:
            return self._send_all(*self._start())
        except StorageError as error:
            etag = self._etag_of_same() if error.code in _FINISHED_CODES else ""
            if not etag:
                raise
            return etag

    def _send_all(self, upload_id: str, arrived: Mapping[int, PartInfo]) -> str:
        try:
            sent = (partial(self._send_part, upload_id, number, arrived.get(number)) for number in self._numbers())
            parts = self._move.pool.run_all(sent)
            checksum = checksum_of_parts(parts)
            if self._expected not in (None, checksum):
                raise FileChangedError(f"{self._path} was changed while it was being uploaded; run this again")
            self._move.check(checksum)
            etag = self._client.parts.complete(self._uri, upload_id, parts)
        except Exception as error:
            is_shared = isinstance(error, StorageError) and error.code in _FINISHED_CODES
            # OSS charges for parts until they are removed; these are of no further use.
            if not is_shared and not can_be_resumed(error):
                self._drop(upload_id)
            raise
        self._record.forget(upload_id)
        return etag

    def _numbers(self) -> range:
        return range(1, -(-self._move.size_bytes // self._part_bytes) + 1)

    def _start(self) -> tuple[str, dict[int, PartInfo]]:
        upload_id = self._client.parts.start(self._uri, meta=self._meta)
        self._record.save(upload_id)
        return upload_id, {}

    def _resume(self) -> tuple[str, dict[int, PartInfo]] | None:
        """Returns the upload that was started earlier, with its parts."""
        upload_id = self._record.find()
        if upload_id is None:
            return None
        try:
            arrived = self._client.parts.list(self._uri, upload_id)
        except StorageError as error:
            if can_be_resumed(error):
                raise
            _log.info("%s is uploaded from the start: %s", self._uri, error)
            self._drop(upload_id)
            return None
        _log.info("%s: %d parts have arrived earlier", self._uri, len(arrived))
        self._share.advance(sum(part.size_bytes for part in arrived.values() if part.number in self._numbers()))
        return upload_id, arrived

    def _drop(self, upload_id: str) -> None:
        self._record.forget(upload_id)
        try:
            self._client.parts.abort(self._uri, upload_id)
        except StorageError as error:
            _log.info("the uploaded parts of %s could not be removed: %s", self._uri, error)

    def _etag_of_same(self) -> str:
        """Returns the ETag of the object if it has this content; else, or without permission, empty."""
        try:
            info = self._client.head(self._uri)
        except StorageError as error:
            if error.code != "AccessDenied":
                raise
            return ""
        if info is None or info.size_bytes != self._move.size_bytes:
            return ""
        if self._expected is not None:
            # Hashed before the upload; the parts were compared with the content that has this hash.
            is_same, checksum = info.sha256 == self._meta[META_SHA256], self._expected
        else:
            # Some parts were not read, as another process has sent them.
            checksum = self._move.read_checksum()
            is_same = has_crc64() and checksum == info.content_crc64
        if not is_same:
            return ""
        self._move.check(checksum)
        return info.etag

    def _send_part(self, upload_id: str, number: int, arrived: PartInfo | None) -> PartInfo:
        start = (number - 1) * self._part_bytes
        size_bytes = min(self._part_bytes, self._move.size_bytes - start)
        content = FileRange(self._file, start, size_bytes, self._path)
        if arrived is not None:
            part = _if_same(arrived, content)
            if part is not None:
                return part
            # `_resume` has counted it.
            self._share.advance(-arrived.size_bytes)
        part = self._client.parts.put(self._uri, upload_id, number, content)
        self._share.advance(size_bytes)
        if META_SHA256 not in self._meta and not self._client.parts.returns_crc64(self._uri):
            raise _WithoutCrc64Error
        return part


def _if_same(arrived: PartInfo, content: FileRange) -> PartInfo | None:
    """Returns a part that arrived earlier with the checksum of the content, if it has this content."""
    if arrived.size_bytes != len(content):
        return None
    checksum, md5 = 0, None if arrived.checksum is not None else hashlib.md5(usedforsecurity=False)
    for chunk in content:
        checksum = checksum_of(chunk, checksum)
        if md5 is not None:
            md5.update(chunk)
    is_same = checksum == arrived.checksum if md5 is None else md5.hexdigest() == arrived.etag.lower()
    return replace(arrived, checksum=checksum) if is_same else None
