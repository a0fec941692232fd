"""The random suffix of the default name of a job and of its output folder. Standard library only."""

from __future__ import annotations

import hashlib
import re
import secrets
from itertools import count

SUFFIX_LENGTH = 6
_CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
# It begins with a digit and has a digit after a letter, so `202611` and `10fold` are no suffixes.
_SUFFIX = r"(?=[0-9a-z]{6}(?![0-9a-z]))[0-9]+[a-z]+[0-9][0-9a-z]*"
_EARLIER_SUFFIX = r"[_-]\d{8}[_-]\d{6}[_-][0-9a-f]{8}"
_ADDED = re.compile(f"(?:-{_SUFFIX}|{_EARLIER_SUFFIX})$")


def new_suffix() -> str:
    """Returns six random characters, of 400 million values, that `without_suffix` recognizes."""
    while True:
        suffix = "".join(secrets.choice(_CHARACTERS) for _ in range(SUFFIX_LENGTH))
        if re.fullmatch(_SUFFIX, suffix):
            return suffix


def suffix_of_key(key: str) -> str:
    """Returns the suffix of an idempotency key, which is a hash of the key."""
    for number in count():
        digest = hashlib.sha256(f"{number}:{key}".encode(errors="replace")).digest()
        suffix = "".join(_CHARACTERS[byte % len(_CHARACTERS)] for byte in digest[:SUFFIX_LENGTH])
        if re.fullmatch(_SUFFIX, suffix):
            break
    return suffix


def folder_pattern(name: str, *, hyphen: str = "-") -> re.Pattern[str]:
    """Returns a pattern for the output folder of a job: its name, with or without a suffix after the hyphen."""
    return re.compile(f"{re.escape(name)}(?:{hyphen}{_SUFFIX})?")


def without_suffix(name: str) -> str:
    """Returns the name of a job without the random suffix that pai_sdk has added."""
    return _ADDED.sub("", name) or name
