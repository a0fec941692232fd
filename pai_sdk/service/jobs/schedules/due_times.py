"""The times of a cron expression in a time zone, as seconds since 1970, UTC."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from pai_sdk.service.wire_errors import invalid_parameter

__all__ = ["cron_problems", "newest_time", "next_time"]

_FIELDS = 5
_LONGEST_CRON = 200
_LONGEST_ZONE = 100


def cron_problems(cron: str, zone: str) -> Iterator[str]:
    """What is wrong with a cron expression and the name of a time zone, each as text.

    Example:
        >>> list(cron_problems("0 3 * * *", "Europe/Berlin"))
        []
        >>> list(cron_problems("0 3 * *", "Europe/Berlin"))
        ["Cron: '0 3 * *' has 4 fields; give 5: minute, hour, day of month, month, day of week"]
    """
    is_known = _zone(zone) is not None
    if not is_known:
        yield f"TimeZone: {zone[:60]!r} is not the name of a time zone, such as UTC or Europe/Berlin"
    if (count := len(cron.split())) != _FIELDS:
        fields = f"{count} field{'' if count == 1 else 's'}"
        yield f"Cron: {cron[:60]!r} has {fields}; give 5: minute, hour, day of month, month, day of week"
    elif len(cron) > _LONGEST_CRON:
        yield f"Cron: has {len(cron)} characters; {_LONGEST_CRON} are allowed"
    else:
        try:
            next(CronSim(cron, datetime.now(timezone.utc)))
        except CronSimError as error:
            yield f"Cron: {cron[:60]!r} cannot be read: {error}"
        except StopIteration:
            yield f"Cron: {cron[:60]!r} names a time that never comes"


def next_time(cron: str, zone: str, now: float) -> float:
    """The first time after `now`.

    A time that a change of the clocks leaves out comes right after the change, and one that comes twice counts
    once, as in Debian's cron.

    Raises:
        WireError: the expression or the zone cannot be used.

    Example:
        >>> next_time("0 3 * * *", "UTC", 0.0) / 3600
        3.0
    """
    moments = CronSim(cron, _moment(cron, zone, now))
    # In an hour that comes twice, the first result can be a time of its first pass.
    return next(found for each in moments if (found := each.timestamp()) > now)


def newest_time(cron: str, zone: str, now: float, *, since: float) -> float:
    """The last time up to `now`, and not before `since`, which is a time of the expression.

    Raises:
        WireError: the expression or the zone cannot be used.

    Example:
        >>> newest_time("0 3 * * *", "UTC", 100 * 3600.0, since=3 * 3600.0) / 3600
        99.0
    """
    moments = CronSim(cron, _moment(cron, zone, now + 1), reverse=True)
    return max(since, next(moments).timestamp())


def _moment(cron: str, zone: str, seconds: float) -> datetime:
    if problems := list(cron_problems(cron, zone)):
        raise invalid_parameter("; ".join(problems))
    return datetime.fromtimestamp(int(seconds), tz=_zone(zone))


def _zone(name: str) -> ZoneInfo | None:
    """The time zone of that name; None if there is none."""
    try:
        return ZoneInfo(name) if 0 < len(name) <= _LONGEST_ZONE else None
    # No such name, the name of a folder of zones, a name that no file can have.
    except (KeyError, OSError, ValueError):
        return None
