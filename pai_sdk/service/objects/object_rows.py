"""Objects as rows of SQLite: their names, the contents of small ones; statements of the driver alone, for speed.

An object whose content is a row has the name of that row as its `blob`: `row-000000000017`. A copy of it names the
same row. A row that no object names any more is deleted in the transaction that deletes or replaces the last such
object; the index over `blob` tells whether there is another one.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pai_sdk.service.objects.error_codes import oss_error

__all__ = [
    "COLUMNS",
    "FIND_WITH_CONTENT",
    "MAX_ROW_BYTES",
    "RESERVED_BUCKETS",
    "ObjectKind",
    "Recorded",
    "RowCopy",
    "StoredObject",
    "check_bucket",
    "copy_row",
    "crc64_text",
    "encode_key",
    "forget",
    "is_row",
    "object_of",
    "record",
    "require_bucket",
    "successor",
]

MAX_ROW_BYTES = 64 << 10
"""A content of this size or less is a row: SQLite writes and reads it faster than the file system."""

ObjectKind = Literal["Normal", "Multipart", "Appendable"]

# With path-style addresses the first segment is the bucket; the PAI API lives under this one, on the same port.
RESERVED_BUCKETS = frozenset({"api"})

_BUCKET = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_MAX_KEY_BYTES = 1023

COLUMNS = "bucket, key, size_bytes, etag, content_type, modified_at, kind, headers, blob, part_sizes, crc64"

_ROW = "row-"  # sorts behind all names of files, so that the sweep of the files does not meet them
_FIND = f"SELECT {COLUMNS} FROM oss_objects WHERE bucket = ? AND key = ?"  # noqa: S608 - constants
_FIND_BUCKET = "SELECT 1 FROM oss_buckets WHERE name = ?"
_FIND_BLOB = "SELECT blob FROM oss_objects WHERE bucket = ? AND key = ?"
_FIND_BUCKET_AND_BLOB = f"SELECT ({_FIND_BLOB}) FROM oss_buckets WHERE name = ?"  # noqa: S608 - constants
_ADD_CONTENT = "INSERT INTO oss_contents (content) VALUES (?)"
_PUT = f"INSERT OR REPLACE INTO oss_objects ({COLUMNS}) VALUES ({', '.join('?' * 11)})"  # noqa: S608 - constants
_FORGET = "DELETE FROM oss_objects WHERE bucket = ? AND key = ?"
_FORGET_CONTENT = "DELETE FROM oss_contents WHERE id = ? AND NOT EXISTS (SELECT 1 FROM oss_objects WHERE blob = ?)"
# One statement, so that the object and the content are of the same moment.
FIND_WITH_CONTENT = f"""
    SELECT {COLUMNS}, content FROM oss_objects LEFT JOIN oss_contents
    ON oss_contents.id = CASE WHEN blob >= '{_ROW}' THEN CAST(substr(blob, {len(_ROW) + 1}) AS INTEGER) END
    WHERE bucket = ? AND key = ?
"""  # noqa: S608 - constants


@dataclass(frozen=True)
class StoredObject:
    """The facts about an object.

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
        crc64: the CRC-64/XZ of its content; None for objects that releases without this column have written.
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
    crc64: int | None = None


@dataclass(frozen=True)
class Recorded:
    """An object that was recorded, and the files that are free now."""

    info: StoredObject
    freed: Sequence[str]


@dataclass(frozen=True)
class RowCopy:
    """A copy of an object whose content is a row.

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


def check_bucket(name: str) -> str:
    """The name itself.

    Raises:
        StorageError: `InvalidBucketName`.
    """
    if not _BUCKET.fullmatch(name):
        raise oss_error("InvalidBucketName", bucket=name)
    if name in RESERVED_BUCKETS:
        raise oss_error("InvalidBucketName", f"The bucket name {name!r} is reserved; choose another.", bucket=name)
    return name


def encode_key(key: str) -> bytes:
    """A key as the index holds it: its UTF-8 bytes, so that it sorts as OSS does.

    Raises:
        StorageError: `InvalidObjectName`.
    """
    try:
        encoded = key.encode()
    except UnicodeEncodeError as error:
        raise oss_error("InvalidObjectName") from error
    if not 1 <= len(encoded) <= _MAX_KEY_BYTES or encoded[:1] in (b"/", b"\\"):
        raise oss_error("InvalidObjectName")
    return encoded


def successor(prefix: bytes) -> bytes | None:
    """The first byte string behind all those that begin with `prefix`; None when nothing can follow.

    Example:
        >>> successor(b"logs/")
        b'logs0'
    """
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


def is_row(blob: str) -> bool:
    """True if a content of that name is a row, and not a file."""
    return blob.startswith(_ROW)


def object_of(row: Any) -> StoredObject:
    """The object that a row of `COLUMNS` describes."""
    bucket, key, size_bytes, etag, content_type, modified_at, kind, headers, blob, part_sizes, crc64 = row[:11]
    return StoredObject(
        bucket=bucket,
        key=key.decode(),
        size_bytes=size_bytes,
        etag=etag,
        content_type=content_type,
        modified_at=modified_at,
        kind=kind,
        headers={} if headers == "{}" else json.loads(headers),
        blob=blob,
        part_sizes=(json.loads(part_sizes) or ()) if part_sizes else (),
        crc64=int(crc64) if crc64 else None,
    )


def crc64_text(crc64: int | None) -> str | None:
    """Returns a checksum as the index and OSS's headers have it: SQLite's integers are too short for it."""
    return None if crc64 is None else str(crc64)


def require_bucket(connection: sqlite3.Connection, name: str) -> None:
    """Raise `NoSuchBucket` unless there is such a bucket."""
    if connection.execute(_FIND_BUCKET, (name,)).fetchone() is None:
        raise oss_error("NoSuchBucket", bucket=name)


def record(
    connection: sqlite3.Connection,
    info: StoredObject,
    content: bytes | None = None,
    *,
    forbid_overwrite: bool = False,
) -> Recorded:
    """Make an object known, with its content or with the name of what holds it.

    Raises:
        StorageError: `NoSuchBucket`, or `FileAlreadyExists` when overwriting was forbidden.
    """
    key = encode_key(info.key)
    row = connection.execute(_FIND_BUCKET_AND_BLOB, (info.bucket, key, info.bucket)).fetchone()
    if row is None:
        raise oss_error("NoSuchBucket", bucket=info.bucket)
    replaced: str | None = row[0]
    if replaced is not None and forbid_overwrite:
        raise oss_error("FileAlreadyExists", bucket=info.bucket, key=info.key)
    if content is not None:
        number = connection.execute(_ADD_CONTENT, (content,)).lastrowid
        info = replace(info, blob=f"{_ROW}{number:012d}")
    values = (
        *(info.bucket, key, info.size_bytes, info.etag, info.content_type, info.modified_at, info.kind),
        json.dumps(dict(info.headers)) if info.headers else "{}",
        info.blob,
        json.dumps([list(run) for run in info.part_sizes]) if info.part_sizes else None,
        crc64_text(info.crc64),
    )
    connection.execute(_PUT, values)
    return Recorded(info, _release(connection, replaced) if replaced is not None else ())


def copy_row(connection: sqlite3.Connection, row_copy: RowCopy) -> Recorded | None:
    """Copy an object by naming its row once more; None when its content is not a row.

    Raises:
        StorageError: `NoSuchBucket`, `NoSuchKey`, `FileAlreadyExists`, or what `check_source` raises.
    """
    require_bucket(connection, row_copy.bucket)
    row = connection.execute(_FIND, (row_copy.source_bucket, encode_key(row_copy.source_key))).fetchone()
    if row is None:
        require_bucket(connection, row_copy.source_bucket)
        raise oss_error("NoSuchKey", bucket=row_copy.source_bucket, key=row_copy.source_key)
    info = object_of(row)
    if not is_row(info.blob):
        return None
    row_copy.check_source(info)
    headers, content_type = row_copy.changed or (info.headers, info.content_type)
    target = StoredObject(
        bucket=row_copy.bucket,
        key=row_copy.key,
        size_bytes=info.size_bytes,
        etag=info.etag,
        content_type=content_type,
        headers=headers,
        blob=info.blob,
        crc64=info.crc64,
    )
    return record(connection, target, forbid_overwrite=row_copy.forbid_overwrite)


def forget(connection: sqlite3.Connection, bucket: str, keys: Iterable[bytes]) -> Sequence[str]:
    """Forget objects; returns the files that are free now.

    Raises:
        StorageError: `NoSuchBucket`. A key that is not there is no error.
    """
    require_bucket(connection, bucket)
    freed: list[str] = []
    for key in keys:
        row = connection.execute(_FIND_BLOB, (bucket, key)).fetchone()
        if row is not None:
            connection.execute(_FORGET, (bucket, key))
            freed += _release(connection, row[0])
    return freed


def _release(connection: sqlite3.Connection, blob: str) -> Sequence[str]:
    """Delete a row that no object names any more; the name itself when it is that of a file."""
    if not is_row(blob):
        return (blob,)
    connection.execute(_FORGET_CONTENT, (int(blob.removeprefix(_ROW)), blob))
    return ()
