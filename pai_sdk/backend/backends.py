"""The backends of a session, each made when it is first needed."""

from __future__ import annotations

import sys
import threading
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from pai_sdk.backend.connection import Connection
from pai_sdk.backend.places import LOCAL, SERVICE, BackendSpec
from pai_sdk.errors import LocalRunError

if TYPE_CHECKING:
    from pai_sdk.backend.local import LocalBackend
    from pai_sdk.backend.service import ServiceBackend


class Backends:
    """Makes each backend once, also when several threads need it, and closes the backends made.

    The backends know nothing of each other; they share the connection.

    Attributes:
        connection: what they are made from.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._lock = threading.Lock()
        self._backends: dict[str, Any] = {}

    def at(self, spec: BackendSpec) -> Any:
        """The backend of a place; a class of `Backend`.

        Raises:
            LocalRunError: the place is not on this platform.
            SettingsError: it is not said which service.
        """
        if reason := spec.not_on.get(sys.platform):
            raise LocalRunError(reason)
        with self._lock:
            if spec.name not in self._backends:
                self._backends[spec.name] = resolve_name(spec.backend).open(self.connection)
            return self._backends[spec.name]

    @property
    def service(self) -> ServiceBackend:
        """The service of the settings, with what only a service has: algorithms, experiments, images."""
        return self.at(SERVICE)  # type: ignore[no-any-return]

    @property
    def local(self) -> LocalBackend:
        """Docker on this machine; it needs the settings only when a job has files in OSS."""
        return self.at(LOCAL)  # type: ignore[no-any-return]

    def close(self) -> None:
        """Close all connections. A closed backend is made again when needed."""
        with self._lock:
            backends, self._backends = [*self._backends.values()], {}
        for backend in backends:
            backend.close()
        self.connection.close()
