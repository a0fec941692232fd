"""A folder in OSS as a store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from pai_sdk._data.storage.base import FileMove, Store, checked_path
from pai_sdk._data.storage.objects import META_EXECUTABLE, META_LINK, ObjectInfo, object_meta
from pai_sdk._data.storage.oss.file_download import FileDownload
from pai_sdk._data.storage.pool import TransferPool
from pai_sdk._data.storage.progress import NO_BAR, FileShare
from pai_sdk._data.storage.stored_file import StoredFile, Unlisted
from pai_sdk._data.storage.stores.local import LocalStore
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.errors import ObjectNotFoundError, StorageError

if TYPE_CHECKING:
    from pai_sdk._data.storage.oss.client import OssClient
    from pai_sdk._data.storage.oss.parts import PartInfo

_CHUNK_BYTES = 8 << 20
_PART_THREADS = 4
# OSS copies up to this size reliably with one request.
_MAX_COPY_BYTES = 1 << 30


def stored_file_of_object(info: ObjectInfo, path: str, *, has_mode: bool = True) -> StoredFile:
    """Returns the metadata of an object as that of a file in a store; without the mode, as a listing has it."""
    modified_ns = None if info.modified_s is None else int(info.modified_s * 1e9)
    executable = has_mode and info.meta.get(META_EXECUTABLE) == "true"
    return StoredFile(path, info.size_bytes, modified_ns, info.etag, executable)


class OssStore(Store):
    """The objects whose keys begin with that of a folder.

    Args:
        client: reads and writes the objects; it stays open.
        uri: the folder; empty for a whole bucket.

    Example:
        >>> OssStore(client, OssUri.parse("oss://models/runs")).uri  # doctest: +SKIP
        'oss://models/runs/'
    """

    compares_content = True

    def __init__(self, client: OssClient, uri: OssUri) -> None:
        self.client = client
        self.folder = uri.as_dir()
        self.uri = str(self.folder)

    def __repr__(self) -> str:
        return f"OssStore({self.uri!r})"

    @property
    def identity(self) -> str:
        """The URI with the endpoint that it is used at."""
        return f"{self.client.endpoint} {self.uri}"

    @property
    def largest_put_bytes(self) -> float:
        """The size of the largest file that is sent in one request."""
        return self.client.part_sizes.part_bytes

    @property
    def largest_get_bytes(self) -> float:
        """The size of the largest object that is fetched in one request."""
        return self.client.part_sizes.max_get_bytes

    def exists(self) -> bool:
        """True if the folder has an object, or an empty object represents it."""
        return next(self.client.list(self.folder, unnamed=lambda key, error: None), None) is not None

    def list(
        self, prefix: str = "", *, folders: bool = False, unlisted: Unlisted | None = None
    ) -> Iterator[StoredFile]:
        """All files whose paths begin with `prefix`, sorted by path, page after page."""
        beginning = replace(self.folder, key=self.folder.key + prefix)
        prefix_length = len(self.folder.key)
        for info in self.client.list(
            beginning, unnamed=unlisted and (lambda key, error: unlisted(key[prefix_length:], error))
        ):
            path = info.uri.key[prefix_length:]
            # An empty object whose key ends with a slash represents a folder.
            if path and (folders or info.size_bytes or not path.endswith("/")):
                yield stored_file_of_object(info, path)

    def head(self, path: str) -> StoredFile:
        """The metadata of a file.

        Raises:
            ObjectNotFoundError: no such object.
        """
        return stored_file_of_object(self._info(path), path)

    def read(self, path: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The bytes from `start` to `end`, in chunks of 8 MiB; each is a request with retries.

        Raises:
            ObjectNotFoundError: no such object.
            StorageError: it was replaced while it was read.
        """
        # The first chunk sets the ETag that the others must have: all are of one version.
        uri, etag = self._uri(path), None
        while end is None or start < end:
            size_bytes = _CHUNK_BYTES if end is None else min(end - start, _CHUNK_BYTES)
            info, chunk = self.client.get_piece(uri, start, size_bytes, etag=etag)
            if chunk:
                yield chunk
            start, etag = start + len(chunk), info.etag
            if not chunk or start >= info.size_bytes:
                return

    def write(self, path: str, content: bytes | Path | Iterable[bytes], *, executable: bool = False) -> StoredFile:
        """Make or replace an object; a large one in parts. Parts of a local file that arrived earlier are used."""
        uri = self._uri(path)
        if isinstance(content, Path):
            return self._write_file(path, content, executable=executable)
        chunks = iter((content,) if isinstance(content, bytes) else content)
        head = bytearray()
        for chunk in chunks:
            head += chunk
            if len(head) > self.largest_put_bytes:
                # The size is unknown: content is held back until it is too much for one request.
                return self._write_parts(uri, path, chain((bytes(head),), chunks), executable=executable)
        etag = self.client.put_bytes(uri, bytes(head), meta=object_meta(executable=executable))
        return StoredFile(path, len(head), None, etag, executable)

    def create(self, path: str, content: bytes) -> bool:
        """Make a small object, unless there is one; returns whether this call made it."""
        try:
            self.client.put_bytes(self._uri(path), content, overwrite=False)
        except StorageError as error:
            if error.code != "FileAlreadyExists":
                raise
            return False
        return True

    def cancelled_by(self, pool: TransferPool) -> OssStore:
        """A store for one transfer: its calls end when the transfer is stopped."""
        return type(self)(self.client.cancelled_by(pool.stopped, pool.may_retry), self.folder)

    def put_file(self, move: FileMove) -> StoredFile:
        """Make or replace an object by a local file. Its parts that arrived earlier are not sent again."""
        with move.pool.permit(move.file.size_bytes):
            return self._put_file(move)

    def _put_file(self, move: FileMove) -> StoredFile:
        file = move.file
        if not isinstance(move.source, LocalStore):
            return super().put_file(move)
        uri, meta = self._uri(move.path), object_meta(executable=file.executable)
        with move.source.open(file.path) as stream:
            if file.size_bytes > self.largest_put_bytes:
                # For weight: it needs oss2, which a job without files does without.
                from pai_sdk._data.storage.oss.file_upload import FileUpload

                etag = FileUpload(self.client, move, stream.fileno(), uri, meta).run()
                return StoredFile(move.path, file.size_bytes, None, etag, file.executable)
            content = stream.read(file.size_bytes)
            # A network file system may return less at a time.
            while len(content) < file.size_bytes and (more := stream.read(file.size_bytes - len(content))):
                content += more
        move.check_bytes(content)
        etag = self.client.put_bytes(uri, content, meta=meta)
        move.share.advance(len(content))
        return StoredFile(move.path, file.size_bytes, None, etag, file.executable)

    def get_file(self, move: FileMove) -> StoredFile:
        """Replace a local file by an object, which is checked. Ranges that arrived earlier are used."""
        with move.pool.permit(move.file.size_bytes):
            return self._get_file(move)

    def _get_file(self, move: FileMove) -> StoredFile:
        file, target_path = move.file, move.target_path()
        entry = ObjectInfo(self._uri(file.path), file.size_bytes, file.etag, {})
        download = FileDownload(self.client, entry, target_path, move.share, skip_unchanged=move.skip_same)
        if file.size_bytes > self.largest_get_bytes:
            download.in_parts(move.pool)
        else:
            download.in_single_request()
        # A listing does not include the executable bit, so it is not compared.
        move.file = stored_file_of_object(download.read, file.path, has_mode=False)
        move.is_exact = True
        if download.read.meta.get(META_LINK) == "true":
            return move.target.write_link(move.path, target_path.read_text(encoding="utf-8"))
        return move.target.head(move.path)

    def write_link(self, path: str, target: str) -> StoredFile:
        """Make or replace an object that represents a symbolic link."""
        etag = self.client.put_bytes(self._uri(path), target.encode(), meta={META_LINK: "true"})
        return StoredFile(path, len(target.encode()), None, etag, link=target)

    def _write_file(self, path: str, file: Path, *, executable: bool) -> StoredFile:
        source = LocalStore(file.parent)
        stored = replace(source.head(file.name), executable=executable)
        with TransferPool(_PART_THREADS) as pool:
            target = self.cancelled_by(pool)
            return target.put_file(FileMove(stored, source, target, path, pool, FileShare(NO_BAR)))

    def _write_parts(self, uri: OssUri, path: str, chunks: Iterable[bytes], *, executable: bool) -> StoredFile:
        """Writes content of unknown length; parts are sent one after the other, as they arrive."""
        upload_id = self.client.parts.start(uri, meta=object_meta(executable=executable))
        parts: list[PartInfo] = []
        try:
            for part in _in_parts(chunks, self.client.part_sizes.part_bytes):
                parts.append(self.client.parts.put(uri, upload_id, len(parts) + 1, part))
            etag = self.client.parts.complete(uri, upload_id, parts)
        except BaseException:
            # OSS charges for parts until they are removed, and nothing records this upload.
            self.client.parts.abort(uri, upload_id)
            raise
        return StoredFile(path, sum(part.size_bytes for part in parts), None, etag, executable)

    def copy(self, source: str, target: str) -> StoredFile:
        """Copy an object within OSS.

        Raises:
            ObjectNotFoundError: no such object.
        """
        info = self._info(source)
        etag = self.client.copy(info.uri, self._uri(target), etag=info.etag, meta=info.meta)
        return replace(stored_file_of_object(info, target), etag=etag, modified_ns=None)

    def copy_from(self, source: Store, path: str, target: str) -> bool:
        """Copy an object of the same bucket within OSS, unless it is very large."""
        if not isinstance(source, OssStore):
            return False
        if self._bucket != source._bucket:
            return False
        info = source._info(path)
        if info.size_bytes > _MAX_COPY_BYTES:
            return False
        self.client.copy(info.uri, self._uri(target), etag=info.etag, meta=info.meta)
        return True

    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects, a thousand with a request."""
        self.client.delete_many([self._uri(path) for path in paths])

    @property
    def _bucket(self) -> tuple[str, str | None, str]:
        return self.client.endpoint, self.folder.endpoint, self.folder.bucket

    def _uri(self, path: str) -> OssUri:
        folder = self.folder
        return OssUri(folder.bucket, folder.key + checked_path(path), folder.endpoint)

    def _info(self, path: str) -> ObjectInfo:
        uri = self._uri(path)
        info = self.client.head(uri)
        if info is None:
            raise ObjectNotFoundError(f"{uri}: no such object", uri=str(uri))
        return info


def _in_parts(chunks: Iterable[bytes], first_part_bytes: int) -> Iterator[bytes]:
    """Yields the bytes in parts that grow with their number."""
    # OSS allows 10,000 parts: 8 MiB, doubled after each 1,000 parts, is enough for 5 TB.
    waiting, number = bytearray(), 0
    for chunk in chunks:
        waiting += chunk
        while len(waiting) >= (part_bytes := first_part_bytes << number // 1000):
            yield bytes(waiting[:part_bytes])
            del waiting[:part_bytes]
            number += 1
    if waiting or not number:
        yield bytes(waiting)
