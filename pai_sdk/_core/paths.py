"""Paths as users write them."""

from __future__ import annotations

import os
from pathlib import Path

from pai_sdk._core.names.hints import wrong_type
from pai_sdk.errors import InvalidInputError, Problem

EMBEDDED_SERVICE_DIR = "~/.pai/service"
"""The folder of the embedded service, where none is given."""


def expanded(path: str | os.PathLike[str]) -> Path:
    """Returns the path with its `~` expanded as a shell does; unchanged if there is no such user."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        # pathlib raises this if there is no such user.
        return Path(path)


def parse_path(path: object, where: str) -> Path:
    """Returns the path of an argument; `where` is the parameter's name, for the error."""
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(name, str):
        raise InvalidInputError([wrong_type(where, path, "a string or a Path")])
    # An empty path would mean the complete current folder.
    if not name:
        raise InvalidInputError([Problem(where, "is empty", "give a path; '.' is the current folder")])
    return expanded(name)
