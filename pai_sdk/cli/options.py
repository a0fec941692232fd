"""Values of options: `KEY=VALUE`, and durations such as `7d`, `12h`, `30m`, `90s`."""

from __future__ import annotations

import re
from collections.abc import Sequence

import typer

__all__ = ["pairs", "seconds_of"]


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
