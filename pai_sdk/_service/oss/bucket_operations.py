"""OSS operations on the service and its buckets."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from itertools import islice

from starlette.responses import Response

from pai_sdk._service.identity.bucket_rights import BucketRights
from pai_sdk._service.oss.body import Threads, read_small_body
from pai_sdk._service.oss.error_codes import oss_error
from pai_sdk._service.oss.index import BucketInfo, CommonPrefix
from pai_sdk._service.oss.object_rows import StoredObject, encode_key
from pai_sdk._service.oss.oss_request import OssRequest
from pai_sdk._service.oss.store import ObjectStore
from pai_sdk._service.oss.xml import Children, iso_time, name_writer, parse, xml_response

_OWNER: Children = [("ID", "pai"), ("DisplayName", "pai")]
_MAX_KEYS = 1000
_MAX_REQUEST_XML_BYTES = 4 << 20
_CLASS = ("StorageClass", "Standard")
_REDUNDANCY = ("DataRedundancyType", "LRS")

Entry = StoredObject | CommonPrefix


class BucketOperations:
    """OSS operations on the service (`GET /`) and on buckets."""

    def __init__(
        self, store: ObjectStore, threads: Threads, *, region: str, rights: BucketRights | None = None
    ) -> None:
        self._store, self._threads, self._rights = store, threads, rights
        self._location = f"oss-{region}"
        self._region = region

    async def list_buckets(self, request: OssRequest) -> Response:
        """Handles ListBuckets."""
        query, limit = request.query, request.number("max-keys", 100, 1, _MAX_KEYS)
        prefix, marker = query.get("prefix", ""), query.get("marker", "")
        buckets = await self._threads.run(self._visible_buckets, request.key_id)
        matching = [info for info in buckets if info.name.startswith(prefix) and info.name > marker]
        page, more = matching[:limit], len(matching) > limit
        return xml_response(
            "ListAllMyBucketsResult",
            [
                ("Owner", _OWNER),
                ("Buckets", [("Bucket", self._describe(info, request)) for info in page]),
                ("Prefix", prefix),
                ("Marker", marker),
                ("MaxKeys", limit),
                ("IsTruncated", more),
                *([("NextMarker", page[-1].name)] if more else []),
            ],
        )

    async def create(self, request: OssRequest) -> Response:
        """Handles PutBucket; an existing bucket is no error for its owner."""
        if request.header("x-oss-acl") not in ("", "private"):
            raise oss_error("NotImplemented", "Buckets are private here; leave x-oss-acl out.")
        _check_configuration(await read_small_body(request, _MAX_REQUEST_XML_BYTES))
        await self._threads.run(self._create, request)
        return Response(headers={"Location": f"/{request.bucket}"})

    async def delete(self, request: OssRequest) -> Response:
        """Handles DeleteBucket."""
        await self._threads.run(self._delete, request.bucket)
        return Response(status_code=204)

    def _visible_buckets(self, key_id: str) -> list[BucketInfo]:
        buckets = list(self._store.list_buckets())
        if self._rights is None:
            return buckets
        visible = self._rights.visible(key_id, [info.name for info in buckets])
        return [info for info in buckets if info.name in visible]

    def _create(self, request: OssRequest) -> None:
        if self._rights is not None:
            exists = self._store.bucket_exists(request.bucket)
            self._rights.claim(request.key_id, request.bucket, exists=exists)
        self._store.create_bucket(request.bucket)

    def _delete(self, bucket: str) -> None:
        self._store.delete_bucket(bucket)
        if self._rights is not None:
            self._rights.forget(bucket)

    async def info(self, request: OssRequest) -> Response:
        """Handles GetBucketInfo."""
        bucket = await self._threads.run(self._store.bucket, request.bucket)
        return xml_response(
            "BucketInfo",
            [
                (
                    "Bucket",
                    [
                        *self._describe(bucket, request),
                        ("Owner", _OWNER),
                        ("AccessControlList", [("Grant", "private")]),
                        _REDUNDANCY,
                    ],
                )
            ],
        )

    async def location(self, request: OssRequest) -> Response:
        """Handles GetBucketLocation."""
        await self._threads.run(self._store.bucket, request.bucket)
        return xml_response("LocationConstraint", self._location)

    async def acl(self, request: OssRequest) -> Response:
        """Handles GetBucketAcl: always private."""
        await self._threads.run(self._store.bucket, request.bucket)
        return xml_response(
            "AccessControlPolicy", [("Owner", _OWNER), ("AccessControlList", [("Grant", "private")])]
        )

    async def list_objects(self, request: OssRequest) -> Response:
        """Handles ListObjects (GetBucket), version 1."""
        return await self._threads.run(self._list_objects, request)

    def _list_objects(self, request: OssRequest) -> Response:
        query, limit = request.query, request.number("max-keys", 100, 1, _MAX_KEYS)
        prefix, delimiter, marker = (query.get(name, "") for name in ("prefix", "delimiter", "marker"))
        page, last = self._page(request, prefix, delimiter, marker, limit)
        written, encoding = name_writer(query, [prefix, delimiter, marker, *map(_name, page)])
        return xml_response(
            "ListBucketResult",
            [
                ("Name", request.bucket),
                ("Prefix", written(prefix)),
                ("Marker", written(marker)),
                ("MaxKeys", limit),
                ("Delimiter", written(delimiter)),
                *encoding,
                ("IsTruncated", bool(last)),
                *([("NextMarker", written(last))] if last else []),
                *_list_children(page, written, with_owner=True),
            ],
        )

    async def list_objects_v2(self, request: OssRequest) -> Response:
        """Handles ListObjectsV2."""
        return await self._threads.run(self._list_objects_v2, request)

    def _list_objects_v2(self, request: OssRequest) -> Response:
        query, limit = request.query, request.number("max-keys", 100, 1, _MAX_KEYS)
        if query["list-type"] != "2":
            raise oss_error("InvalidArgument", "list-type can only be 2.")
        prefix, delimiter, start = (query.get(name, "") for name in ("prefix", "delimiter", "start-after"))
        token = query.get("continuation-token", "")
        after = _from_token(token) if token else start
        page, last = self._page(request, prefix, delimiter, after, limit)
        written, encoding = name_writer(query, [prefix, delimiter, start, *map(_name, page)])
        return xml_response(
            "ListBucketResult",
            [
                ("Name", request.bucket),
                ("Prefix", written(prefix)),
                ("StartAfter", written(start)),
                ("MaxKeys", limit),
                ("Delimiter", written(delimiter)),
                *encoding,
                ("IsTruncated", bool(last)),
                *([("ContinuationToken", token)] if token else []),
                *([("NextContinuationToken", _to_token(last))] if last else []),
                ("KeyCount", len(page)),
                *_list_children(page, written, with_owner=query.get("fetch-owner") == "true"),
            ],
        )

    async def delete_objects(self, request: OssRequest) -> Response:
        """Handles DeleteMultipleObjects."""
        root = parse(await read_small_body(request, _MAX_REQUEST_XML_BYTES), "Delete")
        keys = [element.findtext("Key") or "" for element in root.findall("Object")]
        if not 1 <= len(keys) <= _MAX_KEYS:
            raise oss_error("MalformedXML", f"1 to {_MAX_KEYS} keys can be deleted at once.")
        if any(element.find("VersionId") is not None for element in root.findall("Object")):
            raise oss_error("NotImplemented", "This object store has no versions.")
        for key in keys:
            encode_key(key)
        await self._threads.run(self._store.delete_many, request.bucket, keys)
        if root.findtext("Quiet") == "true":
            return Response()
        written, encoding = name_writer(request.query, keys)
        return xml_response("DeleteResult", [*encoding, *(("Deleted", [("Key", written(key))]) for key in keys)])

    def _page(
        self, request: OssRequest, prefix: str, delimiter: str, after: str, limit: int
    ) -> tuple[list[Entry], str]:
        """Returns a page of a list, and its last name if more follows."""
        entries = self._store.entries(request.bucket, prefix=prefix, delimiter=delimiter, after=after)
        page = list(islice(entries, limit + 1))
        more = len(page) > limit
        return page[:limit], _name(page[limit - 1]) if more else ""

    def _describe(self, info: BucketInfo, request: OssRequest) -> Children:
        return [
            ("Name", info.name),
            ("Location", self._location),
            ("Region", self._region),
            ("CreationDate", iso_time(info.created_at)),
            ("ExtranetEndpoint", request.host),
            ("IntranetEndpoint", request.host),
            _CLASS,
        ]


def _check_configuration(body: bytes) -> None:
    """Raises `NotImplemented` for an unsupported kind of bucket."""
    if not body.strip():
        return
    root = parse(body, "CreateBucketConfiguration")
    for name, offered in (_CLASS, _REDUNDANCY):
        requested = root.findtext(name) or offered
        if requested != offered:
            raise oss_error(
                "NotImplemented", f"{name}: {requested[:60]} is not supported here; buckets are {offered}."
            )


def _name(entry: Entry) -> str:
    return entry.key if isinstance(entry, StoredObject) else entry.prefix


def _list_children(page: list[Entry], written: Callable[[str], str], *, with_owner: bool) -> Children:
    owner: Children = [("Owner", _OWNER)] if with_owner else []
    contents: Children = [
        (
            "Contents",
            [
                ("Key", written(entry.key)),
                ("LastModified", iso_time(entry.modified_at)),
                ("ETag", f'"{entry.etag}"'),
                ("Type", entry.kind),
                ("Size", entry.size_bytes),
                _CLASS,
                *owner,
            ],
        )
        for entry in page
        if isinstance(entry, StoredObject)
    ]
    groups: Children = [
        ("CommonPrefixes", [("Prefix", written(entry.prefix))])
        for entry in page
        if isinstance(entry, CommonPrefix)
    ]
    return [*contents, *groups]


def _to_token(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def _from_token(token: str) -> str:
    try:
        return base64.urlsafe_b64decode(token.encode()).decode()
    except (binascii.Error, ValueError) as error:
        raise oss_error("InvalidArgument", "The continuation token is not from this object store.") from error
