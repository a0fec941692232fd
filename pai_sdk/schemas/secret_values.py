"""Values that must not be seen: those whose name says so, and `Secret`, which is read when a job is submitted."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pai_sdk.errors import InvalidInputError, Problem

__all__ = [
    "MASK",
    "Secret",
    "looks_secret",
    "mask_value",
    "masked",
    "masked_command",
    "masked_spec",
    "with_secrets",
]

MASK = "******"

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
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
        """The same as `Secret(name)`."""
        return cls(name)

    @property
    def placeholder(self) -> str:
        """The text that plans and saved plans have in its place."""
        return f"${{secret:{self.name}}}"

    def __repr__(self) -> str:
        return f"Secret({self.name!r})"


def with_secrets(environments: Mapping[str, str] | None) -> dict[str, str] | None:
    """Environment variables of a request with the values of secrets, as they are sent.

    Raises:
        InvalidInputError: a variable that is named is not set on this machine; all of these are listed.

    Example:
        >>> with_secrets({"A": "1"})
        {'A': '1'}
    """
    if environments is None:
        return None
    problems, found = [], {}
    for name, value in environments.items():
        found[name] = value
        if match := _PLACEHOLDER.fullmatch(value):
            found[name] = os.environ.get(match[1], "")
            if not found[name]:
                what = f"is the secret {match[1]}, and this machine has no such variable"
                problems.append(Problem(f"environments[{name!r}]", what, f"set it: export {match[1]}=…"))
    if problems:
        raise InvalidInputError(problems)
    return found


def looks_secret(name: str, value: object = "") -> bool:
    """True where the name forbids to show a value. A number is a secret only under a name such as `password`.

    Example:
        >>> looks_secret("WANDB_API_KEY"), looks_secret("accessKeySecret"), looks_secret("max_token", 512)
        (True, True, False)
    """
    kind = _kind_of_name(name)
    return kind == "always" or (kind == "unless a number" and not _NUMBER.fullmatch(str(value)))


# Lists of runs ask for the same few names again and again.
@lru_cache(maxsize=4096)
def _kind_of_name(name: str) -> str:
    words = [word.lower() for word in _WORD.findall(name)]
    if _ALWAYS & {*words}:
        return "always"
    is_at_the_end = bool(words) and words[-1] in _AT_THE_END and not _OF_MODELS & {*words}
    return "unless a number" if is_at_the_end else ""


def masked(name: str, value: str) -> str:
    """The text of a value as it may be shown; in JSON text, the secrets within it are masked.

    Example:
        >>> masked("lr", "0.1"), masked("db_password", "hunter2"), masked("db", '{"password": "hunter2"}')
        ('0.1', '******', '{"password": "******"}')
    """
    shown: str = mask_value(name, value)
    return shown


def mask_value(name: str, value: Any) -> Any:
    """Returns a value as it may be shown: masked by its name, or with the secrets masked that it contains.

    Returns:
        `value` itself when it contains none.

    Example:
        >>> mask_value("db", [{"password": "hunter2", "port": 80}])
        [{'password': '******', 'port': 80}]
    """
    if isinstance(value, bool) or (isinstance(value, str | Mapping | list | tuple) and not value):
        return value
    if value is not None and looks_secret(name, value):
        return MASK
    if isinstance(value, Mapping):
        inner: Any = {key: mask_value(str(key), one) for key, one in value.items()}
        return inner if any(inner[key] is not one for key, one in value.items()) else value
    if isinstance(value, list | tuple):
        inner = [mask_value("", one) for one in value]
        return inner if any(new is not old for new, old in zip(inner, value, strict=True)) else value
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        return _masked_json(value)
    return value


def _masked_json(text: str) -> str:
    try:
        content = json.loads(text)
        shown = mask_value("", content)
        return text if shown is content else json.dumps(shown, ensure_ascii=False)
    except (ValueError, RecursionError):  # no JSON
        return text


def masked_command(text: str) -> str:
    """A command as it may be shown: without the values of options and variables whose names look secret.

    Example:
        >>> masked_command("HF_TOKEN=hf_abc python train.py --lr 0.1 --api-key abc")
        'HF_TOKEN=****** python train.py --lr 0.1 --api-key ******'
    """

    def shown(match: re.Match[str]) -> str:
        value = match["value"].strip("'\"")
        if value.startswith("$") or not looks_secret(match["name"], value):
            return match[0]
        return f"{match['name']}{match['between']}{MASK}"

    return _IN_COMMAND.sub(shown, text)


def masked_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an algorithm spec, as it is on the wire, with its command as it may be shown.

    Example:
        >>> masked_spec({"Command": ["sh", "-c", "python train.py --api-key abc"]})
        {'Command': ['sh', '-c', 'python train.py --api-key ******']}
    """
    shown = dict(spec)
    if isinstance(spec.get("Command"), list):
        shown["Command"] = [masked_command(word) if isinstance(word, str) else word for word in spec["Command"]]
    return shown
