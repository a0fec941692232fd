"""The OSS client: objects in, objects out; each call has timeouts, one retry policy, and a check of the bytes.

Importing this module loads oss2 (half a second): import it inside the function that needs it.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import oss2.models

from pai_sdk.credentials import CredentialsProvider
from pai_sdk.errors import StorageError
from pai_sdk.retry import RetryPolicy
from pai_sdk.storage.objects import META_SHA256, ContentCheck, ObjectInfo, mark_executable, md5_of, replacing
from pai_sdk.storage.oss_connection import OssConnection
from pai_sdk.storage.oss_errors import TransientStorageError
from pai_sdk.storage.uri import OssUri

__all__ = ["OssClient"]

_CHUNK_BYTES = 1 << 18
_PAGE = 1000
_META_PREFIX = "x-oss-meta-"


class OssClient:
    """Reads and writes objects at one endpoint with one source of credentials. Safe to use from many threads.

    Args:
        endpoint: where; https unless it says http:// itself.
        credentials: gives the key that is valid now; asked before each request.
        region: needed when the endpoint does not name it; part of what is signed (signature V4).
        retry: the policy for every call.
        path_style: write the bucket into the path, not before the host; for a store of one's own that has a host
            name. With an IP address or localhost it is always so.
        pool_size: connections kept open.
        connect_timeout_s: for a connection to come up.
        read_timeout_s: the longest silence within an answer.
        on_unreachable: called when nothing listens at the endpoint, before each further attempt.

    Example:
        >>> from pai_sdk.credentials import Credentials
        >>> client = OssClient("oss-cn-hangzhou.aliyuncs.com", lambda: Credentials("id", "secret"))
        >>> client.endpoint, client.region
        ('https://oss-cn-hangzhou.aliyuncs.com', 'cn-hangzhou')
    """

    def __init__(
        self,
        endpoint: str,
        credentials: CredentialsProvider,
        *,
        region: str | None = None,
        retry: RetryPolicy | None = None,
        path_style: bool = False,
        pool_size: int = 32,
        connect_timeout_s: float = 10.0,
        read_timeout_s: float = 60.0,
        on_unreachable: Callable[[], None] | None = None,
    ) -> None:
        self._connection = OssConnection(
            endpoint,
            credentials,
            region=region,
            retry=retry or RetryPolicy(),
            path_style=path_style,
            pool_size=pool_size,
            timeouts_s=(connect_timeout_s, read_timeout_s),
            on_unreachable=on_unreachable,
        )
        self._call = self._connection.call

    @property
    def endpoint(self) -> str:
        """The endpoint as a URL."""
        return self._connection.endpoint

    @property
    def region(self) -> str:
        """The region that requests are signed for."""
        return self._connection.region

    def __repr__(self) -> str:
        return f"OssClient({self.endpoint!r}, region={self.region!r})"

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def __enter__(self) -> OssClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ---- whole objects --------------------------------------------------------------------------------------

    def head(self, uri: OssUri) -> ObjectInfo | None:
        """What is known of an object, or None when there is none.

        Raises:
            StorageError: among other reasons, when there is no such bucket.
        """
        try:
            return _info(uri, self._call(uri, lambda bucket: bucket.head_object(uri.key)))
        except StorageError as error:
            if error.code == "NoSuchKey":
                return None
            raise

    def exists(self, uri: OssUri) -> bool:
        """Whether there is such an object."""
        return self.head(uri) is not None

    def get_bytes(self, uri: OssUri) -> bytes:
        """The content of a small object."""

        def read(bucket: Any) -> bytes:
            with closing(bucket.get_object(uri.key)) as answer:
                info = _info(uri, answer)
                content = b"".join(_chunks(answer))
            _must_be_whole(ContentCheck(info).update(content), uri)
            return content

        return self._call(uri, read)

    def put_bytes(self, uri: OssUri, content: bytes, *, meta: Mapping[str, str] | None = None) -> None:
        """Write a small object, whole or not at all.

        Args:
            uri: the object.
            content: its bytes.
            meta: kept with it as `x-oss-meta-*`.
        """
        headers = {"Content-MD5": _md5(content), **_meta_headers(meta)}
        self._call(uri, lambda bucket: _etag(bucket.put_object(uri.key, content, headers=headers), uri))

    def put_file(self, uri: OssUri, path: str | Path, *, meta: Mapping[str, str] | None = None) -> None:
        """Write a file into an object in one request, whole or not at all; for files of less than 5 GB."""
        with Path(path).open("rb") as stream:
            md5, sha256 = hashlib.md5(usedforsecurity=False), hashlib.sha256()
            while chunk := stream.read(_CHUNK_BYTES):
                md5.update(chunk)
                sha256.update(chunk)
            headers = {
                "Content-MD5": base64.b64encode(md5.digest()).decode(),
                **_meta_headers({META_SHA256: sha256.hexdigest(), **(meta or {})}),
            }

            def write(bucket: Any) -> None:
                stream.seek(0)
                _etag(bucket.put_object(uri.key, stream, headers=headers), uri)

            self._call(uri, write)

    def get_file(self, uri: OssUri, path: str | Path) -> ObjectInfo:
        """Fetch an object into a file. The file appears whole and checked, or not at all.

        Args:
            uri: the object.
            path: the file, which is replaced; its folder must exist.
        """

        def fetch(bucket: Any) -> ObjectInfo:
            with closing(bucket.get_object(uri.key)) as answer, replacing(Path(path)) as part:
                info = _info(uri, answer)
                check = ContentCheck(info)
                with part.open("wb") as out:
                    for chunk in _chunks(answer):
                        check.update(chunk)
                        out.write(chunk)
                _must_be_whole(check, uri)
                mark_executable(part, info)
            return info

        return self._call(uri, fetch)

    def delete(self, uri: OssUri) -> None:
        """Delete an object; one that is not there is no error."""
        self._call(uri, lambda bucket: bucket.delete_object(uri.key))

    def list(self, prefix: OssUri) -> Iterator[ObjectInfo]:
        """All objects whose keys begin with that of `prefix`, in the order of their keys, page after page."""
        token = ""
        while True:
            page = self._call(prefix, partial(_page, prefix=prefix.key, token=token))
            for found in page.object_list:
                yield ObjectInfo(OssUri(prefix.bucket, found.key, prefix.endpoint), found.size, found.etag, {})
            if not page.is_truncated:
                return
            token = page.next_continuation_token

    # ---- large objects, in parts ----------------------------------------------------------------------------

    def begin_parts(self, uri: OssUri, *, meta: Mapping[str, str] | None = None) -> str:
        """Begin to write a large object; the id that is returned names the attempt."""
        answer = self._call(uri, lambda bucket: bucket.init_multipart_upload(uri.key, headers=_meta_headers(meta)))
        return str(answer.upload_id)

    def put_part(self, uri: OssUri, upload_id: str, number: int, content: bytes) -> str:
        """Write part `number` (the first is 1); returns its ETag. All parts but the last have 100 KiB or more."""
        headers = {"Content-MD5": _md5(content)}
        return self._call(
            uri,
            lambda bucket: _etag(bucket.upload_part(uri.key, upload_id, number, content, headers=headers), uri),
        )

    def end_parts(self, uri: OssUri, upload_id: str, etags: Sequence[str], *, size_bytes: int) -> None:
        """Make an object of the parts, in order; before this there is none."""
        parts = [oss2.models.PartInfo(number, etag) for number, etag in enumerate(etags, start=1)]
        try:
            self._call(uri, lambda bucket: bucket.complete_multipart_upload(uri.key, upload_id, parts))
        except StorageError as error:
            # The answer to an attempt that succeeded may have been lost; the next one then finds no upload.
            if error.code != "NoSuchUpload":
                raise
            info = self.head(uri)
            if info is None or info.size_bytes != size_bytes:
                raise

    def drop_parts(self, uri: OssUri, upload_id: str) -> None:
        """Give up an object that was begun, with all its parts."""
        self._call(uri, lambda bucket: bucket.abort_multipart_upload(uri.key, upload_id))

    def get_range(self, info: ObjectInfo, start: int, end: int, file: int) -> None:
        """Fetch bytes `start` to `end` (which is not among them) into the same place of an open file.

        Args:
            info: the object as it was when the first range was asked for; a later change is an error.
            start: the first byte.
            end: the byte after the last.
            file: the descriptor of the file; its position is not used.
        """
        headers = {"If-Match": f'"{info.etag}"'}

        def fetch(bucket: Any) -> None:
            at = start
            with closing(bucket.get_object(info.uri.key, byte_range=(start, end - 1), headers=headers)) as answer:
                for chunk in _chunks(answer):
                    if at + len(chunk) > end:
                        break
                    os.pwrite(file, chunk, at)
                    at += len(chunk)
            if at != end or answer.status != 206:
                raise TransientStorageError(
                    f"{info.uri}: bytes {start} to {end} did not arrive", uri=str(info.uri)
                )

        self._call(info.uri, fetch)


def _info(uri: OssUri, answer: Any) -> ObjectInfo:
    headers = answer.headers
    prefix = len(_META_PREFIX)
    meta = {name.lower()[prefix:]: text for name, text in headers.items() if name.lower().startswith(_META_PREFIX)}
    etag = _etag(answer, uri)
    return ObjectInfo(uri, int(headers.get("Content-Length", -1)), etag, meta, md5_of(headers, etag))


def _chunks(answer: Any) -> Iterator[bytes]:
    """The body as it is stored; requests would unpack an object that was stored with `Content-Encoding: gzip`."""
    chunks: Iterator[bytes] = answer.resp.response.raw.stream(_CHUNK_BYTES, decode_content=False)
    return chunks


def _page(bucket: Any, prefix: str, token: str) -> Any:
    return bucket.list_objects_v2(prefix, continuation_token=token, max_keys=_PAGE)


def _meta_headers(meta: Mapping[str, str] | None) -> dict[str, str]:
    return {_META_PREFIX + name: text for name, text in (meta or {}).items()}


def _md5(content: bytes) -> str:
    return base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()


def _etag(answer: Any, uri: OssUri) -> str:
    """The ETag of an object; an answer without one does not come from OSS."""
    if not answer.etag:
        raise TransientStorageError(f"{uri}: whoever answered is not OSS; check endpoint and proxy", uri=str(uri))
    return str(answer.etag)


def _must_be_whole(check: ContentCheck, uri: OssUri) -> None:
    fault = check.fault()
    if fault:
        raise TransientStorageError(f"{uri}: {fault}", uri=str(uri))
