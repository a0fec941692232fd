"""Ports of a container: connections to it, and listeners in it.

connect: this process enters the network (root) ▶ a program in the image ▶ the address of the container ▶ refused
listen:  this process enters the network (root) ▶ refused
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pai_sdk._host.agent.tunnel import ports, pumps
from pai_sdk._host.agent.tunnel.streams import Stream
from pai_sdk._host.execution.docker.tunnel.exec_stream import STDERR
from pai_sdk._host.execution.docker.tunnel.handlers import control, engine_errors_refused, write_input
from pai_sdk._host.execution.docker.tunnel.instance_container import InstanceContainer
from pai_sdk._host.execution.docker.tunnel.namespaces import enter_network
from pai_sdk._host.execution.docker.tunnel.programs import ContainerProgram, ProgramSpec, script
from pai_sdk.errors import TunnelClosedError, TunnelRefusedError

_LOOPBACK = {"": "127.0.0.1", "127.0.0.1": "127.0.0.1", "localhost": "127.0.0.1", "::1": "::1"}
_CONNECT_TIMEOUT_S = 5.0


def serve_connect(container: InstanceContainer, stream: Stream) -> None:
    """Connects a stream with a port of the container. Called by a thread that does nothing after it."""
    if _enter(container):
        ports.connect(stream)
        return
    host, port = _host(container, stream.parameters), _port(stream.parameters)
    with engine_errors_refused():
        bridge = _Bridge(container, host, port)
    try:
        if bridge.state == "connected":
            bridge.serve(stream)
            return
    finally:
        bridge.close()
    if bridge.state == "refused":
        message = f"port {port} of the instance cannot be reached: nothing accepts connections there"
        raise TunnelRefusedError("ConnectionRefused", message)
    for address in _addresses(container):
        with suppress(OSError):
            connection = socket.create_connection((address, port), _CONNECT_TIMEOUT_S)
            connection.settimeout(None)
            stream.confirm({})
            pumps.join_socket(stream, connection)
            return
    message = (
        f"port {port} cannot be reached: the image has no python3, bash or nc to connect with, and nothing "
        "listens on the container's own address. Listen on 0.0.0.0, or add one of them to the image"
    )
    raise TunnelRefusedError("NotSupported", message)


def serve_listen(container: InstanceContainer, stream: Stream) -> None:
    """Listens in the container, and opens a stream for each connection, until the client closes this one."""
    if not _enter(container):
        message = "only root of the machine with the engine can listen in a container, and this is another user"
        raise TunnelRefusedError("NotSupported", message)
    ports.listen(stream)


def _enter(container: InstanceContainer) -> bool:
    """Moves this thread into the network of the container, if it may."""
    if container.process is None or not container.is_open_to_root:
        return False
    with suppress(OSError):
        enter_network(container.process, container.instance)
        return True
    # Root of a container itself, without the right to enter others.
    return False


class _Bridge:
    """A program in the container that is connected with a port; `state` is what it has reported."""

    def __init__(self, container: InstanceContainer, host: str, port: int) -> None:
        argv = ["/bin/sh", "-c", script("bridge.sh"), "sh", host, str(port)]
        self._program = ContainerProgram(container, ProgramSpec(argv, folder="/"))
        self._output = self._program.output()
        report = b""
        self._first = b""
        while not report.endswith(b"\n") and (message := next(self._output, None)):
            if message[0] == STDERR:
                report += message[1]
            else:
                self._first += message[1]
        self.state = report.decode(errors="replace").strip() or "missing"

    def serve(self, stream: Stream) -> None:
        """Copies in both directions, until both have ended or one has failed."""
        stream.confirm({})
        # For the end of the stream: `write_input` may wait for the program.
        stream.separate_events()
        threads = [
            pumps.start(control, stream, self._program, threading.Event()),
            pumps.start(write_input, stream, self._program),
        ]
        with suppress(OSError, TunnelClosedError):
            if self._first:
                stream.write(self._first)
            for source, chunk in self._output:
                if source != STDERR:
                    stream.write(chunk)
            stream.end()
        # The connection has ended: what the client still sends reaches nobody.
        stream.close()
        self._program.disconnect()
        for thread in threads:
            thread.join()

    def close(self) -> None:
        """Ends the program."""
        self._program.end()
        self._program.close()


def _host(container: InstanceContainer, parameters: Mapping[str, Any]) -> str:
    """Returns the address that a client wants to connect to; of the instance only."""
    host = parameters.get("host") or ""
    if host in _LOOPBACK:
        return _LOOPBACK[host]
    with engine_errors_refused():
        record = container.inspect()
    if host in (container.instance, record["Config"].get("Hostname")):
        return next(iter(_addresses(container)), "127.0.0.1")
    raise TunnelRefusedError("InvalidRequest", "a forward reaches the instance itself only, by the host localhost")


def _addresses(container: InstanceContainer) -> list[str]:
    with engine_errors_refused():
        networks = container.inspect()["NetworkSettings"].get("Networks") or {}
    return [each["IPAddress"] for each in networks.values() if each.get("IPAddress")]


def _port(parameters: Mapping[str, Any]) -> int:
    port = parameters.get("port", 0)
    if type(port) is not int or not 1 <= port <= 65535:
        raise TunnelRefusedError("InvalidRequest", "the port must be a number from 1 to 65535")
    return port
