"""Query parameters that several actions have."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Annotated, Literal, TypeAlias

from fastapi import Depends, Query
from pydantic import BeforeValidator

from pai_sdk._data.logs.reader import LogWindow
from pai_sdk._service.wire_errors import invalid_parameter
from pai_sdk._wire.pai.numbers import checked_number

PageNumber = Annotated[int, BeforeValidator(checked_number), Query(alias="PageNumber", ge=1, le=100_000_000)]
"""`PageNumber`, from 1."""

PageSize = Annotated[int, BeforeValidator(checked_number), Query(alias="PageSize", ge=1, le=1000)]
"""`PageSize` of the lists that the service keeps in tables."""

Order: TypeAlias = Annotated[Literal["ASC", "DESC", "asc", "desc"], Query(alias="Order")]
"""`Order`: the direction of a list."""


def _parse_time(text: str | None, parameter: str) -> float | None:
    """Returns seconds since 1970 for a time in UTC, such as `2026-01-31T08:00Z`; None without a time."""
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


async def _window(
    start_time: Annotated[str | None, Query(alias="StartTime")] = None,
    end_time: Annotated[str | None, Query(alias="EndTime")] = None,
) -> LogWindow:
    return LogWindow(_parse_time(start_time, "StartTime"), _parse_time(end_time, "EndTime"))


TimeWindow = Annotated[LogWindow, Depends(_window)]
"""`StartTime` and `EndTime`."""


def read_pairs(text: str | None) -> dict[str, str]:
    """Reads the filter `Labels` of the form `key=value,key=value`."""
    pairs = [pair.partition("=") for pair in (text or "").split(",") if pair]
    if wrong := [pair for pair in pairs if not (pair[0] and pair[1])]:
        raise invalid_parameter(
            f"Labels: {''.join(wrong[0])[:60]!r} is not of the form key=value; write key=value,key=value."
        )
    return {key: value for key, _, value in pairs}
