"""The random ending of a job's default name and of its output folder. Standard library only."""

from __future__ import annotations

import hashlib
import re
import secrets
from itertools import count

__all__ = ["ENDING_LENGTH", "ending_of_key", "folder_pattern", "new_ending", "without_ending"]

ENDING_LENGTH = 6
_CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
# It begins with a digit and has a digit after a letter, so `202611` and `10fold` are no endings.
_ENDING = r"(?=[0-9a-z]{6}(?![0-9a-z]))[0-9]+[a-z]+[0-9][0-9a-z]*"
_EARLIER_ENDING = r"[_-]\d{8}[_-]\d{6}[_-][0-9a-f]{8}"
_ADDED = re.compile(f"(?:-{_ENDING}|{_EARLIER_ENDING})$")


def new_ending() -> str:
    """Six random characters, with 400 million values, that `without_ending` recognizes."""
    while True:
        ending = "".join(secrets.choice(_CHARACTERS) for _ in range(ENDING_LENGTH))
        if re.fullmatch(_ENDING, ending):
            return ending


def ending_of_key(key: str) -> str:
    """The ending that belongs to an idempotency key: always the same one.

    Example:
        >>> ending_of_key("nightly-2026-11-22") == ending_of_key("nightly-2026-11-22")
        True
    """
    for number in count():
        digest = hashlib.sha256(f"{number}:{key}".encode(errors="replace")).digest()
        ending = "".join(_CHARACTERS[byte % len(_CHARACTERS)] for byte in digest[:ENDING_LENGTH])
        if re.fullmatch(_ENDING, ending):
            break
    return ending


def folder_pattern(name: str, *, hyphen: str = "-") -> re.Pattern[str]:
    """Matches the output folder of a job: its name, also with an ending.

    Args:
        name: of the job, or a part of a path that is made of it.
        hyphen: what is between the name and the ending.

    Example:
        >>> folder_pattern("digits").sub("…", "oss://models/digits-3f2a9c/model/ oss://models/digits/model/")
        'oss://models/…/model/ oss://models/…/model/'
    """
    return re.compile(f"{re.escape(name)}(?:{hyphen}{_ENDING})?")


def without_ending(name: str) -> str:
    """The name of a job without the random ending that pai_sdk added; what a user wrote stays.

    Example:
        >>> [without_ending(name) for name in ("train-lr0.1-3f2a9c", "fit_20261123_012742_023740e7", "run-202611")]
        ['train-lr0.1', 'fit', 'run-202611']
    """
    return _ADDED.sub("", name) or name
