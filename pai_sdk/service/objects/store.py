"""The object store: an index in a database, large contents in plain files, small ones in the database, too.

A large object is a file that grows beside the others, is renamed into its place when whole, and becomes the object
by one row committed. File and folder are forced to the disk before the commit, and the commit before it is
acknowledged; a process that dies before leaves a file without a row, which is swept away. A row whose file is lost
or cut off all the same, by an error of the disk, is dropped at the next start. A small object is committed
together with its content.
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

from pai_sdk.base.files import locked
from pai_sdk.errors import ServiceStartError, StorageError
from pai_sdk.service.objects.appending import Appender, BoundedReader
from pai_sdk.service.objects.blobs import Blob, BlobFolder, BlobWriter
from pai_sdk.service.objects.elsewhere.claim import read_claimed_uri
from pai_sdk.service.objects.elsewhere.external_blobs import EXTERNAL, ExternalBlobs
from pai_sdk.service.objects.error_codes import oss_error
from pai_sdk.service.objects.index import BucketInfo, CommonPrefix, ObjectIndex
from pai_sdk.service.objects.index_database import IndexDatabase
from pai_sdk.service.objects.integrity import content_is_short
from pai_sdk.service.objects.multipart import MultipartUploads
from pai_sdk.service.objects.object_rows import (
    ObjectKind,
    RowCopy,
    StoredObject,
    check_bucket,
    encode_key,
    is_row,
)
from pai_sdk.service.objects.sweep import Sweeper
from pai_sdk.storage.base import Store

__all__ = ["DEFAULT_CONTENT_TYPE", "DEFAULT_UPLOAD_LIFE_S", "ObjectStore", "guess_type"]

DEFAULT_CONTENT_TYPE = "application/octet-stream"
DEFAULT_UPLOAD_LIFE_S = 7 * 24 * 3600.0


class ObjectStore:
    """Buckets of objects below one folder. Safe to use from many threads; one process at a time.

    Args:
        root: the folder; made when missing.
        earlier: the database in which older builds kept the index of a service with PostgreSQL; it is taken over.
        contents: a store elsewhere for large contents; without it they are files in the folder.
        upload_life_s: an upload in parts that has got no part for so long is aborted.

    Attributes:
        index: the objects, and the contents of small ones.
        uploads: the uploads in parts.

    Raises:
        ServiceStartError: the folder cannot be written, or another process uses it.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, ObjectStore(folder) as store:
        ...     _ = store.create_bucket("models")
        ...     _ = store.put_bytes("models", "a/b.txt", b"hello")
        ...     [info.key for info in store.list("models")]
        ['a/b.txt']
    """

    def __init__(
        self,
        root: str | Path,
        *,
        earlier: Engine | None = None,
        contents: Store | None = None,
        upload_life_s: float = DEFAULT_UPLOAD_LIFE_S,
    ) -> None:
        root = Path(root).absolute()
        self._claim = _claim(root)
        try:
            self._database = IndexDatabase(root, earlier)
            self._claim.callback(self._database.close)
            self._blobs = _open_blobs(root, contents, self._database)
        except OSError as error:
            self._claim.close()
            raise ServiceStartError(f"the folder {root} cannot be written: {error.strerror}") from error
        except BaseException:
            self._claim.close()
            raise
        self.index = ObjectIndex(self._database)
        self._appender = Appender(self.index, self._blobs)
        self.uploads = MultipartUploads(self._database, self._blobs)
        self._sweeper = Sweeper(self.index, self._blobs, self.uploads, upload_life_s=upload_life_s)

    def __enter__(self) -> ObjectStore:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop, and let another process have the folder."""
        self._sweeper.close()
        self._claim.close()

    # ---- buckets --------------------------------------------------------------------------------------------

    def create_bucket(self, bucket: str) -> bool:
        """Make a bucket; False when it is there already.

        Raises:
            StorageError: the name cannot be used.
        """
        return self.index.add_bucket(check_bucket(bucket))

    def bucket(self, bucket: str) -> BucketInfo:
        """The facts about a bucket.

        Raises:
            StorageError: there is no such bucket.
        """
        return self.index.bucket(bucket)

    def bucket_exists(self, bucket: str) -> bool:
        """True if there is such a bucket."""
        try:
            self.index.bucket(bucket)
        except StorageError:
            return False
        return True

    def list_buckets(self) -> list[BucketInfo]:
        """All buckets, by name."""
        return self.index.buckets()

    def delete_bucket(self, bucket: str) -> None:
        """Delete an empty bucket."""
        self.index.drop_bucket(bucket)

    # ---- reading --------------------------------------------------------------------------------------------

    def head(self, bucket: str, key: str) -> StoredObject:
        """The facts about an object.

        Raises:
            StorageError: `code` is `NoSuchKey` or `NoSuchBucket`.
        """
        return self.index.find(bucket, key)

    def open(self, bucket: str, key: str) -> BinaryIO:
        """The content of an object, as it is now; replacing or deleting the object does not disturb the reader."""
        return self.open_with_info(bucket, key)[1]

    def open_with_info(self, bucket: str, key: str) -> tuple[StoredObject, BinaryIO]:
        """`head` and `open` in one: what is said is said of the very bytes that are read.

        Raises:
            StorageError: `NoSuchKey`, `NoSuchBucket`, or `ObjectDamaged` when less than all of it is on the disk.
        """
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
                continue  # replaced since we looked
            if size_bytes < info.size_bytes:
                stream.close()
                raise content_is_short(info, size_bytes)
            return info, BoundedReader.wrap(stream, info) if info.kind == "Appendable" else stream

    def path_of_blob(self, blob: str) -> Path:
        """The file of that name."""
        return self._blobs.path(blob)

    def list(
        self,
        bucket: str,
        prefix: str = "",
        delimiter: str | None = None,
        start_after: str = "",
        limit: int | None = None,
    ) -> Iterator[StoredObject]:
        """The objects whose keys begin with `prefix`, in the order of their UTF-8 bytes, read as you go.

        Args:
            bucket: the bucket.
            prefix: all keys begin with it.
            delimiter: leave out the keys that have it behind the prefix: `/` lists one folder, not those in it.
            start_after: only keys behind this one.
            limit: at most so many.
        """
        entries = self.entries(bucket, prefix=prefix, delimiter=delimiter or "", after=start_after)
        return islice((entry for entry in entries if isinstance(entry, StoredObject)), limit)

    def entries(
        self, bucket: str, *, prefix: str = "", delimiter: str = "", after: str = ""
    ) -> Iterator[StoredObject | CommonPrefix]:
        """Like `list`, but what the delimiter takes together is there as one `CommonPrefix` each."""
        return self.index.entries(bucket, prefix=prefix, delimiter=delimiter, after=after)

    # ---- writing --------------------------------------------------------------------------------------------

    def put_bytes(self, bucket: str, key: str, content: bytes, *, content_type: str | None = None) -> StoredObject:
        """Write a small object."""
        with self.writer() as writer:
            writer.write(content)
            return self.finish(writer, bucket, key, content_type=content_type)

    def writer(self) -> BlobWriter:
        """Begin content that `finish` makes an object of."""
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
        """Make an object of what was written; when this returns, it outlives the process.

        Raises:
            StorageError: among others, `FileAlreadyExists` when overwriting was forbidden.
        """
        encode_key(key)
        metadata = _ObjectMetadata(bucket, key, content_type, headers or {})
        if (content := writer.small_content) is None:
            return self._record(metadata, self._blobs.publish(writer), forbid_overwrite=forbid_overwrite)
        info = metadata.object_of(Blob("", len(content), writer.md5.hex().upper(), crc64=writer.crc64))
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
        """Append what was written to an object that is `position` bytes long; at 0, make it.

        Raises:
            StorageError: `PositionNotEqualToLength` or `ObjectNotAppendable`.
        """
        with self._appender.lock(bucket, key):
            existing = self._appender.find_appendable(bucket, key, position)
            if existing is not None:
                return self._appender.extend(existing, writer)
            try:
                metadata = _ObjectMetadata(bucket, key, content_type, headers or {})
                return self._record(metadata, writer.finish(), kind="Appendable", forbid_overwrite=True)
            except StorageError as error:
                if error.code == "FileAlreadyExists":  # put there since we looked
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
        """Copy an object; its content is read only if it is a file, and the file system has no hard links.

        Args:
            source_bucket: the bucket it is in.
            source_key: its key.
            bucket: the bucket it is copied to.
            key: the key there.
            content_type: of the copy; only looked at when `headers` are given.
            headers: those of the copy; None keeps headers and content type as they are.
            forbid_overwrite: refuse when there is something at the key.
            check_source: raises, unless the object is the one that is meant; shown that whose content is copied.
        """
        encode_key(key)
        changed = None if headers is None else (headers, content_type or guess_type(key))
        row_copy = RowCopy(source_bucket, source_key, bucket, key, changed, forbid_overwrite, check_source)
        recorded = self.index.copy(row_copy)
        if recorded is not None:
            self.remove_files(recorded.freed)
            return recorded.info
        self.bucket(bucket)
        info, stream = self.open_with_info(source_bucket, source_key)
        if headers is None:
            content_type, headers = info.content_type, info.headers
        with stream:
            check_source(info)
            blob = self._share_blob(info)
            if blob is not None:
                metadata = _ObjectMetadata(bucket, key, content_type, headers)
                return self._record(metadata, blob, forbid_overwrite=forbid_overwrite)
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
        """Delete an object; no error when there is none."""
        self.delete_many(bucket, [key])

    def delete_many(self, bucket: str, keys: Iterable[str]) -> None:
        """Delete objects, all or none."""
        self._blobs.remove(self.index.forget(bucket, keys))

    def remove_files(self, names: Iterable[str]) -> None:
        """Remove files of contents that no object names any more."""
        self._blobs.remove(names)

    def _share_blob(self, info: StoredObject) -> Blob | None:
        """A hard link to the content of an object; None when it has to be copied."""
        if info.kind != "Normal" or is_row(info.blob):
            return None
        try:
            return Blob(self._blobs.share(info.blob), info.size_bytes, info.etag, crc64=info.crc64)
        except FileNotFoundError:
            return None  # deleted meanwhile; the open stream still has it

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
    """The facts that a client gives about an object beside its content."""

    bucket: str
    key: str
    content_type: str | None
    headers: Mapping[str, str]

    def object_of(self, blob: Blob, kind: ObjectKind = "Normal") -> StoredObject:
        return StoredObject(
            bucket=self.bucket,
            key=self.key,
            size_bytes=blob.size_bytes,
            etag=blob.md5,
            content_type=self.content_type or guess_type(self.key),
            kind=kind,
            headers=self.headers,
            blob=blob.name,
            crc64=blob.crc64,
        )


def guess_type(key: str) -> str:
    """The content type that fits a key."""
    return mimetypes.guess_type(key)[0] or DEFAULT_CONTENT_TYPE


def _open_blobs(root: Path, contents: Store | None, database: IndexDatabase) -> BlobFolder:
    """The large contents: in files, or in a store elsewhere, but not in another one than so far."""
    query = "SELECT 1 FROM oss_objects WHERE blob >= ? AND blob < ? LIMIT 1"
    claimed_uri = read_claimed_uri(root)
    is_referenced = bool(claimed_uri and database.query(query, (EXTERNAL, f"{EXTERNAL}g")))
    if is_referenced and (contents is None or contents.uri != claimed_uri):
        raise ServiceStartError(
            f"the contents of objects are in {claimed_uri}; start the service with --objects {claimed_uri}"
        )
    return BlobFolder(root) if contents is None else ExternalBlobs(root, contents, is_referenced=is_referenced)


def _claim(root: Path) -> ExitStack:
    """Make the folder and lock it; closing the result unlocks it."""
    try:
        root.mkdir(parents=True, mode=0o700, exist_ok=True)
        with ExitStack() as claim:
            if claim.enter_context(locked(root / "lock", waits=False)):
                return claim.pop_all()
    except OSError as error:
        raise ServiceStartError(f"the folder {root} cannot be written: {error.strerror}") from error
    raise ServiceStartError(f"the folder {root} is in use by another service; stop that one first")
