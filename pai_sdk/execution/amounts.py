"""Amounts of memory, as people and PAI write them. Standard library only."""

from __future__ import annotations

import re

__all__ = ["bytes_of"]

_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*(|[kmgt])i?b?", re.IGNORECASE)
_TOO_MUCH_BYTES = 1 << 60
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def bytes_of(text: str) -> int:
    """An amount of memory in bytes. A bare number is in GiB, as PAI's InstanceSpec has it.

    Raises:
        ValueError: it is not an amount.

    Example:
        >>> bytes_of("8"), bytes_of("512Mi"), bytes_of("1.5 GB")
        (8589934592, 536870912, 1610612736)
    """
    found = _AMOUNT.fullmatch(text.strip())
    if not found:
        raise ValueError(f"{text[:60]!r} is not an amount of memory")
    size_bytes = float(found[1]) * _UNITS[found[2].lower() or "g"]
    if size_bytes >= _TOO_MUCH_BYTES:
        raise ValueError(f"{text[:60]!r} is more memory than any machine can have")
    return int(size_bytes)
