"""Compresses and decompresses the bodies of blocks, chunk by chunk."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from pai_sdk._service.odps.table_errors import TableError

_CHUNK_BYTES = 256 << 10
_ZSTD_FRAME, _ZSTD_SKIPPED = 0xFD2FB528, range(0x184D2A50, 0x184D2A60)
_MAX_WINDOW_BYTES = 8 << 20  # RFC 9659: limit of HTTP; a decoder allocates as much memory
_MAX_ZSTD_BLOCKS = 1_000_000  # 1,000,000 x 128 KiB, the usual size, are 122 GiB


def decompressed(body: BinaryIO, encoding: str, max_bytes: int) -> Iterator[bytes]:
    """Yields the content of a body in small chunks, whatever the body declares; at most `max_bytes` in all."""
    decoder = {"": _plain, "deflate": _inflated, "zstd": _unpacked}.get(encoding)
    if decoder is None:
        text = f"The encoding {encoding[:60]!r} is not supported; use deflate or zstd."
        raise TableError(400, "InvalidArgument", text)
    size_bytes = 0
    try:
        for chunk in decoder(body):
            size_bytes += len(chunk)
            if size_bytes > max_bytes:
                text = f"The block has more than {max_bytes:,} bytes when decompressed."
                raise TableError(413, "RequestTooLarge", text)
            yield chunk
    except (zlib.error, OSError, ValueError, struct.error) as error:
        raise TableError(400, "InvalidArgument", f"The body is not {encoding}: {error}.") from error


def compressed(chunks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """Compresses chunks: `deflate`, `zstd`, or none."""
    if encoding == "deflate":
        deflater = zlib.compressobj(1)
        for chunk in chunks:
            yield deflater.compress(chunk)
        yield deflater.flush()
    elif encoding == "zstd":
        import pyarrow as pa

        sink = _Sink()
        with pa.CompressedOutputStream(pa.PythonFile(sink, mode="w"), "zstd") as stream:
            for chunk in chunks:
                stream.write(chunk)
                yield sink.pop()
        yield sink.pop()
    else:
        yield from chunks


class _Sink:
    """A writable file that buffers what pyarrow writes."""

    closed = False

    def __init__(self) -> None:
        self._chunks: list[bytes] = []

    def write(self, chunk: bytes) -> None:
        self._chunks.append(bytes(chunk))

    def pop(self) -> bytes:
        content, self._chunks = b"".join(self._chunks), []
        return content

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def _plain(body: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: body.read(_CHUNK_BYTES), b"")


def _inflated(body: BinaryIO) -> Iterator[bytes]:
    inflater = zlib.decompressobj()
    while not inflater.eof:
        source = inflater.unconsumed_tail or body.read(_CHUNK_BYTES)
        chunk = inflater.decompress(source, _CHUNK_BYTES)
        if not source and not chunk:
            raise zlib.error("it is truncated")
        yield chunk
    if inflater.unused_data or body.read(1):
        raise zlib.error("there are bytes after the end")


def _unpacked(body: BinaryIO) -> Iterator[bytes]:
    import pyarrow as pa

    if (window := _max_window_bytes(body)) > _MAX_WINDOW_BYTES:
        text = f"The zstd frame needs a window of {window:,} bytes; HTTP allows {_MAX_WINDOW_BYTES:,} (RFC 9659)."
        raise TableError(413, "RequestTooLarge", text)
    body.seek(0)
    with pa.CompressedInputStream(pa.PythonFile(body, mode="r"), "zstd") as stream:
        yield from iter(lambda: stream.read(_CHUNK_BYTES), b"")


def _max_window_bytes(body: BinaryIO) -> int:
    """Returns the largest window that the frames of a zstd body declare (RFC 8878, section 3.1)."""
    largest = blocks = 0
    while head := body.read(4):
        (magic,) = struct.unpack("<I", head)
        if magic in _ZSTD_SKIPPED:
            (skipped,) = struct.unpack("<I", body.read(4))
            body.seek(skipped, 1)
            continue
        if magic != _ZSTD_FRAME:
            raise ValueError("a frame does not begin with zstd's number")
        (flags,) = body.read(1) or b"\0"
        is_single = bool(flags & 0x20)
        window = 0 if is_single else _window(*struct.unpack("B", body.read(1)))
        body.seek((0, 1, 2, 4)[flags & 3], 1)  # the dictionary's id
        size_bytes = (int(is_single), 2, 4, 8)[flags >> 6]
        size = int.from_bytes(body.read(size_bytes), "little")
        largest = max(largest, size if is_single else window)
        is_last = False
        while not is_last:
            (first, second) = struct.unpack("<HB", body.read(3))
            header = first | second << 16
            is_last, kind = bool(header & 1), header >> 1 & 3
            body.seek(1 if kind == 1 else header >> 3, 1)  # kind 1 is one byte that is repeated
            blocks += 1
            if blocks > _MAX_ZSTD_BLOCKS:
                raise ValueError("it has more blocks than any content needs")
        body.seek(4 if flags & 4 else 0, 1)
    return largest


def _window(descriptor: int) -> int:
    base = 1 << (10 + (descriptor >> 3))
    return base + base // 8 * (descriptor & 7)
