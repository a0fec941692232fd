"""The default session, for packages below `pai_sdk.session`; `pai_sdk/__init__.py` registers it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_provider: list[Callable[[], Any]] = []


def register(provider: Callable[[], Any]) -> None:
    """Sets the function that returns the module of the default session, which also has the functions below."""
    _provider[:] = [provider]


def session_module() -> Any:
    """Returns the module of the default session; the first call loads it, with half of the package."""
    return _provider[0]()


def session_or_default(session: Any = None, *, local: bool = False) -> Any:
    """Returns the session, or the default one for None (`pai_sdk._client.session.default.session_or_default`)."""
    # `local`: for jobs in Docker on this machine; no service is started for them.
    return _provider[0]().session_or_default(session, local=local)


def reference(session: Any) -> Any:
    """Returns the reference that replaces a session in a pickle; `session_or_default` resolves it."""
    # `session` is None for the default session; if that does not exist yet, the result is None too.
    return _provider[0]().reference(session)
