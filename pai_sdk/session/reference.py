"""What of a session goes into a pickle: where its services are, and no keys."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pai_sdk.errors import SettingsError

if TYPE_CHECKING:
    from pai_sdk.session.session import Session

__all__ = ["SessionReference"]

_lock = threading.Lock()


@dataclass(frozen=True)
class SessionReference:
    """Opens a session on the same services in another process. The keys are those of that process.

    Attributes:
        region_id: of the services.
        endpoint: of the API, when it is not the region's.
        oss_endpoint: of the object storage, likewise.
        embedded_in: the folder of the embedded service; None for another one.

    Example:
        >>> SessionReference("cn-hangzhou")
        SessionReference(region_id='cn-hangzhou', endpoint=None, oss_endpoint=None, embedded_in=None)
    """

    region_id: str | None
    endpoint: str | None = None
    oss_endpoint: str | None = None
    embedded_in: str | None = None

    @classmethod
    def of(cls, session: Session) -> SessionReference:
        """The reference to a session."""
        folder = session.embedded_folder
        if folder is not None:  # its port may be another one when the service is started again
            return cls(None, embedded_in=str(folder))
        settings = session.settings
        return cls(settings.region_id, settings.endpoint, settings.oss_endpoint)

    def open(self) -> Session:
        """The session. No service is started, but the embedded one of the same folder.

        Raises:
            SettingsError: this process has no session on the same services.
        """
        with _lock:
            opened: Session | None = vars(self).get("_opened")
            if opened is None:
                opened = vars(self)["_opened"] = self._open()
            return opened

    def _open(self) -> Session:
        from pai_sdk.session.default import existing_default_session
        from pai_sdk.session.session import Session

        if self.embedded_in is not None:
            if not Path(self.embedded_in).is_dir():
                raise SettingsError(
                    f"the pickled object uses the embedded service of the folder {self.embedded_in}, which is not "
                    "on this machine; make it here, with session="
                )
            return Session.embedded(self.embedded_in)
        session = existing_default_session() or Session()
        if type(self).of(session) != self:
            raise SettingsError(
                f"the pickled object uses the services of {self._place()}, but this process is configured for "
                f"{type(self).of(session)._place()}; set up that default session here, or make the object here, "
                "with session="
            )
        return session

    def _place(self) -> str:
        if self.embedded_in is not None:
            return f"the embedded service in {self.embedded_in}"
        named = (self.region_id, self.endpoint, self.oss_endpoint)
        return ", ".join(name for name in named if name) or "no region"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_opened"}
