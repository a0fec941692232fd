"""OSS operations on objects, with conditions and ranges."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from functools import partial
from typing import BinaryIO
from urllib.parse import unquote

from starlette.responses import Response

from pai_sdk._data.storage.crc64 import crc64_of
from pai_sdk._service.oss.body import Threads, read_content, write_body
from pai_sdk._service.oss.error_codes import oss_error
from pai_sdk._service.oss.object_rows import RowCopy, StoredObject, check_bucket, encode_key
from pai_sdk._service.oss.oss_request import OssRequest
from pai_sdk._service.oss.store import ObjectStore, guess_type
from pai_sdk._service.oss.xml import (
    HEADER_CRC64,
    content_response,
    iso_time,
    object_headers,
    safe_in_browser,
    written_headers,
    xml_response,
)

_STORED_HEADERS = ("cache-control", "content-disposition", "content-encoding", "content-language", "expires")
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})(,.*)?")
_META = "x-oss-meta-"
_MAX_META_BYTES = 8 << 10
_OVERRIDES = (
    "content-type",
    "content-language",
    "expires",
    "cache-control",
    "content-disposition",
    "content-encoding",
)
# Headers that change what is stored or its access rights, with the accepted values; other values are refused.
_ACCEPTED_VALUES = {
    "x-oss-object-acl": ("", "default", "private"),
    "x-oss-storage-class": ("", "Standard"),
    "x-oss-server-side-encryption": ("",),
    "x-oss-server-side-data-encryption": ("",),
    "x-oss-tagging": ("",),
    "x-oss-callback": ("",),
}


class ObjectOperations:
    """OSS operations on objects, except multipart uploads."""

    def __init__(self, store: ObjectStore, threads: Threads) -> None:
        # The event loop reads rows of the index itself, and awaits the writer of the index: for a small object, a
        # call in a thread would cost more than the work.
        self._store, self._index, self._threads = store, store.index, threads

    async def put(self, request: OssRequest) -> Response:
        """Handles PutObject, and CopyObject if a source is named."""
        if request.header("x-oss-copy-source"):
            return await self._copy(request)
        refuse_unsupported_headers(request)
        length = request.content_length
        if length is not None and length <= self._store.limits.max_row_bytes:
            info = await self._put_row(request, length)
        else:
            info = await write_body(
                request,
                self._threads,
                self._store.writer,
                lambda writer: self._store.finish(
                    writer,
                    request.bucket,
                    request.key,
                    content_type=content_type_of(request),
                    headers=stored_headers(request),
                    forbid_overwrite=_forbids_overwrite(request),
                ),
            )
        return Response(headers=written_headers(info))

    async def _put_row(self, request: OssRequest, length: int) -> StoredObject:
        content, md5 = await read_content(request, length)
        info = StoredObject(
            bucket=request.bucket,
            key=request.key,
            size_bytes=length,
            etag=md5.hex().upper(),
            content_type=content_type_of(request),
            headers=stored_headers(request),
            crc64=crc64_of(content),
        )
        recorded = await self._index.put_soon(info, content, forbid_overwrite=_forbids_overwrite(request))
        await self._remove_files(recorded.freed)
        return recorded.info

    async def _remove_files(self, names: Sequence[str]) -> None:
        if names:
            await self._threads.run(self._store.remove_files, names)

    async def get(self, request: OssRequest) -> Response:
        """Handles GetObject."""
        overrides = _overrides(request)
        info, content = self._index.find_with_content(request.bucket, request.key)
        if content is not None and len(content) == info.size_bytes:
            return self._content_response(request, overrides, info, io.BytesIO(content))
        return await self._threads.run(self._get, request, overrides)

    def _get(self, request: OssRequest, overrides: Mapping[str, str]) -> Response:
        return self._content_response(request, overrides, *self._store.open_with_info(request.bucket, request.key))

    def _content_response(
        self, request: OssRequest, overrides: Mapping[str, str], info: StoredObject, stream: BinaryIO
    ) -> Response:
        try:
            headers = safe_in_browser(request, {**object_headers(info), **overrides})
            if not check_conditions(request, info):
                stream.close()
                return Response(status_code=304, headers=headers)
            chosen = byte_range(request, info.size_bytes)
            first, size_bytes = chosen or (0, info.size_bytes)
            if chosen:
                headers["content-range"] = f"bytes {first}-{first + size_bytes - 1}/{info.size_bytes}"
                stream.seek(first)
            status = 206 if chosen else 200
            return content_response(stream, size_bytes, status=status, headers=headers, threads=self._threads)
        except BaseException:
            stream.close()
            raise

    async def head(self, request: OssRequest) -> Response:
        """Handles HeadObject."""
        info = self._index.find(request.bucket, request.key)
        headers = safe_in_browser(request, {**object_headers(info), **_overrides(request)})
        if info.kind == "Appendable":
            headers["x-oss-next-append-position"] = str(info.size_bytes)
        if not check_conditions(request, info):
            return Response(status_code=304, headers=headers)
        return Response(headers={**headers, "content-length": str(info.size_bytes)})

    async def meta(self, request: OssRequest) -> Response:
        """Handles GetObjectMeta."""
        info = self._index.find(request.bucket, request.key)
        all_headers = object_headers(info)
        headers = {
            name: all_headers[name] for name in ("etag", "last-modified", HEADER_CRC64) if name in all_headers
        }
        return Response(headers={**headers, "content-length": str(info.size_bytes)})

    async def acl(self, request: OssRequest) -> Response:
        """Handles GetObjectAcl: that of the bucket."""
        self._index.find(request.bucket, request.key)
        return xml_response("AccessControlPolicy", [("AccessControlList", [("Grant", "default")])])

    async def delete(self, request: OssRequest) -> Response:
        """Handles DeleteObject."""
        await self._remove_files(await self._index.forget_soon(request.bucket, [request.key]))
        return Response(status_code=204)

    async def append(self, request: OssRequest) -> Response:
        """Handles AppendObject."""
        refuse_unsupported_headers(request)
        if "position" not in request.query:
            raise oss_error("MissingArgument", "AppendObject needs the position.")
        position = request.number("position", 0, 0, 1 << 50)
        info = await write_body(
            request,
            self._threads,
            self._store.writer,
            lambda writer: self._store.append(
                writer,
                request.bucket,
                request.key,
                position,
                content_type=content_type_of(request),
                headers=stored_headers(request),
            ),
        )
        return Response(headers={**written_headers(info), "x-oss-next-append-position": str(info.size_bytes)})

    async def _copy(self, request: OssRequest) -> Response:
        refuse_unsupported_headers(request)
        directive = request.header("x-oss-metadata-directive").upper()
        if directive not in ("", "COPY", "REPLACE"):
            raise oss_error("InvalidArgument", "x-oss-metadata-directive is COPY or REPLACE.")
        changed = (stored_headers(request), content_type_of(request)) if directive == "REPLACE" else None
        info = await self._copy_row(request, changed)
        if info is None:
            info = await self._threads.run(self._copy_file, request, changed)
        children = [("ETag", f'"{info.etag}"'), ("LastModified", iso_time(info.modified_at))]
        return xml_response("CopyObjectResult", children, written_headers(info))

    async def _copy_row(
        self, request: OssRequest, changed: tuple[Mapping[str, str], str] | None
    ) -> StoredObject | None:
        row_copy = RowCopy(
            *copy_source(request),
            request.bucket,
            request.key,
            changed,
            _forbids_overwrite(request),
            partial(check_source, request),
        )
        recorded = await self._index.copy_soon(row_copy)
        if recorded is None:
            return None
        await self._remove_files(recorded.freed)
        return recorded.info

    def _copy_file(self, request: OssRequest, changed: tuple[Mapping[str, str], str] | None) -> StoredObject:
        headers, content_type = changed or (None, None)
        return self._store.copy(
            *copy_source(request),
            request.bucket,
            request.key,
            check_source=partial(check_source, request),
            content_type=content_type,
            headers=headers,
            forbid_overwrite=_forbids_overwrite(request),
        )


def content_type_of(request: OssRequest) -> str:
    """Returns the content type from the client, or else one that fits the key."""
    return request.header("content-type") or guess_type(request.key)


def stored_headers(request: OssRequest) -> dict[str, str]:
    """Returns the headers that are stored with the object and returned with it."""
    headers = {
        name: request.header(name)
        for name in request.signed.headers
        if name in _STORED_HEADERS or name.startswith(_META)
    }
    if sum(len(name) + len(value) for name, value in headers.items() if name.startswith(_META)) > _MAX_META_BYTES:
        raise oss_error("InvalidArgument", f"The x-oss-meta headers may have {_MAX_META_BYTES} bytes at most.")
    return headers


def refuse_unsupported_headers(request: OssRequest) -> None:
    """Raises `NotImplemented` for headers with unsupported values."""
    for name in sorted(_ACCEPTED_VALUES.keys() & request.signed.headers.keys()):
        if request.header(name) not in _ACCEPTED_VALUES[name]:
            raise oss_error(
                "NotImplemented", f"{name}: {request.header(name)} is not supported here; leave it out."
            )


def copy_source(request: OssRequest) -> tuple[str, str]:
    """Returns bucket and key of `x-oss-copy-source`."""
    source, _, version = request.header("x-oss-copy-source").partition("?")
    if version:
        raise oss_error("NotImplemented", "This object store has no versions.")
    try:
        path = unquote(source.encode("latin-1").decode(), errors="strict").removeprefix("/")
    except UnicodeDecodeError as error:
        raise oss_error("InvalidArgument", "x-oss-copy-source is not UTF-8.") from error
    bucket, _, key = path.partition("/")
    if not source.startswith(("/", "%2F", "%2f")) or not key:
        raise oss_error("InvalidArgument", "x-oss-copy-source must be /bucket/key.")
    encode_key(key)
    return check_bucket(bucket), key


def _forbids_overwrite(request: OssRequest) -> bool:
    return request.header("x-oss-forbid-overwrite").lower() == "true"


def _overrides(request: OssRequest) -> Mapping[str, str]:
    requested = {name: request.query.get(f"response-{name}", "") for name in _OVERRIDES}
    chosen = {name: value for name, value in requested.items() if value}
    if any(not character.isprintable() for value in chosen.values() for character in value):
        raise oss_error("InvalidArgument", "A response-* parameter contains a control character.")
    return {name: value.encode().decode("latin-1") for name, value in chosen.items()}


# ---- conditions and ranges ----------------------------------------------------------------------------------


def check_conditions(request: OssRequest, info: StoredObject, prefix: str = "") -> bool:
    """Returns whether the client needs the content: False if it has the current one."""
    match, none_match = request.header(f"{prefix}if-match"), request.header(f"{prefix}if-none-match")
    if match and not _matches_etag(match, info.etag):
        raise oss_error("PreconditionFailed")
    before = _time(request.header(f"{prefix}if-unmodified-since"))
    if before is not None and not match and int(info.modified_at) > before:
        raise oss_error("PreconditionFailed")
    if none_match:
        return not _matches_etag(none_match, info.etag)
    since = _time(request.header(f"{prefix}if-modified-since"))
    return since is None or int(info.modified_at) > since


def check_source(request: OssRequest, source: StoredObject) -> None:
    """Checks the client's conditions for the source of a copy; raises `NotModified` or `PreconditionFailed`."""
    if not check_conditions(request, source, "x-oss-copy-source-"):
        raise oss_error("NotModified")


def byte_range(request: OssRequest, size_bytes: int) -> tuple[int, int] | None:
    """Returns first byte and length of the requested range; None for the complete object."""
    text = request.header("range")
    match = _RANGE.fullmatch(text)
    if not match or (not match[1] and not match[2]):
        return None
    # The rules of HTTP; without the header, OSS ignores an unsatisfiable range and returns the complete object.
    standard = request.header("x-oss-range-behavior") == "standard"
    if match[1]:
        first, last = int(match[1]), int(match[2] or size_bytes - 1)
    else:
        first, last = size_bytes - int(match[2]), size_bytes - 1
        if standard and int(match[2]) > 0:
            first = max(first, 0)
    if standard and match[1] and match[2] and last < first:
        # HTTP: an invalid range is ignored.
        return None
    if standard:
        last = min(last, size_bytes - 1)
    if 0 <= first <= last < size_bytes:
        return first, last - first + 1
    if standard:
        raise oss_error("InvalidRange")
    return None


def copy_range(request: OssRequest, size_bytes: int) -> tuple[int, int]:
    """Returns first byte and length of `x-oss-copy-source-range`; the complete object without it."""
    text = request.header("x-oss-copy-source-range")
    if not text:
        return 0, size_bytes
    match = _RANGE.fullmatch(text)
    if not match or not match[1] or match[3]:
        raise oss_error("InvalidArgument", "x-oss-copy-source-range must be like bytes=0-99.")
    first, last = int(match[1]), int(match[2] or size_bytes - 1)
    if not first <= last < size_bytes:
        raise oss_error("InvalidRange")
    return first, last - first + 1


def _matches_etag(header: str, etag: str) -> bool:
    return any(each.strip() == "*" or each.strip().strip('"').upper() == etag for each in header.split(","))


def _time(text: str) -> int | None:
    """Returns seconds since 1970; None for a missing or invalid date, which HTTP requires to ignore."""
    try:
        return int(parsedate_to_datetime(text).timestamp()) if text else None
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
