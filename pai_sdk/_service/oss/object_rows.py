"""Objects as rows of SQLite, with the contents of small ones; uses sqlite3 directly, for speed.

An object whose content is a row has the name of that row as its `blob`: `row-000000000017`. A copy refers to the
same row. The transaction that deletes or replaces the last object of a row deletes the row too; the index on
`blob` finds out whether there is another object.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pai_sdk._service.oss.error_codes import oss_error

MAX_ROW_BYTES = 64 << 10
"""Content up to this size is stored as a row: SQLite writes and reads it faster than the file system."""


@dataclass(frozen=True)
class ContentLimits:
    """Which contents are rows, and when external ones are swept."""

    max_row_bytes: int = MAX_ROW_BYTES
    min_external_age_s: float = 24 * 3600.0  # another service may be about to reference a younger one


DEFAULT_LIMITS = ContentLimits()


ObjectKind = Literal["Normal", "Multipart", "Appendable"]

# In path-style addresses the first segment is the bucket; the PAI API uses this one, on the same port.
RESERVED_BUCKETS = frozenset({"api"})

_BUCKET = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_MAX_KEY_BYTES = 1023

COLUMNS = "bucket, key, size_bytes, etag, content_type, modified_at, kind, headers, blob, part_sizes, crc64"

_ROW = "row-"  # sorts after all names of files, so that the sweep of files does not list rows
_FIND = f"SELECT {COLUMNS} FROM oss_objects WHERE bucket = ? AND key = ?"  # noqa: S608 - constants
_FIND_BUCKET = "SELECT 1 FROM oss_buckets WHERE name = ?"
_FIND_BLOB = "SELECT blob FROM oss_objects WHERE bucket = ? AND key = ?"
_FIND_BUCKET_AND_BLOB = f"SELECT ({_FIND_BLOB}) FROM oss_buckets WHERE name = ?"  # noqa: S608 - constants
_ADD_CONTENT = "INSERT INTO oss_contents (content) VALUES (?)"
_PUT = f"INSERT OR REPLACE INTO oss_objects ({COLUMNS}) VALUES ({', '.join('?' * 11)})"  # noqa: S608 - constants
_FORGET = "DELETE FROM oss_objects WHERE bucket = ? AND key = ?"
_FORGET_CONTENT = "DELETE FROM oss_contents WHERE id = ? AND NOT EXISTS (SELECT 1 FROM oss_objects WHERE blob = ?)"
# One statement, so that object and content belong to the same version.
FIND_WITH_CONTENT = f"""
    SELECT {COLUMNS}, content FROM oss_objects LEFT JOIN oss_contents
    ON oss_contents.id = CASE WHEN blob >= '{_ROW}' THEN CAST(substr(blob, {len(_ROW) + 1}) AS INTEGER) END
    WHERE bucket = ? AND key = ?
"""  # noqa: S608 - constants


@dataclass(frozen=True)
class StoredObject:
    """The metadata of an object."""

    bucket: str
    key: str
    size_bytes: int
    etag: str  # upper-case hexadecimal, without quotes; the MD5 of small objects
    content_type: str = "application/octet-stream"
    modified_at: float = field(default_factory=time.time)  # seconds since 1970
    kind: ObjectKind = "Normal"
    headers: Mapping[str, str] = field(default_factory=dict)  # returned with it: `x-oss-meta-*`, `Cache-Control`
    blob: str = ""  # the file with the content, or the row of `oss_contents`
    part_sizes: Sequence[Sequence[int]] = ()  # pairs of size and count, in the order of the parts; empty: unknown
    crc64: int | None = None  # CRC-64/XZ; None for objects of releases without this column


@dataclass(frozen=True)
class Recorded:
    """A recorded object, and the files that are unused now."""

    info: StoredObject
    freed: Sequence[str]


@dataclass(frozen=True)
class RowCopy:
    """A copy of an object whose content is a row."""

    source_bucket: str
    source_key: str
    bucket: str
    key: str
    changed: tuple[Mapping[str, str], str] | None  # headers and content type; None copies those of the source
    forbid_overwrite: bool
    check_source: Callable[[StoredObject], None]  # raises if the client's conditions for the source are not met


def check_bucket(name: str) -> str:
    """Returns the name if it is valid, or raises `InvalidBucketName`."""
    if not _BUCKET.fullmatch(name):
        raise oss_error("InvalidBucketName", bucket=name)
    if name in RESERVED_BUCKETS:
        raise oss_error("InvalidBucketName", f"The bucket name {name!r} is reserved; choose another.", bucket=name)
    return name


def encode_key(key: str) -> bytes:
    """Returns the UTF-8 bytes of a key, which sort as in OSS; raises `InvalidObjectName`."""
    try:
        encoded = key.encode()
    except UnicodeEncodeError as error:
        raise oss_error("InvalidObjectName") from error
    if not 1 <= len(encoded) <= _MAX_KEY_BYTES or encoded[:1] in (b"/", b"\\"):
        raise oss_error("InvalidObjectName")
    return encoded


def successor(prefix: bytes) -> bytes | None:
    """Returns the first byte string after all those that begin with `prefix`; None if there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


def is_row(blob: str) -> bool:
    """Returns whether the content of that name is a row and not a file."""
    return blob.startswith(_ROW)


def object_of(row: Any) -> StoredObject:
    """Returns the object of a row of `COLUMNS`."""
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
    """Returns a checksum as a string: SQLite's integers are signed and too short for it."""
    return None if crc64 is None else str(crc64)


def require_bucket(connection: sqlite3.Connection, name: str) -> None:
    """Raises `NoSuchBucket` unless the bucket exists."""
    if connection.execute(_FIND_BUCKET, (name,)).fetchone() is None:
        raise oss_error("NoSuchBucket", bucket=name)


def record(
    connection: sqlite3.Connection,
    info: StoredObject,
    content: bytes | None = None,
    *,
    forbid_overwrite: bool = False,
) -> Recorded:
    """Records an object, with its content or with the name of its blob."""
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
    """Copies an object by a second reference to its row; returns None if its content is not a row."""
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
    """Forgets objects, ignores missing keys; returns the files that are unused now."""
    require_bucket(connection, bucket)
    freed: list[str] = []
    for key in keys:
        row = connection.execute(_FIND_BLOB, (bucket, key)).fetchone()
        if row is not None:
            connection.execute(_FORGET, (bucket, key))
            freed += _release(connection, row[0])
    return freed


def _release(connection: sqlite3.Connection, blob: str) -> Sequence[str]:
    """Deletes a row that no object refers to any more; returns the name if it is a file."""
    if not is_row(blob):
        return (blob,)
    connection.execute(_FORGET_CONTENT, (int(blob.removeprefix(_ROW)), blob))
    return ()
