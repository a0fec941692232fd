"""The two backends of a session, each made when it is first needed."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from pai_sdk.base.retry import RetryPolicy
from pai_sdk.config.credentials import CredentialsProvider
from pai_sdk.config.settings import Settings
from pai_sdk.errors import LocalRunError

if TYPE_CHECKING:
    from pai_sdk.backend.local import LocalBackend
    from pai_sdk.backend.service import ServiceBackend


class Backends:
    """Makes each backend once, also when several threads need it, and closes the backends made.

    Args:
        settings: where.
        credentials: gives the key that is valid now.
        retry: the policy for everything that goes over the network.
        find_again: see `ServiceBackend`.
    """

    def __init__(
        self,
        settings: Settings,
        credentials: CredentialsProvider,
        retry: RetryPolicy,
        find_again: Callable[[], str | None],
    ) -> None:
        self._settings = settings
        self._credentials = credentials
        self._retry = retry
        self._find_again = find_again
        self._lock = threading.Lock()
        self._service: ServiceBackend | None = None
        self._local: LocalBackend | None = None

    @property
    def service(self) -> ServiceBackend:
        """The service of the settings.

        Raises:
            SettingsError: it is not said which.
        """
        with self._lock:
            if self._service is None:
                from pai_sdk.backend.service import ServiceBackend

                self._service = ServiceBackend(
                    self._settings, self._credentials, retry=self._retry, find_again=self._find_again
                )
            return self._service

    @property
    def local(self) -> LocalBackend:
        """Docker on this machine; it asks for the service only when a job has files in OSS.

        Raises:
            LocalRunError: this is Windows.
        """
        if sys.platform == "win32":
            raise LocalRunError(
                "local jobs do not run on Windows; submit them in WSL or on a Linux machine,"
                " or give another instance_type"
            )
        with self._lock:
            if self._local is None:
                from pai_sdk.backend.local import LocalBackend

                self._local = LocalBackend(files=lambda: self.service.files())
            return self._local

    def close(self) -> None:
        """Close all connections. A closed backend is made again when needed."""
        with self._lock:
            made, self._service, self._local = (self._service, self._local), None, None
        for backend in made:
            if backend is not None:
                backend.close()
