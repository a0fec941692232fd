"""Names of jobs: a base, the hyperparameters that say most, a random suffix. Standard library only."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from itertools import count
from typing import Any

SUFFIX_LENGTH = 6
_CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
# It begins with a digit and has a digit after a letter, so `202611` and `10fold` are no suffixes.
_SUFFIX = r"(?=[0-9a-z]{6}(?![0-9a-z]))[0-9]+[a-z]+[0-9][0-9a-z]*"
_EARLIER_SUFFIX = r"[_-]\d{8}[_-]\d{6}[_-][0-9a-f]{8}"
_ADDED = re.compile(f"(?:-{_SUFFIX}|{_EARLIER_SUFFIX})$")

_MAX_LENGTH = 100  # the limit of the service
_SHORT = {"learning_rate": "lr", "batch_size": "bs", "num_train_epochs": "epochs", "num_epochs": "epochs"}
_FIRST = ("lr", "bs", "epochs")  # in this order; other numbers come behind them
_MAX_PARTS = 2
_MAX_VALUE_LENGTH = 10
_UNINFORMATIVE = re.compile(r"seed|worker|thread|step|port|interval|key|token|secret|passw", re.IGNORECASE)
_PARAMETER = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,15}")
_NUMBER = re.compile(r"-?[0-9][0-9.]*(?:e-?[0-9]+)?")


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


def new_name(base: str, hyperparameters: Mapping[str, Any] | None) -> str:
    """Returns the name of a new job: its base, up to two hyperparameters, six random characters."""
    name = base.rstrip("-_.") or base
    for part in _parts(hyperparameters):
        if len(name) + len(part) + SUFFIX_LENGTH + 2 <= _MAX_LENGTH:
            name = f"{name}-{part}"
    return f"{name}-{new_suffix()}"


def name_of_copy(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Returns the name of a changed copy of a job, with the new hyperparameters in place of the old ones."""
    base = without_suffix(name)
    for part in reversed(_parts(before)):
        base = base.removesuffix(f"-{part}")
    return new_name(base[: _MAX_LENGTH - SUFFIX_LENGTH - 1], after)


def short_names(hyperparameters: Mapping[str, Any]) -> dict[str, str]:
    """Returns how names of jobs call hyperparameters; only those that can be part of a name."""
    names = {key: _SHORT.get(str(key), str(key)) for key in hyperparameters}
    return {
        key: name for key, name in names.items() if _PARAMETER.fullmatch(name) and not _UNINFORMATIVE.search(name)
    }


def _parts(hyperparameters: Mapping[str, Any] | None) -> list[str]:
    """Returns the hyperparameters in a name. Only numbers, so that no secret becomes part of a name."""
    if not isinstance(hyperparameters, Mapping):
        return []
    parts: dict[str, str] = {}
    for key, name in short_names(hyperparameters).items():
        value = hyperparameters[key]
        text = str(value).replace("+", "")
        if not isinstance(value, bool) and len(text) <= _MAX_VALUE_LENGTH and _NUMBER.fullmatch(text):
            parts.setdefault(name, f"{name}{text}")
    order = sorted(parts, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
    return [parts[name] for name in order[:_MAX_PARTS]]
