"""Hyperparameters: as arguments of a command; those of several jobs or runs, and which of them differ."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pai_sdk._wire.pai.secret_values import mask_value
from pai_sdk.errors import Problem

if TYPE_CHECKING:
    from pai_sdk._wire.pai.spec import HyperParameter

# Every POSIX shell reads these literally and unquoted at any position of an argument.
_UNQUOTED_CHARACTERS = frozenset("@%+=:,./-_")
# In `eval set -- $PAI_USER_ARGS` the shell splits at white space and joins with single spaces before it reads any
# quote. So quoted values may contain single spaces only, and no word may be a pattern that matches files: an empty
# pair of quotes between two spaces, or before a pattern character, is enough. Tab and newline would be turned into
# spaces by the splitting, so they are written as expansions.
_SPECIAL = {"'": "'\"'\"'", "\t": "'\"$(printf '\\011')\"'", "\n": "'\"${IFS#??}\"'"}
_PATTERN_CHARACTERS = frozenset("*?[\\")


@dataclass(frozen=True)
class ComparedHyperparameters:
    """Hyperparameters side by side, one mapping per job or run. Secrets are masked, by their names."""

    rows: tuple[Mapping[str, Any], ...]
    differing: tuple[str, ...]  # in the order of the first row
    constant: Mapping[str, Any]  # equal in all rows


def compare_hyperparameters(rows: Sequence[Mapping[str, Any]]) -> ComparedHyperparameters:
    """Compares the hyperparameters of jobs or runs."""
    # Differences are those of the values, not of the masks. A name that only some rows have differs, too. None is
    # a value.
    masked = tuple(mask_hyperparameters(row) for row in rows)
    differing: list[str] = []
    constant: dict[str, Any] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        identities = {hyperparameter_identity(row[name]) for row in rows if name in row}
        if len(identities) == 1 and all(name in row for row in rows):
            constant[name] = masked[0][name]
        else:
            differing.append(name)
    return ComparedHyperparameters(masked, tuple(differing), constant)


def mask_hyperparameters(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Masks hyperparameters with the names of secrets, nested ones too; returns `values` if there is none."""
    masked = {name: mask_value(str(name), value) for name, value in values.items()}
    return masked if any(masked[name] is not value for name, value in values.items()) else values


def hyperparameter_identity(value: Any) -> Hashable:
    """Returns a key that is equal for equal values: 1 and 1.0 are, 1 and True are not, nor are 1 and "1"."""
    if isinstance(value, bool) or value is None:
        return (type(value).__name__, value)
    if isinstance(value, (int, float)):
        return ("number", "nan" if value != value else float(value) if abs(value) < 2**53 else value)
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return (type(value).__name__, text)


def user_args(hyperparameters: Iterable[HyperParameter], problems: list[Problem]) -> str:
    """Returns the hyperparameters as arguments: `--name value --name value`; adds to `problems`.

    An argument is quoted only if a shell would not read it literally. Plain values survive word splitting (`cmd
    $PAI_USER_ARGS`); `eval set -- $PAI_USER_ARGS` with the default IFS restores every value exactly, and so does
    `shlex.split`, except for values with a tab or a newline. Code should read PAI_HPS instead.
    """
    arguments = []
    for parameter in hyperparameters:
        if "\0" in parameter.name + parameter.value:
            problems.append(
                Problem(f"hyperparameters[{parameter.name!r}]", "contains a NUL character", "remove it")
            )
        arguments += [_quoted(f"--{parameter.name}"), _quoted(parameter.value)]
    return " ".join(arguments)


def _quoted(argument: str) -> str:
    if argument and all(character.isalnum() or character in _UNQUOTED_CHARACTERS for character in argument):
        return argument
    quoted = []
    previous = ""
    for character in argument:
        if character in _SPECIAL:
            quoted.append(_SPECIAL[character])
        elif character in _PATTERN_CHARACTERS or character == previous == " ":
            quoted.append("''" + character)
        else:
            quoted.append(character)
        previous = character
    return "'" + "".join(quoted) + "'"
