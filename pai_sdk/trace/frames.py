"""The framing of Arrow data in MaxCompute's tunnel: chunks, each followed by its CRC-32C.

    u32 chunk size | chunk | u32 CRC of it | chunk | u32 CRC of it | … | last, shorter chunk | u32 CRC of all

All numbers are big endian. The last chunk is shorter than the chunk size, and may be empty. The content is record
batch messages of Arrow IPC, one after the other, without the schema. (Recorded from pyodps 0.13.)
"""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FrameError", "batches_of", "framed", "unframed"]

_CHUNK_BYTES = 65536
_U32 = struct.Struct(">I")


class FrameError(ValueError):
    """The bytes are not framed Arrow data, or a checksum differs."""


def framed(content: bytes | memoryview, chunk_bytes: int = _CHUNK_BYTES) -> bytes:
    """The content in its frame.

    Example:
        >>> unframed(framed(b"hello", chunk_bytes=2))
        b'hello'
    """
    from google_crc32c import extend, value

    content = memoryview(content)
    # Joining a list would copy a whole block under the GIL, and a step of the training would wait for it.
    out = io.BytesIO()
    out.write(_U32.pack(chunk_bytes))
    total = 0
    for start in range(0, len(content) + 1, chunk_bytes):
        chunk = bytes(content[start : start + chunk_bytes])  # google_crc32c takes nothing else
        total = extend(total, chunk)
        out.write(chunk)
        out.write(_U32.pack(value(chunk) if len(chunk) == chunk_bytes else total))
    return out.getvalue()


def unframed(frame: bytes | memoryview) -> bytes:
    """The content of a frame.

    Raises:
        FrameError: it is cut off, or a checksum differs.
    """
    from google_crc32c import extend, value

    frame = memoryview(frame)
    if not frame:
        return b""
    if len(frame) < 8:
        raise FrameError("the data is cut off")
    chunk_bytes = _U32.unpack_from(frame)[0]
    if chunk_bytes == 0:
        raise FrameError("the chunk size is 0")
    out, position, total = [], 4, 0
    while True:
        chunk = bytes(frame[position : min(position + chunk_bytes, len(frame) - 4)])
        position += len(chunk)
        is_last = len(chunk) < chunk_bytes
        out.append(chunk)
        total = extend(total, chunk)
        if position + 4 > len(frame):
            raise FrameError("the data is cut off")
        if _U32.unpack_from(frame, position)[0] != (total if is_last else value(chunk)):
            raise FrameError("the data does not have its checksum")
        position += 4
        if is_last:
            break
    if position != len(frame):
        raise FrameError("there are bytes after the end")
    return b"".join(out)


def batches_of(content: bytes, schema: pa.Schema) -> pa.Table:
    """The rows of record batch messages without their schema.

    Raises:
        FrameError: they are not of this schema, or no messages.
    """
    import pyarrow as pa

    stream = pa.BufferReader(schema.serialize().to_pybytes() + content)
    try:
        with pa.ipc.open_stream(stream) as reader:
            table = reader.read_all()
            table.validate(full=True)
            return table
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FrameError(f"the data is not of this table's schema: {error}") from error
