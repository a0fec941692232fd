"""OSS operations on multipart uploads."""

from __future__ import annotations

from xml.etree import ElementTree

from starlette.responses import Response

from pai_sdk._service.oss.body import Threads, read_small_body, write_body
from pai_sdk._service.oss.error_codes import oss_error
from pai_sdk._service.oss.multipart import MAX_PARTS, UploadedPart, UploadInfo
from pai_sdk._service.oss.object_operations import (
    check_source,
    content_type_of,
    copy_range,
    copy_source,
    refuse_unsupported_headers,
    stored_headers,
)
from pai_sdk._service.oss.oss_request import OssRequest
from pai_sdk._service.oss.store import ObjectStore
from pai_sdk._service.oss.xml import Children, iso_time, name_writer, parse, written_headers, xml_response

_MAX_PAGE = 1000
_MAX_REQUEST_XML_BYTES = 4 << 20


class MultipartOperations:
    """OSS operations on multipart uploads."""

    def __init__(self, store: ObjectStore, threads: Threads) -> None:
        self._store, self._uploads, self._threads = store, store.uploads, threads

    async def start(self, request: OssRequest) -> Response:
        """Handles InitiateMultipartUpload."""
        refuse_unsupported_headers(request)
        written, encoding = name_writer(request.query, [request.key])
        upload_id = await self._threads.run(
            self._uploads.start,
            request.bucket,
            request.key,
            content_type=content_type_of(request),
            headers=stored_headers(request),
        )
        return xml_response(
            "InitiateMultipartUploadResult",
            [*encoding, ("Bucket", request.bucket), ("Key", written(request.key)), ("UploadId", upload_id)],
        )

    async def put_part(self, request: OssRequest) -> Response:
        """Handles UploadPart, and UploadPartCopy if a source is named."""
        number = request.number("partNumber", 0, 1, MAX_PARTS)
        if not number:
            raise oss_error("InvalidArgument", "partNumber is missing.")
        address = request.bucket, request.key, request.query["uploadId"]
        await self._threads.run(self._uploads.find, *address)
        if request.header("x-oss-copy-source"):
            part = await self._threads.run(self._copy_part, request, number)
            children = [("ETag", f'"{part.etag}"'), ("LastModified", iso_time(part.modified_at))]
            return xml_response("CopyPartResult", children, written_headers(part))
        part = await write_body(
            request,
            self._threads,
            lambda: self._uploads.part_writer(*address, number, request.content_length),
            lambda writer: self._uploads.add_part(writer, *address, number),
            max_md5_bytes=0,
        )
        return Response(headers=written_headers(part))

    def _copy_part(self, request: OssRequest, number: int) -> UploadedPart:
        info, stream = self._store.open_with_info(*copy_source(request))
        with stream, self._store.writer() as writer:
            check_source(request, info)
            first, size_bytes = copy_range(request, info.size_bytes)
            stream.seek(first)
            writer.max_md5_bytes = 0
            writer.copy_from(stream, size_bytes)
            return self._uploads.add_part(writer, request.bucket, request.key, request.query["uploadId"], number)

    async def complete(self, request: OssRequest) -> Response:
        """Handles CompleteMultipartUpload."""
        body = await read_small_body(request, _MAX_REQUEST_XML_BYTES)
        is_complete_all = request.header("x-oss-complete-all").lower() == "yes"
        if is_complete_all and body:
            raise oss_error("InvalidArgument", "With x-oss-complete-all no parts may be listed.")
        requested = None if is_complete_all else _parse_parts(body)
        written, encoding = name_writer(request.query, [request.key])
        info = await self._threads.run(
            self._uploads.complete,
            request.bucket,
            request.key,
            request.query["uploadId"],
            requested,
            forbid_overwrite=request.header("x-oss-forbid-overwrite").lower() == "true",
        )
        return xml_response(
            "CompleteMultipartUploadResult",
            [
                *encoding,
                ("Location", f"{request.scheme}://{request.host}/{info.bucket}/{written(info.key)}"),
                ("Bucket", info.bucket),
                ("Key", written(info.key)),
                ("ETag", f'"{info.etag}"'),
            ],
            written_headers(info),
        )

    async def abort(self, request: OssRequest) -> Response:
        """Handles AbortMultipartUpload."""
        await self._threads.run(self._uploads.abort, request.bucket, request.key, request.query["uploadId"])
        return Response(status_code=204)

    async def list_parts(self, request: OssRequest) -> Response:
        """Handles ListParts."""
        limit = request.number("max-parts", _MAX_PAGE, 1, _MAX_PAGE)
        after = request.number("part-number-marker", 0, 0, MAX_PARTS)
        upload_id = request.query["uploadId"]
        parts = await self._threads.run(
            self._uploads.parts, request.bucket, request.key, upload_id, after=after, limit=limit + 1
        )
        page, more = parts[:limit], len(parts) > limit
        written, encoding = name_writer(request.query, [request.key])
        return xml_response(
            "ListPartsResult",
            [
                *encoding,
                ("Bucket", request.bucket),
                ("Key", written(request.key)),
                ("UploadId", upload_id),
                ("StorageClass", "Standard"),
                ("PartNumberMarker", after),
                ("NextPartNumberMarker", page[-1].number if page else after),
                ("MaxParts", limit),
                ("IsTruncated", more),
                *(("Part", _describe(part)) for part in page),
            ],
        )

    async def list_uploads(self, request: OssRequest) -> Response:
        """Handles ListMultipartUploads."""
        query, limit = request.query, request.number("max-uploads", _MAX_PAGE, 1, _MAX_PAGE)
        prefix, delimiter, key_marker, id_marker = (
            query.get(name, "") for name in ("prefix", "delimiter", "key-marker", "upload-id-marker")
        )
        uploads = await self._threads.run(
            self._uploads.list, request.bucket, prefix=prefix, after=(key_marker, id_marker)
        )
        page, groups, last = _group_uploads(uploads, prefix, delimiter, key_marker, limit)
        names = [prefix, delimiter, key_marker, *groups, *(upload.key for upload in page)]
        written, encoding = name_writer(query, names)
        return xml_response(
            "ListMultipartUploadsResult",
            [
                ("Bucket", request.bucket),
                *encoding,
                ("KeyMarker", written(key_marker)),
                ("UploadIdMarker", id_marker),
                ("NextKeyMarker", written(last[0])),
                ("NextUploadIdMarker", last[1]),
                ("Delimiter", written(delimiter)),
                ("Prefix", written(prefix)),
                ("MaxUploads", limit),
                ("IsTruncated", bool(last[0])),
                *(
                    (
                        "Upload",
                        [
                            ("Key", written(upload.key)),
                            ("UploadId", upload.id),
                            ("StorageClass", "Standard"),
                            ("Initiated", iso_time(upload.started_at)),
                        ],
                    )
                    for upload in page
                ),
                *(("CommonPrefixes", [("Prefix", written(group))]) for group in groups),
            ],
        )


def _describe(part: UploadedPart) -> Children:
    return [
        ("PartNumber", part.number),
        ("LastModified", iso_time(part.modified_at)),
        ("ETag", f'"{part.etag}"'),
        ("Size", part.size_bytes),
        *([] if part.crc64 is None else [("HashCrc64ecma", str(part.crc64))]),
    ]


def _parse_parts(body: bytes) -> list[tuple[int, str]]:
    return [_parse_part(element) for element in parse(body, "CompleteMultipartUpload").findall("Part")]


def _parse_part(element: ElementTree.Element) -> tuple[int, str]:
    number, etag = (element.findtext("PartNumber") or "").strip(), (element.findtext("ETag") or "").strip()
    if not number.isascii() or not number.isdigit() or len(number) > 5 or not etag:
        raise oss_error("MalformedXML", "A Part needs its PartNumber and its ETag.")
    return int(number), etag


def _group_uploads(
    uploads: list[UploadInfo], prefix: str, delimiter: str, key_marker: str, limit: int
) -> tuple[list[UploadInfo], list[str], tuple[str, str]]:
    """Returns uploads and common prefixes of a page, and the markers of the next; empty if there is none."""
    page: list[UploadInfo] = []
    groups: list[str] = []
    last = ("", "")
    for upload in uploads:
        end = upload.key.find(delimiter, len(prefix)) if delimiter else -1
        group = upload.key[: end + len(delimiter)] if end >= 0 else ""
        if group and (group == key_marker or (groups and groups[-1] == group)):
            continue
        if len(page) + len(groups) == limit:
            return page, groups, last
        if group:
            groups.append(group)
            last = (group, "")
        else:
            page.append(upload)
            last = (upload.key, upload.id)
    return page, groups, ("", "")
