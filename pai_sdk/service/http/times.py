"""Times in queries: UTC, ISO 8601."""

from __future__ import annotations

from datetime import datetime, timezone

from pai_sdk.service.wire_errors import invalid_parameter

__all__ = ["parse_time"]


def parse_time(text: str | None, parameter: str) -> float | None:
    """A time of a query (`2026-01-31T08:00Z`, also with seconds) in seconds since 1970; None when not given.

    Raises:
        Fault: it is not a time.
    """
    if not text:
        return None
    try:
        # Python 3.10 knows neither `Z` nor fractions of any length; the wire always means UTC.
        moment = datetime.fromisoformat(text.strip().upper().removesuffix("Z").partition(".")[0])
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=timezone.utc)
        return moment.timestamp()
    except (ValueError, OverflowError) as error:
        raise invalid_parameter(
            f"{parameter}: {text[:60]!r} is not a time; write UTC as 2026-01-31T08:00:00Z"
        ) from error
