"""What can be done with objects."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from functools import partial
from typing import BinaryIO
from urllib.parse import unquote

from starlette.responses import Response

from pai_sdk.service.objects.body import read_content, write_body
from pai_sdk.service.objects.conditions import byte_range, check_conditions, check_source
from pai_sdk.service.objects.error_codes import fault
from pai_sdk.service.objects.index import StoredObject
from pai_sdk.service.objects.object_names import check_bucket, encode_key
from pai_sdk.service.objects.oss_request import OssRequest
from pai_sdk.service.objects.sqlite_index import MOST_ROW_BYTES, CopyOfRow, SqliteIndex
from pai_sdk.service.objects.store import ObjectStore, guess_type
from pai_sdk.service.objects.threads import Threads
from pai_sdk.service.objects.xml import iso_time
from pai_sdk.service.objects.xml_responses import content_answer, object_headers, xml_answer

__all__ = ["ObjectOperations", "content_type_of", "copy_source", "kept_headers", "refuse_unknown_wishes"]

_KEPT = ("cache-control", "content-disposition", "content-encoding", "content-language", "expires")
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
# Headers that change what is stored or its access rights, with their harmless values; all others are refused.
_WISHES = {
    "x-oss-object-acl": ("", "default", "private"),
    "x-oss-storage-class": ("", "Standard"),
    "x-oss-server-side-encryption": ("",),
    "x-oss-server-side-data-encryption": ("",),
    "x-oss-tagging": ("",),
    "x-oss-callback": ("",),
}


class ObjectOperations:
    """The operations of OSS on objects, but for uploads in parts.

    Where the store has rows, the event loop reads them itself, and awaits the writer of the index: for a small
    object, a thread of its own would cost more than the work.
    """

    def __init__(self, store: ObjectStore, threads: Threads) -> None:
        self._store, self._rows, self._threads = store, store.rows, threads

    async def put(self, request: OssRequest) -> Response:
        """PutObject, and CopyObject when a source is named."""
        if request.header("x-oss-copy-source"):
            return await self._copy(request)
        refuse_unknown_wishes(request)
        length = request.content_length
        if self._rows is not None and length is not None and length <= MOST_ROW_BYTES:
            info = await self._put_row(request, self._rows, length)
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
                    headers=kept_headers(request),
                    forbid_overwrite=_forbids_overwrite(request),
                ),
            )
        return Response(headers={"ETag": f'"{info.etag}"'})

    async def _put_row(self, request: OssRequest, rows: SqliteIndex, length: int) -> StoredObject:
        content, md5 = await read_content(request, length)
        info = StoredObject(
            bucket=request.bucket,
            key=request.key,
            size_bytes=length,
            etag=md5.hex().upper(),
            content_type=content_type_of(request),
            headers=kept_headers(request),
        )
        recorded = await rows.put_soon(info, content, forbid_overwrite=_forbids_overwrite(request))
        await self._remove_files(recorded.freed)
        return recorded.info

    async def _remove_files(self, names: Sequence[str]) -> None:
        if names:
            await self._threads.run(self._store.remove_files, names)

    async def get(self, request: OssRequest) -> Response:
        """GetObject."""
        overrides = _overrides(request)
        if self._rows is not None:
            info, content = self._rows.find_with_content(request.bucket, request.key)
            if content is not None and len(content) == info.size_bytes:
                return self._answer(request, overrides, info, io.BytesIO(content))
        return await self._threads.run(self._get, request, overrides)

    def _get(self, request: OssRequest, overrides: Mapping[str, str]) -> Response:
        return self._answer(request, overrides, *self._store.open_with_info(request.bucket, request.key))

    def _answer(
        self, request: OssRequest, overrides: Mapping[str, str], info: StoredObject, stream: BinaryIO
    ) -> Response:
        try:
            headers = {**object_headers(info), **overrides}
            if not check_conditions(request, info):
                stream.close()
                return Response(status_code=304, headers=headers)
            chosen = byte_range(request, info.size_bytes)
            first, size_bytes = chosen or (0, info.size_bytes)
            if chosen:
                headers["content-range"] = f"bytes {first}-{first + size_bytes - 1}/{info.size_bytes}"
                stream.seek(first)
            status = 206 if chosen else 200
            return content_answer(stream, size_bytes, status=status, headers=headers, threads=self._threads)
        except BaseException:
            stream.close()
            raise

    async def _find(self, request: OssRequest) -> StoredObject:
        if self._rows is not None:
            return self._rows.find(request.bucket, request.key)
        return await self._threads.run(self._store.head, request.bucket, request.key)

    async def head(self, request: OssRequest) -> Response:
        """HeadObject."""
        info = await self._find(request)
        headers = {**object_headers(info), **_overrides(request)}
        if info.kind == "Appendable":
            headers["x-oss-next-append-position"] = str(info.size_bytes)
        if not check_conditions(request, info):
            return Response(status_code=304, headers=headers)
        return Response(headers={**headers, "content-length": str(info.size_bytes)})

    async def meta(self, request: OssRequest) -> Response:
        """GetObjectMeta: the few facts that cost nothing."""
        info = await self._find(request)
        known = object_headers(info)
        headers = {name: known[name] for name in ("etag", "last-modified")}
        return Response(headers={**headers, "content-length": str(info.size_bytes)})

    async def acl(self, request: OssRequest) -> Response:
        """GetObjectAcl: that of the bucket."""
        await self._find(request)
        return xml_answer("AccessControlPolicy", [("AccessControlList", [("Grant", "default")])])

    async def delete(self, request: OssRequest) -> Response:
        """DeleteObject."""
        if self._rows is not None:
            await self._remove_files(await self._rows.forget_soon(request.bucket, [request.key]))
        else:
            await self._threads.run(self._store.delete, request.bucket, request.key)
        return Response(status_code=204)

    async def append(self, request: OssRequest) -> Response:
        """AppendObject."""
        refuse_unknown_wishes(request)
        if "position" not in request.query:
            raise fault("MissingArgument", "AppendObject needs the position.")
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
                headers=kept_headers(request),
            ),
        )
        return Response(headers={"ETag": f'"{info.etag}"', "x-oss-next-append-position": str(info.size_bytes)})

    async def _copy(self, request: OssRequest) -> Response:
        refuse_unknown_wishes(request)
        directive = request.header("x-oss-metadata-directive").upper()
        if directive not in ("", "COPY", "REPLACE"):
            raise fault("InvalidArgument", "x-oss-metadata-directive is COPY or REPLACE.")
        changed = (kept_headers(request), content_type_of(request)) if directive == "REPLACE" else None
        info = await self._copy_row(request, changed)
        if info is None:
            info = await self._threads.run(self._copied, request, changed)
        facts = [("ETag", f'"{info.etag}"'), ("LastModified", iso_time(info.modified_at))]
        return xml_answer("CopyObjectResult", facts, {"ETag": f'"{info.etag}"'})

    async def _copy_row(
        self, request: OssRequest, changed: tuple[Mapping[str, str], str] | None
    ) -> StoredObject | None:
        if self._rows is None:
            return None
        wanted = CopyOfRow(
            *copy_source(request),
            request.bucket,
            request.key,
            changed,
            _forbids_overwrite(request),
            partial(check_source, request),
        )
        recorded = await self._rows.copy_soon(wanted)
        if recorded is None:
            return None
        await self._remove_files(recorded.freed)
        return recorded.info

    def _copied(self, request: OssRequest, changed: tuple[Mapping[str, str], str] | None) -> StoredObject:
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
    """The content type the client gave, or else the one that fits the key."""
    return request.header("content-type") or guess_type(request.key)


def kept_headers(request: OssRequest) -> dict[str, str]:
    """What the client wants to get back with the object.

    Raises:
        StorageError: it is too much.
    """
    kept = {
        name: request.header(name) for name in request.signed.headers if name in _KEPT or name.startswith(_META)
    }
    if sum(len(name) + len(value) for name, value in kept.items() if name.startswith(_META)) > _MAX_META_BYTES:
        raise fault("InvalidArgument", f"The x-oss-meta headers may have {_MAX_META_BYTES} bytes at most.")
    return kept


def refuse_unknown_wishes(request: OssRequest) -> None:
    """Raise `NotImplemented` for what the client wants and cannot have."""
    for name in sorted(_WISHES.keys() & request.signed.headers.keys()):
        if request.header(name) not in _WISHES[name]:
            raise fault("NotImplemented", f"{name}: {request.header(name)} is not offered here; leave it out.")


def copy_source(request: OssRequest) -> tuple[str, str]:
    """Bucket and key of `x-oss-copy-source`.

    Raises:
        StorageError: it cannot be read.
    """
    source, _, version = request.header("x-oss-copy-source").partition("?")
    if version:
        raise fault("NotImplemented", "There are no versions here.")
    try:
        path = unquote(source.encode("latin-1").decode(), errors="strict").removeprefix("/")
    except UnicodeDecodeError as error:
        raise fault("InvalidArgument", "x-oss-copy-source is not UTF-8.") from error
    bucket, _, key = path.partition("/")
    if not source.startswith(("/", "%2F", "%2f")) or not key:
        raise fault("InvalidArgument", "x-oss-copy-source must be /bucket/key.")
    encode_key(key)
    return check_bucket(bucket), key


def _forbids_overwrite(request: OssRequest) -> bool:
    return request.header("x-oss-forbid-overwrite").lower() == "true"


def _overrides(request: OssRequest) -> Mapping[str, str]:
    asked = {name: request.query.get(f"response-{name}", "") for name in _OVERRIDES}
    chosen = {name: value for name, value in asked.items() if value}
    if any(not character.isprintable() for value in chosen.values() for character in value):
        raise fault("InvalidArgument", "A response-* parameter holds a control character.")
    return {name: value.encode().decode("latin-1") for name, value in chosen.items()}
