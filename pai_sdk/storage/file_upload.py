"""One file to an object in OSS: in one request, or a large one in parts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from pai_sdk.errors import StorageError
from pai_sdk.storage.objects import META_EXECUTABLE, META_SHA256
from pai_sdk.storage.pool import TransferPool
from pai_sdk.storage.progress import ByteBar
from pai_sdk.storage.tree import FileEntry
from pai_sdk.storage.uri import OssUri

if TYPE_CHECKING:
    from pai_sdk.storage.oss import OssClient

__all__ = ["PART_BYTES", "FileUpload"]

PART_BYTES = 8 << 20
_MOST_PARTS = 9_000  # OSS allows 10,000


class FileUpload:
    """One file on its way."""

    def __init__(self, client: OssClient, path: Path, entry: FileEntry, uri: OssUri, bar: ByteBar) -> None:
        self._client = client
        self._path = path
        self._entry = entry
        self._uri = uri
        self._bar = bar
        self._meta = {META_SHA256: entry.sha256}
        if entry.executable:
            self._meta[META_EXECUTABLE] = "true"

    def begin(self, pool: TransferPool) -> None:
        """Send the file on the pool's threads; what goes wrong is kept there, under the file's path."""
        if self._entry.size_bytes > PART_BYTES:
            pool.run_file(self._entry.path, partial(self.in_parts, pool))
        else:
            pool.submit_file(self._entry.path, self.whole)

    def whole(self) -> None:
        """In one request."""
        content = self._path.read_bytes()
        self._must_be_unchanged(hashlib.sha256(content).hexdigest())
        self._client.put_bytes(self._uri, content, meta=self._meta)
        self._bar.advance(len(content))

    def in_parts(self, pool: TransferPool) -> None:
        """In parts that go in parallel; the object comes to be at the end."""
        upload_id = self._client.begin_parts(self._uri, meta=self._meta)
        try:
            etags = self._send_parts(upload_id, pool)
            self._client.end_parts(self._uri, upload_id, etags, size_bytes=self._entry.size_bytes)
        except Exception:
            self._client.drop_parts(self._uri, upload_id)
            raise

    def _send_parts(self, upload_id: str, pool: TransferPool) -> list[str]:
        content_hash = hashlib.sha256()

        def pieces() -> Iterator[Callable[[], str]]:
            with self._path.open("rb") as stream:
                for number, content in enumerate(_parts(stream, self._entry.size_bytes), start=1):
                    content_hash.update(content)
                    yield partial(self._send_part, upload_id, number, content)

        etags = pool.run_all(pieces())
        self._must_be_unchanged(content_hash.hexdigest())
        return etags

    def _send_part(self, upload_id: str, number: int, content: bytes) -> str:
        etag = self._client.put_part(self._uri, upload_id, number, content)
        self._bar.advance(len(content))
        return etag

    def _must_be_unchanged(self, sha256: str) -> None:
        if sha256 != self._entry.sha256:
            raise StorageError(f"{self._path} was changed while it was being submitted; submit again")


def _parts(stream: BinaryIO, size_bytes: int) -> Iterator[bytes]:
    part_bytes = max(PART_BYTES, -(-size_bytes // _MOST_PARTS))
    read: Callable[[], bytes] = partial(stream.read, part_bytes)
    return iter(read, b"")
