"""Reads the fields of protobuf messages, with their offsets."""

from __future__ import annotations

from collections.abc import Iterator

_MAX_VARINT_BITS = 70
_UINT64 = 0xFFFFFFFFFFFFFFFF


def fields(message: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Yields number, wire type, varint, start and end of each field; raises ValueError for other bytes."""
    while at < end:
        key, at = varint(message, at, end)
        wire = key & 7
        start = at
        number = 0
        if wire == 0:
            number, at = varint(message, at, end)
        elif wire == 2:
            size, start = varint(message, at, end)
            at = start + size
        elif wire == 1:
            at += 8
        elif wire == 5:
            at += 4
        else:
            raise ValueError(f"wire type {wire}")
        if at > end:
            raise ValueError("a field is truncated")
        yield key >> 3, wire, number, start, at


def varint(message: bytes, at: int, end: int) -> tuple[int, int]:
    """Returns the number at an offset, and the offset after it; raises ValueError if it is truncated."""
    number = shift = 0
    while at < end and shift < _MAX_VARINT_BITS:
        byte = message[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number & _UINT64, at
        shift += 7
    raise ValueError("a varint is truncated")


def varints(message: bytes, at: int, end: int) -> list[int]:
    """Returns the numbers of a packed field; raises ValueError if the last one is truncated."""
    numbers = []
    while at < end:
        number, at = varint(message, at, end)
        numbers.append(number)
    return numbers
