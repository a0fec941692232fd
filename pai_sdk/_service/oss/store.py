"""The object store: an index in a database, large contents in files, small ones in the database, too.

A large object is written to a draft file, renamed into place when complete, and becomes the object when its row is
committed. File and folder are forced to the disk before the commit, and the commit before the acknowledgement. A
process that dies before the commit leaves a file without a row, which the sweep removes. A row whose file is lost
or truncated, by a disk error, is dropped at the next start. A small object is committed together with its content.
"""

from __future__ import annotations

import io
import mimetypes
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from sqlalchemy import Engine

from pai_sdk._core.files import locked
from pai_sdk._data.storage.base import Store
from pai_sdk._service.oss.appending import Appender, BoundedReader
from pai_sdk._service.oss.blobs import Blob, BlobFolder, BlobWriter, etag_of_crc64
from pai_sdk._service.oss.error_codes import oss_error
from pai_sdk._service.oss.external.claim import read_claimed_uri
from pai_sdk._service.oss.external.external_blobs import EXTERNAL, ExternalBlobs
from pai_sdk._service.oss.index import BucketInfo, CommonPrefix, ObjectIndex
from pai_sdk._service.oss.index_database import IndexDatabase
from pai_sdk._service.oss.integrity import content_is_short
from pai_sdk._service.oss.multipart import MultipartUploads
from pai_sdk._service.oss.object_rows import (
    DEFAULT_LIMITS,
    ContentLimits,
    ObjectKind,
    RowCopy,
    StoredObject,
    check_bucket,
    encode_key,
    is_row,
)
from pai_sdk._service.oss.sweep import Sweeper
from pai_sdk.errors import ServiceStartError, StorageError

DEFAULT_CONTENT_TYPE = "application/octet-stream"
DEFAULT_UPLOAD_LIFE_S = 7 * 24 * 3600.0


class ObjectStore:
    """Buckets of objects below one folder. Safe to use from many threads; one process at a time.

    Args:
        root: the folder; created if missing.
        earlier: the database in which older builds stored the index of a service with PostgreSQL; it is migrated.
        contents: an external store for large contents; without it they are files in the folder.
        upload_life_s: a multipart upload without a new part for this time is aborted.
    """

    def __init__(
        self,
        root: str | Path,
        *,
        earlier: Engine | None = None,
        contents: Store | None = None,
        upload_life_s: float = DEFAULT_UPLOAD_LIFE_S,
        limits: ContentLimits = DEFAULT_LIMITS,
    ) -> None:
        self.limits = limits
        root = Path(root).absolute()
        self._claim = _claim(root)
        try:
            self._database = IndexDatabase(root, earlier)
            # Closed in reverse order: the database before the lock of the folder.
            self._claim.callback(self._database.close)
            self._blobs = _open_blobs(root, contents, self._database, limits)
        except OSError as error:
            self._claim.close()
            raise ServiceStartError(f"the folder {root} cannot be written: {error.strerror}") from error
        except BaseException:
            self._claim.close()
            raise
        self.index = ObjectIndex(self._database)
        self._appender = Appender(self.index, self._blobs)
        self.uploads = MultipartUploads(self._database, self._blobs)
        # Last, because it starts a thread that uses all of the above.
        self._sweeper = Sweeper(self.index, self._blobs, self.uploads, upload_life_s=upload_life_s)

    def __enter__(self) -> ObjectStore:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops the sweeper and releases the folder for another process."""
        self._sweeper.task.close()
        self._claim.close()

    # ---- buckets --------------------------------------------------------------------------------------------

    def create_bucket(self, bucket: str) -> bool:
        """Creates a bucket; returns False if it exists already."""
        return self.index.add_bucket(check_bucket(bucket))

    def bucket(self, bucket: str) -> BucketInfo:
        """Returns the metadata of a bucket."""
        return self.index.bucket(bucket)

    def bucket_exists(self, bucket: str) -> bool:
        """Returns whether the bucket exists."""
        try:
            self.index.bucket(bucket)
        except StorageError:
            return False
        return True

    def list_buckets(self) -> list[BucketInfo]:
        """Returns all buckets, sorted by name."""
        return self.index.buckets()

    def delete_bucket(self, bucket: str) -> None:
        """Deletes an empty bucket."""
        self.index.drop_bucket(bucket)

    # ---- reading --------------------------------------------------------------------------------------------

    def head(self, bucket: str, key: str) -> StoredObject:
        """Returns the metadata of an object; raises `NoSuchKey` or `NoSuchBucket`."""
        return self.index.find(bucket, key)

    def open(self, bucket: str, key: str) -> BinaryIO:
        """Opens the current content of an object; replacing or deleting the object does not affect the reader."""
        return self.open_with_info(bucket, key)[1]

    def open_with_info(self, bucket: str, key: str) -> tuple[StoredObject, BinaryIO]:
        """Returns metadata and content of one version; raises `ObjectDamaged` if the content is incomplete."""
        while True:
            info, content = self.index.find_with_content(bucket, key)
            if is_row(info.blob):
                if content is None or len(content) < info.size_bytes:
                    raise content_is_short(info, len(content or b""))
                return info, io.BytesIO(content)
            try:
                stream, size_bytes = self._blobs.open(info.blob)
            except FileNotFoundError:
                if self.head(bucket, key).blob == info.blob:
                    raise content_is_short(info, 0) from None
                # Replaced after its row was read: read the new row.
                continue
            if size_bytes < info.size_bytes:
                stream.close()
                raise content_is_short(info, size_bytes)
            return info, BoundedReader.wrap(stream, info) if info.kind == "Appendable" else stream

    def path_of_blob(self, blob: str) -> Path:
        """Returns the path of a blob."""
        return self._blobs.path(blob)

    def list(
        self,
        bucket: str,
        prefix: str = "",
        delimiter: str | None = None,
        start_after: str = "",
        limit: int | None = None,
    ) -> Iterator[StoredObject]:
        """Yields objects by prefix, without keys that have the delimiter after it (`/` lists one folder)."""
        entries = self.entries(bucket, prefix=prefix, delimiter=delimiter or "", after=start_after)
        return islice((entry for entry in entries if isinstance(entry, StoredObject)), limit)

    def entries(
        self, bucket: str, *, prefix: str = "", delimiter: str = "", after: str = ""
    ) -> Iterator[StoredObject | CommonPrefix]:
        """Yields objects, and one `CommonPrefix` for each group of keys with the same text up to the delimiter."""
        return self.index.entries(bucket, prefix=prefix, delimiter=delimiter, after=after)

    # ---- writing --------------------------------------------------------------------------------------------

    def put_bytes(self, bucket: str, key: str, content: bytes, *, content_type: str | None = None) -> StoredObject:
        """Writes a small object."""
        with self.writer() as writer:
            writer.write(content)
            return self.finish(writer, bucket, key, content_type=content_type)

    def writer(self) -> BlobWriter:
        """Starts content for `finish`."""
        return self._blobs.writer()

    def finish(
        self,
        writer: BlobWriter,
        bucket: str,
        key: str,
        *,
        content_type: str | None = None,
        headers: Mapping[str, str] | None = None,
        forbid_overwrite: bool = False,
    ) -> StoredObject:
        """Creates an object from what was written; when this returns, it survives a power failure."""
        # Refused before the blob is published.
        encode_key(key)
        metadata = _ObjectMetadata(bucket, key, content_type, headers or {})
        if (content := writer.small_content) is None:
            return self._record(metadata, self._blobs.publish(writer), forbid_overwrite=forbid_overwrite)
        info = metadata.object_of(Blob("", len(content), writer.etag, crc64=writer.crc64))
        recorded = self.index.put(info, content, forbid_overwrite=forbid_overwrite)
        self.remove_files(recorded.freed)
        return recorded.info

    def append(
        self,
        writer: BlobWriter,
        bucket: str,
        key: str,
        position: int,
        *,
        content_type: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> StoredObject:
        """Appends what was written to an object that is `position` bytes long; at 0, creates it."""
        # From the check of the length to the new row: of two appends at one position, the second is refused.
        with self._appender.lock(bucket, key):
            existing = self._appender.find_appendable(bucket, key, position)
            if existing is not None:
                return self._appender.extend(existing, writer)
            try:
                metadata = _ObjectMetadata(bucket, key, content_type, headers or {})
                return self._record(metadata, writer.finish(), kind="Appendable", forbid_overwrite=True)
            except StorageError as error:
                # A PutObject, which takes no such lock, was faster.
                if error.code == "FileAlreadyExists":
                    raise oss_error("ObjectNotAppendable", bucket=bucket, key=key) from error
                raise

    def copy(
        self,
        source_bucket: str,
        source_key: str,
        bucket: str,
        key: str,
        *,
        content_type: str | None = None,
        headers: Mapping[str, str] | None = None,
        forbid_overwrite: bool = False,
        check_source: Callable[[StoredObject], None] = lambda _: None,
    ) -> StoredObject:
        """Copies an object, without `headers` with those of the source; `check_source` sees the copied version."""
        encode_key(key)
        changed = None if headers is None else (headers, content_type or guess_type(key))
        row_copy = RowCopy(source_bucket, source_key, bucket, key, changed, forbid_overwrite, check_source)
        # Small objects only get a second reference to their row.
        recorded = self.index.copy(row_copy)
        if recorded is not None:
            self.remove_files(recorded.freed)
            return recorded.info
        self.bucket(bucket)
        # Opened before the check: metadata and content belong to one version, even if it is replaced
        # meanwhile.
        info, stream = self.open_with_info(source_bucket, source_key)
        if headers is None:
            content_type, headers = info.content_type, info.headers
        with stream:
            check_source(info)
            blob = self._share_blob(info)
            if blob is not None:
                metadata = _ObjectMetadata(bucket, key, content_type, headers)
                return self._record(metadata, blob, forbid_overwrite=forbid_overwrite)
            # The file system has no hard links: the only case in which the content is read.
            with self.writer() as writer:
                writer.copy_from(stream)
                return self.finish(
                    writer,
                    bucket,
                    key,
                    content_type=content_type,
                    headers=headers,
                    forbid_overwrite=forbid_overwrite,
                )

    def delete(self, bucket: str, key: str) -> None:
        """Deletes an object; a missing one is no error."""
        self.delete_many(bucket, [key])

    def delete_many(self, bucket: str, keys: Iterable[str]) -> None:
        """Deletes objects, all or none."""
        self._blobs.remove(self.index.forget(bucket, keys))

    def remove_files(self, names: Iterable[str]) -> None:
        """Removes files of contents that no object refers to any more."""
        self._blobs.remove(names)

    def _share_blob(self, info: StoredObject) -> Blob | None:
        """Creates a hard link to the content of an object; returns None if it has to be copied."""
        if info.kind == "Appendable" or is_row(info.blob):
            return None
        etag = info.etag
        if info.kind == "Multipart":
            # The copy is no multipart object, and without a CRC-64 an ETag of parts could not be checked for it.
            if info.crc64 is None:
                return None
            etag = etag_of_crc64(info.crc64, info.size_bytes)
        try:
            return Blob(self._blobs.share(info.blob), info.size_bytes, etag, crc64=info.crc64)
        except FileNotFoundError:
            # Deleted meanwhile; the open stream is still readable.
            return None

    def _record(
        self, metadata: _ObjectMetadata, blob: Blob, *, kind: ObjectKind = "Normal", forbid_overwrite: bool = False
    ) -> StoredObject:
        info = metadata.object_of(blob, kind)
        try:
            freed = self.index.record(info, forbid_overwrite=forbid_overwrite)
        except BaseException:
            self._blobs.remove([blob.name])
            raise
        self._blobs.remove(freed)
        return info


@dataclass(frozen=True)
class _ObjectMetadata:
    """The client's metadata of an object."""

    bucket: str
    key: str
    content_type: str | None
    headers: Mapping[str, str]

    def object_of(self, blob: Blob, kind: ObjectKind = "Normal") -> StoredObject:
        return StoredObject(
            bucket=self.bucket,
            key=self.key,
            size_bytes=blob.size_bytes,
            etag=blob.etag,
            content_type=self.content_type or guess_type(self.key),
            kind=kind,
            headers=self.headers,
            blob=blob.name,
            crc64=blob.crc64,
        )


def guess_type(key: str) -> str:
    """Returns the content type that fits a key."""
    return mimetypes.guess_type(key)[0] or DEFAULT_CONTENT_TYPE


def _open_blobs(root: Path, contents: Store | None, database: IndexDatabase, limits: ContentLimits) -> BlobFolder:
    """Opens the store of large contents: files or an external store, but never another one than before."""
    query = "SELECT 1 FROM oss_objects WHERE blob >= ? AND blob < ? LIMIT 1"
    claimed_uri = read_claimed_uri(root)
    is_referenced = bool(claimed_uri and database.query(query, (EXTERNAL, f"{EXTERNAL}g")))
    if is_referenced and (contents is None or contents.uri != claimed_uri):
        raise ServiceStartError(
            f"the contents of objects are in {claimed_uri}; start the service with --objects {claimed_uri}"
        )
    if contents is None:
        return BlobFolder(root, limits)
    return ExternalBlobs(root, contents, limits, is_referenced=is_referenced)


def _claim(root: Path) -> ExitStack:
    """Creates and locks the folder; closing the result unlocks it."""
    try:
        root.mkdir(parents=True, mode=0o700, exist_ok=True)
        with ExitStack() as claim:
            if claim.enter_context(locked(root / "lock", waits=False)):
                return claim.pop_all()
    except OSError as error:
        raise ServiceStartError(f"the folder {root} cannot be written: {error.strerror}") from error
    raise ServiceStartError(f"the folder {root} is in use by another service; stop that one first")
