"""CRC-64/XZ, the checksum that OSS sends as `x-oss-hash-crc64ecma`, and the combination of those of parts."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def _model() -> Any:
    # Imported late: it takes 10 ms, and most programs transfer nothing large.
    import anycrc

    return anycrc.Model("CRC64-XZ")


def crc64_of(data: bytes | memoryview, crc64: int = 0) -> int:
    """Returns the CRC-64 of bytes that follow others whose CRC-64 is `crc64`."""
    return int(_model().calc(data, crc64))


def combine_crc64(first: int, second: int, second_bytes: int) -> int:
    """Returns the CRC-64 of two contents one behind the other, from those of each and the length of the second."""
    return int(_model().combine(first, second, second_bytes))
