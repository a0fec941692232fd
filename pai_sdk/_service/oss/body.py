"""Receives a body into a blob: a thread reads a large one from the socket, others arrive in the event loop."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
from collections.abc import AsyncIterator, Callable
from functools import cached_property, partial
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from pai_sdk._service.oss.blobs import MAX_MD5_BYTES, BlobWriter
from pai_sdk._service.oss.error_codes import oss_error
from pai_sdk._service.oss.oss_request import Connection, IncomingBody, OssRequest, connection_of

T = TypeVar("T")

MAX_BODY_BYTES = 5 << 30
# A smaller body costs less in the event loop than the change to a thread and back.
_MIN_TRANSFER_BYTES = 1 << 20
# Two batches of a body are in memory: one is written, one arrives. With a quarter of this size, a fifth of the
# CPU time goes into handing batches to threads; with twice the size, the client waits longer for the writing.
_BATCH_BYTES = 1 << 20


class Threads:
    """A separate thread pool, so that a slow disk does not block other requests."""

    def __init__(self, count: int = 32) -> None:
        self._count = count
        self._transfers = 0

    @cached_property
    def _limiter(self) -> anyio.CapacityLimiter:
        # Can only be created inside the running event loop.
        return anyio.CapacityLimiter(self._count)

    async def run(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """Calls a function in a thread; a cancelled caller still waits for its end."""
        return await anyio.to_thread.run_sync(partial(function, *args, **options), limiter=self._limiter)

    @cached_property
    def _transfer_limiter(self) -> anyio.CapacityLimiter:
        return anyio.CapacityLimiter(self._count)

    @property
    def can_transfer(self) -> bool:
        """Returns whether `run_transfer` has a free thread."""
        return self._transfers < self._count

    async def run_transfer(self, function: Callable[[], T]) -> T:
        """Calls a function that takes as long as its client wants, in a thread for such functions."""
        self._transfers += 1
        try:
            return await anyio.to_thread.run_sync(function, limiter=self._transfer_limiter)
        finally:
            self._transfers -= 1


async def write_body(
    request: OssRequest,
    threads: Threads,
    open_writer: Callable[[], BlobWriter],
    conclude: Callable[[BlobWriter], T],
    *,
    max_md5_bytes: int = MAX_MD5_BYTES,
) -> T:
    """Writes and checks a body; `conclude` stores it, called once in a thread, or it is removed.

    Its MD5 is computed up to `max_md5_bytes`, and if the client sent one.
    """
    length, md5 = request.content_length, _content_md5(request)
    if length is not None and length > MAX_BODY_BYTES:
        raise oss_error("EntityTooLarge")
    if md5 is not None:
        max_md5_bytes = MAX_BODY_BYTES
    elif length is not None and length > max_md5_bytes:
        max_md5_bytes = 0

    def open_hashing_writer() -> BlobWriter:
        writer = open_writer()
        writer.max_md5_bytes = max_md5_bytes
        return writer

    def store(writer: BlobWriter) -> T:
        if length is not None and writer.size_bytes != length:
            raise oss_error("IncompleteBody")
        if md5 is not None:
            _check_md5(writer.md5, md5)
        return conclude(writer)

    if length is not None and length > _MIN_TRANSFER_BYTES and threads.can_transfer:
        connection = connection_of(request.scope)
        body = connection.take_body(request.scope, length) if connection is not None else None
        if connection is not None and body is not None:
            return await _receive_in_thread(connection, body, threads, open_hashing_writer, store)
    return await _receive_in_batches(request, threads, open_hashing_writer, store)


async def _receive_in_thread(
    connection: Connection,
    body: IncomingBody,
    threads: Threads,
    open_writer: Callable[[], BlobWriter],
    store: Callable[[BlobWriter], T],
) -> T:
    def receive() -> T:
        with body.running(), open_writer() as writer:
            for chunk in body.chunks():
                writer.write(chunk)
            return store(writer)

    try:
        return await threads.run_transfer(receive)
    finally:
        connection.return_body(body)


async def _receive_in_batches(
    request: OssRequest, threads: Threads, open_writer: Callable[[], BlobWriter], store: Callable[[BlobWriter], T]
) -> T:
    length = request.content_length
    batches = _batches(request)
    first: list[bytes] = await anext(batches, [])

    def all_at_once() -> T:
        with open_writer() as writer:
            writer.write(*first)
            return store(writer)

    # A body of one batch needs a single call in a thread.
    if length is not None and sum(map(len, first)) >= length:
        return await threads.run(all_at_once)

    writer = await threads.run(open_writer)
    writing = _start_writing(threads, writer, first)
    try:
        async for batch in batches:
            # At most one batch waits in memory while one is written.
            await writing
            if writer.size_bytes > MAX_BODY_BYTES:
                raise oss_error("EntityTooLarge")
            writing = _start_writing(threads, writer, batch)
        await writing
        return await threads.run(store, writer)
    finally:
        # Also after a cancellation: `discard` must not close the file while a thread still writes to it.
        with anyio.CancelScope(shield=True):
            await asyncio.gather(writing, return_exceptions=True)
            await threads.run(writer.discard)


async def read_content(request: OssRequest, length: int) -> tuple[bytes, bytes]:
    """Returns the body of a request that fits into memory, and its MD5, compared with Content-MD5."""
    expected = _content_md5(request)
    chunks: list[bytes] = []
    remaining = length
    async for chunk in request.stream():
        chunks.append(chunk)
        remaining -= len(chunk)
        if remaining < 0:
            break
    if remaining:
        raise oss_error("IncompleteBody")
    content = chunks[0] if len(chunks) == 1 else b"".join(chunks)
    md5 = hashlib.md5(content, usedforsecurity=False).digest()
    if expected is not None:
        _check_md5(md5, expected)
    return content, md5


async def read_small_body(request: OssRequest, limit_bytes: int) -> bytes:
    """Returns the body of a request that carries only XML; refuses one beyond the limit."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit_bytes:
            raise oss_error("EntityTooLarge", f"The body may have {limit_bytes} bytes at most.")
    md5 = _content_md5(request)
    if md5 is not None:
        _check_md5(hashlib.md5(body, usedforsecurity=False).digest(), md5)
    return bytes(body)


def _start_writing(threads: Threads, writer: BlobWriter, batch: list[bytes]) -> asyncio.Future[tuple[None, None]]:
    """Writes and hashes a batch at the same time, each in its own thread."""
    return asyncio.gather(threads.run(writer.store_chunks, *batch), threads.run(writer.update_checksums, *batch))


async def _batches(request: OssRequest) -> AsyncIterator[list[bytes]]:
    """Yields the body in batches that are large enough for a thread call."""
    batch: list[bytes] = []
    size_bytes = 0
    async for chunk in request.stream():
        batch.append(chunk)
        size_bytes += len(chunk)
        if size_bytes >= _BATCH_BYTES:
            yield batch
            batch, size_bytes = [], 0
    if batch:
        yield batch


def _check_md5(actual: bytes | None, expected: bytes) -> None:
    if actual is None or not hmac.compare_digest(actual, expected):
        raise oss_error("InvalidDigest")


def _content_md5(request: OssRequest) -> bytes | None:
    text = request.header("content-md5")
    if not text:
        return None
    try:
        md5 = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise oss_error("InvalidDigest", "Content-MD5 is not base64.") from error
    if len(md5) != 16:
        raise oss_error("InvalidDigest", "Content-MD5 is not the base64 text of an MD5.")
    return md5
