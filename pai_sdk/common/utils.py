"""Helpers by the names that code written for alipai imports."""

from __future__ import annotations

import secrets
import string

__all__ = ["random_str"]


def random_str(n: int) -> str:
    """A random text of `n` lower-case letters and digits, for names that must be new.

    Example:
        >>> len(random_str(6))
        6
    """
    return "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(n))
