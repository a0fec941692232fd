"""Uploads a large file in parts, which a later process may continue."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from pai_sdk.errors import FileChangedError, StorageError
from pai_sdk.storage.objects import META_SHA256
from pai_sdk.storage.pool import TransferPool
from pai_sdk.storage.progress import FileShare
from pai_sdk.storage.unfinished import UnfinishedUpload, may_be_resumed
from pai_sdk.storage.uri import OssUri

if TYPE_CHECKING:
    from pai_sdk.storage.oss.client import OssClient
    from pai_sdk.storage.oss.parts import PartInfo

__all__ = ["PART_BYTES", "FileUpload", "sha256_of"]

_log = logging.getLogger(__name__)

PART_BYTES = 8 << 20
_MOST_PARTS = 9_000  # OSS allows 10,000
_ENDED = ("NoSuchUpload", "InvalidPart")


class FileUpload:
    """The upload of one file in parallel parts; the object exists when the last step has joined them.

    Parts that arrived earlier, from any process, are not sent again. A second process that sends the same file
    joins the same upload. If it ends the upload first, this process checks the object, or sends it again.

    Args:
        client: writes the object.
        path: the file.
        size_bytes: how much of it is sent; the file may have grown.
        uri: the object.
        meta: its metadata, with the SHA-256 of the content.
        share: the progress of this file.
    """

    def __init__(
        self,
        client: OssClient,
        path: Path,
        size_bytes: int,
        uri: OssUri,
        meta: Mapping[str, str],
        share: FileShare,
    ) -> None:
        self._client = client
        self._path = path
        self._size_bytes = size_bytes
        self._uri = uri
        self._share = share
        self._meta = meta
        self._note = UnfinishedUpload(uri, meta, _part_bytes(size_bytes))

    def run(self, pool: TransferPool) -> str:
        """Send the parts on the threads of the pool; returns the ETag of the object."""
        upload_id, there = self._resumed() or self._begun()
        try:
            return self._send_all(upload_id, there, pool)
        except StorageError as error:
            if error.code not in _ENDED:
                raise
            # Ended by a process that sent the same file, by a rule of the bucket, or by us with a lost response.
            etag = self._etag_of_same() or self._send_anew(pool)
            # Only now: other processes that still use this upload then find the complete object.
            self._drop(upload_id)
            return etag

    def _send_anew(self, pool: TransferPool) -> str:
        self._share.restart()
        try:
            return self._send_all(*self._begun(), pool)
        except StorageError as error:
            etag = self._etag_of_same() if error.code in _ENDED else ""
            if not etag:
                raise
            return etag

    def _send_all(self, upload_id: str, there: Mapping[int, PartInfo], pool: TransferPool) -> str:
        try:
            etags = self._send_parts(upload_id, there, pool)
            etag = self._client.parts.end(self._uri, upload_id, etags)
        except Exception as error:
            is_shared = isinstance(error, StorageError) and error.code in _ENDED
            if not is_shared and not may_be_resumed(error):
                self._drop(upload_id)
            raise
        self._note.forget(upload_id)
        return etag

    def _begun(self) -> tuple[str, dict[int, PartInfo]]:
        upload_id = self._client.parts.begin(self._uri, meta=self._meta)
        self._note.keep(upload_id)
        return upload_id, {}

    def _resumed(self) -> tuple[str, dict[int, PartInfo]] | None:
        """The upload that was begun earlier, with its parts."""
        upload_id = self._note.find()
        if upload_id is None:
            return None
        try:
            there = self._client.parts.list(self._uri, upload_id)
        except StorageError as error:
            if may_be_resumed(error):
                raise
            _log.info("%s is uploaded from its beginning: %s", self._uri, error)
            self._drop(upload_id)
            return None
        _log.info("%s: %d parts have arrived earlier", self._uri, len(there))
        self._share.advance(sum(part.size_bytes for part in there.values()))
        return upload_id, there

    def _drop(self, upload_id: str) -> None:
        self._note.forget(upload_id)
        try:
            self._client.parts.drop(self._uri, upload_id)
        except StorageError as error:
            _log.info("the uploaded parts of %s could not be removed: %s", self._uri, error)

    def _etag_of_same(self) -> str:
        """The ETag of the object if it has this content; empty if not, or if the key may not read it."""
        try:
            info = self._client.head(self._uri)
        except StorageError as error:
            if error.code != "AccessDenied":
                raise
            return ""
        same = info is not None and info.size_bytes == self._size_bytes and info.sha256 == self._meta[META_SHA256]
        return info.etag if info is not None and same else ""

    def _send_parts(self, upload_id: str, there: Mapping[int, PartInfo], pool: TransferPool) -> list[str]:
        content_hash = hashlib.sha256()

        def pieces() -> Iterator[Callable[[], str]]:
            with self._path.open("rb") as stream:
                for number, content in enumerate(_parts(stream, self._size_bytes), start=1):
                    content_hash.update(content)
                    yield partial(self._send_part, upload_id, number, content, there.get(number))

        etags = pool.run_all(pieces())
        self._must_be_unchanged(content_hash.hexdigest())
        return etags

    def _send_part(self, upload_id: str, number: int, content: bytes, there: PartInfo | None) -> str:
        if there is not None:
            if _is_same(there, content):
                return there.etag
            self._share.advance(-there.size_bytes)
        etag = self._client.parts.put(self._uri, upload_id, number, content)
        self._share.advance(len(content))
        return etag

    def _must_be_unchanged(self, sha256: str) -> None:
        if sha256 != self._meta[META_SHA256]:
            raise FileChangedError(f"{self._path} was changed while it was being uploaded; run this again")


def sha256_of(path: Path, size_bytes: int) -> str:
    """The hash of the beginning of a file; of all of it, if it is not longer."""
    content = hashlib.sha256()
    with path.open("rb", buffering=0) as stream:
        while size_bytes > 0 and (piece := stream.read(min(size_bytes, 1 << 20))):
            content.update(piece)
            size_bytes -= len(piece)
    return content.hexdigest()


def _part_bytes(size_bytes: int) -> int:
    return max(PART_BYTES, -(-size_bytes // _MOST_PARTS))


def _parts(stream: BinaryIO, size_bytes: int) -> Iterator[bytes]:
    """The content in parts, up to the scanned size: a file that still grows would have no end."""
    part_bytes = _part_bytes(size_bytes)
    for start in range(0, size_bytes, part_bytes):
        yield stream.read(min(part_bytes, size_bytes - start))


def _is_same(there: PartInfo, content: bytes) -> bool:
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    return there.size_bytes == len(content) and there.etag.lower() == md5
