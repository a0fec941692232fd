"""The default session, for packages below the one that makes it: `pai_sdk/__init__.py` passes it to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["given_or_default", "reference", "register"]

_provider: list[Callable[[], Any]] = []


def register(provider: Callable[[], Any]) -> None:
    """Set the function that gives the module of the default session, which has the functions below, too."""
    _provider[:] = [provider]


def given_or_default(session: Any = None, *, local: bool = False) -> Any:
    """The session that was given, or the default one (`pai_sdk.session.default.given_or_default`).

    Args:
        session: what the caller was given; None for the default session.
        local: for jobs in Docker on this machine: no service is started for them.

    Raises:
        InvalidInputError: `session` is not a session.
    """
    return _provider[0]().given_or_default(session, local=local)


def reference(session: Any) -> Any:
    """The reference that replaces a session in a pickle. `given_or_default` opens it.

    Args:
        session: what was given; None for the default session. Without one yet, it is None, too.
    """
    return _provider[0]().reference(session)
