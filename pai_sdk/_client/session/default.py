"""The default session of a process, used wherever no session is given; references to sessions, for pickles."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pai_sdk._client.session.session import Session
from pai_sdk._core.names.hints import wrong_type
from pai_sdk._core.names.keywords import shows_parameters_of
from pai_sdk._core.short_traceback import short_traceback
from pai_sdk.errors import InvalidInputError, Problem, SettingsError, WrongCallError

logger = logging.getLogger(__name__)

_default: Session | None = None
_open_default: Callable[[], Session] | None = None  # in place of environment and config file
# Held while the default session is opened: two threads that ask first share one session, and one embedded service.
_default_lock = threading.Lock()
_opening = threading.Lock()  # guards `_opened` of all references


@short_traceback
@shows_parameters_of(Session)
def setup_default_session(*position: Any, **settings: Any) -> Session:
    """Make a session and use it wherever no session is given.

    Args:
        position: `region_id` and `workspace_id`, as for `Session`.
        settings: all parameters of `Session`, by name.

    Raises:
        WrongCallError: a key is given by position.
        SettingsError: as for `Session`; the default session stays as it was.

    Example:
        >>> setup_default_session("cn-hangzhou", "12345", oss_bucket_name="models")
        <Session cn-hangzhou workspace=12345 bucket=models>
    """
    global _default
    if len(position) > 2 or str(*position[:1]).startswith(("LTAI", "STS.")):  # alipai takes a key first; not shown
        hint = "give a key by name: access_key_id=…, access_key_secret=…"
        raise WrongCallError(
            [Problem("setup_default_session()", "takes region_id and workspace_id by position", hint)]
        )
    session = Session(*position, **settings)
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
        if _default is None and _open_default is not None:
            _default = _open_default()
        if _default is None:
            session = Session()
            if session.settings.is_empty:
                if local:
                    return session
                logger.info("no region and no endpoint is set: jobs go to the embedded service")
                session = Session.embedded()
            _default = session
        return _default


@contextmanager
def default_session_from(open_session: Callable[[], Session]) -> Iterator[None]:
    """Replaces the default session within the block; `open_session` is called at its first use."""
    global _default, _open_default
    with _default_lock:
        before = _default, _open_default
        _default, _open_default = None, open_session
    try:
        yield
    finally:
        with _default_lock:
            _default, _open_default = before


@dataclass(frozen=True)
class SessionReference:
    """Opens a session on the same services in another process. The keys are those of that process."""

    region_id: str | None
    endpoint: str | None = None  # of the API, if it is not the region's
    oss_endpoint: str | None = None  # if it is not the region's
    embedded_in: str | None = None  # the folder of the embedded service; None for another service

    @classmethod
    def of(cls, session: Session) -> SessionReference:
        """Returns the reference to a session."""
        folder = session.embedded_folder
        if folder is not None:  # its port may be another one when the service is started again
            return cls(None, embedded_in=str(folder))
        settings = session.settings
        return cls(settings.region_id, settings.endpoint, settings.oss_endpoint)

    def open(self) -> Session:
        """Opens the session. No service is started, except the embedded one of the same folder."""
        # Threads that unpickle the same estimator share one session; the first one opens it.
        with _opening:
            opened: Session | None = vars(self).get("_opened")
            if opened is None:
                opened = vars(self)["_opened"] = self._open()
            return opened

    def _open(self) -> Session:
        if self.embedded_in is not None:
            if not Path(self.embedded_in).is_dir():
                raise SettingsError(
                    f"the pickled object uses the embedded service of the folder {self.embedded_in}, which is not "
                    "on this machine; make it here, with session="
                )
            return Session.embedded(self.embedded_in)
        session = _default or Session()
        if type(self).of(session) != self:
            raise SettingsError(
                f"the pickled object uses the services of {self._description()}, but this process is configured "
                f"for {type(self).of(session)._description()}; set up that default session here, or make the "
                "object here, with session="
            )
        return session

    def _description(self) -> str:
        if self.embedded_in is not None:
            return f"the embedded service in {self.embedded_in}"
        names = (self.region_id, self.endpoint, self.oss_endpoint)
        return ", ".join(name for name in names if name) or "no region"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_opened"}


def reference(session: Session | SessionReference | None) -> SessionReference | None:
    """Returns the reference that replaces a session in a pickle; for None, that of an existing default session."""
    used = _default if session is None else session
    return SessionReference.of(used) if isinstance(used, Session) else used


def session_or_default(session: Session | SessionReference | None, *, local: bool) -> Session:
    """Returns the argument (a reference is opened), or the default session, see `get_default_session`."""
    if isinstance(session, SessionReference):
        return session.open()
    if session is None:
        return get_default_session(local=local)
    if not hasattr(session, "backend_for"):
        raise InvalidInputError([wrong_type("session", session, "a Session or None")])
    return session
