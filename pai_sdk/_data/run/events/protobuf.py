"""Reads the fields of protobuf messages, with their offsets."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["fields", "varint", "varints"]

_MAX_VARINT_BITS = 70
_UINT64 = 0xFFFFFFFFFFFFFFFF


def fields(message: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Yields each field of a message: number, wire type, value of a varint, start and end of its content.

    Raises:
        ValueError: the bytes are not a message.

    Example:
        >>> list(fields(bytes([0x08, 0x05, 0x12, 0x01, 0x61]), 0, 5))
        [(1, 0, 5, 1, 2), (2, 2, 0, 4, 5)]
    """
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
            raise ValueError("a field is cut off")
        yield key >> 3, wire, number, start, at


def varint(message: bytes, at: int, end: int) -> tuple[int, int]:
    """Returns the number at an offset, and the offset after it.

    Raises:
        ValueError: the number is truncated, or has more than ten bytes.
    """
    number = shift = 0
    while at < end and shift < _MAX_VARINT_BITS:
        byte = message[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number & _UINT64, at
        shift += 7
    raise ValueError("a varint is cut off")


def varints(message: bytes, at: int, end: int) -> list[int]:
    """Returns the numbers of a packed field.

    Raises:
        ValueError: the last number is truncated.
    """
    numbers = []
    while at < end:
        number, at = varint(message, at, end)
        numbers.append(number)
    return numbers
