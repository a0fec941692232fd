"""Durations as options: `7d`, `12h`, `30m`, `90s`."""

from __future__ import annotations

import re

import typer

__all__ = ["seconds_of"]

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 24 * 3600.0, "w": 7 * 24 * 3600.0}


def seconds_of(text: str, option: str) -> float:
    """The seconds that a text says.

    Args:
        text: a number and its unit; 0 needs none.
        option: as its user wrote it, for the message.

    Raises:
        BadParameter: it is no duration.

    Example:
        >>> seconds_of("7d", "--older-than"), seconds_of("1.5h", "--older-than"), seconds_of("0", "--older-than")
        (604800.0, 5400.0, 0.0)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw]?)", text.strip())
    if not found or not (found[2] or float(found[1]) == 0):
        raise typer.BadParameter(f"{text!r} is no duration; such as 7d, 12h, 30m, 90s or 0", param_hint=option)
    return float(found[1]) * _UNITS_S.get(found[2], 1.0)
