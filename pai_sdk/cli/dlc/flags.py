"""Parses arguments as the command line of DLC does: `--worker_image=x`, `--worker_image x`, `-n x`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pai_sdk._core.names.hints import did_you_mean, nearest
from pai_sdk._wire.dlc.flags import Flag
from pai_sdk.errors import InvalidInputError, Problem

_BOOLEANS = {"true": True, "1": True, "t": True, "false": False, "0": False, "f": False}
# A comma separates pairs only before the next NAME=, because values such as `mlx5_0,mlx5_1` contain commas.
_NEXT_PAIR = re.compile(r",(?=\s*[A-Za-z_][A-Za-z0-9_.-]*=)")


@dataclass
class Arguments:
    """The parsed arguments of a command; each flag has its values in the order in which they were given."""

    flags: Mapping[str, Flag]
    values: dict[str, list[str]] = field(default_factory=dict)
    positionals: list[str] = field(default_factory=list)  # that belong to no flag
    problems: list[Problem] = field(default_factory=list)

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def text(self, name: str) -> str | None:
        """Returns the last value of a flag; None where it is not given, or empty."""
        return (self.values.get(name) or [""])[-1] or None

    def number(self, name: str) -> int | None:
        """Returns the last value of a flag as a whole number; anything else is a problem."""
        text = self.text(name)
        if text is None:
            return None
        try:
            return int(text)
        except ValueError:
            self.problems.append(Problem(f"--{name}", f"{text!r} is not a whole number"))
            return None

    def boolean(self, name: str) -> bool:
        """Returns whether a flag is set."""
        text = self.text(name)
        if text is None:
            return False
        if text.lower() not in _BOOLEANS:
            self.problems.append(Problem(f"--{name}", f"{text!r} is neither true nor false"))
        return _BOOLEANS.get(text.lower(), False)

    def items(self, name: str) -> list[str]:
        """Returns the items of all values of a list."""
        return [item.strip() for value in self.values.get(name, ()) for item in value.split(",") if item.strip()]

    def pairs(self, name: str) -> dict[str, str]:
        """Returns the pairs of all values: `k=v,k2=v2`."""
        pairs: dict[str, str] = {}
        for value in self.values.get(name, ()):
            for each in _NEXT_PAIR.split(value) if value else ():
                key, equals, item = each.partition("=")
                if not equals or not key.strip():
                    self.problems.append(Problem(f"--{name}", f"{each!r} is not KEY=VALUE"))
                else:
                    pairs[key.strip()] = item
        return pairs

    def replace(self, more: Mapping[str, list[str]]) -> None:
        """Replaces the values of flags, as a job file does."""
        self.values.update(more)

    def check(self) -> None:
        """Raises `InvalidInputError` if there are problems."""
        if self.problems:
            raise InvalidInputError([*dict.fromkeys(self.problems)])


def parse(tokens: Sequence[str], flags: Iterable[Flag], *, until_positional: bool = False) -> Arguments:
    """Parses the arguments of a command; problems are collected in the result.

    Args:
        tokens: what follows the name of the command.
        flags: those of the command.
        until_positional: stop before the first word that belongs to no flag; it and the others are positionals.
    """
    arguments = Arguments({flag.name: flag for flag in flags})
    shorts = {flag.short: flag for flag in arguments.flags.values() if flag.short}
    remaining = [*tokens]
    while remaining:
        word = remaining.pop(0)
        if word == "--" or not word.startswith("-") or word == "-":
            arguments.positionals += remaining if word == "--" else [word]
            if word == "--":
                break
            if until_positional:
                arguments.positionals += remaining
                break
        elif word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            _read(arguments, f"--{name}", arguments.flags.get(name), value if equals else None, remaining)
        else:
            value = word[2:].removeprefix("=")
            _read(arguments, word[:2], shorts.get(word[1]), value or None, remaining)
    return arguments


def _read(arguments: Arguments, where: str, flag: Flag | None, value: str | None, remaining: list[str]) -> None:
    """Reads the value of a flag, which may be the next word."""
    if flag is None:
        names = [f"--{name}" for name in arguments.flags]
        arguments.problems.append(Problem(where, "is not supported", did_you_mean(nearest(where, names))))
        if value is None and remaining and not remaining[0].startswith("-"):
            remaining.pop(0)  # probably its value: it is not a problem of its own
        return
    if flag.kind == "boolean":
        if value is None:
            value = remaining.pop(0) if remaining and remaining[0].lower() in ("true", "false") else "true"
    elif value is None:
        if not remaining:
            arguments.problems.append(Problem(where, "has no value"))
            return
        value = remaining.pop(0)
    if flag.refusal and not (flag.kind == "boolean" and not _BOOLEANS.get(value.lower(), True)):
        arguments.problems.append(Problem(where, "is not supported", flag.refusal))
        return
    values = arguments.values.setdefault(flag.name, [])
    values.append(value)


def read_job_file(path: Path, flags: Mapping[str, Flag]) -> dict[str, list[str]]:
    """Reads a job file: lines `key=value` with the names of flags; a value extends to the end of its line.

    Raises:
        InvalidInputError: the file cannot be read, or has a line that is none of these.
    """
    where = f"--job_file {path}"
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise InvalidInputError([Problem(where, f"cannot be read: {reason}")]) from error
    values: dict[str, list[str]] = {}
    problems = []
    for number, line in enumerate(lines, start=1):
        key, equals, value = line.partition("=")
        key = key.strip().removeprefix("--")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        flag = flags.get(key)
        if not equals:
            problems.append(Problem(f"{where}, line {number}", "is not key=value"))
        elif flag is None or flag.name == "job_file":
            hint = did_you_mean(nearest(key, flags))
            problems.append(Problem(f"{where}, line {number}", f"{key} is not supported", hint))
        elif flag.refusal:
            problems.append(Problem(f"{where}, line {number}", f"{key} is not supported", flag.refusal))
        else:
            values.setdefault(key, []).append(value if key == "command" else value.strip())
    if problems:
        raise InvalidInputError(problems)
    return values
