"""Uploads in parts: each part is a blob, and at the end one new blob is made of them all."""

from __future__ import annotations

import hashlib
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, exists, insert, select, update

from pai_sdk.errors import StorageError
from pai_sdk.service.objects.blobs import BlobFolder, BlobWriter
from pai_sdk.service.objects.error_codes import fault
from pai_sdk.service.objects.index import ObjectIndex, StoredObject, in_shard, require_bucket
from pai_sdk.service.objects.index_database import IndexDatabase, parts, uploads
from pai_sdk.service.objects.object_names import encode_key, successor

__all__ = ["MAX_PARTS", "MIN_PART_BYTES", "MultipartUploads", "PartOfUpload", "UploadInfo", "UploadedPart"]

MAX_PARTS = 10_000
MIN_PART_BYTES = 100 * 1024
_ID = re.compile("[0-9A-F]{32}")


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

    def __init__(self, database: IndexDatabase, index: ObjectIndex, blobs: BlobFolder) -> None:
        self._database, self._index, self._blobs = database, index, blobs

    def start(self, bucket: str, key: str, *, content_type: str, headers: Mapping[str, str]) -> str:
        """Begin an upload; returns its id."""
        upload_id = uuid.uuid4().hex.upper()
        values = {"content_type": content_type, "headers": dict(headers), "started_at": time.time()}
        begin = insert(uploads).values(id=upload_id, bucket=bucket, key=encode_key(key), **values)

        def record(connection: Connection) -> str:
            require_bucket(connection, bucket)
            connection.execute(begin)
            return upload_id

        return self._database.write(record)

    def find(self, bucket: str, key: str, upload_id: str) -> UploadInfo:
        """The upload of that id.

        Raises:
            StorageError: `NoSuchUpload`.
        """
        with self._database.read() as connection:
            return _find(connection, bucket, key, upload_id)

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
        values = {
            "size_bytes": part.size_bytes,
            "etag": part.etag,
            "modified_at": part.modified_at,
            "blob": part.blob,
        }
        where = parts.c.upload == upload_id, parts.c.number == part.number

        def record(connection: Connection) -> str | None:
            _find(connection, bucket, key, upload_id)
            replaced: str | None = connection.execute(select(parts.c.blob).where(*where)).scalar()
            if replaced is None:
                connection.execute(insert(parts).values(upload=upload_id, number=part.number, **values))
            else:
                connection.execute(update(parts).where(*where).values(**values))
            return replaced

        return self._database.write(record)

    def parts(
        self, bucket: str, key: str, upload_id: str, *, after: int = 0, limit: int = MAX_PARTS
    ) -> list[UploadedPart]:
        """The parts that have arrived, by number."""
        with self._database.read() as connection:
            _find(connection, bucket, key, upload_id)
            query = select(parts).where(parts.c.upload == upload_id, parts.c.number > after)
            return [_part(row) for row in connection.execute(query.order_by(parts.c.number).limit(limit))]

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

        def record(connection: Connection) -> list[str]:
            freed = _forget(connection, bucket, key, upload_id)
            return [*freed, *self._index.record_within(connection, info, forbid_overwrite=forbid_overwrite)]

        try:
            freed = self._database.write(record)
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
                raise fault("InvalidPart", "A part was cut off on the disk of the service; upload it again.")
            except FileNotFoundError as error:
                # A part came again while we were at it, or the upload ended; else its blob is lost.
                if taken == before:
                    raise fault("InvalidPart", bucket=bucket, key=key) from error

    def abort(self, bucket: str, key: str, upload_id: str) -> None:
        """End an upload and remove its parts."""
        self._blobs.remove(self._database.write(lambda connection: _forget(connection, bucket, key, upload_id)))

    def of_blobs(self, shard: str) -> list[PartOfUpload]:
        """The parts whose blobs are in a shard."""
        query = select(parts).where(*in_shard(parts.c.blob, shard))
        with self._database.read() as connection:
            return [PartOfUpload(row.upload, _part(row)) for row in connection.execute(query)]

    def forget_lost(self, lost: PartOfUpload) -> bool:
        """Forget a part whose content is lost, unless it has come again; whether it was forgotten."""
        where = (parts.c.upload == lost.upload_id, parts.c.number == lost.part.number)
        forget = delete(parts).where(*where, parts.c.blob == lost.part.blob)
        return self._database.write(lambda connection: connection.execute(forget).rowcount) == 1

    def idle_since(self, time_s: float) -> Sequence[UploadInfo]:
        """The uploads of all buckets that were begun before then, and have no part that came later."""
        with self._database.read() as connection:
            return [_upload(row) for row in connection.execute(select(uploads).where(*_is_idle_since(time_s)))]

    def expire(self, upload: UploadInfo, time_s: float) -> bool:
        """Abort an upload, unless a part has arrived since then or it has ended; whether it was aborted."""
        still_idle = select(uploads.c.id).where(uploads.c.id == upload.id, *_is_idle_since(time_s))

        def end(connection: Connection) -> list[str] | None:
            if connection.execute(still_idle).first() is None:
                return None
            return _forget(connection, upload.bucket, upload.key, upload.id)

        freed = self._database.write(end)
        self._blobs.remove(freed or ())
        return freed is not None

    def list(self, bucket: str, *, prefix: str = "", after: tuple[str, str] = ("", "")) -> list[UploadInfo]:
        """The unfinished uploads of a bucket, by key and id, behind a key or behind one upload of a key."""
        key_marker, id_marker = after[0].encode(), after[1]
        stem = prefix.encode()
        query = select(uploads).where(uploads.c.bucket == bucket, uploads.c.key >= max(stem, key_marker))
        if (end := successor(stem)) is not None:
            query = query.where(uploads.c.key < end)
        with self._database.read() as connection:
            require_bucket(connection, bucket)
            found = [_upload(row) for row in connection.execute(query.order_by(uploads.c.key, uploads.c.id))]
        return [upload for upload in found if _is_behind(upload, key_marker, id_marker)]


def _is_behind(upload: UploadInfo, key_marker: bytes, id_marker: str) -> bool:
    key = upload.key.encode()
    return key > key_marker or (key == key_marker and bool(id_marker) and upload.id > id_marker)


def _is_idle_since(time_s: float) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    newer_part = exists().where(parts.c.upload == uploads.c.id, parts.c.modified_at >= time_s)
    return uploads.c.started_at < time_s, ~newer_part


def _find(connection: Connection, bucket: str, key: str, upload_id: str) -> UploadInfo:
    if not _ID.fullmatch(upload_id):
        require_bucket(connection, bucket)
        raise _no_such_upload(bucket, key)
    query = select(uploads).where(uploads.c.id == upload_id, uploads.c.bucket == bucket)
    row = connection.execute(query.where(uploads.c.key == encode_key(key))).first()
    if row is None:
        require_bucket(connection, bucket)
        raise _no_such_upload(bucket, key)
    return _upload(row)


def _no_such_upload(bucket: str, key: str) -> StorageError:
    return fault("NoSuchUpload", bucket=bucket, key=key)


def _forget(connection: Connection, bucket: str, key: str, upload_id: str) -> list[str]:
    _find(connection, bucket, key, upload_id)
    freed = list(connection.execute(select(parts.c.blob).where(parts.c.upload == upload_id)).scalars())
    connection.execute(delete(parts).where(parts.c.upload == upload_id))
    connection.execute(delete(uploads).where(uploads.c.id == upload_id))
    return freed


def _choose(arrived: Sequence[UploadedPart], listed: Sequence[tuple[int, str]] | None) -> Sequence[UploadedPart]:
    if listed is None:
        chosen = list(arrived)
    else:
        numbers = [number for number, _ in listed]
        if any(later <= earlier for earlier, later in pairwise(numbers)):
            raise fault("InvalidPartOrder")
        by_number = {part.number: part for part in arrived}
        chosen = []
        for number, etag in listed:
            part = by_number.get(number)
            if part is None or part.etag != etag.strip('"').upper():
                raise fault("InvalidPart", f"Part {number} was not uploaded, or has another ETag.")
            chosen.append(part)
    if not chosen:
        raise fault("InvalidPart", "There are no parts to make an object of.")
    if any(part.size_bytes < MIN_PART_BYTES for part in chosen[:-1]):
        raise fault("EntityTooSmall")
    return chosen


def _combined_etag(taken: Sequence[UploadedPart]) -> str:
    digests = b"".join(bytes.fromhex(part.etag) for part in taken)
    return f"{hashlib.md5(digests, usedforsecurity=False).hexdigest().upper()}-{len(taken)}"


def _upload(row: Any) -> UploadInfo:
    return UploadInfo(row.id, row.bucket, bytes(row.key).decode(), row.content_type, row.headers, row.started_at)


def _part(row: Any) -> UploadedPart:
    return UploadedPart(row.number, row.size_bytes, row.etag, row.modified_at, row.blob)
