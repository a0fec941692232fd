"""Options of the form KEY=VALUE."""

from __future__ import annotations

from collections.abc import Sequence

import typer

__all__ = ["pairs"]


def pairs(given: Sequence[str] | None, option: str) -> dict[str, str]:
    """The values by name; the last one of a name counts.

    Args:
        given: texts, each `KEY=VALUE`. A value may have further `=`.
        option: as its user wrote it, for the message.

    Raises:
        BadParameter: one has no `=`, or no name.

    Example:
        >>> pairs(["lr=0.1", "note=a=b"], "--set")
        {'lr': '0.1', 'note': 'a=b'}
    """
    found = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint=option)
        found[name.strip()] = value
    return found
