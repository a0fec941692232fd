"""alipai's helpers; the use of another name names the replacement."""

from __future__ import annotations

import os
import re
import time

from pai_sdk.alipai.unsupported import unsupported_module

__all__ = ["camel_to_snake", "is_iterable", "name_from_base", "random_str", "snake_to_camel", "timestamp"]

__path__, __getattr__ = unsupported_module(__name__)

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


def random_str(n: int) -> str:
    """A random text of `n` lower-case letters and digits, for names that must be new.

    Example:
        >>> len(random_str(6))
        6
    """
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in os.urandom(n))


def timestamp(sep: str = "-", utc: bool = False) -> str:
    """The time as text, to the millisecond.

    Args:
        sep: between its parts.
        utc: in UTC; local time otherwise.
    """
    now = time.time()
    parts = time.strftime("%Y %m %d %H %M %S", time.gmtime(now) if utc else time.localtime(now))
    return sep.join([*parts.split(), f"{int(now * 1000) % 1000:03}"])


def name_from_base(base_name: str, sep: str = "-") -> str:
    """A name that begins with `base_name` and ends with the time and a few random letters."""
    return sep.join([base_name, time.strftime("%Y%m%d%H%M%S"), random_str(6)])


def camel_to_snake(name: str) -> str:
    """The name in snake case.

    Example:
        >>> camel_to_snake("TrainingJobId")
        'training_job_id'
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def snake_to_camel(name: str) -> str:
    """The name in camel case.

    Example:
        >>> snake_to_camel("training_job_id")
        'TrainingJobId'
    """
    return "".join(part.title() for part in name.split("_"))


def is_iterable(arg: object) -> bool:
    """True if a loop can be made over it."""
    try:
        iter(arg)  # type: ignore[call-overload]
    except TypeError:
        return False
    return True
