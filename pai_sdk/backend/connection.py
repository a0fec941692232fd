"""Settings, keys, the retry policy and the client of the object storage, which the backends of a session share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pai_sdk.base.endpoint import Endpoint, host_of
from pai_sdk.base.paths import EMBEDDED_SERVICE_DIR
from pai_sdk.base.retry import RetryPolicy
from pai_sdk.config.credentials import CredentialsProvider
from pai_sdk.config.settings import Settings

if TYPE_CHECKING:
    from pai_sdk.storage.oss.client import OssClient

__all__ = ["JOB_SETTINGS", "Connection", "HasFiles"]

JOB_SETTINGS = ("region_id", "workspace_id", "oss_bucket_name")
"""The settings that a job of Alibaba Cloud's service needs."""


class HasFiles(Protocol):
    """A session, as far as it is needed here."""

    def files(self) -> OssClient:
        """The client of its object storage."""

    def close(self) -> None:
        """Close its connections."""


class Connection:
    """Settings and keys of a session. Safe to use from several threads.

    Args:
        settings: where.
        credentials: gives the key that is valid now.
        retry: the policy for everything that goes over the network.
        find_again: see `ServiceBackend`.

    Attributes:
        uses_images: whether the service runs jobs in their images, as far as that is known.
        embedded_dir: the folder of the embedded service that this is the connection to; None for another service.
        open_embedded: opens a session on the embedded service of a folder, and starts the service if need be.
    """

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
        self.find_again = find_again
        self.uses_images = True
        self.embedded_dir: Path | None = None
        self.open_embedded: Callable[[Path], HasFiles] | None = None
        self._embedded: dict[Path, HasFiles] = {}
        self._lock = threading.Lock()  # guards what follows; not held while the service is started again
        self._oss_endpoint: Endpoint | None = None
        self._oss: OssClient | None = None

    def require_endpoint(self) -> None:
        """Check that it is set which service is meant.

        Raises:
            SettingsError: neither an endpoint nor a region is set; what else a job needs is named with it.
        """
        if not self.settings.endpoint and not self.settings.region_id:
            self.settings.require(*JOB_SETTINGS)

    def files(self) -> OssClient:
        """The client of the object storage. The embedded service, which keeps it, is started again if need be.

        Raises:
            SettingsError: it is not set where the objects are.
        """
        self.require_endpoint()
        with self._lock:
            endpoint = self._oss_endpoint = self._oss_endpoint or Endpoint(self.settings.oss_url, self.find_again)
        endpoint.revive()
        with self._lock:
            if self._oss is None:
                from pai_sdk.storage.oss.client import OssClient  # loads oss2

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
        """Whether API and objects have one address: the names of buckets have none there."""
        endpoint = self.settings.endpoint
        return endpoint is not None and host_of(endpoint) == host_of(self.settings.oss_url)

    def files_of_local_jobs(self, embedded_dir: Path | None = None) -> OssClient:
        """The client of the object storage that local jobs read and write.

        Where nothing is configured, `oss://` is that of the embedded service, if there is one on this machine:
        other jobs run there, too.

        Args:
            embedded_dir: the embedded service that a job was submitted with; it may be another one than that of
                this session.

        Raises:
            SettingsError: as for `files`.
        """
        is_configured = self.settings.endpoint or self.settings.region_id
        used = Path(EMBEDDED_SERVICE_DIR).expanduser()
        folder = embedded_dir or (used if not is_configured and used.is_dir() else None)
        if folder is None or folder == self.embedded_dir or self.open_embedded is None:
            return self.files()
        with self._lock:
            if folder not in self._embedded:
                self._embedded[folder] = self.open_embedded(folder)
            return self._embedded[folder].files()

    def close(self) -> None:
        """Close the connections to the object storage; the next call of `files` makes new ones."""
        with self._lock:
            client, self._oss = self._oss, None
            embedded, self._embedded = [*self._embedded.values()], {}
        for session in embedded:
            session.close()
        if client is not None:
            client.close()
