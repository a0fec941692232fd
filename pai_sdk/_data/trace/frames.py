"""The framing of Arrow data in MaxCompute's tunnel: chunks, each followed by its CRC-32C.

    u32 chunk size | chunk | u32 CRC of it | chunk | u32 CRC of it | … | last, shorter chunk | u32 CRC of all

All numbers are big endian. The last chunk is shorter than the chunk size, and can be empty. The content is record
batch messages of Arrow IPC, one after the other, without the schema. (Recorded from pyodps 0.13.)
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator

_CHUNK_BYTES = 65536
_U32 = struct.Struct(">I")


class FrameError(ValueError):
    """The bytes are not framed Arrow data, or a checksum differs."""


def framed_content(
    parts: Iterable[bytes | memoryview], chunk_bytes: int = _CHUNK_BYTES
) -> Iterator[bytes | memoryview]:
    """Yields the frame of a content, in parts."""
    from google_crc32c import extend, value

    yield _U32.pack(chunk_bytes)
    total, pending = 0, b""
    for part in parts:
        content = memoryview(part)
        position = 0
        while len(pending) + len(content) - position >= chunk_bytes:
            end = position + chunk_bytes - len(pending)
            chunk = pending + bytes(content[position:end])  # google_crc32c accepts bytes only
            position, pending = end, b""
            total = extend(total, chunk)
            yield chunk
            yield _U32.pack(value(chunk))
        pending += bytes(content[position:])
    yield pending
    yield _U32.pack(extend(total, pending))


def unframed_chunks(
    read: Callable[[int], bytes], *, min_chunk_bytes: int = 1, max_chunk_bytes: int = 2**32
) -> Iterator[bytes]:
    """Yields the chunks of a frame, and checks their checksums; raises FrameError for damage."""
    from google_crc32c import extend, value

    head = read(4)
    if not head:
        return
    if len(head) < 4:
        raise FrameError("the data is truncated")
    chunk_bytes = _U32.unpack(head)[0]
    if not min_chunk_bytes <= chunk_bytes <= max_chunk_bytes:
        raise FrameError(f"the chunk size is {chunk_bytes}")
    total, is_last = 0, False
    while not is_last:
        data = read(chunk_bytes + 4)  # returns fewer bytes only at the end
        if len(data) < 4:
            raise FrameError("the data is truncated")
        chunk = data[:-4]
        is_last = len(chunk) < chunk_bytes
        total = extend(total, chunk)
        if _U32.unpack(data[-4:])[0] != (total if is_last else value(chunk)):
            raise FrameError("the data does not have its checksum")
        yield chunk
