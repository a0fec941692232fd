"""Times of the API of DLC: read in three forms, written in one."""

from __future__ import annotations

from datetime import datetime, timezone

from pai_sdk._wire.pai import wire

__all__ = ["milliseconds", "seconds_of", "wire_time"]

_FIRST_MILLISECOND = 100_000_000_000  # a number above it is in milliseconds: as seconds, it is the year 5138


def wire_time(seconds: float | None) -> str | None:
    """Converts seconds since 1970 to `2022-09-05T10:03:38Z`; None for no time, or one outside of years 1 to 9999.

    Example:
        >>> wire_time(1662372218.9)
        '2022-09-05T10:03:38Z'
    """
    if seconds is None:
        return None
    try:
        moment = datetime.fromtimestamp(seconds // 1, tz=timezone.utc)
    except (ValueError, OverflowError, OSError):
        return None
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def seconds_of(moment: str | float | None) -> float | None:
    """Converts a time to seconds since 1970; None for no time, or a malformed one.

    Args:
        moment: ISO 8601 with or without seconds and fractions of them, or a number of milliseconds, also as text.

    Example:
        >>> [seconds_of(each) for each in ("2022-09-05T10:03:38Z", "2022-09-05T10:03Z", "1662372218000", "soon")]
        [1662372218.0, 1662372180.0, 1662372218.0, None]
    """
    if isinstance(moment, str) and moment.strip().isdecimal() and moment.isascii() and len(moment) < 20:
        moment = float(moment)
    if isinstance(moment, bool):
        return None
    if isinstance(moment, int | float):
        return moment / 1000 if moment > _FIRST_MILLISECOND else float(moment)
    return wire.seconds_of(moment)


def milliseconds(seconds: float) -> int:
    """Converts seconds since 1970 to the time of a value of a metric."""
    return round(seconds * 1000)
