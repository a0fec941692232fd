"""Hints in messages: the nearest right name, and the type of a wrong value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from itertools import islice

from pai_sdk.errors import Problem

__all__ = ["did_you_mean", "is_of_type", "name_hint", "nearest", "wrong_type"]

# A comparison takes the product of two lengths, and a service makes it with names that clients send.
_MOST_COMPARED, _LONGEST_COMPARED = 2_000, 200


def nearest(name: str, known: Iterable[str], *, most: int = 1, cutoff: float = 0.6) -> list[str]:
    """The known names that are spelt nearly like `name`, the nearest first; of many or long names, none."""
    names = list(islice(known, _MOST_COMPARED + 1))
    if len(name) > _LONGEST_COMPARED or len(names) > _MOST_COMPARED:
        return []
    return get_close_matches(name, names, n=most, cutoff=cutoff)


def did_you_mean(names: Sequence[str]) -> str:
    """The question for a misspelt name; empty when no name is near.

    Example:
        >>> did_you_mean(nearest("epoch", ["epochs", "lr"]))
        "did you mean 'epochs'?"
    """
    return f"did you mean {' or '.join(map(repr, names))}?" if names else ""


def name_hint(name: str, known: Iterable[str], *, shown: int = 8, intro: str = "there is") -> str:
    """The nearest known name; the first known names when none is near.

    Example:
        >>> name_hint("epoch", ["epochs", "lr"]), name_hint("x", ["epochs", "lr"])
        ("did you mean 'epochs'?", 'there is: epochs, lr')
    """
    names = list(known)
    listed = f"{intro}: {', '.join(names[:shown])}{' …' if len(names) > shown else ''}" if names else ""
    return did_you_mean(nearest(name, names)) or listed


def is_of_type(value: object) -> str:
    """The type of a value, as the predicate of a message.

    Example:
        >>> is_of_type(7)
        'is of type int'
    """
    return f"is of type {type(value).__name__}"


def wrong_type(where: str, value: object, hint: str) -> Problem:
    """The problem of a parameter whose value has a wrong type."""
    return Problem(where, is_of_type(value), hint)
