"""Values of options: `KEY=VALUE`, durations such as `7d`, `12h`, `30m`, `90s`, moments, and names of hosts."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import datetime, timezone

import typer

__all__ = ["host_names", "moment_of", "pairs", "seconds_of"]


def pairs(given: Sequence[str] | None, option: str) -> dict[str, str]:
    """The values by name; the last one of a name counts.

    Args:
        given: texts, each `KEY=VALUE`. A value may have further `=`.
        option: as its user wrote it, for the message.

    Raises:
        BadParameter: one has no `=`, or no name.

    Example:
        >>> pairs(["lr=0.1", "note=a=b"], "--set")
        {'lr': '0.1', 'note': 'a=b'}
    """
    found = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint=option)
        found[name.strip()] = value
    return found


def host_names(given: list[str] | None) -> list[str] | None:
    """The names of hosts as they were given; the callback of an option.

    Raises:
        BadParameter: one is not the name of a host.
    """
    from pai_sdk.service.web.host_names import check_name

    for name in given or ():
        try:
            check_name(name)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
    return given


_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 24 * 3600.0, "w": 7 * 24 * 3600.0}


def seconds_of(text: str, option: str) -> float:
    """The seconds that a text says.

    Args:
        text: a number and its unit; 0 needs none.
        option: as its user wrote it, for the message.

    Raises:
        BadParameter: it is not a duration.

    Example:
        >>> seconds_of("7d", "--older-than"), seconds_of("1.5h", "--older-than"), seconds_of("0", "--older-than")
        (604800.0, 5400.0, 0.0)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw]?)", text.strip())
    if not found or not (found[2] or float(found[1]) == 0):
        raise typer.BadParameter(f"{text!r} is not a duration; examples: 7d, 12h, 30m, 90s, 0", param_hint=option)
    return float(found[1]) * _UNITS_S.get(found[2], 1.0)


def moment_of(text: str, option: str) -> datetime:
    """The moment that a text says: a duration before now, or a time in ISO 8601, in UTC without a zone.

    Args:
        text: such as `10m`, or `2026-11-22T05:00:00`.
        option: as its user wrote it, for the message.

    Raises:
        BadParameter: it is neither.

    Example:
        >>> moment_of("2026-11-22T05:00", "--since").isoformat()
        '2026-11-22T05:00:00+00:00'
    """
    if re.fullmatch(r"\s*\d+(\.\d+)?[smhdw]\s*", text):
        return datetime.fromtimestamp(max(0.0, time.time() - seconds_of(text, option)), timezone.utc)
    try:
        moment = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    except ValueError:
        examples = "examples: 10m, 2h, 2026-11-22T05:00:00"
        raise typer.BadParameter(f"{text!r} is no duration and no time; {examples}", param_hint=option) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
