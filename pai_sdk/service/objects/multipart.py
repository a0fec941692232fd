"""Uploads in parts: each part is a blob, and at the end one new blob is made of them all."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from pai_sdk.service.objects.blobs import BlobFolder, BlobWriter
from pai_sdk.service.objects.error_codes import oss_error
from pai_sdk.service.objects.index_database import IndexDatabase
from pai_sdk.service.objects.object_rows import StoredObject, encode_key, record, require_bucket, successor

__all__ = ["MAX_PARTS", "MIN_PART_BYTES", "MultipartUploads", "PartOfUpload", "UploadInfo", "UploadedPart"]

MAX_PARTS = 10_000
MIN_PART_BYTES = 100 * 1024
_ID = re.compile("[0-9A-F]{32}")
_END = b"\xff"  # behind all keys: UTF-8 has no such byte

_UPLOAD = "id, bucket, key, content_type, headers, started_at"
_PART = "number, size_bytes, etag, modified_at, blob"
_ADD_UPLOAD = f"INSERT INTO oss_uploads ({_UPLOAD}) VALUES (?, ?, ?, ?, ?, ?)"  # noqa: S608 - constants
_PUT_PART = f"INSERT OR REPLACE INTO oss_parts (upload, {_PART}) VALUES (?, ?, ?, ?, ?, ?)"  # noqa: S608 - constants
_FIND = f"SELECT {_UPLOAD} FROM oss_uploads WHERE id = ? AND bucket = ? AND key = ?"  # noqa: S608 - constants
_IDLE = f"""
    SELECT {_UPLOAD} FROM oss_uploads WHERE started_at < :time
    AND NOT EXISTS (SELECT 1 FROM oss_parts WHERE upload = id AND oss_parts.modified_at >= :time)
"""  # noqa: S608 - constants


@dataclass(frozen=True)
class UploadedPart:
    """A part that has arrived."""

    number: int
    size_bytes: int
    etag: str
    modified_at: float
    blob: str


@dataclass(frozen=True)
class PartOfUpload:
    """A part, and the upload that it belongs to."""

    upload_id: str
    part: UploadedPart


@dataclass(frozen=True)
class UploadInfo:
    """An upload that was begun, and neither completed nor aborted."""

    id: str
    bucket: str
    key: str
    content_type: str
    headers: Mapping[str, str]
    started_at: float


class MultipartUploads:
    """Begins, feeds, completes, aborts and lists uploads in parts."""

    def __init__(self, database: IndexDatabase, blobs: BlobFolder) -> None:
        self._database, self._blobs = database, blobs

    def start(self, bucket: str, key: str, *, content_type: str, headers: Mapping[str, str]) -> str:
        """Begin an upload; returns its id."""
        upload_id = uuid.uuid4().hex.upper()
        values = (upload_id, bucket, encode_key(key), content_type, json.dumps(dict(headers)), time.time())

        def begin(connection: sqlite3.Connection) -> str:
            require_bucket(connection, bucket)
            connection.execute(_ADD_UPLOAD, values)
            return upload_id

        return self._database.write(begin)

    def find(self, bucket: str, key: str, upload_id: str) -> UploadInfo:
        """The upload of that id.

        Raises:
            StorageError: `NoSuchUpload`.
        """
        rows = _ID.fullmatch(upload_id) and self._database.query(_FIND, (upload_id, bucket, encode_key(key)))
        if not rows:
            self._database.require_bucket(bucket)
            raise oss_error("NoSuchUpload", bucket=bucket, key=key)
        return _upload(rows[0])

    def add_part(self, writer: BlobWriter, bucket: str, key: str, upload_id: str, number: int) -> UploadedPart:
        """Take what was written as a part; one of the same number is replaced."""
        blob = writer.finish()
        part = UploadedPart(number, blob.size_bytes, blob.md5, time.time(), blob.name)
        try:
            replaced = self._record_part(part, bucket, key, upload_id)
        except BaseException:
            self._blobs.remove([blob.name])
            raise
        if replaced is not None:
            self._blobs.remove([replaced])
        return part

    def _record_part(self, part: UploadedPart, bucket: str, key: str, upload_id: str) -> str | None:
        values = (upload_id, part.number, part.size_bytes, part.etag, part.modified_at, part.blob)
        find = "SELECT blob FROM oss_parts WHERE upload = ? AND number = ?"

        def add(connection: sqlite3.Connection) -> str | None:
            _require(connection, bucket, key, upload_id)
            replaced = connection.execute(find, (upload_id, part.number)).fetchone()
            connection.execute(_PUT_PART, values)
            return replaced[0] if replaced else None

        return self._database.write(add)

    def parts(
        self, bucket: str, key: str, upload_id: str, *, after: int = 0, limit: int = MAX_PARTS
    ) -> list[UploadedPart]:
        """The parts that have arrived, by number."""
        self.find(bucket, key, upload_id)
        query = f"SELECT {_PART} FROM oss_parts WHERE upload = ? AND number > ? ORDER BY number LIMIT ?"  # noqa: S608
        return [UploadedPart(*row) for row in self._database.query(query, (upload_id, after, limit))]

    def complete(
        self,
        bucket: str,
        key: str,
        upload_id: str,
        listed: Sequence[tuple[int, str]] | None = None,
        *,
        forbid_overwrite: bool = False,
    ) -> StoredObject:
        """Make the object of its parts.

        Args:
            bucket: the bucket.
            key: the object's key.
            upload_id: the upload.
            listed: number and ETag of each part to take; None for all that have arrived.
            forbid_overwrite: refuse when there is something at the key.

        Raises:
            StorageError: `NoSuchUpload`, `InvalidPart`, `InvalidPartOrder`, `EntityTooSmall`, `FileAlreadyExists`.
        """
        upload = self.find(bucket, key, upload_id)
        taken, blob = self._joined(bucket, key, upload_id, listed)
        info = StoredObject(
            bucket=bucket,
            key=key,
            size_bytes=sum(part.size_bytes for part in taken),
            etag=_combined_etag(taken),
            content_type=upload.content_type,
            kind="Multipart",
            headers=upload.headers,
            blob=blob,
            part_sizes=[[size, len([*same])] for size, same in groupby(part.size_bytes for part in taken)],
        )

        def end(connection: sqlite3.Connection) -> list[str]:
            freed = _forget(connection, bucket, key, upload_id)
            return [*freed, *record(connection, info, forbid_overwrite=forbid_overwrite).freed]

        try:
            freed = self._database.write(end)
        except BaseException:
            self._blobs.remove([blob])
            raise
        self._blobs.remove(freed)
        return info

    def _joined(
        self, bucket: str, key: str, upload_id: str, listed: Sequence[tuple[int, str]] | None
    ) -> tuple[Sequence[UploadedPart], str]:
        """The parts that the object is made of, and a new blob of them all."""
        taken: Sequence[UploadedPart] = ()
        while True:
            before, taken = taken, _choose(self.parts(bucket, key, upload_id), listed)
            try:
                blob = self._blobs.join([part.blob for part in taken])
                if self._blobs.size_of(blob) == sum(part.size_bytes for part in taken):
                    return taken, blob
                self._blobs.remove([blob])
                raise oss_error("InvalidPart", "A part was cut off on the disk of the service; upload it again.")
            except FileNotFoundError as error:
                # A part came again while we were at it, or the upload ended; else its blob is lost.
                if taken == before:
                    raise oss_error("InvalidPart", bucket=bucket, key=key) from error

    def abort(self, bucket: str, key: str, upload_id: str) -> None:
        """End an upload and remove its parts."""
        self._blobs.remove(self._database.write(lambda connection: _forget(connection, bucket, key, upload_id)))

    def of_blobs(self, shard: str) -> list[PartOfUpload]:
        """The parts whose blobs are in a shard."""
        query = f"SELECT upload, {_PART} FROM oss_parts WHERE blob >= ? AND blob < ?"  # noqa: S608 - constants
        rows = self._database.query(query, (shard, f"{shard}g"))
        return [PartOfUpload(upload, UploadedPart(*part)) for upload, *part in rows]

    def forget_lost(self, lost: PartOfUpload) -> bool:
        """Forget a part whose content is lost, unless it has come again; whether it was forgotten."""
        drop = "DELETE FROM oss_parts WHERE upload = ? AND number = ? AND blob = ?"
        of = (lost.upload_id, lost.part.number, lost.part.blob)
        return self._database.write(lambda connection: connection.execute(drop, of).rowcount) == 1

    def idle_since(self, time_s: float) -> Sequence[UploadInfo]:
        """The uploads of all buckets that were begun before then, and have no part that came later."""
        return [_upload(row) for row in self._database.query(_IDLE, {"time": time_s})]

    def expire(self, upload: UploadInfo, time_s: float) -> bool:
        """Abort an upload, unless a part has arrived since then or it has ended; whether it was aborted."""

        def end(connection: sqlite3.Connection) -> list[str] | None:
            if connection.execute(f"{_IDLE} AND id = :id", {"time": time_s, "id": upload.id}).fetchone() is None:
                return None
            return _forget(connection, upload.bucket, upload.key, upload.id)

        freed = self._database.write(end)
        self._blobs.remove(freed or ())
        return freed is not None

    def list(self, bucket: str, *, prefix: str = "", after: tuple[str, str] = ("", "")) -> list[UploadInfo]:
        """The unfinished uploads of a bucket, by key and id, behind a key or behind one upload of a key."""
        key_marker, id_marker = after[0].encode(), after[1]
        stem = prefix.encode()
        query = f"SELECT {_UPLOAD} FROM oss_uploads WHERE bucket = ? AND key >= ? AND key < ? ORDER BY key, id"  # noqa: S608
        rows = self._database.query(query, (bucket, max(stem, key_marker), successor(stem) or _END))
        if not rows:
            self._database.require_bucket(bucket)
        found = [_upload(row) for row in rows]
        return [upload for upload in found if _is_behind(upload, key_marker, id_marker)]


def _is_behind(upload: UploadInfo, key_marker: bytes, id_marker: str) -> bool:
    key = upload.key.encode()
    return key > key_marker or (key == key_marker and bool(id_marker) and upload.id > id_marker)


def _require(connection: sqlite3.Connection, bucket: str, key: str, upload_id: str) -> None:
    if connection.execute(_FIND, (upload_id, bucket, encode_key(key))).fetchone() is None:
        require_bucket(connection, bucket)
        raise oss_error("NoSuchUpload", bucket=bucket, key=key)


def _forget(connection: sqlite3.Connection, bucket: str, key: str, upload_id: str) -> list[str]:
    _require(connection, bucket, key, upload_id)
    freed = [blob for (blob,) in connection.execute("SELECT blob FROM oss_parts WHERE upload = ?", (upload_id,))]
    connection.execute("DELETE FROM oss_parts WHERE upload = ?", (upload_id,))
    connection.execute("DELETE FROM oss_uploads WHERE id = ?", (upload_id,))
    return freed


def _choose(arrived: Sequence[UploadedPart], listed: Sequence[tuple[int, str]] | None) -> Sequence[UploadedPart]:
    if listed is None:
        chosen = list(arrived)
    else:
        numbers = [number for number, _ in listed]
        if any(later <= earlier for earlier, later in pairwise(numbers)):
            raise oss_error("InvalidPartOrder")
        by_number = {part.number: part for part in arrived}
        chosen = []
        for number, etag in listed:
            part = by_number.get(number)
            if part is None or part.etag != etag.strip('"').upper():
                raise oss_error("InvalidPart", f"Part {number} was not uploaded, or has another ETag.")
            chosen.append(part)
    if not chosen:
        raise oss_error("InvalidPart", "There are no parts to make an object of.")
    if any(part.size_bytes < MIN_PART_BYTES for part in chosen[:-1]):
        raise oss_error("EntityTooSmall")
    return chosen


def _combined_etag(taken: Sequence[UploadedPart]) -> str:
    digests = b"".join(bytes.fromhex(part.etag) for part in taken)
    return f"{hashlib.md5(digests, usedforsecurity=False).hexdigest().upper()}-{len(taken)}"


def _upload(row: Any) -> UploadInfo:
    upload_id, bucket, key, content_type, headers, started_at = row
    return UploadInfo(upload_id, bucket, key.decode(), content_type, json.loads(headers), started_at)
