"""Readable names of jobs: what runs, the hyperparameters that say most, and a random ending.

The default output folder of a job is made of its name. The ending keeps the folders distinct, so jobs do not
overwrite the outputs of each other. A name that the user gave has its ending in the folder only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pai_sdk._wire.pai.job_names import SUFFIX_LENGTH, new_suffix, suffix_of_key, without_suffix

_MAX_LENGTH = 100  # the limit of the service
_SHORT = {"learning_rate": "lr", "batch_size": "bs", "num_train_epochs": "epochs", "num_epochs": "epochs"}
_FIRST = ("lr", "bs", "epochs")  # in this order; other numbers come behind them
_MAX_PARTS = 2
_MAX_VALUE_LENGTH = 10
_UNINFORMATIVE = re.compile(r"seed|worker|thread|step|port|interval|key|token|secret|passw", re.IGNORECASE)
_PARAMETER = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,15}")
_NUMBER = re.compile(r"-?[0-9][0-9.]*(?:e-?[0-9]+)?")
_SCRIPT = re.compile(r"(?:^|[\s/'\"])([A-Za-z0-9][\w.-]*)\.(?:py|sh)\b")
_MODULE = re.compile(r"\s-m\s+(?:\w+\.)*([A-Za-z0-9]\w*)")


def new_name(base: str, hyperparameters: Mapping[str, Any] | None) -> str:
    """Returns the name of a new job: its base, up to two hyperparameters, six random characters."""
    name = base.rstrip("-_.") or base
    for part in _parts(hyperparameters):
        if len(name) + len(part) + SUFFIX_LENGTH + 2 <= _MAX_LENGTH:
            name = f"{name}-{part}"
    return f"{name}-{new_suffix()}"


def new_folder(name: str, *, is_explicit: bool, key: str | None = None) -> str:
    """Returns the unique name of a new job's output folder: the job's name, with a suffix if the user set it."""
    if not is_explicit:
        return name
    return f"{name}-{new_suffix() if key is None else suffix_of_key(key)}"


def name_of_copy(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Returns the name of a changed copy of a job, with the new hyperparameters in place of the old ones."""
    base = without_suffix(name)
    for part in reversed(_parts(before)):
        base = base.removesuffix(f"-{part}")
    return new_name(base[: _MAX_LENGTH - SUFFIX_LENGTH - 1], after)


def base_of_command(command: str | Sequence[str]) -> str:
    """Returns the name of the script or module that a command starts; empty if it names none."""
    text = command if isinstance(command, str) else " ".join(str(word) for word in command)
    match = _SCRIPT.search(text) or _MODULE.search(text)
    return match[1][:40].rstrip("-_.") if match else ""


def _parts(hyperparameters: Mapping[str, Any] | None) -> list[str]:
    """Returns the hyperparameters in a name. Only numbers, so that no secret becomes part of a name."""
    if not isinstance(hyperparameters, Mapping):
        return []
    parts: dict[str, str] = {}
    for key, value in hyperparameters.items():
        name, text = _SHORT.get(str(key), str(key)), str(value).replace("+", "")
        is_number = not isinstance(value, bool) and len(text) <= _MAX_VALUE_LENGTH and _NUMBER.fullmatch(text)
        if is_number and _PARAMETER.fullmatch(name) and not _UNINFORMATIVE.search(name):
            parts.setdefault(name, f"{name}{text}")
    order = sorted(parts, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
    return [parts[name] for name in order[:_MAX_PARTS]]
