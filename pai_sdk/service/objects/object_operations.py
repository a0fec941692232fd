"""What can be done with objects."""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping
from functools import partial
from urllib.parse import unquote

from starlette.responses import Response

from pai_sdk.service.objects.body import write_body
from pai_sdk.service.objects.conditions import byte_range, check_conditions, check_source
from pai_sdk.service.objects.error_codes import fault
from pai_sdk.service.objects.index import StoredObject
from pai_sdk.service.objects.object_names import check_bucket, encode_key
from pai_sdk.service.objects.oss_request import OssRequest
from pai_sdk.service.objects.store import DEFAULT_CONTENT_TYPE, ObjectStore
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
    """The operations of OSS on objects, but for uploads in parts."""

    def __init__(self, store: ObjectStore, threads: Threads) -> None:
        self._store, self._threads = store, threads

    async def put(self, request: OssRequest) -> Response:
        """PutObject, and CopyObject when a source is named."""
        if request.header("x-oss-copy-source"):
            return await self._copy(request)
        refuse_unknown_wishes(request)
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

    async def get(self, request: OssRequest) -> Response:
        """GetObject."""
        return await self._threads.run(self._get, request, _overrides(request))

    def _get(self, request: OssRequest, overrides: Mapping[str, str]) -> Response:
        info, stream = self._store.open_with_info(request.bucket, request.key)
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

    async def head(self, request: OssRequest) -> Response:
        """HeadObject."""
        info = await self._threads.run(self._store.head, request.bucket, request.key)
        headers = {**object_headers(info), **_overrides(request)}
        if info.kind == "Appendable":
            headers["x-oss-next-append-position"] = str(info.size_bytes)
        if not check_conditions(request, info):
            return Response(status_code=304, headers=headers)
        return Response(headers={**headers, "content-length": str(info.size_bytes)})

    async def meta(self, request: OssRequest) -> Response:
        """GetObjectMeta: the few facts that cost nothing."""
        info = await self._threads.run(self._store.head, request.bucket, request.key)
        known = object_headers(info)
        headers = {name: known[name] for name in ("etag", "last-modified")}
        return Response(headers={**headers, "content-length": str(info.size_bytes)})

    async def acl(self, request: OssRequest) -> Response:
        """GetObjectAcl: that of the bucket."""
        await self._threads.run(self._store.head, request.bucket, request.key)
        return xml_answer("AccessControlPolicy", [("AccessControlList", [("Grant", "default")])])

    async def delete(self, request: OssRequest) -> Response:
        """DeleteObject."""
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
        info = await self._threads.run(self._copied, request, replace=directive == "REPLACE")
        facts = [("ETag", f'"{info.etag}"'), ("LastModified", iso_time(info.modified_at))]
        return xml_answer("CopyObjectResult", facts, {"ETag": f'"{info.etag}"'})

    def _copied(self, request: OssRequest, *, replace: bool) -> StoredObject:
        return self._store.copy(
            *copy_source(request),
            request.bucket,
            request.key,
            check_source=partial(check_source, request),
            content_type=content_type_of(request) if replace else None,
            headers=kept_headers(request) if replace else None,
            forbid_overwrite=_forbids_overwrite(request),
        )


def content_type_of(request: OssRequest) -> str:
    """The content type the client gave, or else the one that fits the key."""
    return request.header("content-type") or mimetypes.guess_type(request.key)[0] or DEFAULT_CONTENT_TYPE


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
    for name, harmless in _WISHES.items():
        if request.header(name) not in harmless:
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
