"""The default session, for packages below the one that makes it.

`pai_sdk/__init__.py` registers the provider, so it is there before any other module of the package.
"""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["given_or_default", "register"]


class _Provider(Protocol):
    def __call__(self, session: Any, *, local: bool) -> Any: ...


_providers: list[_Provider] = []


def register(provider: _Provider) -> None:
    """Set what gives the default session."""
    _providers[:] = [provider]


def given_or_default(session: Any = None, *, local: bool = False) -> Any:
    """The session that was given, or the default one (`pai_sdk.session.default.given_or_default`).

    Args:
        session: what the caller was given; None for the default session.
        local: for jobs in Docker on this machine: no service is started for them.

    Raises:
        InvalidInputError: `session` is not a session.
    """
    return _providers[0](session, local=local)
