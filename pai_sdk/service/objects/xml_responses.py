"""Answers: XML, faults, and the content of objects in chunks."""

from __future__ import annotations

import base64
import errno
import logging
import os
import sqlite3
from collections.abc import AsyncIterator, Mapping
from email.utils import formatdate
from typing import BinaryIO

from sqlalchemy.exc import DBAPIError
from starlette.responses import Response, StreamingResponse

from pai_sdk.errors import StorageError
from pai_sdk.service.objects.error_codes import WrongPositionError, fault
from pai_sdk.service.objects.index import StoredObject
from pai_sdk.service.objects.threads import Threads
from pai_sdk.service.objects.xml import Children, document

__all__ = ["as_fault", "content_answer", "fault_answer", "object_headers", "xml_answer"]

_log = logging.getLogger(__name__)
_CHUNK_BYTES = 1 << 19  # a client that does not read holds about twice as much in memory
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_WRITING = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_CANNOT_WRITE = "The folder of the object store cannot be written: {}. Nothing was stored."


def xml_answer(tag: str, content: Children | str, headers: Mapping[str, str] | None = None) -> Response:
    """A document."""
    return Response(document(tag, content), headers={"Content-Type": "application/xml", **(headers or {})})


def fault_answer(error: StorageError, *, method: str, host: str, request_id: str) -> Response:
    """An error, as a document; in answer to HEAD, which has no body, as a header."""
    body = document(
        "Error",
        [("Code", error.code), ("Message", str(error)), ("RequestId", request_id), ("HostId", host)],
    )
    if error.status_code == 304:
        return Response(status_code=304)  # HTTP: without a body
    headers = {"Content-Type": "application/xml"}
    if isinstance(error, WrongPositionError):
        headers["x-oss-next-append-position"] = str(error.size_bytes)
    if method == "HEAD":
        headers["x-oss-err"] = base64.b64encode(body).decode()
        headers["Content-Length"] = "0"
        body = b""
    return Response(body, error.status_code, headers)


def as_fault(error: Exception) -> StorageError:
    """What went wrong, in OSS's words; what is our own fault goes to the log."""
    if isinstance(error, StorageError):
        return error
    said = str(error.orig if isinstance(error, DBAPIError) else error)
    said = said if isinstance(error, DBAPIError | sqlite3.Error) else ""
    number = error.errno if isinstance(error, OSError) else None
    if number in _NO_ROOM or "is full" in said or "No space left" in said:  # SQLite's words, and PostgreSQL's
        _log.error("the disk of the object store is full: %s", type(error).__name__)
        return fault("InsufficientStorage")
    if number in _NO_WRITING or "readonly" in said:
        _log.error("the folder of the object store cannot be written: %s", error)
        return fault("InternalError", _CANNOT_WRITE.format(os.strerror(number) if number else "it is read-only"))
    _log.error("the object store failed", exc_info=error)
    return fault("InternalError")


def object_headers(info: StoredObject) -> dict[str, str]:
    """What is said of an object beside its content; names in lower case."""
    return {
        **info.headers,
        "content-type": info.content_type,
        "etag": f'"{info.etag}"',
        "last-modified": formatdate(info.modified_at, usegmt=True),
        "accept-ranges": "bytes",
        "x-oss-object-type": info.kind,
        "x-oss-storage-class": "Standard",
    }


def content_answer(
    stream: BinaryIO, size_bytes: int, *, status: int, headers: Mapping[str, str], threads: Threads
) -> Response:
    """So many bytes of a file, from where it stands; the file is closed at the end. To be called in a thread."""
    if size_bytes <= _CHUNK_BYTES:
        try:
            return Response(_read(stream, size_bytes), status, headers)
        finally:
            stream.close()
    sized = {**headers, "content-length": str(size_bytes)}
    return StreamingResponse(_chunks(stream, size_bytes, threads), status, sized)


async def _chunks(stream: BinaryIO, size_bytes: int, threads: Threads) -> AsyncIterator[bytes]:
    left = size_bytes
    try:
        while left > 0:
            chunk = await threads.run(_read, stream, min(left, _CHUNK_BYTES))
            left -= len(chunk)
            yield chunk
    finally:
        stream.close()


def _read(stream: BinaryIO, size_bytes: int) -> bytes:
    chunk = stream.read(size_bytes)
    if len(chunk) < size_bytes:
        raise OSError(errno.EIO, "a file of the object store is shorter than its record says")
    return chunk
