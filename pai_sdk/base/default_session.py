"""The default session, for packages below the one that makes it.

`pai_sdk/__init__.py` registers the provider, so it is there before any other module of the package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["given_or_default", "reference", "register"]


class _Provider(Protocol):
    def __call__(self, session: Any, *, local: bool) -> Any: ...


_providers: list[tuple[_Provider, Callable[[Any], Any]]] = []


def register(provider: _Provider, reference: Callable[[Any], Any]) -> None:
    """Set what gives the default session, and what gives a reference to a session."""
    _providers[:] = [(provider, reference)]


def given_or_default(session: Any = None, *, local: bool = False) -> Any:
    """The session that was given, or the default one (`pai_sdk.session.default.given_or_default`).

    Args:
        session: what the caller was given; None for the default session.
        local: for jobs in Docker on this machine: no service is started for them.

    Raises:
        InvalidInputError: `session` is not a session.
    """
    return _providers[0][0](session, local=local)


def reference(session: Any) -> Any:
    """What stands for a session in a pickle. `given_or_default` opens it, or says why that cannot be.

    Args:
        session: what was given; None for the default session. Without one yet, it is None, too.
    """
    return _providers[0][1](session)
