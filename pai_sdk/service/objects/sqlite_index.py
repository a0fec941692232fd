"""The index in SQLite, which also holds the contents of small objects; by the driver alone, for speed.

An object whose content is a row has the name of that row as its `blob`: `row-000000000017`. A copy of it names the
same row. A row that no object names any more is deleted in the transaction that deletes or replaces the last such
object; the index over `blob` tells whether there is another one.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection

from pai_sdk.service.objects.error_codes import fault
from pai_sdk.service.objects.index import ObjectIndex, StoredObject
from pai_sdk.service.objects.index_database import IndexDatabase
from pai_sdk.service.objects.object_names import encode_key
from pai_sdk.service.objects.writer import Operation, Writer, sqlite_of

__all__ = ["MOST_ROW_BYTES", "CopyOfRow", "Recorded", "SqliteIndex", "is_row"]

MOST_ROW_BYTES = 64 << 10
"""A content of this size or less is a row: SQLite writes and reads it faster than the file system."""

_ROW = "row-"  # sorts behind all names of files, so that the sweep of the files does not meet them
_COLUMNS = "size_bytes, etag, content_type, modified_at, kind, headers, blob, part_sizes"
_FIND = f"SELECT {_COLUMNS} FROM oss_objects WHERE bucket = ? AND key = ?"  # noqa: S608 - constants
# One statement, so that the object and the content are of the same moment.
_FIND_WITH_CONTENT = f"""
    SELECT {_COLUMNS}, content FROM oss_objects LEFT JOIN oss_contents
    ON oss_contents.id = CASE WHEN blob >= '{_ROW}' THEN CAST(substr(blob, {len(_ROW) + 1}) AS INTEGER) END
    WHERE bucket = ? AND key = ?
"""  # noqa: S608 - constants
_FIND_BUCKET = "SELECT 1 FROM oss_buckets WHERE name = ?"
_FIND_BLOB = "SELECT blob FROM oss_objects WHERE bucket = ? AND key = ?"
_FIND_BUCKET_AND_BLOB = f"SELECT ({_FIND_BLOB}) FROM oss_buckets WHERE name = ?"  # noqa: S608 - constants
_ADD_CONTENT = "INSERT INTO oss_contents (content) VALUES (?)"
_PUT = (
    "INSERT OR REPLACE INTO oss_objects (bucket, key, size_bytes, etag, content_type, modified_at, kind, headers, "
    "blob, part_sizes) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_FORGET = "DELETE FROM oss_objects WHERE bucket = ? AND key = ?"
_FORGET_CONTENT = "DELETE FROM oss_contents WHERE id = ? AND NOT EXISTS (SELECT 1 FROM oss_objects WHERE blob = ?)"


@dataclass(frozen=True)
class Recorded:
    """An object that was recorded, and the files that are free now."""

    info: StoredObject
    freed: Sequence[str]


@dataclass(frozen=True)
class CopyOfRow:
    """What is to be copied, and to where, if its content is a row.

    Attributes:
        source_bucket: the bucket of the source.
        source_key: its key.
        bucket: the bucket it is copied to.
        key: the key there.
        changed: headers and content type of the copy; None keeps those of the source.
        forbid_overwrite: refuse when there is something at the key.
        check_source: raises, unless the object is the one that is meant.
    """

    source_bucket: str
    source_key: str
    bucket: str
    key: str
    changed: tuple[Mapping[str, str], str] | None
    forbid_overwrite: bool
    check_source: Callable[[StoredObject], None]


class SqliteIndex(ObjectIndex):
    """An `ObjectIndex` that keeps the contents of small objects.

    The operations come in pairs: one waits until it is on the disk, one is awaited by an event loop. `find` and
    `find_with_content` may be called in an event loop.
    """

    def __init__(self, database: IndexDatabase, writer: Writer) -> None:
        super().__init__(database)
        self._writer = writer

    # ---- reading --------------------------------------------------------------------------------------------

    def find(self, bucket: str, key: str) -> StoredObject:
        """What is known of an object.

        Raises:
            StorageError: `NoSuchKey` or `NoSuchBucket`.
        """
        return _info(bucket, key, self._row(_FIND, bucket, key))

    def find_with_content(self, bucket: str, key: str) -> tuple[StoredObject, bytes | None]:
        """An object and its content; None for the content that is not a row, or that is lost.

        Raises:
            StorageError: `NoSuchKey` or `NoSuchBucket`.
        """
        row = self._row(_FIND_WITH_CONTENT, bucket, key)
        return _info(bucket, key, row), row[8]

    def _row(self, statement: str, bucket: str, key: str) -> Any:
        rows = self._database.query(statement, (bucket, encode_key(key)))
        if not rows:
            raise self._not_there(bucket, key)
        return rows[0]

    def _not_there(self, bucket: str, key: str) -> Exception:
        if self._database.query(_FIND_BUCKET, (bucket,)):
            return fault("NoSuchKey", bucket=bucket, key=key)
        return fault("NoSuchBucket", bucket=bucket)

    # ---- writing --------------------------------------------------------------------------------------------

    def put(self, info: StoredObject, content: bytes, *, forbid_overwrite: bool = False) -> Recorded:
        """Record an object together with its content.

        Raises:
            StorageError: `NoSuchBucket`, or `FileAlreadyExists` when overwriting was forbidden.
        """
        return self._writer.run(_put(info, content, forbid_overwrite=forbid_overwrite))

    def put_soon(
        self, info: StoredObject, content: bytes, *, forbid_overwrite: bool = False
    ) -> asyncio.Future[Recorded]:
        """`put` for an event loop."""
        return self._writer.run_soon(_put(info, content, forbid_overwrite=forbid_overwrite))

    def copy(self, wanted: CopyOfRow) -> Recorded | None:
        """Copy an object by naming its row once more; None when its content is not a row.

        Raises:
            StorageError: `NoSuchBucket`, `NoSuchKey`, `FileAlreadyExists`, or what `check_source` raises.
        """
        return self._writer.run(_copy(wanted))

    def copy_soon(self, wanted: CopyOfRow) -> asyncio.Future[Recorded | None]:
        """`copy` for an event loop."""
        return self._writer.run_soon(_copy(wanted))

    def forget(self, bucket: str, keys: Iterable[str]) -> Sequence[str]:
        """Forget objects, in one transaction; returns the files that are free now.

        Raises:
            StorageError: `NoSuchBucket`. A key that is not there is no error.
        """
        return self._writer.run(_forget(bucket, [encode_key(key) for key in keys]))

    def forget_soon(self, bucket: str, keys: Iterable[str]) -> asyncio.Future[Sequence[str]]:
        """`forget` for an event loop."""
        return self._writer.run_soon(_forget(bucket, [encode_key(key) for key in keys]))

    def record_within(
        self, connection: Connection, info: StoredObject, *, forbid_overwrite: bool = False
    ) -> Sequence[str]:
        """Record an object whose content is a file; returns the files that are free now."""
        return _record(sqlite_of(connection), info, None, forbid_overwrite=forbid_overwrite).freed


def is_row(blob: str) -> bool:
    """Whether a content of that name is a row, and not a file."""
    return blob.startswith(_ROW)


def _put(info: StoredObject, content: bytes, *, forbid_overwrite: bool) -> Operation[Recorded]:
    return lambda connection: _record(sqlite_of(connection), info, content, forbid_overwrite=forbid_overwrite)


def _copy(wanted: CopyOfRow) -> Operation[Recorded | None]:
    source = encode_key(wanted.source_key)

    def copy(connection: Connection) -> Recorded | None:
        database = sqlite_of(connection)
        _require_bucket(database, wanted.bucket)
        row = database.execute(_FIND, (wanted.source_bucket, source)).fetchone()
        if row is None:
            _require_bucket(database, wanted.source_bucket)
            raise fault("NoSuchKey", bucket=wanted.source_bucket, key=wanted.source_key)
        info = _info(wanted.source_bucket, wanted.source_key, row)
        if not is_row(info.blob):
            return None
        wanted.check_source(info)
        headers, content_type = wanted.changed or (info.headers, info.content_type)
        made = StoredObject(
            bucket=wanted.bucket,
            key=wanted.key,
            size_bytes=info.size_bytes,
            etag=info.etag,
            content_type=content_type,
            headers=headers,
            blob=info.blob,
        )
        return _record(database, made, None, forbid_overwrite=wanted.forbid_overwrite)

    return copy


def _forget(bucket: str, keys: Sequence[bytes]) -> Operation[Sequence[str]]:
    def forget(connection: Connection) -> Sequence[str]:
        database = sqlite_of(connection)
        _require_bucket(database, bucket)
        freed: list[str] = []
        for key in keys:
            found = database.execute(_FIND_BLOB, (bucket, key)).fetchone()
            if found is not None:
                database.execute(_FORGET, (bucket, key))
                freed += _release(database, found[0])
        return freed

    return forget


def _record(
    database: sqlite3.Connection, info: StoredObject, content: bytes | None, *, forbid_overwrite: bool
) -> Recorded:
    """Make an object known, with its content or with the name of what holds it."""
    key = encode_key(info.key)
    found = database.execute(_FIND_BUCKET_AND_BLOB, (info.bucket, key, info.bucket)).fetchone()
    if found is None:
        raise fault("NoSuchBucket", bucket=info.bucket)
    replaced: str | None = found[0]
    if replaced is not None and forbid_overwrite:
        raise fault("FileAlreadyExists", bucket=info.bucket, key=info.key)
    if content is not None:
        number = database.execute(_ADD_CONTENT, (content,)).lastrowid
        info = replace(info, blob=f"{_ROW}{number:012d}")
    values = (
        *(info.bucket, key, info.size_bytes, info.etag, info.content_type, info.modified_at, info.kind),
        json.dumps(dict(info.headers)) if info.headers else "{}",
        info.blob,
        json.dumps([list(run) for run in info.part_sizes]) if info.part_sizes else None,
    )
    database.execute(_PUT, values)
    return Recorded(info, _release(database, replaced) if replaced is not None else ())


def _release(database: sqlite3.Connection, blob: str) -> Sequence[str]:
    """Delete a row that no object names any more; the name itself when it is that of a file."""
    if not is_row(blob):
        return (blob,)
    database.execute(_FORGET_CONTENT, (int(blob.removeprefix(_ROW)), blob))
    return ()


def _require_bucket(database: sqlite3.Connection, name: str) -> None:
    if database.execute(_FIND_BUCKET, (name,)).fetchone() is None:
        raise fault("NoSuchBucket", bucket=name)


def _info(bucket: str, key: str, row: Any) -> StoredObject:
    size_bytes, etag, content_type, modified_at, kind, headers, blob, part_sizes = row[:8]
    return StoredObject(
        bucket=bucket,
        key=key,
        size_bytes=size_bytes,
        etag=etag,
        content_type=content_type,
        modified_at=modified_at,
        kind=kind,
        headers={} if headers == "{}" else json.loads(headers),
        blob=blob,
        part_sizes=(json.loads(part_sizes) or ()) if part_sizes else (),
    )
