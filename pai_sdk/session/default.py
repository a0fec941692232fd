"""The default session of a process, used wherever no session is given."""

from __future__ import annotations

import logging
import threading
from typing import Any

from pai_sdk.base.hints import wrong_type
from pai_sdk.base.keywords import shows_parameters_of
from pai_sdk.errors import InvalidInputError
from pai_sdk.session.reference import SessionReference
from pai_sdk.session.session import Session

logger = logging.getLogger(__name__)

_default: Session | None = None
_default_lock = threading.Lock()


@shows_parameters_of(Session)
def setup_default_session(
    region_id: str | None = None, workspace_id: str | None = None, **settings: Any
) -> Session:
    """Make a session and use it wherever no session is given.

    Args:
        region_id: as for `Session`.
        workspace_id: as for `Session`.
        settings: the other parameters of `Session`, by name.

    Raises:
        SettingsError: as for `Session`; the default session stays as it was.

    Example:
        >>> setup_default_session("cn-hangzhou", "12345", oss_bucket_name="models")
        <Session cn-hangzhou workspace=12345 bucket=models>
    """
    global _default
    session = Session(region_id, workspace_id, **settings)
    with _default_lock:
        _default = session
    return session


def get_default_session(*, local: bool = False) -> Session:
    """The default session; made from environment and config file at the first call.

    Where nothing at all is configured, it is the embedded service: that needs no account.

    Args:
        local: for jobs in Docker on this machine: no service is started for them.

    Raises:
        SettingsError: a setting in environment or file is malformed.
        ServiceStartError: nothing is configured, and the embedded service does not come up.

    Example:
        >>> get_default_session(local=True)
        <Session ? workspace=? bucket=?>
    """
    global _default
    with _default_lock:
        if _default is None:
            session = Session()
            if session.settings.region_id is None and session.settings.endpoint is None:
                if local:
                    return session
                logger.info("no region and no endpoint is set: jobs go to the embedded service")
                session = Session.embedded()
            _default = session
        return _default


def existing_default_session() -> Session | None:
    """The default session, if there is one already; none is made."""
    return _default


def reference(session: Session | SessionReference | None) -> SessionReference | None:
    """What stands for a session in a pickle; for None, the default session, if there is one already."""
    found = _default if session is None else session
    return SessionReference.of(found) if isinstance(found, Session) else found


def given_or_default(session: Session | SessionReference | None, *, local: bool) -> Session:
    """The session given, or the default one.

    Args:
        session: what was given; a reference is opened.
        local: as for `get_default_session`.

    Raises:
        InvalidInputError: what was given is no session.
        SettingsError: it is a reference to services that this process has no session for.
    """
    if isinstance(session, SessionReference):
        return session.open()
    if session is None:
        return get_default_session(local=local)
    if not hasattr(session, "backend_for"):
        raise InvalidInputError([wrong_type("session", session, "give a Session, or leave it out")])
    return session
