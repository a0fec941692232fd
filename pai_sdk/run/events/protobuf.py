"""The fields of protobuf messages, with their places in the bytes."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["fields", "varint", "varints"]

_LONGEST_VARINT_BITS = 70
_UINT64 = 0xFFFFFFFFFFFFFFFF


def fields(message: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Each field of a part of a message: number, wire type, the value of a varint, and where its content is.

    Raises:
        ValueError: this is no message.

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
    """The number that begins at a place, and where it ends.

    Raises:
        ValueError: it is cut off, or has more than ten bytes.
    """
    number = shift = 0
    while at < end and shift < _LONGEST_VARINT_BITS:
        byte = message[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number & _UINT64, at
        shift += 7
    raise ValueError("a varint is cut off")


def varints(message: bytes, at: int, end: int) -> list[int]:
    """The numbers of a packed field.

    Raises:
        ValueError: the last one is cut off.
    """
    found = []
    while at < end:
        number, at = varint(message, at, end)
        found.append(number)
    return found
