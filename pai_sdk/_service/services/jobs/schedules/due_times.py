"""Computes the times of a cron expression in a time zone, as seconds since 1970, UTC."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from pai_sdk._service.wire_errors import invalid_parameter

_FIELDS = 5
_MAX_CRON_LENGTH = 200
_MAX_ZONE_LENGTH = 100


def cron_problems(cron: str, zone: str) -> Iterator[str]:
    """Yields the problems of a cron expression and of a time zone's name."""
    is_valid_zone = _zone(zone) is not None
    if not is_valid_zone:
        yield f"TimeZone: {zone[:60]!r} is not the name of a time zone, such as UTC or Europe/Berlin"
    if (count := len(cron.split())) != _FIELDS:
        fields = f"{count} field{'' if count == 1 else 's'}"
        yield f"Cron: {cron[:60]!r} has {fields}; give 5: minute, hour, day of month, month, day of week"
    elif len(cron) > _MAX_CRON_LENGTH:
        yield f"Cron: has {len(cron)} characters; {_MAX_CRON_LENGTH} are allowed"
    else:
        try:
            next(CronSim(cron, datetime.now(timezone.utc)))
        except CronSimError as error:
            yield f"Cron: {cron[:60]!r} cannot be read: {error}"
        except StopIteration:
            yield f"Cron: {cron[:60]!r} names a time that never comes"


def next_time(cron: str, zone: str, now: float) -> float:
    """Returns the first time after `now`; raises WireError if the expression or the zone is invalid."""
    # As in Debian's cron: a time that a change of the clocks skips is moved to right after the change, and a
    # repeated time counts once.
    moments = CronSim(cron, _moment(cron, zone, now))
    # In a repeated hour, cronsim's first result can be a time of the first pass.
    return next(seconds for each in moments if (seconds := each.timestamp()) > now)


def newest_time(cron: str, zone: str, now: float, *, since: float) -> float:
    """Returns the last time up to `now`, but not before `since`, which is a time of the expression."""
    moments = CronSim(cron, _moment(cron, zone, now + 1), reverse=True)
    return max(since, next(moments).timestamp())


def _moment(cron: str, zone: str, seconds: float) -> datetime:
    if problems := list(cron_problems(cron, zone)):
        raise invalid_parameter("; ".join(problems))
    return datetime.fromtimestamp(int(seconds), tz=_zone(zone))


def _zone(name: str) -> ZoneInfo | None:
    """Returns the time zone of this name; None if there is none."""
    try:
        return ZoneInfo(name) if 0 < len(name) <= _MAX_ZONE_LENGTH else None
    # Unknown name (KeyError), folder of zones (OSError), invalid file name (ValueError).
    except (KeyError, OSError, ValueError):
        return None
