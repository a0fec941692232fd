"""The rows of the object store: which buckets and objects there are, and which blob holds which object."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sqlalchemy import Column, ColumnElement, Connection, bindparam, delete, insert, literal, select, update

from pai_sdk.errors import StorageError
from pai_sdk.service.objects.error_codes import fault
from pai_sdk.service.objects.index_database import IndexDatabase, buckets, objects, uploads
from pai_sdk.service.objects.object_names import encode_key, successor

__all__ = [
    "BucketInfo",
    "CommonPrefix",
    "ObjectIndex",
    "ObjectKind",
    "StoredObject",
    "in_shard",
    "replaced_meanwhile",
    "require_bucket",
]

ObjectKind = Literal["Normal", "Multipart", "Appendable"]

_PAGE = 1000
_PAGE_GROUPED = 100  # most rows of a page may fall into one group, and be read for nothing

# What every read and write needs is built once: building a statement costs more than running it.
_THE_OBJECT = objects.c.bucket == bindparam("b_bucket"), objects.c.key == bindparam("b_key")
_FIND = select(objects).where(*_THE_OBJECT)
_BUCKET_AND_BLOB = select(
    buckets.c.name, select(objects.c.blob).where(*_THE_OBJECT).scalar_subquery().label("blob")
).where(buckets.c.name == bindparam("b_bucket"))
_INSERT = insert(objects)
_UPDATE = update(objects).where(*_THE_OBJECT)


@dataclass(frozen=True)
class StoredObject:
    """What is known of an object.

    Attributes:
        bucket: its bucket.
        key: its key.
        size_bytes: the length of its content.
        etag: upper-case hexadecimal, without quotes; the MD5 unless the object was made in parts.
        content_type: as it was given.
        modified_at: seconds since 1970.
        kind: how it was made.
        headers: what goes out with it, by name: `x-oss-meta-*`, `Cache-Control` and the like.
        blob: the file that holds its content, or the row of `oss_contents`.
        part_sizes: of the parts it was made of, in their order: a size, and how many have it; empty: not known.
    """

    bucket: str
    key: str
    size_bytes: int
    etag: str
    content_type: str = "application/octet-stream"
    modified_at: float = field(default_factory=time.time)
    kind: ObjectKind = "Normal"
    headers: Mapping[str, str] = field(default_factory=dict)
    blob: str = ""
    part_sizes: Sequence[Sequence[int]] = ()


@dataclass(frozen=True)
class CommonPrefix:
    """Stands in a list for all keys that begin with it."""

    prefix: str


@dataclass(frozen=True)
class BucketInfo:
    """A bucket: its name and when it was made, in seconds since 1970."""

    name: str
    created_at: float


class ObjectIndex:
    """Finds, lists, records and forgets. Knows nothing of files: it returns the names of those that are free."""

    def __init__(self, database: IndexDatabase) -> None:
        self._database = database

    # ---- buckets --------------------------------------------------------------------------------------------

    def add_bucket(self, name: str) -> bool:
        """Record a bucket; False when it is there already."""

        def add(connection: Connection) -> bool:
            if _bucket_exists(connection, name):
                return False
            connection.execute(insert(buckets).values(name=name, created_at=time.time()))
            return True

        return self._database.write(add)

    def bucket(self, name: str) -> BucketInfo:
        """The bucket of that name.

        Raises:
            StorageError: `NoSuchBucket`.
        """
        with self._database.read() as connection:
            row = connection.execute(select(buckets).where(buckets.c.name == name)).first()
        if row is None:
            raise fault("NoSuchBucket", bucket=name)
        return BucketInfo(row.name, row.created_at)

    def buckets(self) -> list[BucketInfo]:
        """All buckets, by name."""
        with self._database.read() as connection:
            found = [BucketInfo(row.name, row.created_at) for row in connection.execute(select(buckets))]
        return sorted(found, key=lambda info: info.name)  # here: databases sort hyphens each in its own way

    def drop_bucket(self, name: str) -> None:
        """Forget an empty bucket.

        Raises:
            StorageError: `NoSuchBucket` or `BucketNotEmpty`.
        """

        def drop(connection: Connection) -> None:
            require_bucket(connection, name)
            for table in (objects, uploads):
                if connection.execute(select(literal(1)).where(table.c.bucket == name).limit(1)).first():
                    raise fault("BucketNotEmpty", bucket=name)
            connection.execute(delete(buckets).where(buckets.c.name == name))

        self._database.write(drop)

    # ---- objects --------------------------------------------------------------------------------------------

    def find(self, bucket: str, key: str) -> StoredObject:
        """What is known of an object.

        Raises:
            StorageError: `NoSuchKey` or `NoSuchBucket`.
        """
        with self._database.read() as connection:
            row = connection.execute(_FIND, {"b_bucket": bucket, "b_key": encode_key(key)}).first()
            if row is not None:
                return _info(row)
            require_bucket(connection, bucket)
        raise fault("NoSuchKey", bucket=bucket, key=key)

    def entries(
        self, bucket: str, *, prefix: str = "", delimiter: str = "", after: str = ""
    ) -> Iterator[StoredObject | CommonPrefix]:
        """Objects and common prefixes behind `after`, in the order of their UTF-8 bytes; read in pages.

        Raises:
            StorageError: `NoSuchBucket`.
        """
        stem, cut, marker = (_bytes(text) for text in (prefix, delimiter, after))
        end = successor(stem)
        group = _group(marker, stem, cut)
        # A group that the marker lies in, or is, has been listed.
        start = max(stem, (successor(group) if group else marker + b"\0" if marker else b"") or b"")
        while True:
            rows = self._page(bucket, start, end, _PAGE_GROUPED if cut else _PAGE)
            for row in rows:
                key = bytes(row.key)
                if key < start:
                    continue
                group = _group(key, stem, cut)
                start = (successor(group) if group else None) or key + b"\0"
                yield CommonPrefix(group.decode()) if group else _info(row)
            if len(rows) < (_PAGE_GROUPED if cut else _PAGE):
                return

    def _page(self, bucket: str, start: bytes, end: bytes | None, limit: int) -> list[Any]:
        query = select(objects).where(objects.c.bucket == bucket, objects.c.key >= start)
        if end is not None:
            query = query.where(objects.c.key < end)
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(objects.c.key).limit(limit)).all()
            if not rows:
                require_bucket(connection, bucket)
            return list(rows)

    def record(self, info: StoredObject, *, forbid_overwrite: bool = False) -> Sequence[str]:
        """Make an object known whose content is a file; returns the files that are free now.

        Raises:
            StorageError: `NoSuchBucket`, or `FileAlreadyExists` when overwriting was forbidden.
        """
        return self._database.write(
            lambda connection: self.record_within(connection, info, forbid_overwrite=forbid_overwrite)
        )

    def record_within(
        self, connection: Connection, info: StoredObject, *, forbid_overwrite: bool = False
    ) -> Sequence[str]:
        """`record` in a transaction that does more."""
        key = encode_key(info.key)
        values = {
            "size_bytes": info.size_bytes,
            "etag": info.etag,
            "content_type": info.content_type,
            "modified_at": info.modified_at,
            "kind": info.kind,
            "headers": dict(info.headers),
            "crc64": None,
            "blob": info.blob,
            "part_sizes": [list(run) for run in info.part_sizes] or None,
        }
        row = connection.execute(_BUCKET_AND_BLOB, {"b_bucket": info.bucket, "b_key": key}).first()
        if row is None:
            raise fault("NoSuchBucket", bucket=info.bucket)
        if row.blob is None:
            connection.execute(_INSERT, {"bucket": info.bucket, "key": key, **values})
            return ()
        if forbid_overwrite:
            raise fault("FileAlreadyExists", bucket=info.bucket, key=info.key)
        connection.execute(_UPDATE, {"b_bucket": info.bucket, "b_key": key, **values})
        return (row.blob,)

    def extend(self, info: StoredObject, longer: StoredObject) -> None:
        """Record that an appendable object has grown.

        Raises:
            StorageError: `NoSuchKey` when it is no longer what it was.
        """
        as_it_was = (objects.c.blob == info.blob, objects.c.size_bytes == info.size_bytes)
        values = {"size_bytes": longer.size_bytes, "etag": longer.etag, "modified_at": longer.modified_at}
        where = *_is(info.bucket, encode_key(info.key)), *as_it_was

        def grow(connection: Connection) -> None:
            if connection.execute(update(objects).where(*where).values(**values)).rowcount != 1:
                raise replaced_meanwhile(info)

        self._database.write(grow)

    def forget(self, bucket: str, keys: Iterable[str]) -> Sequence[str]:
        """Forget objects, in one transaction; returns the files that are free now.

        Raises:
            StorageError: `NoSuchBucket`. A key that is not there is no error.
        """
        encoded = [encode_key(key) for key in keys]

        def drop(connection: Connection) -> list[str]:
            require_bucket(connection, bucket)
            freed = []
            for key in encoded:
                blob = connection.execute(select(objects.c.blob).where(*_is(bucket, key))).scalar()
                if blob is not None:
                    connection.execute(delete(objects).where(*_is(bucket, key)))
                    freed.append(blob)
            return freed

        return self._database.write(drop)

    def of_blobs(self, shard: str) -> list[StoredObject]:
        """The objects whose blobs are in a shard."""
        query = select(objects).where(*in_shard(objects.c.blob, shard))
        with self._database.read() as connection:
            return [_info(row) for row in connection.execute(query)]

    def forget_lost(self, info: StoredObject) -> bool:
        """Forget an object whose content is lost, unless it has other content by now; whether it was forgotten."""
        as_it_is = (objects.c.blob == info.blob, objects.c.size_bytes == info.size_bytes)
        forget = delete(objects).where(*_is(info.bucket, encode_key(info.key)), *as_it_is)
        return self._database.write(lambda connection: connection.execute(forget).rowcount) == 1


def in_shard(column: Column[str], shard: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """The condition for blobs of a shard: their names are hexadecimal and begin with its name."""
    return column >= shard, column < f"{shard}g"


def replaced_meanwhile(info: StoredObject) -> StorageError:
    """The error for an object that was there, and is not any more."""
    return fault("NoSuchKey", "The object was replaced or deleted meanwhile.", bucket=info.bucket, key=info.key)


def require_bucket(connection: Connection, name: str) -> None:
    """Raise `NoSuchBucket` unless there is such a bucket."""
    if not _bucket_exists(connection, name):
        raise fault("NoSuchBucket", bucket=name)


def _bucket_exists(connection: Connection, name: str) -> bool:
    return connection.execute(select(literal(1)).where(buckets.c.name == name)).first() is not None


def _is(bucket: str, key: bytes) -> tuple[Any, Any]:
    return objects.c.bucket == bucket, objects.c.key == key


def _info(row: Any) -> StoredObject:
    return StoredObject(
        bucket=row.bucket,
        key=bytes(row.key).decode(),
        size_bytes=row.size_bytes,
        etag=row.etag,
        content_type=row.content_type,
        modified_at=row.modified_at,
        kind=row.kind,
        headers=row.headers,
        blob=row.blob,
        part_sizes=row.part_sizes or (),
    )


def _bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise fault("InvalidArgument", "Prefix, delimiter and marker must be UTF-8.") from error


def _group(key: bytes, prefix: bytes, delimiter: bytes) -> bytes:
    """The common prefix that stands for the key in a list; empty when the key stands for itself."""
    if not delimiter or not key.startswith(prefix):
        return b""
    end = key.find(delimiter, len(prefix))
    return key[: end + len(delimiter)] if end >= 0 else b""
