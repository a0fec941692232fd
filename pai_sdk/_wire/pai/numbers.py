"""Numbers of the wire: finite, at most 64 bits, and strings only where they are numbers of JSON too.

Python reads more than that from a string: `nan`, `Infinity`, `1_0` (as 10), digits of other scripts, integers of
any length. pydantic does likewise, so each model would accept as a string what it refuses as a number.
"""

from __future__ import annotations

import math
import re
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator

LARGEST_INTEGER = (1 << 63) - 1
"""The limit of databases and of clients in other languages."""

_MAX_DIGITS = 400  # longer strings are no number that a double can hold
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")


def checked_number(value: object) -> object:
    """Returns a value that is going to be read as a number; refuses what is not finite, or larger than 64 bits."""
    if isinstance(value, bool):
        raise ValueError(f"is {value}; give a number")
    if isinstance(value, str):
        text = value.strip()
        if len(text) > _MAX_DIGITS or _NUMBER.fullmatch(text) is None:
            raise ValueError(f"{value[:60]!r} is not a number")
        is_integer = text.lstrip("+-").isdecimal()
        _check_size(int(text) if is_integer else float(text))
    elif isinstance(value, int | float):
        _check_size(value)
    return value


def _check_size(number: float) -> None:
    if isinstance(number, int):
        if abs(number) > LARGEST_INTEGER:
            raise ValueError("has more than 64 bits")
    elif not math.isfinite(number):
        raise ValueError(f"is {number}; give a finite number")


Integer: TypeAlias = Annotated[int, BeforeValidator(checked_number)]
"""A whole number of a `Sent` model."""

Number: TypeAlias = Annotated[float, BeforeValidator(checked_number)]
"""A finite number of a `Sent` model."""
