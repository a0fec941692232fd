"""The XML of OSS, and responses: documents, errors, and objects with headers that are safe in browsers."""

from __future__ import annotations

import base64
import errno
import logging
import os
import re
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from email.utils import formatdate
from html import escape
from typing import BinaryIO
from urllib.parse import quote
from xml.etree import ElementTree

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from pai_sdk._service.oss.body import Threads
from pai_sdk._service.oss.error_codes import WrongPositionError, oss_error
from pai_sdk._service.oss.multipart import UploadedPart
from pai_sdk._service.oss.object_rows import StoredObject
from pai_sdk._service.oss.oss_request import OssRequest, connection_of
from pai_sdk.errors import StorageError

HEADER_CRC64 = "x-oss-hash-crc64ecma"
"""The header with the CRC-64/XZ of the complete object, also in responses to range requests."""

_log = logging.getLogger(__name__)
# Types that a browser displays without running code. Types that it cannot display are not needed here, because it
# downloads them anyway. PDF can contain scripts.
_DISPLAYED = re.compile(
    r"(image/(png|jpeg|gif|webp|avif|bmp)|audio/[a-z0-9.-]+|video/[a-z0-9.-]+|text/plain|application/json)"
    r"( *; *charset=[A-Za-z0-9_-]+)?",
    re.IGNORECASE,
)
_CHUNK_BYTES = 1 << 19  # a stalled client keeps about two chunks in memory
_DISK_FULL_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_READ_ONLY_ERRORS = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_CANNOT_WRITE = "The folder of the object store cannot be written: {}. Nothing was stored."
Children = Sequence[tuple[str, "str | int | bool | Children"]]

_MAX_TAGS = 200_000  # 10,000 parts with several children each; an element needs many times its text in memory
# Characters that XML 1.0 cannot contain, and the line end that its parsers normalize.
_INVALID_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")


def document(tag: str, content: Children | str) -> bytes:
    """Returns a complete document."""
    return b'<?xml version="1.0" encoding="UTF-8"?>\n' + _element(tag, content).encode()


def _element(tag: str, content: str | int | bool | Children) -> str:
    if isinstance(content, bool):
        inner = "true" if content else "false"
    elif isinstance(content, int):
        inner = str(content)
    elif isinstance(content, str):
        inner = escape(printable(content), quote=False)
    else:
        inner = "".join([_element(name, value) for name, value in content])
    return f"<{tag}>{inner}</{tag}>"


def printable(text: str) -> str:
    """Replaces each character that XML cannot contain by a question mark."""
    return _INVALID_CHARACTERS.sub("?", text)


def name_writer(query: Mapping[str, str], names: Iterable[str]) -> tuple[Callable[[str], str], Children]:
    """Returns a function that writes keys into a response, and the element that names their encoding."""
    encoding = query.get("encoding-type", "")
    if encoding not in ("", "url"):
        raise oss_error("InvalidArgument", "encoding-type can only be url.")
    # Also without a request for it: XML has no way to write control characters.
    if encoding or any(_INVALID_CHARACTERS.search(name) for name in names):
        return lambda name: quote(name, safe="/"), [("EncodingType", "url")]
    return lambda name: name, []


def iso_time(time_s: float) -> str:
    """Returns a time such as `2026-11-21T10:15:00.000Z`."""
    return f"{datetime.fromtimestamp(int(time_s), timezone.utc):%Y-%m-%dT%H:%M:%S}.000Z"


def parse(body: bytes, tag: str) -> ElementTree.Element:
    """Returns the root of a client's document; raises `MalformedXML`, also for another root or entities."""
    try:
        # UTF-8 only: the parser reads other encodings too, in which `<!` has other bytes.
        text = body.decode()
        # No request needs a DOCTYPE, and its entities can expand without bound.
        if "<!" in text:
            raise oss_error("MalformedXML")
        if text.count("<") > _MAX_TAGS:
            raise oss_error("MalformedXML", "The body has more elements than any request needs.")
        root = ElementTree.fromstring(text)  # noqa: S314 - without a DOCTYPE there is nothing to expand
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise oss_error("MalformedXML") from error
    for element in root.iter():
        # Some clients name a namespace, some do not.
        element.tag = element.tag.rpartition("}")[2]
    if root.tag != tag:
        raise oss_error("MalformedXML", f"The root element must be {tag}.")
    return root


def xml_response(tag: str, content: Children | str, headers: Mapping[str, str] | None = None) -> Response:
    """Returns a document as a response."""
    return Response(document(tag, content), headers={"Content-Type": "application/xml", **(headers or {})})


def error_response(error: StorageError, *, method: str, host: str, request_id: str) -> Response:
    """Returns an error as a document; for HEAD, which has no body, as a header."""
    body = document(
        "Error",
        [("Code", error.code), ("Message", str(error)), ("RequestId", request_id), ("HostId", host)],
    )
    if error.status_code == 304:
        # HTTP: without a body.
        return Response(status_code=304)
    headers = {"Content-Type": "application/xml"}
    if isinstance(error, WrongPositionError):
        headers["x-oss-next-append-position"] = str(error.size_bytes)
    if error.retry_after_s is not None:
        headers["Retry-After"] = f"{error.retry_after_s:.0f}"
    if method == "HEAD":
        headers["x-oss-err"] = base64.b64encode(body).decode()
        headers["Content-Length"] = "0"
        body = b""
    return Response(body, error.status_code, headers)


def as_storage_error(error: Exception) -> StorageError:
    """Translates an error into one of OSS; logs an unexpected one."""
    if isinstance(error, StorageError):
        return error
    message = str(error) if isinstance(error, sqlite3.Error) else ""
    number = error.errno if isinstance(error, OSError) else None
    if number in _DISK_FULL_ERRORS or "is full" in message:  # SQLite's message
        _log.error("the disk of the object store is full: %s", type(error).__name__)
        return oss_error("InsufficientStorage")
    if number in _READ_ONLY_ERRORS or "readonly" in message:
        _log.error("the folder of the object store cannot be written: %s", error)
        return oss_error(
            "InternalError", _CANNOT_WRITE.format(os.strerror(number) if number else "it is read-only")
        )
    _log.error("the object store failed", exc_info=error)
    return oss_error("InternalError")


def object_headers(info: StoredObject) -> dict[str, str]:
    """Returns the headers that describe an object; names in lower case."""
    return {
        **info.headers,
        "content-type": info.content_type,
        "etag": f'"{info.etag}"',
        "last-modified": formatdate(info.modified_at, usegmt=True),
        "accept-ranges": "bytes",
        "x-oss-object-type": info.kind,
        "x-oss-storage-class": "Standard",
        **_crc64_header(info.crc64),
    }


def written_headers(written: StoredObject | UploadedPart) -> dict[str, str]:
    """Returns the headers of the response to a write, by which clients verify what arrived."""
    return {"ETag": f'"{written.etag}"', **_crc64_header(written.crc64)}


def safe_in_browser(request: OssRequest, headers: Mapping[str, str]) -> dict[str, str]:
    """Returns the headers of an object with `content-disposition: attachment` where a browser could run it."""
    # Type and disposition of the response: the creator of the URL chooses the `response-*` parameters.
    safe = dict(headers)
    # Browsers cannot send the header Authorization of OSS when they open an address, so official clients with a
    # key receive the headers unchanged.
    if request.header("authorization") or _DISPLAYED.fullmatch(safe.get("content-type", "").strip()):
        return safe
    kind, separator, parameters = safe.get("content-disposition", "").partition(";")
    if kind.strip().lower() != "attachment":
        safe["content-disposition"] = f"attachment{separator}{parameters}"
        safe["x-oss-force-download"] = "true"  # as OSS marks it
    return safe


def _crc64_header(crc64: int | None) -> dict[str, str]:
    return {} if crc64 is None else {HEADER_CRC64: str(crc64)}


def content_response(
    stream: BinaryIO, size_bytes: int, *, status: int, headers: Mapping[str, str], threads: Threads
) -> Response:
    """Returns `size_bytes` of a file from its position, and closes it at the end. Must be called in a thread."""
    if size_bytes <= _CHUNK_BYTES:
        try:
            return Response(_read(stream, size_bytes), status, headers)
        finally:
            stream.close()
    return _LargeContent(stream, size_bytes, status, headers, threads)


class _LargeContent(StreamingResponse):
    """Content that is sent from its file by the connection, or in chunks if that is not possible."""

    def __init__(
        self, stream: BinaryIO, size_bytes: int, status: int, headers: Mapping[str, str], threads: Threads
    ) -> None:
        sized = {**headers, "content-length": str(size_bytes)}
        super().__init__(_chunks(stream, size_bytes, threads), status, sized)
        self._stream, self._size_bytes, self._threads = stream, size_bytes, threads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = connection_of(scope) if self._threads.can_transfer else None
        file = _file_of(self._stream)
        send_file = connection.file_sender(scope) if connection is not None else None
        if file is None or send_file is None:
            await super().__call__(scope, receive, send)
            return
        with self._stream:
            start = self._stream.tell()
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await send_file(file, start, self._size_bytes, self._threads.run_transfer)
            await send({"type": "http.response.body"})


def _file_of(stream: BinaryIO) -> int | None:
    """Returns the descriptor of a file; None for content that is none, or grows."""
    try:
        return stream.fileno()
    except OSError:
        return None


async def _chunks(stream: BinaryIO, size_bytes: int, threads: Threads) -> AsyncIterator[bytes]:
    remaining = size_bytes
    try:
        while remaining > 0:
            chunk = await threads.run(_read, stream, min(remaining, _CHUNK_BYTES))
            remaining -= len(chunk)
            yield chunk
    finally:
        stream.close()


def _read(stream: BinaryIO, size_bytes: int) -> bytes:
    chunk = stream.read(size_bytes)
    if len(chunk) < size_bytes:
        raise OSError(errno.EIO, "a file of the object store is shorter than its record says")
    return chunk
