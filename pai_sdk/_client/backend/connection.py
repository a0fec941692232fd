"""Settings, keys, retry policy and object storage client, which the backends of a session share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pai_sdk._core.config.credentials import CredentialsProvider
from pai_sdk._core.config.settings import Settings
from pai_sdk._core.endpoint import Endpoint, host_of
from pai_sdk._core.paths import EMBEDDED_SERVICE_DIR
from pai_sdk._core.retry import RetryPolicy

if TYPE_CHECKING:
    from pai_sdk._data.storage.oss.client import OssClient

JOB_SETTINGS = ("region_id", "workspace_id", "oss_bucket_name")
"""The settings that a job of Alibaba Cloud's service needs."""


class HasFiles(Protocol):
    """Methods of a session that a connection calls."""

    def files(self) -> OssClient:
        """Returns the client of its object storage."""

    def close(self) -> None:
        """Closes its connections."""


class Connection:
    """Settings and keys of a session. Thread-safe."""

    def __init__(
        self,
        settings: Settings,
        credentials: CredentialsProvider,
        retry: RetryPolicy | None = None,
        find_again: Callable[[], str | None] | None = None,
    ) -> None:
        self.settings = settings
        self.credentials = credentials
        self.retry = retry or RetryPolicy()
        # Returns the endpoint of the service if it has moved; see `ServiceBackend`.
        self.find_again = find_again
        self.uses_images = True  # the service runs jobs in their images, as far as the session knows
        # The data folder, if this is the connection to an embedded service.
        self.embedded_dir: Path | None = None
        # Opens a session on the embedded service of a folder; starts the service if necessary.
        self.open_embedded: Callable[[Path], HasFiles] | None = None
        self._embedded: dict[Path, HasFiles] = {}
        # Guards the fields below; released while the service is restarted, which takes seconds.
        self._lock = threading.Lock()
        self._oss_endpoint: Endpoint | None = None
        self._oss: OssClient | None = None

    def require_endpoint(self) -> None:
        """Checks that the settings select a service; the error lists all settings that a job needs."""
        if not self.settings.endpoint and not self.settings.region_id:
            self.settings.require(*JOB_SETTINGS)

    def files(self) -> OssClient:
        """Returns the client of the object storage; restarts the embedded service, which serves it, if needed."""
        self.require_endpoint()
        with self._lock:
            endpoint = self._oss_endpoint = self._oss_endpoint or Endpoint(self.settings.oss_url, self.find_again)
        # Without the lock: this may start the service, which takes seconds.
        endpoint.revive()
        with self._lock:
            if self._oss is None:
                from pai_sdk._data.storage.oss.client import OssClient  # loads oss2

                self._oss = OssClient(
                    endpoint,
                    self.credentials,
                    region=self.settings.region_id,
                    path_style=self._is_single_host,
                    retry=self.retry,
                    trusted_endpoints=self.settings.trusted_endpoints,
                )
            return self._oss

    @property
    def _is_single_host(self) -> bool:
        """Returns True if API and objects have one address: buckets have no host names then."""
        endpoint = self.settings.endpoint
        return endpoint is not None and host_of(endpoint) == host_of(self.settings.oss_url)

    def files_of_local_jobs(self, embedded_dir: Path | None = None) -> OssClient:
        """Returns the client of the object storage of local jobs; `embedded_dir` is that of the submission."""
        # Without a configured service, `oss://` is that of the local embedded service, if there is one: other jobs
        # of this machine use it too. A job may have been submitted with another service than that of this session.
        is_configured = self.settings.endpoint or self.settings.region_id
        default_dir = Path(EMBEDDED_SERVICE_DIR).expanduser()
        folder = embedded_dir or (default_dir if not is_configured and default_dir.is_dir() else None)
        if folder is None or folder == self.embedded_dir or self.open_embedded is None:
            return self.files()
        with self._lock:
            if folder not in self._embedded:
                self._embedded[folder] = self.open_embedded(folder)
            return self._embedded[folder].files()

    def close(self) -> None:
        """Closes the connections to the object storage; the next call of `files` opens new ones."""
        with self._lock:
            client, self._oss = self._oss, None
            embedded, self._embedded = [*self._embedded.values()], {}
        # Outside of the lock: close() of a session may wait for transfers.
        for session in embedded:
            session.close()
        if client is not None:
            client.close()
