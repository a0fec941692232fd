"""CRC-64/XZ, the checksum that OSS sends as `x-oss-hash-crc64ecma`, and the combination of those of parts."""

from __future__ import annotations

import logging
import threading
import zlib
from functools import cache
from typing import Any

_log = logging.getLogger(__name__)

_first_error = threading.Lock()

_MAX_BYTES = 1 << 20


@cache
def _model() -> Any:
    # Imported late: it takes 10 ms, and most programs transfer nothing large.
    import anycrc

    return anycrc.Model("CRC64-XZ")


@cache
def has_crc64() -> bool:
    """Returns True if this machine can compute it; if not, callers check by other means, and it is logged once."""
    try:
        _model()
    except ImportError as error:
        # Of many threads that ask for the first time, one logs it.
        if not _first_error.acquire(blocking=False):
            return False
        _log.warning("transfers are verified by MD5 and size, which is slower: %s", error)
        return False
    return True


def crc64_of(data: bytes | memoryview, crc64: int = 0) -> int:
    """Returns the CRC-64 of bytes that follow others whose CRC-64 is `crc64`; ask `has_crc64` first."""
    # It holds the interpreter's lock, so callers give it at most about 1 MiB at a time.
    return int(_model().calc(data, crc64))


def combine_crc64(first: int, second: int, second_bytes: int) -> int:
    """Returns the CRC-64 of two contents one behind the other, from those of each and the length of the second."""
    return int(_model().combine(first, second, second_bytes))


def checksum_of(data: bytes | memoryview, checksum: int = 0) -> int:
    """Returns the CRC-64 of bytes that follow others; without anycrc their CRC-32, which no store knows."""
    if not has_crc64():
        return zlib.crc32(data, checksum)
    for start in range(0, len(data), _MAX_BYTES):
        checksum = crc64_of(memoryview(data)[start : start + _MAX_BYTES], checksum)
    return checksum


def combine_checksums(first: int, second: int, second_bytes: int) -> int:
    """Returns `checksum_of` two contents one behind the other, from those of each and the length of the second."""
    if has_crc64():
        return combine_crc64(first, second, second_bytes)
    # The first one moved by the zeros that are as long as the second: multiplied by x to the power of their bits.
    power, square, bits = 1 << 31, 1 << 30, 8 * second_bytes
    while bits:
        if bits & 1:
            power = _crc32_product(power, square)
        square, bits = _crc32_product(square, square), bits >> 1
    return _crc32_product(first, power) ^ second


def _crc32_product(first: int, second: int) -> int:
    """Returns the product of two polynomials modulo that of CRC-32; the highest bit is the power 0."""
    product = 0
    for bit in range(31, -1, -1):
        if first >> bit & 1:
            product ^= second
        second = second >> 1 ^ (0xEDB88320 if second & 1 else 0)
    return product
