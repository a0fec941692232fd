"""A hyperparameter's value as text."""

from __future__ import annotations

import json
import math
import os
from enum import Enum


def hyperparameter_text(value: object) -> str:
    """Write a hyperparameter's value as a user would type it: `true`, `0.1`, text as it is, the rest as JSON.

    An enumeration's member is its value, a path is its text, and a number or array of numpy or torch is what its
    `tolist()` gives. No digit of a float is lost: the shortest text that reads back as the same number is written.

    Raises:
        ValueError: a value that has no faithful text (NaN, infinity, an object JSON does not know).

    Example:
        >>> [hyperparameter_text(value) for value in (True, 0.1, "a b", [1, "x"])]
        ['true', '0.1', 'a b', '[1, "x"]']
    """
    plain = _plain(value)
    if isinstance(plain, str):
        return plain
    if isinstance(plain, float) and not math.isfinite(plain):
        raise ValueError(
            f"{plain} is not a number a job can be given; if its code reads it, give '{plain}' as text"
        )
    try:
        return json.dumps(plain, ensure_ascii=False, allow_nan=False, default=_inside)
    except TypeError as error:
        raise ValueError(f"{type(value).__name__} cannot be written as text or JSON: {error}") from error


def _plain(value: object) -> object:
    """The value itself, of what only holds it."""
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    of_a_library = getattr(value, "tolist", None)
    return of_a_library() if callable(of_a_library) else value


def _inside(value: object) -> object:
    """Converts a value that JSON does not know, within a list or a dict."""
    plain = _plain(value)
    if plain is value:
        raise TypeError(f"{type(value).__name__} is not a value of JSON")
    return plain
