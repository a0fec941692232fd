"""Large objects, written to OSS in parts."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pai_sdk._data.storage.file_hash import md5_of_part
from pai_sdk._data.storage.oss.bucket import OssBucket
from pai_sdk._data.storage.oss.connection import OssConnection
from pai_sdk._data.storage.oss.errors import ForeignResponseError
from pai_sdk._data.storage.oss.wire import Body, etag_in, etag_of, meta_headers
from pai_sdk._data.storage.oss2_import import oss2
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.errors import FileChangedError

_BAD_REQUEST = 400


@dataclass(frozen=True, slots=True)
class PartInfo:
    """A part that OSS has. Its ETag is the MD5 of its bytes, unless the bucket encrypts with KMS."""

    number: int
    size_bytes: int
    etag: str


class OssParts:
    """Multipart uploads: start, put a part, list, complete, abort. Safe to use from many threads."""

    def __init__(self, connection: OssConnection) -> None:
        self._call = connection.call
        self._check_cancelled = connection.check_cancelled

    def start(self, uri: OssUri, *, meta: Mapping[str, str] | None = None) -> str:
        """Starts a multipart upload; returns its id."""

        def start(bucket: OssBucket) -> str:
            upload = bucket.init_multipart_upload(uri.key, headers=meta_headers(meta))
            if not upload.upload_id:
                raise ForeignResponseError(uri, "a server", "without the id of an upload")
            return str(upload.upload_id)

        return self._call(uri, start)

    def put(self, uri: OssUri, upload_id: str, number: int, content: bytes, *, md5: bytes | None = None) -> str:
        """Writes a part, from 1; returns its ETag. All parts but the last have 100 KiB or more."""
        headers = {"content-md5": base64.b64encode(md5 or md5_of_part(content)).decode()}
        query = {"partNumber": str(number), "uploadId": upload_id}
        body = Body(content, self._check_cancelled)

        def put(bucket: OssBucket) -> str:
            try:
                etag = etag_of(bucket.send("PUT", uri.key, headers, data=body, params=query).headers, uri)
            except oss2.exceptions.OssError as error:
                # OSS responds the same for bytes damaged on the way, which are sent again.
                if error.status == _BAD_REQUEST:
                    _check_md5(content, md5, uri)
                raise
            # Another ETag comes from a bucket that is encrypted, or from a server that ignores Content-MD5.
            # Without an expected MD5, any content is written.
            if md5 is not None and etag.lower() != md5.hex():
                _check_md5(content, md5, uri)
            return etag

        return self._call(uri, put)

    def list(self, uri: OssUri, upload_id: str) -> dict[int, PartInfo]:
        """Returns the parts that have arrived, by number; fails with `NoSuchUpload` when the upload has ended."""
        parts: dict[int, PartInfo] = {}
        after = ""
        while True:
            page = self._call(uri, partial(_page, uri=uri, upload_id=upload_id, after=after))
            for part in page.parts:
                parts[part.part_number] = PartInfo(part.part_number, part.size, part.etag)
            if not page.is_truncated or page.next_marker == after:
                return parts
            after = page.next_marker

    def complete(self, uri: OssUri, upload_id: str, etags: Sequence[str]) -> str:
        """Creates the object from the parts, in order; returns its ETag. There is no object before.

        `NoSuchUpload` means that the upload has ended: also that an earlier attempt succeeded and its response was
        lost.
        """
        parts = [oss2.models.PartInfo(number, etag) for number, etag in enumerate(etags, start=1)]

        def complete(bucket: OssBucket) -> str:
            return etag_in(bucket.complete_multipart_upload(uri.key, upload_id, parts).resp.read(), uri)

        return self._call(uri, complete)

    def abort(self, uri: OssUri, upload_id: str) -> None:
        """Aborts an upload and deletes its parts."""
        self._call(uri, lambda bucket: bucket.abort_multipart_upload(uri.key, upload_id))


def _check_md5(content: bytes, md5: bytes | None, uri: OssUri) -> None:
    if md5 is not None and md5_of_part(content) != md5:
        raise FileChangedError(f"a part of {uri} does not have the MD5 that it must have", uri=str(uri))


def _page(bucket: OssBucket, uri: OssUri, upload_id: str, after: str) -> Any:
    return bucket.list_parts(uri.key, upload_id, marker=after)
