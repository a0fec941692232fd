"""The index of the object store: buckets, objects, and which blob has the content of which object."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pai_sdk._service.oss.error_codes import oss_error
from pai_sdk._service.oss.index_database import IndexDatabase
from pai_sdk._service.oss.object_rows import (
    COLUMNS,
    FIND_WITH_CONTENT,
    Recorded,
    RowCopy,
    StoredObject,
    copy_row,
    crc64_text,
    encode_key,
    forget,
    object_of,
    record,
    require_bucket,
    successor,
)
from pai_sdk.errors import StorageError

_PAGE = 1000
_PAGE_GROUPED = 100  # smaller: the rows of a page that fall into one group are read in vain
_END = b"\xff"  # sorts after all keys: UTF-8 never contains this byte

_SELECT = f"SELECT {COLUMNS} FROM oss_objects WHERE"  # noqa: S608 - constants
_FIND = f"{_SELECT} bucket = ? AND key = ?"
_FIND_PAGE = f"{_SELECT} bucket = ? AND key >= ? AND key < ? ORDER BY key LIMIT ?"
_OF_BLOBS = f"{_SELECT} blob >= ? AND blob < ?"
_IS_UNCHANGED = "bucket = ? AND key = ? AND blob = ? AND size_bytes = ?"


@dataclass(frozen=True)
class CommonPrefix:
    """Represents all keys of a list that begin with it."""

    prefix: str


@dataclass(frozen=True)
class BucketInfo:
    """A bucket: its name and creation time in seconds since 1970."""

    name: str
    created_at: float


class ObjectIndex:
    """Finds, lists, records and forgets objects. It does not access files: it returns the names of unused ones.

    Some operations come in pairs: one blocks until it is on the disk, one (`…_soon`) is awaited by an event loop.
    `find` and `find_with_content` can be called in an event loop.
    """

    def __init__(self, database: IndexDatabase) -> None:
        self._database = database
        self._writer = database.writer

    # ---- buckets --------------------------------------------------------------------------------------------

    def add_bucket(self, name: str) -> bool:
        """Records a bucket; returns False if it exists already."""
        add = "INSERT OR IGNORE INTO oss_buckets (name, created_at) VALUES (?, ?)"
        return self._database.write(lambda db: db.execute(add, (name, time.time())).rowcount) == 1

    def bucket(self, name: str) -> BucketInfo:
        """Returns the bucket of that name, or raises `NoSuchBucket`."""
        rows = self._database.query("SELECT name, created_at FROM oss_buckets WHERE name = ?", (name,))
        if not rows:
            raise oss_error("NoSuchBucket", bucket=name)
        return BucketInfo(*rows[0])

    def buckets(self) -> list[BucketInfo]:
        """Returns all buckets, sorted by name."""
        rows = self._database.query("SELECT name, created_at FROM oss_buckets ORDER BY name", ())
        return [BucketInfo(*row) for row in rows]

    def drop_bucket(self, name: str) -> None:
        """Forgets an empty bucket; raises `NoSuchBucket` or `BucketNotEmpty`."""

        def drop(connection: sqlite3.Connection) -> None:
            require_bucket(connection, name)
            for table in ("oss_objects", "oss_uploads"):
                find = f"SELECT 1 FROM {table} WHERE bucket = ? LIMIT 1"  # noqa: S608 - constants
                if connection.execute(find, (name,)).fetchone():
                    raise oss_error("BucketNotEmpty", bucket=name)
            connection.execute("DELETE FROM oss_buckets WHERE name = ?", (name,))

        self._database.write(drop)

    # ---- reading --------------------------------------------------------------------------------------------

    def find(self, bucket: str, key: str) -> StoredObject:
        """Returns the metadata of an object; raises `NoSuchKey` or `NoSuchBucket`."""
        return object_of(self._row(_FIND, bucket, key))

    def find_with_content(self, bucket: str, key: str) -> tuple[StoredObject, bytes | None]:
        """Returns an object and its content; None for content that is not a row, or is lost."""
        row = self._row(FIND_WITH_CONTENT, bucket, key)
        return object_of(row), row[11]

    def _row(self, statement: str, bucket: str, key: str) -> Any:
        rows = self._database.query(statement, (bucket, encode_key(key)))
        if not rows:
            self._database.require_bucket(bucket)
            raise oss_error("NoSuchKey", bucket=bucket, key=key)
        return rows[0]

    def entries(
        self, bucket: str, *, prefix: str = "", delimiter: str = "", after: str = ""
    ) -> Iterator[StoredObject | CommonPrefix]:
        """Yields objects and common prefixes after `after`, sorted by UTF-8 bytes; reads them in pages."""
        stem, separator, marker = (_bytes(text) for text in (prefix, delimiter, after))
        end = successor(stem) or _END
        group = _group(marker, stem, separator)
        # A group that contains or equals the marker was listed already.
        start = max(stem, (successor(group) if group else marker + b"\0" if marker else b"") or b"")
        limit = _PAGE_GROUPED if separator else _PAGE
        while True:
            rows = self._database.query(_FIND_PAGE, (bucket, start, end, limit))
            # Checked here only: a bucket with rows exists.
            if not rows:
                self._database.require_bucket(bucket)
            for row in rows:
                key: bytes = row[1]
                if key < start:
                    continue
                group = _group(key, stem, separator)
                start = (successor(group) if group else None) or key + b"\0"
                yield CommonPrefix(group.decode()) if group else object_of(row)
            if len(rows) < limit:
                return

    def of_blobs(self, shard: str) -> list[StoredObject]:
        """Returns the objects whose blobs are in a shard; names of files are hexadecimal."""
        return [object_of(row) for row in self._database.query(_OF_BLOBS, (shard, f"{shard}g"))]

    # ---- writing --------------------------------------------------------------------------------------------

    def record(self, info: StoredObject, *, forbid_overwrite: bool = False) -> Sequence[str]:
        """Records an object whose content is a file; returns the files that are unused now."""
        return self._database.write(lambda db: record(db, info, forbid_overwrite=forbid_overwrite)).freed

    def put(self, info: StoredObject, content: bytes, *, forbid_overwrite: bool = False) -> Recorded:
        """Records an object together with its content."""
        return self._writer.run(lambda db: record(db, info, content, forbid_overwrite=forbid_overwrite))

    def put_soon(
        self, info: StoredObject, content: bytes, *, forbid_overwrite: bool = False
    ) -> asyncio.Future[Recorded]:
        """Runs `put` for an event loop."""
        return self._writer.run_soon(lambda db: record(db, info, content, forbid_overwrite=forbid_overwrite))

    def copy(self, row_copy: RowCopy) -> Recorded | None:
        """Copies an object by a second reference to its row; returns None if its content is not a row."""
        return self._writer.run(lambda db: copy_row(db, row_copy))

    def copy_soon(self, row_copy: RowCopy) -> asyncio.Future[Recorded | None]:
        """Runs `copy` for an event loop."""
        return self._writer.run_soon(lambda db: copy_row(db, row_copy))

    def extend(self, info: StoredObject, longer: StoredObject) -> None:
        """Records that an appendable object has grown; raises `NoSuchKey` if it was replaced or deleted."""
        grow = f"UPDATE oss_objects SET size_bytes = ?, etag = ?, modified_at = ?, crc64 = ? WHERE {_IS_UNCHANGED}"  # noqa: S608
        values = (longer.size_bytes, longer.etag, longer.modified_at, crc64_text(longer.crc64), *_identity(info))
        if self._database.write(lambda db: db.execute(grow, values).rowcount) != 1:
            raise replaced_error(info)

    def forget(self, bucket: str, keys: Iterable[str]) -> Sequence[str]:
        """Forgets objects in one transaction, ignores missing keys; returns the files that are unused now."""
        return self._writer.run(_forget(bucket, keys))

    def forget_soon(self, bucket: str, keys: Iterable[str]) -> asyncio.Future[Sequence[str]]:
        """Runs `forget` for an event loop."""
        return self._writer.run_soon(_forget(bucket, keys))

    def forget_lost(self, info: StoredObject) -> bool:
        """Forgets an object whose content is lost, unless it was replaced; returns whether it was forgotten."""
        drop = f"DELETE FROM oss_objects WHERE {_IS_UNCHANGED}"  # noqa: S608 - constants
        return self._database.write(lambda db: db.execute(drop, _identity(info)).rowcount) == 1


def replaced_error(info: StoredObject) -> StorageError:
    """Returns the error for an object that was replaced or deleted during a request."""
    return oss_error(
        "NoSuchKey", "The object was replaced or deleted meanwhile.", bucket=info.bucket, key=info.key
    )


def _forget(bucket: str, keys: Iterable[str]) -> Callable[[sqlite3.Connection], Sequence[str]]:
    encoded = [encode_key(key) for key in keys]
    return lambda db: forget(db, bucket, encoded)


def _identity(info: StoredObject) -> tuple[Any, ...]:
    return info.bucket, encode_key(info.key), info.blob, info.size_bytes


def _bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise oss_error("InvalidArgument", "Prefix, delimiter and marker must be UTF-8.") from error


def _group(key: bytes, prefix: bytes, delimiter: bytes) -> bytes:
    """Returns the common prefix that represents the key in a list; empty if the key is listed itself."""
    if not delimiter or not key.startswith(prefix):
        return b""
    end = key.find(delimiter, len(prefix))
    return key[: end + len(delimiter)] if end >= 0 else b""
