"""A pool of connections that a process never shares with its parent."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import Any

import requests
import requests.adapters
from urllib3.connection import HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool


class HandshakeError(ssl.SSLError):
    """Raised when TLS failed before the connection was established, so no request has been sent.

    requests raises the same `SSLError` for a failed handshake and for a broken record after the request was sent.
    Only the first can be retried safely, so the connection marks it.
    """


def stay_on_this_machine(session: requests.Session) -> None:
    """Disables proxies for a session to this machine; a CA named by the environment stays in use."""
    # Not by `no_proxy`: requests would set it in the environment of the process for a moment, and with several
    # threads it may stay there.
    session.trust_env = False
    session.verify = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or True


class PooledAdapter(requests.adapters.HTTPAdapter):
    """Keeps at most `size` idle connections per host; a child of a fork opens its own."""

    def __init__(self, *, hosts: int, size: int) -> None:
        super().__init__(pool_connections=hosts, pool_maxsize=size, max_retries=0)  # calls init_poolmanager
        # Parent and child have the same sockets. If both wrote into one, each would read responses meant for the
        # other.
        self._process = os.getpid()
        self._size = hosts, size
        self._inherited: list[
            object
        ] = []  # kept: cleaning them up needs their locks, which the parent may have held

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: float | tuple[float, float] | tuple[float, None] | None = None,
        verify: bool | str = True,
        cert: bytes | str | tuple[bytes | str, bytes | str] | None = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        """Sends a request over a connection of this process."""
        if self._process != os.getpid():
            self._reset()
        return super().send(request, stream, timeout, verify, cert, proxies)

    def init_poolmanager(self, *args: Any, **more: Any) -> None:
        """Creates the pool of the direct connections."""
        super().init_poolmanager(*args, **more)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **more: Any) -> Any:
        """Returns the pool of the connections through a proxy."""
        manager = super().proxy_manager_for(proxy, **more)
        # SOCKS proxies need their own connection class, so the pools stay as they are.
        if not proxy.lower().startswith("socks"):
            manager.pool_classes_by_scheme = _POOLS
        return manager

    def _reset(self) -> None:
        # Never closed here: the sockets belong to the parent too, and a clean-up needs locks that it may have
        # held.
        self._inherited += [self.poolmanager, self.proxy_manager]
        self.proxy_manager: dict[str, Any] = {}
        self.init_poolmanager(*self._size)
        self._process = os.getpid()


class TlsConnection(HTTPSConnection):
    """A connection of urllib3 that marks a failed handshake."""

    def connect(self) -> None:
        """Opens the connection; marks a failure of TLS as a HandshakeError."""
        try:
            super().connect()
        except ssl.SSLError as error:
            raise HandshakeError(*error.args) from error


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = TlsConnection


_POOLS = {"http": HTTPConnectionPool, "https": _TlsPool}
