"""Connections that nodes of a cluster open to the service, each for one request with a token of its own."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from pai_sdk.errors import TunnelRefusedError

NOT_REACHABLE = "NotReachable"
"""The code of a refusal that no later attempt changes."""

WAIT_S = 14.0
"""How long a node may take to connect."""

_POLL_INTERVAL_S = 0.2  # for refusals; a connection is noticed at once
_WILDCARDS = ("", "0.0.0.0", "::")  # noqa: S104 - compared, not bound
_ANY_PORT = 9
_LOOPBACK_ONLY = (
    "the service listens on {} only, so the node {} cannot connect to it; start the service so that nodes reach "
    "it: pai-sdk serve --host 0.0.0.0 --data FOLDER"
)
_NO_SERVICE = "the executor belongs to no service that nodes could connect to"


@dataclass(frozen=True)
class ServiceAddress:
    """Where a service listens.

    Attributes:
        host: the address it is bound to.
        port: its port.
        names: further names of its machine.
        fingerprint: returns SHA-256 of its certificate in hexadecimal; "" without TLS.
    """

    host: str
    port: int
    names: tuple[str, ...] = ()
    fingerprint: Callable[[], str] = lambda: ""


class Expected:
    """A connection that a node was asked for; `_ready` is set once it has arrived."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self._ready = threading.Event()
        self._connection: socket.socket | None = None

    def wait(self, failure: Callable[[], dict[str, str] | None], *, timeout_s: float = WAIT_S) -> socket.socket:
        """Returns the connection.

        Args:
            failure: returns the code and the message with which the node has refused.
            timeout_s: after which it raises TimeoutError.

        Raises:
            TunnelRefusedError: the node has refused.
        """
        deadline = time.monotonic() + timeout_s
        while not self._ready.wait(_POLL_INTERVAL_S):
            refusal = failure()
            if refusal is not None:
                raise TunnelRefusedError(refusal["code"], refusal["message"])
            if time.monotonic() > deadline:
                raise TimeoutError("its node has not connected in time")
        connection, self._connection = self._connection, None
        if connection is None:
            raise ConnectionError("the connection was lost")
        return connection

    def set(self, connection: socket.socket) -> None:
        """Passes the connection to the waiting thread."""
        self._connection = connection
        self._ready.set()

    def abandon(self) -> None:
        """Closes a connection that nobody has taken."""
        if self._connection is not None:
            self._connection.close()


class NodeConnections:
    """The connections that are expected, by the digest of their token; `_lock` guards them."""

    def __init__(self) -> None:
        self.service: ServiceAddress | None = None
        self._lock = threading.Lock()
        self._expected: dict[bytes, Expected] = {}

    @contextmanager
    def expect(self, node_address: str) -> Iterator[Expected]:
        """Expects a connection of a node during the block.

        Raises:
            TunnelRefusedError: `NotReachable`, if the node cannot connect to this service.
        """
        addresses, service = self._addresses(node_address), self.service
        token = secrets.token_urlsafe(32)
        request = {
            "token": token,
            "addresses": addresses,
            "fingerprint": service.fingerprint() if service else "",
            "expires_at": time.time() + WAIT_S,
        }
        expected, digest = Expected(request), _digest(token)
        with self._lock:
            self._expected[digest] = expected
        try:
            yield expected
        finally:
            with self._lock:
                self._expected.pop(digest, None)
            expected.abandon()

    def accept(self, token: str) -> socket.socket | None:
        """Returns the service's end of an expected connection; None if the token is unknown, used or expired."""
        digest = _digest(token)
        with self._lock:
            # All are compared, so that the time says nothing about any of them.
            matches = [known for known in self._expected if hmac.compare_digest(known, digest)]
            if not matches:
                return None
            expected = self._expected.pop(matches[0])
            near, far = socket.socketpair()
            expected.set(far)
        return near

    def _addresses(self, node_address: str) -> list[list[Any]]:
        """Returns the addresses by which a node may reach this service, the likeliest first."""
        service = self.service
        if service is None:
            raise TunnelRefusedError(NOT_REACHABLE, _NO_SERVICE)
        if service.host not in _WILDCARDS:
            if _is_loopback(service.host) and not is_local(node_address):
                raise TunnelRefusedError(NOT_REACHABLE, _LOOPBACK_ONLY.format(service.host, node_address))
            return [[service.host, service.port]]
        source = source_address(node_address)
        plain = [name for name in service.names if "://" not in name and name not in _WILDCARDS]
        return [[host, service.port] for host in dict.fromkeys([*([source] if source else []), *plain])]


def source_address(peer: str) -> str | None:
    """Returns the address of this machine by which it is seen at `peer`; None without a route."""
    with suppress(OSError):
        family, kind, protocol, _, address = socket.getaddrinfo(peer, _ANY_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            # Sends nothing: connect of a datagram socket only chooses the local address.
            probe.connect(address)
            name: str = probe.getsockname()[0]
            return name
    return None


def is_local(address: str) -> bool:
    """Returns whether an address is one of this machine."""
    return _is_loopback(address) or source_address(address) == address


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
