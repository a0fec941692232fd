"""The check of the paths that stores take."""

from __future__ import annotations

from pai_sdk.errors import InvalidInputError, Problem

__all__ = ["checked_path"]

_NOT_PARTS = frozenset({"", ".", ".."})


def checked_path(path: str) -> str:
    """A path within a store, as it was given.

    Raises:
        InvalidInputError: it leads out of the store, or names no file.

    Example:
        >>> checked_path("runs/7/model.pt")
        'runs/7/model.pt'
    """
    if any(part in _NOT_PARTS for part in path.removesuffix("/").split("/")) or "\0" in path:
        hint = "give a relative path without '..', '.' and empty parts"
        raise InvalidInputError([Problem(repr(path), "is not a path within the store", hint)])
    return path
