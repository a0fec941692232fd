"""The random ending of a job's default name. Standard library only."""

from __future__ import annotations

import re
import secrets

__all__ = ["ENDING_LENGTH", "new_ending", "without_ending"]

ENDING_LENGTH = 6
_CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
# It begins with a digit and has a digit after a letter, so `202611` and `10fold` are no endings.
_ENDING = r"(?=[0-9a-z]{6}$)[0-9]+[a-z]+[0-9][0-9a-z]*"
_EARLIER_ENDING = r"[_-]\d{8}[_-]\d{6}[_-][0-9a-f]{8}"
_ADDED = re.compile(f"(?:-{_ENDING}|{_EARLIER_ENDING})$")


def new_ending() -> str:
    """Six random characters, with 400 million values, that `without_ending` recognizes."""
    while True:
        ending = "".join(secrets.choice(_CHARACTERS) for _ in range(ENDING_LENGTH))
        if re.fullmatch(_ENDING, ending):
            return ending


def without_ending(name: str) -> str:
    """The name of a job without the random ending that pai_sdk added; what a user wrote stays.

    Example:
        >>> [without_ending(name) for name in ("train-lr0.1-3f2a9c", "fit_20261123_012742_023740e7", "run-202611")]
        ['train-lr0.1', 'fit', 'run-202611']
    """
    return _ADDED.sub("", name) or name
