"""The bodies of blocks: compressed and decompressed piece by piece."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from pai_sdk.service.tables.table_errors import TableError

__all__ = ["compressed", "decompressed"]

_PIECE = 256 << 10
_ZSTD_FRAME, _ZSTD_SKIPPED = 0xFD2FB528, range(0x184D2A50, 0x184D2A60)
_LARGEST_WINDOW = 8 << 20  # what RFC 9659 allows in HTTP; a decoder needs as much memory
_MOST_ZSTD_BLOCKS = 1_000_000  # 128 GiB of usual ones


def decompressed(body: BinaryIO, encoding: str, most_bytes: int) -> Iterator[bytes]:
    """The content of a body in pieces; each is small, whatever the body declares.

    Args:
        body: a file.
        encoding: the compression: `deflate`, `zstd`, or none.
        most_bytes: of the content.

    Raises:
        TableError: the body is not compressed so, is cut off, or has a larger content.
    """
    pieces = {"": _plain, "deflate": _inflated, "zstd": _unpacked}.get(encoding)
    if pieces is None:
        text = f"The encoding {encoding[:60]!r} is not offered; use deflate or zstd."
        raise TableError(400, "InvalidArgument", text)
    size_bytes = 0
    try:
        for piece in pieces(body):
            size_bytes += len(piece)
            if size_bytes > most_bytes:
                text = f"The block has more than {most_bytes:,} bytes when decompressed."
                raise TableError(413, "RequestTooLarge", text)
            yield piece
    except (zlib.error, OSError, ValueError, struct.error) as error:
        raise TableError(400, "InvalidArgument", f"The body is not {encoding}: {error}.") from error


def compressed(pieces: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """The pieces in a compression: `deflate`, `zstd`, or none."""
    if encoding == "deflate":
        deflater = zlib.compressobj(1)
        for piece in pieces:
            yield deflater.compress(piece)
        yield deflater.flush()
    elif encoding == "zstd":
        import pyarrow as pa

        sink = _Sink()
        with pa.CompressedOutputStream(pa.PythonFile(sink, mode="w"), "zstd") as stream:
            for piece in pieces:
                stream.write(piece)
                yield sink.taken()
        yield sink.taken()
    else:
        yield from pieces


class _Sink:
    """A file that keeps what is written until it is taken."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, piece: bytes) -> None:
        self._pieces.append(bytes(piece))

    def taken(self) -> bytes:
        taken, self._pieces = b"".join(self._pieces), []
        return taken

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def _plain(body: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: body.read(_PIECE), b"")


def _inflated(body: BinaryIO) -> Iterator[bytes]:
    inflater = zlib.decompressobj()
    while not inflater.eof:
        given = inflater.unconsumed_tail or body.read(_PIECE)
        piece = inflater.decompress(given, _PIECE)
        if not given and not piece:
            raise zlib.error("it is cut off")
        yield piece
    if inflater.unused_data or body.read(1):
        raise zlib.error("there are bytes after the end")


def _unpacked(body: BinaryIO) -> Iterator[bytes]:
    import pyarrow as pa

    if (window := _largest_window(body)) > _LARGEST_WINDOW:
        text = f"The zstd frame needs a window of {window:,} bytes; HTTP allows {_LARGEST_WINDOW:,} (RFC 9659)."
        raise TableError(413, "RequestTooLarge", text)
    body.seek(0)
    with pa.CompressedInputStream(pa.PythonFile(body, mode="r"), "zstd") as stream:
        yield from iter(lambda: stream.read(_PIECE), b"")


def _largest_window(body: BinaryIO) -> int:
    """The memory that the frames of a zstd body declare (RFC 8878, section 3.1).

    Raises:
        ValueError: it has no frames.
        struct.error: it is cut off.
    """
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
            if blocks > _MOST_ZSTD_BLOCKS:
                raise ValueError("it has more blocks than any content needs")
        body.seek(4 if flags & 4 else 0, 1)
    return largest


def _window(descriptor: int) -> int:
    base = 1 << (10 + (descriptor >> 3))
    return base + base // 8 * (descriptor & 7)
