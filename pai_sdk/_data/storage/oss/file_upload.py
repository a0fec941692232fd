"""Uploads a large file in parts, which a later process may continue."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pai_sdk._data.storage.file_hash import FileHash
from pai_sdk._data.storage.pool import TransferPool
from pai_sdk._data.storage.progress import FileShare
from pai_sdk._data.storage.unfinished import UnfinishedUpload, can_be_resumed
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.errors import FileChangedError, StorageError

if TYPE_CHECKING:
    from pai_sdk._data.storage.oss.client import OssClient
    from pai_sdk._data.storage.oss.parts import PartInfo

_log = logging.getLogger(__name__)

_FINISHED_CODES = ("NoSuchUpload", "InvalidPart")


class FileUpload:
    """The upload of one file in parallel parts; the object exists when the last step has joined them.

    Parts that arrived earlier, from any process, are not sent again. A second process that sends the same file
    joins the same upload. If it ends the upload first, this process checks the object, or sends it again.
    Each part is sent with the MD5 of the hashed content, so a file that has changed since then has parts that OSS
    refuses, and there is no object of it.
    """

    def __init__(
        self,
        client: OssClient,
        path: Path,
        hashed: FileHash,
        uri: OssUri,
        meta: Mapping[str, str],
        share: FileShare,
    ) -> None:
        self._client = client
        self._path = path
        self._hashed = hashed
        self._uri = uri
        self._share = share
        self._meta = meta
        self._record = UnfinishedUpload(uri, meta, hashed.part_bytes)

    def run(self, pool: TransferPool) -> str:
        """Sends the parts on the threads of the pool; returns the ETag of the object."""
        upload_id, arrived = self._resume() or self._start()
        try:
            return self._send_all(upload_id, arrived, pool)
        except StorageError as error:
            if error.code not in _FINISHED_CODES:
                raise
            # Finished by a process that sent the same file, by a rule of the bucket, or here with a lost
            # response.
            etag = self._etag_of_same() or self._send_again(pool)
            # Dropped after the object exists: other processes that use this upload then find the complete object.
            self._drop(upload_id)
            return etag

    def _send_again(self, pool: TransferPool) -> str:
        self._share.restart()
        try:
            return self._send_all(*self._start(), pool)
        except StorageError as error:
            etag = self._etag_of_same() if error.code in _FINISHED_CODES else ""
            if not etag:
                raise
            return etag

    def _send_all(self, upload_id: str, arrived: Mapping[int, PartInfo], pool: TransferPool) -> str:
        try:
            etags = self._send_parts(upload_id, arrived, pool)
            etag = self._client.parts.complete(self._uri, upload_id, etags)
        except Exception as error:
            is_shared = isinstance(error, StorageError) and error.code in _FINISHED_CODES
            # OSS charges for parts until they are removed; these are of no further use.
            if not is_shared and not can_be_resumed(error):
                self._drop(upload_id)
            raise
        self._record.forget(upload_id)
        return etag

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
            _log.info("%s is uploaded from its beginning: %s", self._uri, error)
            self._drop(upload_id)
            return None
        _log.info("%s: %d parts have arrived earlier", self._uri, len(arrived))
        self._share.advance(sum(part.size_bytes for part in arrived.values()))
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
        hashed = self._hashed
        if info is None or (info.size_bytes, info.sha256) != (hashed.size_bytes, hashed.sha256):
            return ""
        return info.etag

    def _send_parts(self, upload_id: str, arrived: Mapping[int, PartInfo], pool: TransferPool) -> list[str]:
        etags = {number: part.etag for number, part in arrived.items() if self._is_same(part)}
        # `_resume` has counted all parts that arrived; those with other content are sent again.
        self._share.advance(-sum(part.size_bytes for number, part in arrived.items() if number not in etags))
        missing = [n for n in range(1, len(self._hashed.part_md5s) + 1) if n not in etags]
        etags.update(zip(missing, pool.run_all(self._part_uploads(upload_id, missing)), strict=True))
        return [etags[number] for number in sorted(etags)]

    def _is_same(self, part: PartInfo) -> bool:
        if part.number > len(self._hashed.part_md5s):
            return False
        md5 = self._hashed.part_md5s[part.number - 1].hex()
        return part.size_bytes == self._hashed.size_of_part(part.number) and part.etag.lower() == md5

    def _part_uploads(self, upload_id: str, numbers: Iterable[int]) -> Iterator[Callable[[], str]]:
        with self._path.open("rb") as stream:
            for number in numbers:
                stream.seek((number - 1) * self._hashed.part_bytes)
                content = stream.read(self._hashed.size_of_part(number))
                yield partial(self._send_part, upload_id, number, content)

    def _send_part(self, upload_id: str, number: int, content: bytes) -> str:
        md5 = self._hashed.part_md5s[number - 1]
        try:
            etag = self._client.parts.put(self._uri, upload_id, number, content, md5=md5)
        except FileChangedError as error:
            message = f"{self._path} was changed while it was being uploaded; run this again"
            raise FileChangedError(message) from error
        self._share.advance(len(content))
        return etag
