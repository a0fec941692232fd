"""Ports of a running instance on this machine, and the reverse."""

from __future__ import annotations

import logging
import os
import selectors
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from pai_sdk._client.tunnel.opening import JobTunnel, reason_of
from pai_sdk._core.names.hints import wrong_value
from pai_sdk._host.agent.tunnel.streams import Stream
from pai_sdk.errors import InvalidInputError, PaiError, Problem, TunnelError, TunnelRefusedError

_log = logging.getLogger(__name__)

_LOOPBACK = "127.0.0.1"
_CHUNK_BYTES = 1 << 16
_MAX_PORT = 65_535
_POLL_S = 0.5
_CONNECT_TIMEOUT_S = 10.0
# Closes a connection by RST, so that its client sees an error instead of an empty response.
_RESET = struct.pack("ii", 1, 0)


PortSpec: TypeAlias = "int | str | tuple[int, int]"


@dataclass(frozen=True)
class ForwardedPort:
    """A port of this machine and the port of the instance that belongs to it."""

    local: int
    remote: int

    def __str__(self) -> str:
        return f"{self.local}:{self.remote}"


def parse_ports(ports: Any, *, reverse: bool = False) -> list[ForwardedPort]:
    """Parses ports: a number, `LOCAL:REMOTE` or a pair of numbers, or a list of these.

    Raises:
        InvalidInputError: a value is none of these; the error lists all.
    """
    is_single = isinstance(ports, int | str | ForwardedPort | tuple) or not isinstance(ports, Iterable)
    values = [ports] if is_single else [*ports]
    problems, parsed = [], list[ForwardedPort]()
    for value in values:
        port = _parse_port(value, reverse)
        if port is None:
            listening = "REMOTE" if reverse else "LOCAL"
            expected = f"a port (6006) or LOCAL:REMOTE ('8888:80'), of which only {listening} may be 0"
            problems.append(wrong_value("ports", value, expected))
        else:
            parsed.append(port)
    if not values:
        problems.append(Problem("ports", "is empty", "give at least one port"))
    if problems:
        raise InvalidInputError(problems)
    return parsed


def _parse_port(value: Any, reverse: bool) -> ForwardedPort | None:
    if isinstance(value, ForwardedPort):
        return value
    if isinstance(value, str):
        local, colon, remote = value.partition(":")
        value = (local, remote if colon else local)
    elif isinstance(value, int):
        value = (value, value)
    try:
        local_number, remote_number = (int(part) for part in value if not isinstance(part, bool))
    except (TypeError, ValueError):
        return None
    port = ForwardedPort(local_number, remote_number)
    listening, target = (port.remote, port.local) if reverse else (port.local, port.remote)
    # Only the side that listens may have 0, for any free port.
    return port if 0 <= listening <= _MAX_PORT and 1 <= target <= _MAX_PORT else None


class PortForward:
    """Open port forwards, until `close()` or the end of a `with` block.

    Attributes:
        instance: the full name of the instance.
        ports: the ports, in the order of the arguments, each with `local` and `remote`; a requested 0 is replaced
            by the port in use.

    Example:
        >>> def count(job: TrainingJob) -> bytes:
        ...     with job.forward(6006) as forward:
        ...         return urlopen(f"http://127.0.0.1:{forward.ports[0].local}/").read()
    """

    def __init__(
        self,
        tunnel: JobTunnel,
        ports: Sequence[ForwardedPort],
        *,
        reverse: bool = False,
        on_error: Callable[[str], object] = _log.warning,
        reenter: Callable[[PaiError, threading.Event], JobTunnel] | None = None,
    ) -> None:
        self.instance = tunnel.instance
        self._tunnel = tunnel
        self._on_error = on_error
        self._reenter = reenter
        self._is_closed = threading.Event()
        self._closing = threading.Lock()
        self._cleanup = ExitStack()
        self._error: PaiError | None = None
        try:
            direction = _Reverse if reverse else _Forward
            self._direction = direction(tunnel, ports, self._cleanup, self._is_closed, on_error)
        except BaseException:
            self.close()
            raise
        self.ports: tuple[ForwardedPort, ...] = self._direction.ports
        threading.Thread(target=self._serve, name="pai-forward", daemon=True).start()

    def __enter__(self) -> PortForward:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed.is_set() else "open"
        return f"<PortForward {' '.join(map(str, self.ports))} {state}>"

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the forwards are closed; returns False after `timeout` seconds.

        Raises:
            PaiError: the job has finished, or the connection to it was lost.
        """
        is_closed = self._is_closed.wait(timeout)
        if self._error is not None:
            raise self._error
        return is_closed

    def close(self) -> None:
        """Closes the ports and all connections. May be called repeatedly."""
        self._is_closed.set()
        with self._closing:  # the thread that accepts connections closes too, when the tunnel has ended
            self._cleanup.close()
        self._tunnel.close()

    def _serve(self) -> None:
        try:
            while not self._is_closed.is_set():
                try:
                    self._direction.serve()
                except PaiError as error:
                    if self._reenter is None or self._is_closed.is_set():
                        raise
                    # The end of the job is raised by `wait`.
                    if getattr(reason := reason_of(error), "code", "") == "AttemptEnded":
                        self._on_error(str(reason))
                    # Connections of this machine wait until then.
                    self._tunnel = self._reenter(error, self._is_closed)
                    self._direction.enter(self._tunnel)
        except PaiError as error:
            if not self._is_closed.is_set():
                self._error = reason_of(error)
        except (OSError, ValueError):  # of a listener or a selector that was closed
            if not self._is_closed.is_set():
                raise
        finally:
            self.close()


class _Direction:
    """One direction of port forwards."""

    def __init__(
        self,
        tunnel: JobTunnel,
        ports: Sequence[ForwardedPort],
        cleanup: ExitStack,
        is_closed: threading.Event,
        on_error: Callable[[str], object],
    ) -> None:
        self._tunnel = tunnel
        self._cleanup = cleanup
        self._is_closed = is_closed
        self._on_error = on_error
        self.ports = tuple(self._bind(port) for port in ports)

    def _bind(self, port: ForwardedPort) -> ForwardedPort:
        raise NotImplementedError

    def enter(self, tunnel: JobTunnel) -> None:
        """Continues with another tunnel."""
        self._tunnel = tunnel

    def serve(self) -> None:
        """Accepts connections until the forwards are closed."""
        raise NotImplementedError


class _Forward(_Direction):
    """Listens on this machine, and connects in the instance."""

    def _bind(self, port: ForwardedPort) -> ForwardedPort:
        if not hasattr(self, "_selector"):
            self._selector = self._cleanup.enter_context(selectors.DefaultSelector())
        try:
            listener = self._cleanup.enter_context(socket.create_server((_LOOPBACK, port.local), backlog=128))
        except OSError as error:
            hint = f"give another local port, such as 0:{port.remote} for any free one"
            message = f"cannot listen on port {port.local} of this machine: {_reason(error)}"
            raise InvalidInputError([Problem("ports", message, hint)]) from error
        listener.setblocking(False)
        bound = ForwardedPort(listener.getsockname()[1], port.remote)
        self._selector.register(listener, selectors.EVENT_READ, bound)
        return bound

    def serve(self) -> None:
        """Accepts connections until the forwards are closed."""
        while not self._is_closed.is_set():
            self._tunnel.check()
            for key, _ in self._selector.select(_POLL_S):
                with suppress(BlockingIOError):
                    connection, _ = key.fileobj.accept()  # type: ignore[union-attr]
                    connection.setblocking(True)
                    _start(self._connect, connection, key.data)

    def _connect(self, connection: socket.socket, port: ForwardedPort) -> None:
        try:
            stream = self._tunnel.open("connect", host="localhost", port=port.remote)
        except PaiError as error:
            is_refusal = isinstance(error, TunnelRefusedError)  # names the port
            self._on_error(str(error) if is_refusal else f"port {port.remote} of the job: {error}")
            _reset(connection)
            return
        relay(connection, stream)


class _Reverse(_Direction):
    """Listens in the instance, and connects on this machine."""

    def _bind(self, port: ForwardedPort) -> ForwardedPort:
        if not hasattr(self, "_ports"):
            self._ports: dict[int, ForwardedPort] = {}
        try:
            listener = self._tunnel.open("listen", port=port.remote)
        except TunnelRefusedError as error:
            hint = f"give another port of the job, such as {port.local}:0 for any free one"
            message = f"cannot listen on {error}"
            raise InvalidInputError([Problem("ports", message, hint)]) from error
        self._cleanup.callback(listener.close)
        bound = ForwardedPort(port.local, _bound_port(listener.result, port.remote))
        self._ports[listener.number] = bound
        return bound

    def enter(self, tunnel: JobTunnel) -> None:
        """Continues with another tunnel, in whose instance nothing listens yet."""
        super().enter(tunnel)
        self._ports.clear()
        self.ports = tuple(self._bind(port) for port in self.ports)

    def serve(self) -> None:
        """Accepts connections until the forwards are closed."""
        while not self._is_closed.is_set():
            with suppress(TimeoutError):
                stream = self._tunnel.accept(_POLL_S)
                # The job selects only among the ports that this forward has opened.
                number = stream.parameters.get("listener")
                port = self._ports.get(number) if isinstance(number, int) else None
                if port is None:
                    stream.refuse("NotFound", "there is no such listener")
                else:
                    _start(self._connect, stream, port)

    def _connect(self, stream: Stream, port: ForwardedPort) -> None:
        try:
            connection = socket.create_connection((_LOOPBACK, port.local), _CONNECT_TIMEOUT_S)
        except OSError as error:
            self._on_error(f"port {port.local} of this machine: {_reason(error)}")
            with suppress(PaiError):
                stream.refuse("ConnectionRefused", f"nothing listens on port {port.local} of the client")
            return
        connection.settimeout(None)
        relay(connection, stream)


def _reason(error: OSError) -> str:
    # `strerror` of `create_server` repeats the address.
    return os.strerror(error.errno) if error.errno else str(error)


def _bound_port(result: dict[str, Any], requested: int) -> int:
    number = result.get("port")
    return number if isinstance(number, int) else requested


def relay(connection: socket.socket, stream: Stream) -> None:
    """Copies bytes in both directions until both have ended; closes connection and stream."""

    def send() -> None:
        try:
            while data := connection.recv(_CHUNK_BYTES):
                stream.write(data)
            stream.end()
        except (OSError, TunnelError):
            stream.close()

    with suppress(OSError):  # reset by its client already
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sender = _start(send)
    try:
        while data := stream.read():
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        sender.join()
        connection.close()
    except (OSError, TunnelError):
        _reset(connection)  # wakes up the sender
    finally:
        stream.close()


def _reset(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        # Wakes a thread that reads. SHUT_WR would send a regular end first, as that of a complete response.
        connection.shutdown(socket.SHUT_RD)
    connection.close()


def _start(function: Callable[..., None], *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=function, args=arguments, name="pai-forward-relay", daemon=True)
    thread.start()
    return thread
