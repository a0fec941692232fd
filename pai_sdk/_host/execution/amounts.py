"""Memory sizes as users and PAI write them. Standard library only."""

from __future__ import annotations

import re

__all__ = ["parse_bytes"]

_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*(|[kmgt])i?b?", re.IGNORECASE)
_MAX_BYTES = 1 << 60
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def parse_bytes(text: str) -> int:
    """Parses an amount of memory into bytes. A bare number is in GiB, as in PAI's InstanceSpec."""
    match = _AMOUNT.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text[:60]!r} is not an amount of memory")
    size_bytes = float(match[1]) * _UNITS[match[2].lower() or "g"]
    if size_bytes >= _MAX_BYTES:
        raise ValueError(f"{text[:60]!r} is more memory than any machine can have")
    return int(size_bytes)
