"""Hints in messages: the nearest right name, and the type of a wrong value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from itertools import islice
from types import MethodType

from pai_sdk.errors import Problem

# A comparison takes the product of two lengths, and a service makes it with names that clients send.
_MAX_NAMES, _MAX_LENGTH = 2_000, 200
TYPE_NAMES: dict[type, str] = {
    type(None): "None",
    str: "a string",
    int: "an integer",
    float: "a float",
    bool: "a boolean",
    list: "a list",
    tuple: "a tuple",
    dict: "a mapping",
}


def nearest(name: str, candidates: Iterable[str], *, max_count: int = 1, cutoff: float = 0.6) -> list[str]:
    """Returns similar candidates, the most similar first; none if there are too many, or a long name."""
    names = list(islice(candidates, _MAX_NAMES + 1))
    if len(name) > _MAX_LENGTH or len(names) > _MAX_NAMES:
        return []
    return get_close_matches(name, names, n=max_count, cutoff=cutoff)


def did_you_mean(names: Sequence[str]) -> str:
    """Returns the question for a misspelt name; empty without names."""
    return f"did you mean {' or '.join(map(repr, names))}?" if names else ""


def name_hint(name: str, candidates: Iterable[str], *, max_names: int = 8, intro: str = "available") -> str:
    """Returns a question with the nearest candidate, or a list of the first candidates."""
    names = list(candidates)
    list_text = f"{intro}: {', '.join(names[:max_names])}{' …' if len(names) > max_names else ''}" if names else ""
    return did_you_mean(nearest(name, names)) or list_text


def type_name(value: object) -> str:
    """Returns the type of a value in the words of Python and JSON, without the value, which may be a token."""
    if isinstance(value, str) and not value.strip():
        return "an empty string"
    if isinstance(value, MethodType):
        return f"the method {value.__name__}; call it: {value.__name__}()"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return TYPE_NAMES.get(type(value), type(value).__name__)


def type_problem(expected: str, value: object) -> str:
    """Returns what is wrong with a value of a wrong type; `expected` has an article: "a list"."""
    return f"expected {expected}, got {type_name(value)}"


def wrong_value(where: str, value: object, expected: str, hint: str = "") -> Problem:
    """Returns the problem of a parameter whose value, which is displayed, is not the expected one."""
    return Problem(where, f"expected {expected}, got {value!r}", hint)


def wrong_type(where: str, value: object, expected: str, hint: str = "") -> Problem:
    """Returns the problem of a parameter whose value has a wrong type."""
    return Problem(where, type_problem(expected, value), hint)
