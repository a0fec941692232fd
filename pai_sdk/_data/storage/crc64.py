"""CRC-64/XZ, the checksum that OSS sends as `x-oss-hash-crc64ecma`, and the combination of those of parts."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

_log = logging.getLogger(__name__)


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
        _log.warning("what is transferred is checked by MD5 and by size, which is slower: %s", error)
        return False
    return True


def crc64_of(data: bytes | memoryview, crc64: int = 0) -> int:
    """Returns the CRC-64 of bytes that follow others whose CRC-64 is `crc64`; ask `has_crc64` first."""
    # It holds the interpreter's lock, so callers give it at most about 1 MiB at a time.
    return int(_model().calc(data, crc64))


def combine_crc64(first: int, second: int, second_bytes: int) -> int:
    """Returns the CRC-64 of two contents one behind the other, from those of each and the length of the second."""
    return int(_model().combine(first, second, second_bytes))
