"""Masks secrets, by their names; and `Secret`, whose value is read when a job is submitted."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

from pai_sdk.errors import InvalidInputError, Problem

MASK = "******"

_NAME_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_ALWAYS = frozenset(
    ("password", "passwd", "pwd", "passphrase", "secret", "secrets", "credential", "credentials", "apikey")
)
# Names of language models have these words too, such as `max_token` and `pad_token`.
_AT_THE_END = frozenset(("token", "key"))
_OF_MODELS = frozenset(
    ("pad", "eos", "bos", "unk", "sep", "cls", "mask", "image", "special", "stop", "start", "end", "per", "sort")
)
_NUMBER = re.compile(r"[-+]?[\d.]+(?:e[-+]?\d+)?|true|false|none|null", re.IGNORECASE)
# `NAME=value`, or an option and its value. A name begins where its word begins: each word is tried once.
_IN_COMMAND = re.compile(
    r"(?<![\w-])(?P<name>(?P<option>--?)?[\d-]*[^\W\d][\w-]*)(?P<between>=|(?(option)\s+|(?!)))"
    r"(?P<value>'[^']*'|\"[^\"]*\"|[^\s'\";|&$-][^\s;|&]*)"
)
_PLACEHOLDER = re.compile(r"\$\{secret:([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True)
class Secret:
    """The value of an environment variable of a job, read from a variable of this machine at submit time.

    It is in no plan, saved plan, repr or log; only the request that is sent has it, and the job.

    Attributes:
        name: the variable of this machine.

    Example:
        >>> from pai_sdk import Estimator
        >>> Estimator("python:3.11", "python train.py", environments={"HF_TOKEN": Secret("HF_TOKEN")}).environments
        {'HF_TOKEN': Secret('HF_TOKEN')}
    """

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _PLACEHOLDER.fullmatch(self.placeholder):
            # The value is not shown: the secret itself may have been given in place of its name.
            hint = "give the name of a variable: Secret('HF_TOKEN')"
            raise InvalidInputError([Problem("Secret", "this is not the name of an environment variable", hint)])

    @classmethod
    def from_env(cls, name: str) -> Secret:
        """Returns `Secret(name)`."""
        return cls(name)

    @property
    def placeholder(self) -> str:
        """The text that plans and saved plans have in its place."""
        return f"${{secret:{self.name}}}"

    def __repr__(self) -> str:
        return f"Secret({self.name!r})"


def with_secrets(environments: Mapping[str, str] | None) -> dict[str, str] | None:
    """Returns environment variables of a request with the values of secrets, as they are sent."""
    if environments is None:
        return None
    problems, values = [], {}
    for name, value in environments.items():
        values[name] = value
        if match := _PLACEHOLDER.fullmatch(value):
            values[name] = os.environ.get(match[1], "")
            if not values[name]:
                problem = f"is the secret {match[1]}, but this environment variable is not set"
                problems.append(Problem(f"environments[{name!r}]", problem, f"set it: export {match[1]}=…"))
    if problems:
        raise InvalidInputError(problems)
    return values


def is_secret_name(name: str, value: object = "") -> bool:
    """Returns True if a value must be masked. A number is a secret only under a name such as `password`."""
    kind = _kind_of_name(name)
    return kind == "always" or (kind == "unless a number" and not _NUMBER.fullmatch(str(value)))


# Lists of runs check the same few names for every run.
@lru_cache(maxsize=4096)
def _kind_of_name(name: str) -> str:
    parts = [word.lower() for word in _NAME_PART.findall(name)]
    if _ALWAYS & {*parts}:
        return "always"
    is_at_the_end = bool(parts) and parts[-1] in _AT_THE_END and not _OF_MODELS & {*parts}
    return "unless a number" if is_at_the_end else ""


def masked(name: str, value: str) -> str:
    """Masks a value by its name; in JSON text, masks the secrets within it."""
    text: str = mask_value(name, value)
    return text


def mask_value(name: str, value: Any) -> Any:
    """Masks a value by its name, or the secrets that it contains; returns `value` itself if it contains none."""
    if isinstance(value, bool) or (isinstance(value, str | Mapping | list | tuple) and not value):
        return value
    if value is not None and is_secret_name(name, value):
        return MASK
    if isinstance(value, Mapping):
        inner: Any = {key: mask_value(str(key), item) for key, item in value.items()}
        return inner if any(inner[key] is not item for key, item in value.items()) else value
    if isinstance(value, list | tuple):
        inner = [mask_value("", item) for item in value]
        return inner if any(new is not old for new, old in zip(inner, value, strict=True)) else value
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        return _masked_json(value)
    return value


def _masked_json(text: str) -> str:
    try:
        content = json.loads(text)
        masked_content = mask_value("", content)
        return text if masked_content is content else json.dumps(masked_content, ensure_ascii=False)
    except (ValueError, RecursionError):  # no JSON
        return text


def masked_command(text: str) -> str:
    """Masks the values of options and variables of a command whose names are those of secrets."""

    def replacement(match: re.Match[str]) -> str:
        value = match["value"].strip("'\"")
        if value.startswith("$") or not is_secret_name(match["name"], value):
            return match[0]
        return f"{match['name']}{match['between']}{MASK}"

    return _IN_COMMAND.sub(replacement, text)


def masked_arguments(arguments: Sequence[Any]) -> list[Any]:
    """Masks the secrets in the arguments of a command, also where an option and its value are two arguments."""
    public = [masked_command(argument) if isinstance(argument, str) else argument for argument in arguments]
    for number, (option, value) in enumerate(pairwise(arguments)):
        is_option = isinstance(option, str) and isinstance(value, str) and re.fullmatch(r"--?[\w.-]+", option)
        if is_option and not value.startswith(("-", "$")) and is_secret_name(option, value):
            public[number + 1] = MASK
    return public


def masked_roles(roles: Sequence[Any]) -> list[Any]:
    """Returns roles, as they are on the wire, with masked commands."""
    return [masked_spec(role) if isinstance(role, Mapping) else role for role in roles]


def masked_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an algorithm spec, as it is on the wire, with a masked command."""
    public = dict(spec)
    if isinstance(spec.get("Command"), list):
        public["Command"] = masked_arguments(spec["Command"])
    return public
