"""TCP between a tunnel and the loopback of an instance, in both directions. Standard library only."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

from pai_sdk._host.agent.tunnel import pumps
from pai_sdk._host.agent.tunnel.streams import Stream
from pai_sdk.errors import TunnelClosedError, TunnelRefusedError

_CONNECT_S = 10.0
_LOOPBACK = {"127.0.0.1": ["127.0.0.1"], "::1": ["::1"]}
_BOTH = ["127.0.0.1", "::1"]


def connect(stream: Stream) -> None:
    """Serves a stream of the kind `connect`: a connection to a port of the instance."""
    host, port = stream.parameters.get("host", "localhost"), _port(stream, minimum=1)
    names = {"localhost", "", socket.gethostname(), stream.tunnel.instance}
    addresses = _LOOPBACK.get(host) if isinstance(host, str) else None
    if addresses is None and host in names:
        addresses = _BOTH
    if not addresses:
        raise TunnelRefusedError(
            "InvalidRequest", f"only ports of the instance itself can be reached, and not {host!r}"
        )
    connection = _connected(addresses, port)
    stream.confirm({})
    pumps.join_socket(stream, connection)


def listen(stream: Stream) -> None:
    """Serves a stream of the kind `listen`: a port of the instance, whose connections the client gets."""
    port = _port(stream, minimum=0)
    try:
        listener = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise TunnelRefusedError("PortInUse", f"port {port} of the instance: {_reason(error)}") from error
    with listener:
        stream.confirm({"port": listener.getsockname()[1], "listener": stream.number})
        accepting = pumps.start(_accept, listener, stream)
        with suppress(TunnelClosedError):
            while stream.next_message() is not None:
                pass
        # Wakes `accept`.
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        accepting.join()


def _accept(listener: socket.socket, stream: Stream) -> None:
    with suppress(OSError):
        while True:
            connection, peer = listener.accept()
            try:
                pumps.start(_serve, connection, f"{peer[0]}:{peer[1]}", stream)
            except TunnelRefusedError:
                connection.close()


def _serve(connection: socket.socket, peer: str, listening: Stream) -> None:
    _send_at_once(connection)
    try:
        stream = listening.tunnel.open("accepted", listener=listening.number, peer=peer)
    except (TunnelRefusedError, TunnelClosedError):
        # Reset, as by a port on which nobody listens.
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.close()
        return
    pumps.join_socket(stream, connection)


def _connected(addresses: list[str], port: int) -> socket.socket:
    failure: OSError | None = None
    for address in addresses:
        try:
            connection = socket.create_connection((address, port), timeout=_CONNECT_S)
        except OSError as error:
            failure = failure or error
        else:
            connection.settimeout(None)
            _send_at_once(connection)
            return connection
    message = f"port {port} of the instance: {_reason(failure) if failure else 'not reached'}"
    raise TunnelRefusedError("ConnectionRefused", message) from failure


def _reason(error: OSError) -> str:
    # `strerror` of `create_server` repeats the address.
    return os.strerror(error.errno) if error.errno else str(error)


def _send_at_once(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _port(stream: Stream, *, minimum: int) -> int:
    port = stream.parameters.get("port")
    if type(port) is not int or not minimum <= port < 1 << 16:
        raise TunnelRefusedError("InvalidRequest", "the port is not a number of a port")
    return port
