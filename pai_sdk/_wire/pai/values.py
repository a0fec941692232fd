"""Values of users as JSON and as text: hyperparameters, choices of a search, results of steps."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from enum import Enum


def hyperparameter_text(value: object) -> str:
    """Returns the value of a hyperparameter as a string: `true`, `0.1`, a string unchanged, others as JSON.

    An enumeration's member is its value, a path is its text, and a number or array of numpy or torch is what its
    `tolist()` gives. No digit of a float is lost: the shortest text that reads back as the same number is written.
    A ValueError means that there is no faithful text (NaN, infinity, an object JSON does not know).
    """
    try:
        plain = python_value(_plain(value))
    except RecursionError:
        raise ValueError("contains itself, or is nested too deeply") from None
    if isinstance(plain, str):
        return plain
    if isinstance(plain, float) and not math.isfinite(plain):
        raise ValueError(f"{plain} cannot be passed to a job; if its code reads it, pass the string '{plain}'")
    try:
        return json.dumps(plain, ensure_ascii=False, allow_nan=False, default=_convert)
    except TypeError as error:
        raise ValueError(f"{type(value).__name__} cannot be written as text or JSON: {error}") from error


def python_value(value: object) -> object:
    """Replaces numbers and arrays of numpy or torch by those of Python, and mappings by dicts, at any depth."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Mapping):
        values = {python_value(key): python_value(item) for key, item in value.items()}
        # Two keys of a mapping may be one key in JSON, such as `1` and `"1"`.
        _check_keys(values)
        return values
    if isinstance(value, list | tuple):
        items = [python_value(item) for item in value]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value  # also a named tuple
        return tuple(items) if isinstance(value, tuple) else items
    tolist = getattr(value, "tolist", None)
    return tolist() if callable(tolist) and not isinstance(value, type) else value


def _check_keys(values: Mapping[object, object]) -> None:
    """Raises ValueError for keys that JSON, whose keys are strings, cannot tell apart."""
    keys: dict[str, object] = {}
    for key in values:
        if key is None or isinstance(key, str | int | float):  # JSON takes no others
            text = key if isinstance(key, str) else json.dumps(key)
            if text in keys:
                raise ValueError(f"the keys {keys[text]!r} and {key!r} are one key in JSON")
            keys[text] = key


def _plain(value: object) -> object:
    """Returns the value of an enum member, and the string of a path."""
    if isinstance(value, Enum):
        return _plain(value.value)
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _convert(value: object) -> object:
    """Converts a value that JSON does not know, within a list or a dict."""
    plain = _plain(value)
    if plain is value:
        raise TypeError(f"{type(value).__name__} is not a value of JSON")
    return python_value(plain)
