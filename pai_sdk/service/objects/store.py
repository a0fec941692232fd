"""The object store: an index in a database, the content in plain files.

A write is a file that grows beside the others, is renamed into its place when whole, and becomes the object by one
row committed. Only then is it acknowledged; whatever dies before leaves a file without a row, which is swept away.
The file is forced to the disk before its row is committed. A row whose file is lost or cut off all the same, by a
fault of the disk, is dropped at the next start.
"""

from __future__ import annotations

import mimetypes
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from sqlalchemy import Engine

from pai_sdk.base.files import locked
from pai_sdk.errors import ServiceStartError, StorageError
from pai_sdk.service.objects.appending import Appender, BoundedReader
from pai_sdk.service.objects.blobs import Blob, BlobFolder, BlobWriter
from pai_sdk.service.objects.error_codes import fault
from pai_sdk.service.objects.index import BucketInfo, CommonPrefix, ObjectIndex, ObjectKind, StoredObject
from pai_sdk.service.objects.index_database import IndexDatabase
from pai_sdk.service.objects.integrity import content_is_short
from pai_sdk.service.objects.multipart import MultipartUploads
from pai_sdk.service.objects.object_names import check_bucket, encode_key
from pai_sdk.service.objects.sweep import Sweeper

__all__ = ["DEFAULT_CONTENT_TYPE", "DEFAULT_UPLOAD_LIFE_S", "ObjectStore"]

DEFAULT_CONTENT_TYPE = "application/octet-stream"
DEFAULT_UPLOAD_LIFE_S = 7 * 24 * 3600.0


class ObjectStore:
    """Buckets of objects below one folder. Safe to use from many threads; one process at a time.

    Args:
        root: the folder; made when missing.
        database: a database URL or an engine for the index; without it, SQLite in the folder itself.
        upload_life_s: an upload in parts that has got no part for so long is aborted.

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
        database: str | Engine | None = None,
        *,
        upload_life_s: float = DEFAULT_UPLOAD_LIFE_S,
    ) -> None:
        root = Path(root).absolute()
        self._claim = _claim(root)
        try:
            self._database = IndexDatabase(database or f"sqlite:///{root / 'objects.db'}")
            self._blobs = BlobFolder(root)
        except OSError as error:
            self._claim.close()
            raise ServiceStartError(f"the folder {root} cannot be written: {error.strerror}") from error
        except BaseException:
            self._claim.close()
            raise
        self._index = ObjectIndex(self._database)
        self._appender = Appender(self._index, self._blobs)
        self.uploads = MultipartUploads(self._database, self._blobs)
        self._sweeper = Sweeper(self._index, self._blobs, self.uploads, upload_life_s=upload_life_s)

    def __enter__(self) -> ObjectStore:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop, and let another process have the folder."""
        self._sweeper.close()
        self._database.close()
        self._claim.close()

    # ---- buckets --------------------------------------------------------------------------------------------

    def create_bucket(self, bucket: str) -> bool:
        """Make a bucket; False when it is there already.

        Raises:
            StorageError: the name cannot be used.
        """
        return self._index.add_bucket(check_bucket(bucket))

    def bucket(self, bucket: str) -> BucketInfo:
        """What is known of a bucket.

        Raises:
            StorageError: there is no such bucket.
        """
        return self._index.bucket(bucket)

    def bucket_exists(self, bucket: str) -> bool:
        """Whether there is such a bucket."""
        try:
            self._index.bucket(bucket)
        except StorageError:
            return False
        return True

    def list_buckets(self) -> list[BucketInfo]:
        """All buckets, by name."""
        return self._index.buckets()

    def delete_bucket(self, bucket: str) -> None:
        """Delete an empty bucket."""
        self._index.drop_bucket(bucket)

    # ---- reading --------------------------------------------------------------------------------------------

    def head(self, bucket: str, key: str) -> StoredObject:
        """What is known of an object.

        Raises:
            StorageError: `code` is `NoSuchKey` or `NoSuchBucket`.
        """
        return self._index.find(bucket, key)

    def open(self, bucket: str, key: str) -> BinaryIO:
        """The content of an object, as it is now; replacing or deleting the object does not disturb the reader."""
        return self.open_with_info(bucket, key)[1]

    def open_with_info(self, bucket: str, key: str) -> tuple[StoredObject, BinaryIO]:
        """`head` and `open` in one: what is said is said of the very bytes that are read.

        Raises:
            StorageError: `NoSuchKey`, `NoSuchBucket`, or `ObjectDamaged` when less than all of it is on the disk.
        """
        while True:
            info = self.head(bucket, key)
            try:
                stream = self.path_of_blob(info.blob).open("rb")
            except FileNotFoundError:
                if self.head(bucket, key).blob == info.blob:
                    raise content_is_short(info, 0) from None
                continue  # replaced since we looked
            if (size_bytes := os.fstat(stream.fileno()).st_size) < info.size_bytes:
                stream.close()
                raise content_is_short(info, size_bytes)
            return info, BoundedReader.over(stream, info) if info.kind == "Appendable" else stream

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
        return self._index.entries(bucket, prefix=prefix, delimiter=delimiter, after=after)

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
        return self._record(
            bucket,
            key,
            writer.finish(),
            content_type=content_type,
            headers=headers,
            forbid_overwrite=forbid_overwrite,
        )

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
            known = self._appender.present(bucket, key, position)
            if known is not None:
                return self._appender.extend(known, writer)
            try:
                return self._record(
                    bucket,
                    key,
                    writer.finish(),
                    content_type=content_type,
                    headers=headers,
                    kind="Appendable",
                    forbid_overwrite=True,
                )
            except StorageError as error:
                if error.code == "FileAlreadyExists":  # put there since we looked
                    raise fault("ObjectNotAppendable", bucket=bucket, key=key) from error
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
        """Copy an object, without reading it where the file system has hard links.

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
        self.bucket(bucket)
        info, stream = self.open_with_info(source_bucket, source_key)
        with stream:
            check_source(info)
            blob = self._copied(info, stream)
        kept = headers is None
        return self._record(
            bucket,
            key,
            blob,
            content_type=info.content_type if kept else content_type,
            headers=info.headers if kept else headers,
            forbid_overwrite=forbid_overwrite,
        )

    def delete(self, bucket: str, key: str) -> None:
        """Delete an object; no error when there is none."""
        self.delete_many(bucket, [key])

    def delete_many(self, bucket: str, keys: Iterable[str]) -> None:
        """Delete objects, all or none."""
        self._blobs.remove(self._index.forget(bucket, keys))

    def _copied(self, info: StoredObject, stream: BinaryIO) -> Blob:
        if info.kind == "Normal":
            try:
                return Blob(self._blobs.share(info.blob), info.size_bytes, info.etag)
            except FileNotFoundError:
                pass  # deleted meanwhile; the open stream still has it
        with self.writer() as writer:
            writer.copy_from(stream)
            return writer.finish()

    def _record(
        self,
        bucket: str,
        key: str,
        blob: Blob,
        *,
        content_type: str | None = None,
        headers: Mapping[str, str] | None = None,
        kind: ObjectKind = "Normal",
        forbid_overwrite: bool = False,
    ) -> StoredObject:
        info = StoredObject(
            bucket=bucket,
            key=key,
            size_bytes=blob.size_bytes,
            etag=blob.md5,
            content_type=content_type or mimetypes.guess_type(key)[0] or DEFAULT_CONTENT_TYPE,
            kind=kind,
            headers=headers or {},
            blob=blob.name,
        )
        try:
            replaced = self._index.record(info, forbid_overwrite=forbid_overwrite)
        except BaseException:
            self._blobs.remove([blob.name])
            raise
        if replaced is not None:
            self._blobs.remove([replaced])
        return info


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
