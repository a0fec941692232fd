"""The socket of a service, and the address that its clients use."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Iterable

from pai_sdk._core.version import __version__
from pai_sdk._host.execution.base import ExecutorCapabilities
from pai_sdk._host.execution.node_connections import ServiceAddress
from pai_sdk._service.http.tls import Certificate
from pai_sdk._service.settings import ServiceInfo, ServiceSettings
from pai_sdk._service.state.folder import DataFolder, Keys
from pai_sdk.errors import ServiceStartError

_BACKLOG = 1024
_RETRY_INTERVAL_S = 0.1


def listen(settings: ServiceSettings, folder: DataFolder) -> socket.socket:
    """Returns a socket: on the requested port, else on the last one if it becomes free soon, else on any."""
    ports = [settings.port] if settings.port is not None else [folder.last_port() or 0, 0]
    deadline = time.monotonic() + (settings.pace.last_port_wait_s if settings.port is None else 0.0)
    for port in ports:
        while True:
            try:
                return _bound(settings.host, port)
            except OSError as error:
                problem = error
            if not port or problem.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                break
            time.sleep(_RETRY_INTERVAL_S)
    raise _start_error(settings.host, ports[-1], problem) from problem


def listen_on(host: str, port: int) -> socket.socket:
    """Returns a socket on that port, or on a free one for port 0."""
    try:
        return _bound(host, port)
    except OSError as error:
        raise _start_error(host, port, error) from error


def _start_error(host: str, port: int, error: OSError) -> ServiceStartError:
    choice = "address" if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL else "port"
    return ServiceStartError(
        f"{host}:{port} cannot be listened on: {error.strerror or error}; choose another {choice}"
    )


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def url_of(host: str, port: int, certificate: Certificate | None = None, names: Iterable[str] = ()) -> str:
    """Returns the URL that clients use for a server; its host is one that the certificate covers."""
    # Some clients accept no IPv6 address; a socket on `::` accepts IPv4 too.
    spoken = {"0.0.0.0": "127.0.0.1", "::": "127.0.0.1", "::1": "localhost"}  # noqa: S104 - compared, not bound
    host = spoken.get(host, host)
    if certificate is not None:
        host = certificate.name_for(host, [name.rpartition("://")[2] for name in names])
    scheme = "http" if certificate is None else "https"
    return f"{scheme}://{f'[{host}]' if ':' in host and not host.startswith('[') else host}:{port}"


def node_address(
    settings: ServiceSettings, listener: socket.socket, certificate: Certificate | None = None
) -> ServiceAddress:
    """Returns where nodes of a cluster connect to the service."""

    def fingerprint() -> str:
        # Asked anew for each connection: the certificate may have been renewed.
        return "" if certificate is None else certificate.fingerprint

    return ServiceAddress(settings.host, listener.getsockname()[1], tuple(settings.names), fingerprint)


def info_of(
    settings: ServiceSettings,
    folder: DataFolder,
    keys: Keys,
    listener: socket.socket,
    executor: ExecutorCapabilities,
    certificate: Certificate | None = None,
) -> ServiceInfo:
    """Returns the addresses and keys with which clients reach the service."""
    url = url_of(settings.host, listener.getsockname()[1], certificate, settings.names)
    return ServiceInfo(
        endpoint=url,
        oss_endpoint=url,
        region_id=settings.region_id,
        workspace_id=settings.workspace_id,
        bucket=settings.bucket,
        access_key_id=keys.access_key_id,
        access_key_secret=keys.access_key_secret,
        pid=os.getpid(),
        data_dir=folder.root,
        version=__version__,
        embedded=settings.embedded,
        executor=settings.executor,
        uses_images=executor.uses_images,
        certificate="" if certificate is None else str(certificate.certificate_file),
    )
