"""The OSS client: reads and writes objects; each call has timeouts, retries and a checksum.

Importing this module loads oss2 (half a second): import it inside the function that needs it.
"""

from __future__ import annotations

import copy
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from pai_sdk._core.config.credentials import Credentials, CredentialsProvider
from pai_sdk._core.endpoint import Endpoint
from pai_sdk._core.files import write_at
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._data.storage.crc64 import checksum_of
from pai_sdk._data.storage.objects import (
    ContentCheck,
    ObjectInfo,
    PartSizes,
    mark_executable,
    replacing,
    write_file,
)
from pai_sdk._data.storage.oss.bucket import OssBucket
from pai_sdk._data.storage.oss.connection import OssConnection
from pai_sdk._data.storage.oss.parts import OssParts
from pai_sdk._data.storage.oss.wire import (
    Body,
    ObjectPage,
    content_md5,
    copy_headers,
    etag_in,
    etag_of,
    info_of,
    meta_headers,
    page_in,
)
from pai_sdk._data.storage.oss2_import import oss2
from pai_sdk._data.storage.pool import SMALL_BYTES
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.errors import FileChangedError, InvalidInputError, ObjectNotFoundError, StorageError

_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


class OssClient:
    """Reads and writes objects at one endpoint with one source of credentials. Safe to use from many threads.

    Args:
        endpoint: the endpoint; a string without a scheme means https, and http for this machine.
        credentials: gives the key that is valid now; asked before each request.
        region: required if the endpoint does not name one; part of the signature (V4).
        retry: the policy for every call.
        path_style: write the bucket into the path, not before the host; for a store of one's own that has a host
            name. With an IP address or localhost it is always so.
        pool_size: number of connections that stay open.
        connect_timeout_s: the maximum time to connect.
        read_timeout_s: the maximum silence within a response.
        trusted_endpoints: further endpoints that URIs may name. Without them, requests are signed for `endpoint`
            and for the OSS of Alibaba Cloud only, because a URI may come from an untrusted source.

    Attributes:
        parts: writes large objects in parts.
        part_sizes: when a file is moved in parts, and how large these are.
        not_listed: buckets that the key may not list, and for which a warning was logged.

    Example:
        >>> from pai_sdk.credentials import Credentials
        >>> client = OssClient("oss-cn-hangzhou.aliyuncs.com", lambda: Credentials("id", "secret"))
        >>> client.endpoint, client.region
        ('https://oss-cn-hangzhou.aliyuncs.com', 'cn-hangzhou')
    """

    def __init__(
        self,
        endpoint: str | Endpoint,
        credentials: CredentialsProvider,
        *,
        region: str | None = None,
        retry: RetryPolicy | None = None,
        path_style: bool = False,
        pool_size: int = 96,
        connect_timeout_s: float = 10.0,
        read_timeout_s: float = 60.0,
        trusted_endpoints: Sequence[str] = (),
    ) -> None:
        connection = OssConnection(
            endpoint if isinstance(endpoint, Endpoint) else Endpoint(endpoint),
            credentials,
            region=region,
            retry=retry or RetryPolicy(),
            path_style=path_style,
            pool_size=pool_size,
            timeouts_s=(connect_timeout_s, read_timeout_s),
            trusted_endpoints=trusted_endpoints,
        )
        self.not_listed: set[str] = set()
        self.part_sizes = PartSizes()
        # `cancelled_by` replaces these in a copy, which shares the connections.
        self._share(connection)

    def _share(self, connection: OssConnection) -> None:
        self._connection = connection
        self._call = connection.call
        self._check_cancelled = connection.check_cancelled
        self.parts = OssParts(connection)

    def arguments(self) -> dict[str, Any]:
        """The arguments for an equal client in another process, as JSON, with the current key."""
        return self._connection.arguments()

    def place(self, uri: OssUri) -> dict[str, str]:
        """The location of a folder, for a process that has its own key.

        Raises:
            UntrustedEndpointError: the URI names a host that is neither OSS nor in the settings.
        """
        return self._connection.location(uri)

    @classmethod
    def of_arguments(cls, arguments: Mapping[str, Any]) -> OssClient:
        """A client as `arguments` described it."""
        key = Credentials(*arguments["key"])
        return cls(
            arguments["endpoint"],
            lambda: key,
            region=arguments["region"],
            trusted_endpoints=arguments["trusted_endpoints"],
        )

    def cancelled_by(self, stopped: threading.Event, may_retry: Callable[[], bool] = lambda: True) -> OssClient:
        """A copy of this client for one transfer, over the same connections.

        Args:
            stopped: when it is set, calls fail within moments.
            may_retry: called after each failed attempt: whether another one may follow.
        """
        client = copy.copy(self)
        client._share(self._connection.cancelled_by(stopped, may_retry))
        return client

    @property
    def endpoint(self) -> str:
        """The endpoint as a URL."""
        return self._connection.endpoint

    @property
    def region(self) -> str:
        """The region that requests are signed for."""
        return self._connection.region

    def oss2_bucket(self, uri: OssUri) -> Any:
        """The bucket of a URI as an `oss2.Bucket`, for what this class does not offer.

        Raises:
            UntrustedEndpointError: the URI names a host that is neither OSS nor in the settings.
        """
        return self._connection.plain_bucket(uri)

    def __repr__(self) -> str:
        return f"OssClient({self.endpoint!r}, region={self.region!r})"

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def __enter__(self) -> OssClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ---- objects --------------------------------------------------------------------------------------

    def head(self, uri: OssUri) -> ObjectInfo | None:
        """The metadata of an object, or None when there is none.

        Raises:
            StorageError: among other reasons, when there is no such bucket.
        """
        try:
            return self._call(uri, partial(_head, uri=uri))
        except ObjectNotFoundError:
            return None

    def exists(self, uri: OssUri) -> bool:
        """True if there is such an object."""
        return self.head(uri) is not None

    def get_bytes(self, uri: OssUri) -> bytes:
        """The content of a small object."""

        def read(bucket: OssBucket) -> bytes:
            with closing(bucket.send("GET", uri.key)) as response:
                info = info_of(uri, response.headers)
                content = b"".join(self._check_cancelled(response))
            _check_complete(ContentCheck(info).update(content), uri)
            return content

        return self._call(uri, read)

    def get_piece(
        self, uri: OssUri, start: int, size_bytes: int, *, etag: str | None = None
    ) -> tuple[ObjectInfo, bytes]:
        """Some bytes of an object, with its metadata; fewer bytes, or none, at its end.

        Args:
            uri: the object.
            start: the first byte.
            size_bytes: how many bytes.
            etag: the ETag that the object must have; a changed object is a `FileChangedError`.
        """
        # With this header, OSS cuts a range at the end of the object; without, it would send all of it.
        headers = {"x-oss-range-behavior": "standard", "range": f"bytes={start}-{start + size_bytes - 1}"}
        if etag:
            headers["if-match"] = f'"{etag}"'

        def read(bucket: OssBucket) -> tuple[ObjectInfo, bytes]:
            with closing(bucket.send("GET", uri.key, headers)) as response:
                info = info_of(uri, response.headers)
                span = _CONTENT_RANGE.fullmatch(response.headers.get("content-range", ""))
                if span is None and info.size_bytes:
                    raise StorageError(f"{uri}: the server ignored the range", uri=str(uri))
                content = b"".join(self._check_cancelled(response))
            if span is None:  # an empty object
                return info, content
            info = replace(info, size_bytes=int(span[3]))
            if int(span[1]) != start or len(content) != min(start + size_bytes, info.size_bytes) - start:
                message = f"{uri}: the bytes from {start} on did not arrive"
                raise StorageError(message, uri=str(uri), retryable=True)
            if len(content) == info.size_bytes:
                _check_complete(ContentCheck(info).update(content), uri)
            return info, content

        try:
            return self._call(uri, read)
        except StorageError as error:
            # OSS refuses a range that starts at the end of the object or behind it.
            if error.code != "InvalidRange":
                raise _changed_error(error) from error
            return self._call(uri, partial(_head, uri=uri)), b""

    def put_bytes(
        self, uri: OssUri, content: bytes, *, meta: Mapping[str, str] | None = None, overwrite: bool = True
    ) -> str:
        """Write a small object atomically; returns its ETag.

        Args:
            uri: the object.
            content: its bytes.
            meta: stored with it as `x-oss-meta-*`.
            overwrite: replace the object, if there is one.

        Raises:
            StorageError: `code` is `FileAlreadyExists`: there is one, and `overwrite` is False.
        """
        headers = {"content-md5": content_md5(content), **meta_headers(meta)}
        if not overwrite:
            headers["x-oss-forbid-overwrite"] = "true"
        if kind := _content_type(uri):
            headers["content-type"] = kind
        body = Body(content, self._check_cancelled)
        return self._call(
            uri, lambda bucket: etag_of(bucket.send("PUT", uri.key, headers, data=body).headers, uri)
        )

    def get_file(self, uri: OssUri, path: str | Path) -> ObjectInfo:
        """Fetch an object into a file. The file appears complete and checked, or not at all.

        Args:
            uri: the object.
            path: the file, which is replaced; its folder must exist.
        """

        def fetch(bucket: OssBucket) -> ObjectInfo:
            with closing(bucket.send("GET", uri.key)) as response:
                info = info_of(uri, response.headers)
                check = ContentCheck(info)
                if 0 <= info.size_bytes <= SMALL_BYTES:
                    content = response.read()
                    _check_complete(check.update(content), uri)
                    write_file(path, content, info)
                    return info
                with replacing(Path(path)) as draft:
                    for block in self._check_cancelled(response.blocks()):
                        check.update(block)
                        draft.stream.write(block)
                    _check_complete(check, uri)
                    mark_executable(draft.path, info)
            return info

        return self._call(uri, fetch)

    def copy(self, source: OssUri, uri: OssUri, *, etag: str, meta: Mapping[str, str] | None = None) -> str:
        """Copy an object within its bucket, in OSS itself; returns the copy's ETag.

        Args:
            source: the object.
            uri: the copy.
            etag: the ETag that the object must have; else nothing is copied.
            meta: stored with the copy as `x-oss-meta-*`; the metadata of the object is not copied.

        Raises:
            StorageError: among other reasons, when the object is gone (`ObjectNotFoundError`) or another one
                (`PreconditionFailed`).
        """
        headers = {
            **copy_headers(source, etag),
            "x-oss-metadata-directive": "REPLACE",
            "content-type": _content_type(uri) or "application/octet-stream",
            **meta_headers(meta),
        }
        return self._call(uri, lambda bucket: etag_in(bucket.send("PUT", uri.key, headers).read(), uri))

    def delete(self, uri: OssUri) -> None:
        """Delete an object; a missing object is no error."""
        self._call(uri, lambda bucket: bucket.delete_object(uri.key))

    def delete_many(self, uris: Sequence[OssUri]) -> None:
        """Delete objects of one bucket with one request for each thousand; a missing object is no error."""
        size = self.part_sizes.page_objects
        for at in range(0, len(uris), size):
            keys = [uri.key for uri in uris[at : at + size]]
            self._call(uris[at], partial(_delete, keys=keys))

    def list(
        self, prefix: OssUri, *, unnamed: Callable[[str, InvalidInputError], None] | None = None
    ) -> Iterator[ObjectInfo]:
        """All objects whose keys begin with that of `prefix`, in the order of their keys, page after page.

        Args:
            prefix: the common prefix of the keys.
            unnamed: called for each key that no URI can name, such as `..`; without it, the first one is an error.

        Raises:
            InvalidInputError: no URI can name one of the keys.
        """
        token: str | None = ""
        while token is not None:
            size = self.part_sizes.page_objects
            page = self._call(prefix, partial(_page, prefix=prefix, token=token, max_keys=size))
            for entry in page.objects:
                try:
                    info = entry.info(prefix)
                except InvalidInputError as error:
                    if unnamed is None:
                        raise
                    unnamed(entry.key, error)
                else:
                    yield info
            token = page.next_token

    def get_range(self, info: ObjectInfo, start: int, end: int, file: int) -> int:
        """Fetch bytes `start` to `end` (exclusive) into the same position of an open file.

        Returns their checksum, see `checksum_of`.

        Args:
            info: the object as it was when the first range was asked for; a later change is an error.
            start: the first byte.
            end: the byte after the last.
            file: the descriptor of the file; its position is not used.
        """
        check_cancelled = self._check_cancelled
        try:
            return self._call(info.uri, lambda bucket: _get_range(bucket, info, start, end, file, check_cancelled))
        except StorageError as error:
            raise _changed_error(error) from error


def _content_type(uri: OssUri) -> str | None:
    return _type_of_suffixes(uri.name.lstrip(".").partition(".")[2])


@lru_cache(maxsize=256)  # the search takes as long as a signature
def _type_of_suffixes(suffixes: str) -> str | None:
    kind: str | None = oss2.utils.content_type_by_name(f"file.{suffixes}")
    return kind


def _changed_error(error: StorageError) -> StorageError:
    """Returns the error of a read that asked for one version of an object."""
    if error.code != "PreconditionFailed":
        return error
    return FileChangedError(str(error), uri=error.uri, status_code=error.status_code, code=error.code)


def _head(bucket: OssBucket, uri: OssUri) -> ObjectInfo:
    return info_of(uri, bucket.send("HEAD", uri.key).headers)


def _delete(bucket: OssBucket, keys: list[str]) -> None:
    bucket.batch_delete_objects(keys)


def _page(bucket: OssBucket, prefix: OssUri, token: str, max_keys: int) -> ObjectPage:
    query = {"list-type": "2", "encoding-type": "url", "prefix": prefix.key, "max-keys": str(max_keys)}
    if token:
        query["continuation-token"] = token
    # Not `oss2.Bucket.list_objects_v2`, whose reading of the response takes 0.2 ms an object.
    page = page_in(bucket.send("GET", "", params=query).read())
    # Otherwise the listing would never end.
    if page.next_token in ("", token):
        raise StorageError(f"{prefix}: a page of the list arrived twice", uri=str(prefix), retryable=True)
    return page


def _get_range(
    bucket: OssBucket,
    info: ObjectInfo,
    start: int,
    end: int,
    file: int,
    check_cancelled: Callable[[Iterable[bytes | memoryview]], Iterator[bytes | memoryview]],
) -> int:
    headers = {"if-match": f'"{info.etag}"', "range": f"bytes={start}-{end - 1}"}
    with closing(bucket.send("GET", info.uri.key, headers)) as response:
        span = response.headers.get("content-range")
        if span is None:
            # Read no further: the body is the complete object, for each of its ranges.
            raise StorageError(f"{info.uri}: the server ignored the range", uri=str(info.uri))
        at, checksum = _write_range(file, check_cancelled(response.blocks()), start, end)
    if at != end or span != f"bytes {start}-{end - 1}/{info.size_bytes}":
        message = f"{info.uri}: bytes {start} to {end} did not arrive"
        raise StorageError(message, uri=str(info.uri), retryable=True)
    return checksum


def _write_range(file: int, chunks: Iterable[bytes | memoryview], start: int, end: int) -> tuple[int, int]:
    """Writes chunks from `start` on; returns the position behind them, and their checksum."""
    at, checksum = start, 0
    for chunk in chunks:
        # A server that ignores the range: nothing is written behind the end, and the caller's check fails.
        if at + len(chunk) > end:
            break
        # The chunk is still in the cache of the processor: the checksum costs no reading of memory.
        remaining, checksum = memoryview(chunk), checksum_of(chunk, checksum)
        # On a nearly full disk, write() may write less than requested, without an error.
        while remaining:
            written = write_at(file, remaining, at)
            remaining, at = remaining[written:], at + written
    return at, checksum


def _check_complete(check: ContentCheck, uri: OssUri) -> None:
    error = check.error()
    if error:
        raise StorageError(f"{uri}: {error}", uri=str(uri), retryable=True)
