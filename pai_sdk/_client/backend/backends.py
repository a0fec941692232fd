"""The backends of a session, each created at its first use."""

from __future__ import annotations

import sys
import threading
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from pai_sdk._client.backend.connection import Connection
from pai_sdk._client.backend.specs import LOCAL, SERVICE, BackendSpec
from pai_sdk._core.names.lazy_names import load_modules
from pai_sdk.errors import LocalRunError

if TYPE_CHECKING:
    from pai_sdk._client.backend.local import LocalBackend
    from pai_sdk._client.backend.service import ServiceBackend


class Backends:
    """Creates each backend once, also with concurrent callers, and closes all; they share the connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._lock = threading.Lock()
        self._backends: dict[str, Any] = {}

    def at(self, spec: BackendSpec) -> Any:
        """Returns the backend of a kind, which implements `Backend`; refuses platforms that do not support it."""
        # Before the import of the module, which may need what this platform lacks.
        if reason := spec.not_on.get(sys.platform):
            raise LocalRunError(reason)
        # Creating a backend opens no connection, so other threads wait only briefly.
        with self._lock:
            if spec.name not in self._backends:
                backend = load_modules(lambda: resolve_name(spec.backend))
                self._backends[spec.name] = backend.open(self.connection)
            return self._backends[spec.name]

    @property
    def service(self) -> ServiceBackend:
        """Returns the backend of the service, which also has algorithms, experiments and images."""
        return self.at(SERVICE)  # type: ignore[no-any-return]

    @property
    def local(self) -> LocalBackend:
        """Returns the backend for local Docker; it uses the settings only if a job has files in OSS."""
        return self.at(LOCAL)  # type: ignore[no-any-return]

    def close(self) -> None:
        """Closes all connections. The next use creates a new backend."""
        with self._lock:
            backends, self._backends = [*self._backends.values()], {}
        for backend in backends:
            backend.close()
        self.connection.close()
