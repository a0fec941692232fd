"""Multipart uploads: each part is written at its offset into one blob, which becomes the content of the object.

A part without a slot there is a blob of its own until the end, and is then copied to its offset. A range that a
row refers to is never written again. Where that would happen, for example if only some parts are selected, a new
blob is created.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from functools import partial
from itertools import accumulate, groupby, pairwise
from typing import Any

from pai_sdk._data.storage.crc64 import combine_crc64
from pai_sdk._service.oss.blobs import BlobFolder, BlobRange, BlobWriter, SharedBlob
from pai_sdk._service.oss.error_codes import oss_error
from pai_sdk._service.oss.index_database import IndexDatabase
from pai_sdk._service.oss.object_rows import (
    StoredObject,
    crc64_text,
    encode_key,
    record,
    require_bucket,
    successor,
)

MAX_PARTS = 10_000
MIN_PART_BYTES = 100 * 1024
_ID = re.compile("[0-9A-F]{32}")
_END = b"\xff"  # sorts after all keys: UTF-8 never contains this byte

_UPLOAD = "id, bucket, key, content_type, headers, started_at"
_PART = "number, size_bytes, etag, modified_at, blob, start, crc64"
_ADD_UPLOAD = f"INSERT INTO oss_uploads ({_UPLOAD}) VALUES (?, ?, ?, ?, ?, ?)"  # noqa: S608 - constants
_PUT_PART = f"INSERT OR REPLACE INTO oss_parts (upload, {_PART}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
_FIND = f"SELECT {_UPLOAD} FROM oss_uploads WHERE id = ? AND bucket = ? AND key = ?"  # noqa: S608 - constants
_NAMES_BLOB = "SELECT 1 FROM oss_parts WHERE blob = ? LIMIT 1"
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
    start: int
    crc64: int | None

    @property
    def range(self) -> BlobRange:
        """Returns the range of its bytes."""
        return BlobRange(self.blob, self.start, self.size_bytes)


@dataclass(frozen=True)
class PartOfUpload:
    """A part with the id of its upload."""

    upload_id: str
    part: UploadedPart


@dataclass(frozen=True)
class UploadInfo:
    """An unfinished upload."""

    id: str
    bucket: str
    key: str
    content_type: str
    headers: Mapping[str, str]
    started_at: float


class MultipartUploads:
    """Starts, fills, completes, aborts and lists multipart uploads.

    `SharedBlob.completing` is locked while an object is built from parts. `_guard` protects the dictionary only:
    neither the database nor the disk is accessed under it.
    """

    def __init__(self, database: IndexDatabase, blobs: BlobFolder) -> None:
        self._database, self._blobs = database, blobs
        # By upload id; only uploads with requests to this process.
        self._shared: dict[str, SharedBlob] = {}
        self._guard = threading.Lock()

    def start(self, bucket: str, key: str, *, content_type: str, headers: Mapping[str, str]) -> str:
        """Starts an upload; returns its id."""
        upload_id = uuid.uuid4().hex.upper()
        values = (upload_id, bucket, encode_key(key), content_type, json.dumps(dict(headers)), time.time())

        def insert(connection: sqlite3.Connection) -> str:
            require_bucket(connection, bucket)
            connection.execute(_ADD_UPLOAD, values)
            return upload_id

        return self._database.write(insert)

    def find(self, bucket: str, key: str, upload_id: str) -> UploadInfo:
        """Returns the upload of that id, or raises `NoSuchUpload`."""
        rows = _ID.fullmatch(upload_id) and self._database.query(_FIND, (upload_id, bucket, encode_key(key)))
        if not rows:
            self._database.require_bucket(bucket)
            raise oss_error("NoSuchUpload", bucket=bucket, key=key)
        return _upload(rows[0])

    def part_writer(
        self, bucket: str, key: str, upload_id: str, number: int, size_bytes: int | None
    ) -> BlobWriter:
        """Starts a part for `add_part`; `size_bytes` is None if the length is unknown."""
        with self._shared_of(bucket, key, upload_id) as shared:
            return shared.writer(number, size_bytes)

    def add_part(self, writer: BlobWriter, bucket: str, key: str, upload_id: str, number: int) -> UploadedPart:
        """Adds what was written as a part; replaces one of the same number."""
        blob = writer.finish()
        # Hexadecimal without a suffix: that of the object is computed from those of its parts.
        etag = blob.etag.partition("-")[0]
        part = UploadedPart(number, blob.size_bytes, etag, time.time(), blob.name, blob.start, blob.crc64)
        try:
            replaced = self._record_part(part, bucket, key, upload_id)
        except BaseException:
            # For example, the upload was aborted meanwhile.
            self._remove_blobs(upload_id, [blob.name])
            self._forget_shared(upload_id)
            raise
        # After the commit: until then, the row refers to the replaced blob.
        self._remove_blobs(upload_id, replaced)
        return part

    def _record_part(self, part: UploadedPart, bucket: str, key: str, upload_id: str) -> list[str]:
        """Writes the row of a part; returns the blob that no part refers to any more."""
        values = (upload_id, *astuple(part)[:-1], crc64_text(part.crc64))
        find = "SELECT blob FROM oss_parts WHERE upload = ? AND number = ?"

        def add(connection: sqlite3.Connection) -> list[str]:
            _require(connection, bucket, key, upload_id)
            replaced = connection.execute(find, (upload_id, part.number)).fetchone()
            connection.execute(_PUT_PART, values)
            # Several parts share a blob: it is unused only if no other part refers to it.
            if replaced is None or connection.execute(_NAMES_BLOB, replaced).fetchone() is not None:
                return []
            return [*replaced]

        return self._database.write(add)

    def parts(
        self, bucket: str, key: str, upload_id: str, *, after: int = 0, limit: int = MAX_PARTS
    ) -> list[UploadedPart]:
        """Returns the parts that have arrived, by number."""
        self.find(bucket, key, upload_id)
        query = f"SELECT {_PART} FROM oss_parts WHERE upload = ? AND number > ? ORDER BY number LIMIT ?"  # noqa: S608
        return [_part(row) for row in self._database.query(query, (upload_id, after, limit))]

    def complete(
        self,
        bucket: str,
        key: str,
        upload_id: str,
        requested: Sequence[tuple[int, str]] | None = None,
        *,
        forbid_overwrite: bool = False,
    ) -> StoredObject:
        """Builds the object from the requested parts (number and ETag); None selects all that have arrived."""
        # Locked: two requests to complete one upload would fill the same blob.
        with self._shared_of(bucket, key, upload_id) as shared, shared.completing:
            upload = self.find(bucket, key, upload_id)
            while True:
                selected, blob = self._join_parts(upload, requested, shared)
                info = _object_of(upload, selected, blob)
                try:
                    freed = self._database.write(
                        partial(_replace_by_object, info, upload_id, selected, forbid_overwrite)
                    )
                # The part's request wins: its new blob is not in the object, so the parts are joined again.
                except _PartReplacedError:
                    continue
                except BaseException:
                    # A newly joined blob, to which no row refers.
                    if all(part.blob != blob for part in selected):
                        self._blobs.remove([blob])
                    raise
                self._blobs.remove(freed)
                return info

    def _join_parts(
        self, upload: UploadInfo, requested: Sequence[tuple[int, str]] | None, shared: SharedBlob
    ) -> tuple[Sequence[UploadedPart], str]:
        """Returns the selected parts, and a blob of all of them: a new one, or that of the first part."""
        selected: Sequence[UploadedPart] = ()
        is_idle = shared.close()
        while True:
            arrived = self.parts(upload.bucket, upload.key, upload.id)
            before, selected = selected, _select_parts(arrived, requested)
            try:
                # A request whose client has disconnected may still be writing to the shared blob.
                can_fill = is_idle or selected[0].blob != shared.name
                if can_fill and self._fill_base(selected, arrived):
                    return selected, selected[0].blob
                blob = self._blobs.join([part.range for part in selected])
                if self._blobs.size_of(blob) == sum(part.size_bytes for part in selected):
                    return selected, blob
                self._blobs.remove([blob])
                raise EOFError
            except EOFError as error:
                message = "A part is incomplete on the disk of the service; upload it again."
                raise oss_error("InvalidPart", message) from error
            except FileNotFoundError as error:
                # If the parts have changed, one was replaced meanwhile: try again. Otherwise its blob is lost.
                if selected == before:
                    raise oss_error("InvalidPart", bucket=upload.bucket, key=upload.key) from error

    def _fill_base(self, selected: Sequence[UploadedPart], arrived: Sequence[UploadedPart]) -> bool:
        """Turns the blob of the first part into that of the object, unless that would overwrite a part."""
        base = selected[0].blob
        sizes = [part.size_bytes for part in selected]
        starts = dict(zip((part.number for part in selected), accumulate(sizes, initial=0), strict=False))
        stored = [part for part in arrived if part.blob == base]
        # A part in this blob has another offset in the object, or would be overwritten.
        if any(starts.get(part.number) != part.start for part in stored):
            return False
        size_bytes = self._blobs.size_of(base)
        if size_bytes < 0:
            raise FileNotFoundError(base)
        if size_bytes < max(part.start + part.size_bytes for part in stored):
            raise EOFError
        ranges = {starts[part.number]: part.range for part in selected if part.blob != base}
        return self._blobs.fill(base, sum(sizes), ranges)

    def abort(self, bucket: str, key: str, upload_id: str) -> None:
        """Ends an upload and removes its parts."""
        self._blobs.remove(self._database.write(lambda connection: _forget(connection, bucket, key, upload_id)))
        self._forget_shared(upload_id)

    @contextmanager
    def _shared_of(self, bucket: str, key: str, upload_id: str) -> Iterator[SharedBlob]:
        """Yields the shared blob of an upload; forgets it if the upload has ended by then."""
        with self._guard:
            shared = self._shared.get(upload_id)
            if shared is None:
                shared = self._shared[upload_id] = SharedBlob(self._blobs)
        try:
            # After the insert: whoever ends the upload later also removes the blob.
            self.find(bucket, key, upload_id)
            yield shared
        finally:
            self._forget_shared(upload_id)

    def _remove_blobs(self, upload_id: str, names: Sequence[str]) -> None:
        """Removes blobs of parts, except the shared one, which other parts may be written to."""
        shared = self._shared.get(upload_id)
        self._blobs.remove(name for name in names if shared is None or name != shared.name)

    def _forget_shared(self, upload_id: str) -> None:
        """Removes the shared blob of an upload that has ended, unless it is the content of the object."""
        if self._database.query("SELECT 1 FROM oss_uploads WHERE id = ?", (upload_id,)):
            return
        with self._guard:
            shared = self._shared.pop(upload_id, None)
        if shared is None:
            return
        # Before the removal: a late writer must not create the file again.
        shared.end()
        if not self._database.query("SELECT 1 FROM oss_objects WHERE blob = ?", (shared.name,)):
            self._blobs.remove([shared.name])

    def of_blobs(self, shard: str) -> list[PartOfUpload]:
        """Returns the parts whose blobs are in a shard."""
        query = f"SELECT upload, {_PART} FROM oss_parts WHERE blob >= ? AND blob < ?"  # noqa: S608 - constants
        rows = self._database.query(query, (shard, f"{shard}g"))
        return [PartOfUpload(upload, _part(part)) for upload, *part in rows]

    def forget_lost(self, lost: PartOfUpload) -> bool:
        """Forgets a part whose content is lost, unless it was replaced; returns whether it was forgotten."""
        drop = "DELETE FROM oss_parts WHERE upload = ? AND number = ? AND blob = ?"
        of = (lost.upload_id, lost.part.number, lost.part.blob)
        return self._database.write(lambda connection: connection.execute(drop, of).rowcount) == 1

    def idle_since(self, time_s: float) -> Sequence[UploadInfo]:
        """Returns the uploads of all buckets that were started before `time_s` and have no later part."""
        return [_upload(row) for row in self._database.query(_IDLE, {"time": time_s})]

    def expire(self, upload: UploadInfo, time_s: float) -> bool:
        """Aborts an upload unless it has ended or has a part since `time_s`; returns whether it was aborted."""

        def end(connection: sqlite3.Connection) -> list[str] | None:
            # Checked again in the transaction: a part may have arrived since `idle_since`.
            if connection.execute(f"{_IDLE} AND id = :id", {"time": time_s, "id": upload.id}).fetchone() is None:
                return None
            return _forget(connection, upload.bucket, upload.key, upload.id)

        freed = self._database.write(end)
        self._blobs.remove(freed or ())
        self._forget_shared(upload.id)
        return freed is not None

    def list(self, bucket: str, *, prefix: str = "", after: tuple[str, str] = ("", "")) -> list[UploadInfo]:
        """Returns the unfinished uploads of a bucket, by key and id, after a key or after one upload of a key."""
        key_marker, id_marker = after[0].encode(), after[1]
        stem = prefix.encode()
        query = f"SELECT {_UPLOAD} FROM oss_uploads WHERE bucket = ? AND key >= ? AND key < ? ORDER BY key, id"  # noqa: S608
        rows = self._database.query(query, (bucket, max(stem, key_marker), successor(stem) or _END))
        if not rows:
            self._database.require_bucket(bucket)
        uploads = [_upload(row) for row in rows]
        return [upload for upload in uploads if _is_after(upload, key_marker, id_marker)]


def _is_after(upload: UploadInfo, key_marker: bytes, id_marker: str) -> bool:
    key = upload.key.encode()
    return key > key_marker or (key == key_marker and bool(id_marker) and upload.id > id_marker)


def _require(connection: sqlite3.Connection, bucket: str, key: str, upload_id: str) -> None:
    if connection.execute(_FIND, (upload_id, bucket, encode_key(key))).fetchone() is None:
        require_bucket(connection, bucket)
        raise oss_error("NoSuchUpload", bucket=bucket, key=key)


def _forget(connection: sqlite3.Connection, bucket: str, key: str, upload_id: str) -> list[str]:
    _require(connection, bucket, key, upload_id)
    blobs = connection.execute("SELECT DISTINCT blob FROM oss_parts WHERE upload = ?", (upload_id,))
    freed = [blob for (blob,) in blobs]
    connection.execute("DELETE FROM oss_parts WHERE upload = ?", (upload_id,))
    connection.execute("DELETE FROM oss_uploads WHERE id = ?", (upload_id,))
    return freed


class _PartReplacedError(Exception):
    """Raised when a part inside the object's blob was replaced meanwhile, and that blob removed."""


def _replace_by_object(
    info: StoredObject,
    upload_id: str,
    selected: Sequence[UploadedPart],
    forbid_overwrite: bool,
    connection: sqlite3.Connection,
) -> list[str]:
    """Replaces an upload by its object; returns the blobs that no row refers to any more."""
    _require(connection, info.bucket, info.key, upload_id)
    rows = connection.execute("SELECT number, blob FROM oss_parts WHERE upload = ?", (upload_id,))
    # Compared in the transaction: a part that was replaced since the join has another blob.
    # Parts outside of the blob were copied into it, so their replacement changes nothing.
    if not {(part.number, part.blob) for part in selected if part.blob == info.blob} <= {*rows}:
        raise _PartReplacedError
    freed = _forget(connection, info.bucket, info.key, upload_id)
    freed += record(connection, info, forbid_overwrite=forbid_overwrite).freed
    return [blob for blob in freed if blob != info.blob]


def _object_of(upload: UploadInfo, parts: Sequence[UploadedPart], blob: str) -> StoredObject:
    return StoredObject(
        bucket=upload.bucket,
        key=upload.key,
        size_bytes=sum(part.size_bytes for part in parts),
        etag=_combined_etag(parts),
        content_type=upload.content_type,
        kind="Multipart",
        headers=upload.headers,
        blob=blob,
        crc64=_combined_crc64(parts),
        part_sizes=[[size, len([*same])] for size, same in groupby(part.size_bytes for part in parts)],
    )


def _select_parts(
    arrived: Sequence[UploadedPart], requested: Sequence[tuple[int, str]] | None
) -> Sequence[UploadedPart]:
    if requested is None:
        selected = list(arrived)
    else:
        numbers = [number for number, _ in requested]
        if any(later <= earlier for earlier, later in pairwise(numbers)):
            raise oss_error("InvalidPartOrder")
        by_number = {part.number: part for part in arrived}
        selected = []
        for number, etag in requested:
            part = by_number.get(number)
            if part is None or part.etag != etag.strip('"').upper():
                raise oss_error("InvalidPart", f"Part {number} was not uploaded, or has another ETag.")
            selected.append(part)
    if not selected:
        raise oss_error("InvalidPart", "There are no parts for the object.")
    if any(part.size_bytes < MIN_PART_BYTES for part in selected[:-1]):
        raise oss_error("EntityTooSmall")
    return selected


def _combined_etag(parts: Sequence[UploadedPart]) -> str:
    digests = b"".join(bytes.fromhex(part.etag) for part in parts)
    return f"{hashlib.md5(digests, usedforsecurity=False).hexdigest().upper()}-{len(parts)}"


def _combined_crc64(parts: Sequence[UploadedPart]) -> int | None:
    crc64 = 0
    for part in parts:
        # Written by a release that did not record it.
        if part.crc64 is None:
            return None
        crc64 = combine_crc64(crc64, part.crc64, part.size_bytes)
    return crc64


def _part(row: Sequence[Any]) -> UploadedPart:
    number, size_bytes, etag, modified_at, blob, start, crc64 = row
    return UploadedPart(number, size_bytes, etag, modified_at, blob, start, int(crc64) if crc64 else None)


def _upload(row: Any) -> UploadInfo:
    upload_id, bucket, key, content_type, headers, started_at = row
    return UploadInfo(upload_id, bucket, key.decode(), content_type, json.loads(headers), started_at)
