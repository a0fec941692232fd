"""Other names of commands, as people who come from another tool type them."""

from __future__ import annotations

from collections.abc import Sequence

_ALIASES = {
    "list": "ps",
    "jobs": "ps",
    "log": "logs",
    "cancel": "stop",
    "kill": "stop",
    "dashboard": "ui",
    "version": "--version",
}


def canonical(arguments: Sequence[str]) -> list[str]:
    """Returns the arguments of `pai-sdk` with the command's own name; `help COMMAND` becomes `COMMAND --help`."""
    position = next((at for at, argument in enumerate(arguments) if not argument.startswith("-")), None)
    if position is None:
        return [*arguments]
    before, name, after = arguments[:position], arguments[position], arguments[position + 1 :]
    if name == "help":
        return [*before, *canonical(after), "--help"]
    if name in ("job", "jobs") and after and not after[0].startswith("-"):  # `jobs list`, `job logs JOB`
        return [*before, *canonical(after)]
    return [*before, _ALIASES.get(name, name), *after]
