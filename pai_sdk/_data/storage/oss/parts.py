"""Large objects, written to OSS in parts."""

from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from xml.etree import ElementTree

from pai_sdk._data.storage.crc64 import checksum_of, combine_checksums, has_crc64
from pai_sdk._data.storage.objects import ObjectInfo, md5_of
from pai_sdk._data.storage.oss.bucket import OssBucket
from pai_sdk._data.storage.oss.connection import OssConnection
from pai_sdk._data.storage.oss.errors import ForeignResponseError
from pai_sdk._data.storage.oss.file_range import FileRange
from pai_sdk._data.storage.oss.wire import Body, copy_headers, crc64_in, etag_in, etag_of, info_of, meta_headers
from pai_sdk._data.storage.oss2_import import oss2
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.errors import StorageError

_log = logging.getLogger(__name__)

_COPIED_PART_BYTES = 256 << 20
_MAX_PARTS = 9_000  # OSS allows 10,000


@dataclass(frozen=True, slots=True)
class PartInfo:
    """A part that OSS has. Its ETag is the MD5 of its bytes, or says nothing of them.

    Attributes:
        checksum: `checksum_of` its bytes; None if OSS does not say.
    """

    number: int
    size_bytes: int
    etag: str
    checksum: int | None


class OssParts:
    """Multipart uploads: start, put a part, list, complete, abort. Safe to use from many threads."""

    def __init__(self, connection: OssConnection) -> None:
        self._connection = connection
        self._call = connection.call
        self._check_cancelled = connection.check_cancelled
        self._without_crc64 = connection.without_crc64

    def returns_crc64(self, uri: OssUri) -> bool:
        """Returns False if parts are compared without CRC-64, as one was put before or as anycrc is missing."""
        return has_crc64() and self._connection.bucket(uri).url not in self._without_crc64

    def start(self, uri: OssUri, *, meta: Mapping[str, str] | None = None) -> str:
        """Starts a multipart upload; returns its id."""

        def start(bucket: OssBucket) -> str:
            upload = bucket.init_multipart_upload(uri.key, headers=meta_headers(meta))
            if not upload.upload_id:
                raise ForeignResponseError(uri, "a server", "without the id of an upload")
            return str(upload.upload_id)

        return self._call(uri, start)

    def put(self, uri: OssUri, upload_id: str, number: int, content: bytes | FileRange) -> PartInfo:
        """Writes a part, from 1, whose bytes are read once. All parts but the last have 100 KiB or more.

        What arrives must have the CRC-64 of what was sent; otherwise the part is sent again. To a store that does
        not return one, parts go with their MD5.
        """
        query = {"partNumber": str(number), "uploadId": upload_id}
        body = _SummedBody(Body(content, self._check_cancelled))

        def put(bucket: OssBucket) -> PartInfo:
            md5 = None if self.returns_crc64(uri) else _md5(body)
            headers = {} if md5 is None else {"content-md5": base64.b64encode(md5).decode()}
            received = bucket.send("PUT", uri.key, headers, data=body, params=query).headers
            etag, crc64 = etag_of(received, uri), crc64_in(received)
            if crc64 is None and md5 is None:
                self._log_missing_crc64(bucket.url)
                return put(bucket)
            if crc64 is not None and has_crc64():
                is_same = crc64 == body.checksum
            else:
                # A store that makes a CRC-64 checks an MD5, too. The ETag is none where the store encrypts.
                stored_md5 = md5_of(received, etag) if crc64 is None else None
                is_same = stored_md5 is None or md5 is None or stored_md5.lower() == md5.hex()
            if not is_same:
                message = f"{uri}: part {number} did not arrive as it was sent"
                raise StorageError(message, uri=str(uri), code="InvalidDigest", retryable=True)
            return PartInfo(number, len(content), etag, body.checksum)

        return self._call(uri, put)

    def _log_missing_crc64(self, url: str) -> None:
        # Atomic: of many threads, one logs it.
        this = object()
        if self._without_crc64.setdefault(url, this) is this:
            _log.info("%s returns no CRC-64, so parts of files are sent with their MD5, which is slower", url)

    def list(self, uri: OssUri, upload_id: str) -> dict[int, PartInfo]:
        """Returns the parts that have arrived, by number; fails with `NoSuchUpload` when the upload has ended."""
        parts: dict[int, PartInfo] = {}
        after: str | None = ""
        while after is not None:
            page, after = self._call(uri, partial(_page, uri=uri, upload_id=upload_id, after=after))
            parts.update((part.number, part) for part in page)
        return parts

    def copy(
        self, source: OssUri, uri: OssUri, *, etag: str, size_bytes: int, crc64: int, meta: Mapping[str, str]
    ) -> str:
        """Copies an object that is too large for `OssClient.copy`, in parts within OSS; returns the copy's ETag.

        The object must have the ETag, and the copy the `checksum_of`; else a StorageError is raised.
        """
        upload_id = self.start(uri, meta=meta)
        part_bytes = max(_COPIED_PART_BYTES, -(-size_bytes // _MAX_PARTS))
        try:
            parts = [
                self._copy_part(source, uri, upload_id, number, etag, range(at, min(at + part_bytes, size_bytes)))
                for number, at in enumerate(range(0, size_bytes, part_bytes), start=1)
            ]
            return self.complete(uri, upload_id, parts, checksum=crc64)
        except BaseException:
            # OSS charges for parts until they are removed. After a lost response, the upload has ended.
            with suppress(StorageError):
                self.abort(uri, upload_id)
            raise

    def _copy_part(
        self, source: OssUri, uri: OssUri, upload_id: str, number: int, etag: str, span: range
    ) -> PartInfo:
        query = {"partNumber": str(number), "uploadId": upload_id}
        headers = {
            **copy_headers(source, etag),
            "x-oss-copy-source-range": f"bytes={span.start}-{span.stop - 1}",
        }

        def copy(bucket: OssBucket) -> PartInfo:
            body = bucket.send("PUT", uri.key, headers, params=query).read()
            return PartInfo(number, len(span), etag_in(body, uri), None)

        return self._call(uri, copy)

    def complete(
        self, uri: OssUri, upload_id: str, parts: Sequence[PartInfo], *, checksum: int | None = None
    ) -> str:
        """Creates the object from the parts, in order; returns its ETag. There is no object before.

        `NoSuchUpload` means that the upload has ended: also that an earlier attempt succeeded and its response was
        lost. An object with another CRC-64 than its parts, or than `checksum`, is deleted, and a StorageError is
        raised.
        """
        expected = checksum_of_parts(parts) if checksum is None else checksum
        completed = [oss2.models.PartInfo(part.number, part.etag) for part in parts]

        def complete(bucket: OssBucket) -> tuple[str, int | None]:
            response = bucket.complete_multipart_upload(uri.key, upload_id, completed).resp
            return etag_in(response.read(), uri), crc64_in(response.headers)

        etag, crc64 = self._call(uri, complete)
        if crc64 is not None and has_crc64() and crc64 != expected:
            self._call(uri, partial(_delete_if_wrong, uri=uri, etag=etag, crc64=expected))
        return etag

    def abort(self, uri: OssUri, upload_id: str) -> None:
        """Aborts an upload and deletes its parts."""
        self._call(uri, lambda bucket: bucket.abort_multipart_upload(uri.key, upload_id))


class _SummedBody:
    """A body whose checksum is made of the chunks that are sent, of the last time that it was sent."""

    def __init__(self, body: Body) -> None:
        self._body = body
        self.checksum = 0

    def __len__(self) -> int:
        return len(self._body)

    def __iter__(self) -> Iterator[memoryview]:
        self.checksum = 0
        for chunk in self._body:
            self.checksum = checksum_of(chunk, self.checksum)
            yield chunk


def checksum_of_parts(parts: Iterable[PartInfo]) -> int:
    """Returns the checksum of all parts together, of which each one is known."""
    checksum = 0
    for part in parts:
        checksum = combine_checksums(checksum, part.checksum or 0, part.size_bytes)
    return checksum


def _md5(body: Iterable[memoryview]) -> bytes:
    content = hashlib.md5(usedforsecurity=False)
    for chunk in body:
        content.update(chunk)
    return content.digest()


def _page(bucket: OssBucket, uri: OssUri, upload_id: str, after: str) -> tuple[list[PartInfo], str | None]:
    """Returns a page of parts, and what the next page comes after, or None."""
    # Not `oss2.Bucket.list_parts`, which leaves out the CRC-64.
    query = {"uploadId": upload_id, **({"part-number-marker": after} if after else {})}
    root = ElementTree.fromstring(bucket.send("GET", uri.key, params=query).read())  # noqa: S314 - OSS wrote it
    parts = [_part_of(element) for element in root.findall("{*}Part")]
    marker = root.findtext("{*}NextPartNumberMarker", "")
    is_last = root.findtext("{*}IsTruncated", "").lower() != "true" or marker in ("", after)
    return parts, None if is_last else marker


def _part_of(element: ElementTree.Element) -> PartInfo:
    crc64 = element.findtext("{*}HashCrc64ecma", "")
    # Without a number, int() raises ValueError, as for anything that is no list of parts.
    return PartInfo(
        int(element.findtext("{*}PartNumber", "")),
        int(element.findtext("{*}Size", "")),
        element.findtext("{*}ETag", "").strip('"'),
        int(crc64) if crc64.isdecimal() and has_crc64() else None,
    )


def _delete_if_wrong(bucket: OssBucket, uri: OssUri, etag: str, crc64: int) -> None:
    """Deletes an object that is not made of its parts, if it is still there; raises StorageError."""
    info: ObjectInfo = info_of(uri, bucket.send("HEAD", uri.key).headers)
    if info.etag == etag and info.content_crc64 == crc64:
        return
    if info.etag == etag:
        bucket.delete_object(uri.key)
    raise StorageError(f"{uri}: the parts arrived, but the object was not assembled", uri=str(uri))
