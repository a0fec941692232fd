"""The socket of a service, and the address that its clients use."""

from __future__ import annotations

import errno
import os
import socket
import time

from pai_sdk.base.version import __version__
from pai_sdk.errors import ServiceStartError
from pai_sdk.service.settings import ServiceInfo, ServiceSettings
from pai_sdk.service.state.folder import DataFolder, Keys

__all__ = ["info_of", "listen", "listen_on"]

_BACKLOG = 1024
_LAST_PORT_WAIT_S = 3.0  # clients know the last port: another process may be about to free it
_LOOK_S = 0.1


def listen(settings: ServiceSettings, folder: DataFolder) -> socket.socket:
    """The socket: on the port that was asked for, else on the last one if it comes free soon, else on any.

    Raises:
        ServiceStartError: the port that was asked for is taken, or the address is not one of this machine.
    """
    ports = [settings.port] if settings.port is not None else [folder.last_port() or 0, 0]
    deadline = time.monotonic() + (_LAST_PORT_WAIT_S if settings.port is None else 0.0)
    for port in ports:
        while True:
            try:
                return _bound(settings.host, port)
            except OSError as error:
                fault = error
            if not port or fault.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                break
            time.sleep(_LOOK_S)
    raise _taken(settings.host, ports[-1], fault) from fault


def listen_on(host: str, port: int) -> socket.socket:
    """The socket on that port, or on a free one for port 0.

    Raises:
        ServiceStartError: the port is taken, or the address is not one of this machine.
    """
    try:
        return _bound(host, port)
    except OSError as error:
        raise _taken(host, port, error) from error


def _taken(host: str, port: int, fault: OSError) -> ServiceStartError:
    wrong = "address" if isinstance(fault, socket.gaierror) or fault.errno == errno.EADDRNOTAVAIL else "port"
    return ServiceStartError(
        f"{host}:{port} cannot be listened on: {fault.strerror or fault}; choose another {wrong}"
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


def info_of(settings: ServiceSettings, folder: DataFolder, keys: Keys, listener: socket.socket) -> ServiceInfo:
    """What clients need to know."""
    # Clients take no IPv6 address; `::` listens on IPv4 too.
    names = {"0.0.0.0": "127.0.0.1", "::": "127.0.0.1", "::1": "localhost"}  # noqa: S104 - compared, not bound
    host = names.get(settings.host, settings.host)
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    url = f"http://{host}:{listener.getsockname()[1]}"
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
    )
