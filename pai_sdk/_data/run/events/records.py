"""Reads event files record by record, without numpy: the reader of a plain install.

`pai_sdk._data.run.events.files` reads the same files about a hundred times as fast, and needs numpy. Both parse
messages with `message`; they differ only in how they find the records.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pai_sdk._data.run.events.message import parse_message
from pai_sdk._data.run.events.writer import crc32c, masked

_LARGEST_READ_BYTES = 4 << 20
_SEARCHED_BYTES = 1 << 16
_BEFORE_ZEROS = re.compile(rb"[^\0]\0{4}")
_FRAME = struct.Struct("<QI")
_UINT32 = struct.Struct("<I")


@dataclass(frozen=True)
class EventRecord:
    """One record of a file.

    Attributes:
        payload: the message.
        end: the offset in the file after the record.
    """

    payload: bytes
    end: int


@dataclass(frozen=True)
class ScalarEvent:
    """A number in an event file.

    Attributes:
        tag: its name.
        step: when, in the count of the training.
        value: the number; as float64 where `EventWriter` has written it.
        wall_time: when, in seconds since 1970.
        end: the offset in the file after the record of the number.
    """

    tag: str
    step: int
    value: float
    wall_time: float
    end: int = 0

    @property
    def name(self) -> str:
        """The name of the metric: equal to `tag`."""
        return self.tag


def read_records(source: str | os.PathLike[str] | BinaryIO, offset: int = 0) -> Iterator[EventRecord]:
    """Yields the complete records of a file that can still grow, from an offset on.

    An incomplete record ends the iteration. After damaged bytes, the next valid record is searched for. Bytes that
    are skipped, such as records of more than 4 MiB, yield a record without payload now and then, so that a reader
    can continue after them.

    Args:
        source: the path of the file, or the open file.
        offset: the end of a record that was read before, or 0.
    """
    if isinstance(source, (str, os.PathLike)):
        with Path(source).open("rb") as file:
            yield from read_records(file, offset)
        return
    size = source.seek(0, os.SEEK_END)
    while offset + _FRAME.size + 4 <= size:
        source.seek(offset)
        length = _length(source.read(_FRAME.size))
        if length is None:
            offset = _next_record(source, offset + 1)
            yield EventRecord(b"", offset)
            continue
        end = offset + _FRAME.size + length + 4
        if end > size:
            return
        payload = source.read(length) if length <= _LARGEST_READ_BYTES else b""
        is_valid = payload and source.read(4) == _UINT32.pack(masked(crc32c(payload)))
        yield EventRecord(payload if is_valid else b"", end)
        offset = end


def read_scalars(source: str | os.PathLike[str] | BinaryIO, offset: int = 0) -> Iterator[ScalarEvent]:
    """Yields the numbers in a file, of any program that writes for TensorBoard, from an offset on.

    Example:
        >>> list(read_scalars(os.devnull))
        []
    """
    plugins: dict[str, str] = {}
    is_mindspore = False
    for record in read_records(source, offset):
        try:
            message = parse_message(record.payload, plugins, is_mindspore=is_mindspore)
        except (ValueError, ModuleNotFoundError):  # not an event, or a tensor type that needs numpy
            continue
        if message.version:
            is_mindspore = message.version.lower().startswith("mindspore")
        for scalar in message.scalars:
            yield ScalarEvent(scalar.tag, message.step, scalar.value, message.wall, record.end)


def _length(frame: bytes) -> int | None:
    """Returns the length in the frame of a record; None where the frame is damaged."""
    if len(frame) < _FRAME.size:
        return None
    length, checksum = _FRAME.unpack(frame)
    return int(length) if checksum == masked(crc32c(frame[:8])) else None


def _next_record(file: BinaryIO, offset: int) -> int:
    """Finds the next valid frame; without one, returns the offset at which to search later."""
    file.seek(offset)
    data = file.read(_SEARCHED_BYTES)
    # Lengths are above 0 and below 2**32, so a header has four zeros after four bytes that are not all zeros. Only
    # such offsets are checked: random bytes and runs of zeros have hardly any.
    for match in _BEFORE_ZEROS.finditer(data):
        for start in range(max(match.start() - 3, 0), match.start() + 1):
            is_below = data[start + 4 : start + 8] == b"\0\0\0\0"
            if is_below and _length(data[start : start + _FRAME.size]) is not None:
                return offset + start
    return offset + max(len(data) - _FRAME.size + 1, 1)
