"""A service that opens tunnels into an instance, both in this process."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import IO

from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

from pai_sdk._client.api.transport import Transport
from pai_sdk._core.config.credentials import Credentials
from pai_sdk._core.endpoint import Endpoint
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._host.agent.tunnel.link import ResumableLink, SocketTransport
from pai_sdk._host.agent.tunnel.sessions import Sessions
from pai_sdk._host.agent.tunnel.streams import Stream, Tunnel
from pai_sdk.errors import TunnelClosedError
from tests.support.waiting import PATIENCE_S

Handler = Callable[[Stream], None]


class FakeInstance:
    """A running instance in this process; `handlers` serve the kinds of streams."""

    def __init__(self, **handlers: Handler) -> None:
        self.handlers: dict[str, Handler] = {"program": run_program, **handlers}
        self._sessions = Sessions(self._start_session, rejoin_s=2 * PATIENCE_S)
        self._connections: list[socket.socket] = []

    def connect(self) -> socket.socket:
        """Returns a new connection, as executors do."""
        near, far = socket.socketpair()
        self._connections.append(near)
        threading.Thread(target=self._sessions.serve, args=(SocketTransport(far),), daemon=True).start()
        return near

    def dial(self) -> SocketTransport:
        """Returns a new connection for a client without a service."""
        return SocketTransport(self.connect())

    def cut(self) -> None:
        """Closes all connections."""
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _start_session(self, link: ResumableLink, instance: str) -> None:
        tunnel = Tunnel(link, is_server=True, instance=instance)
        threading.Thread(target=self._serve, args=(tunnel,), daemon=True).start()

    def _serve(self, tunnel: Tunnel) -> None:
        with suppress(TunnelClosedError):
            while True:
                stream = tunnel.accept()
                handler = self.handlers.get(stream.kind)
                if handler is None:
                    stream.refuse("NotSupported", f"no {stream.kind}")
                else:
                    threading.Thread(target=handler, args=(stream,), daemon=True).start()


class FakeTunnelService:
    """Relays WebSockets to an instance; a test scripts refusals and cuts."""

    def __init__(self, **handlers: Handler) -> None:
        self.instance = FakeInstance(**handlers)
        self.refusal: tuple[int, str] | None = None  # the response to upgrades: status and code
        self.requests: list[Request] = []
        self.connections: list[ServerConnection] = []
        self._server = serve(
            self._relay,
            "127.0.0.1",
            0,
            compression=None,
            process_request=self._process_request,
            close_timeout=0.5,
        )
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> FakeTunnelService:
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self.cut()

    @property
    def endpoint(self) -> str:
        """The endpoint of the service."""
        return f"http://127.0.0.1:{self._server.socket.getsockname()[1]}"

    def transport(self, endpoint: str | Endpoint | None = None) -> Transport:
        """Returns the transport of a client."""
        retry = RetryPolicy(first_pause_s=0.01, deadline_s=1.0)
        key = Credentials("id", "secret")
        return Transport(endpoint or self.endpoint, lambda: key, version="2022-01-12", retry=retry)

    def cut(self) -> None:
        """Closes all connections without a close frame."""
        for connection in self.connections:
            with suppress(OSError):
                connection.socket.shutdown(socket.SHUT_RDWR)

    def close_all(self, code: int, reason: str = "") -> None:
        """Closes all WebSockets with a code."""
        for connection in self.connections:
            connection.close(code, reason)

    def _process_request(self, connection: ServerConnection, request: Request) -> Response | None:
        self.requests.append(request)
        if self.refusal is None:
            return None
        status, code = self.refusal
        response = connection.respond(HTTPStatus(status), json.dumps({"Code": code, "Message": "no"}))
        del response.headers["Content-Type"]
        response.headers["Content-Type"] = "application/json"
        response.headers["x-acs-request-id"] = "1"
        return response

    def _relay(self, connection: ServerConnection) -> None:
        self.connections.append(connection)
        transport = self.instance.dial()

        def down() -> None:
            with suppress(OSError, ConnectionClosed):
                while True:
                    connection.send(transport.receive(None))
            connection.close()

        threading.Thread(target=down, daemon=True).start()
        try:
            for message in connection:
                assert isinstance(message, bytes)
                transport.send(message)
        except (OSError, ConnectionClosed):
            pass
        finally:
            transport.close()


def run_program(stream: Stream) -> None:
    """Runs a program with pipes."""
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(stream.parameters["argv"], stdin=pipe, stdout=pipe, stderr=pipe)
    except FileNotFoundError as error:
        stream.refuse("NoSuchProgram", f"there is no program {error.filename!r} in the job")
        return
    stream.confirm({})
    with process:
        threads = [
            threading.Thread(target=_send_output, args=(stream, name, getattr(process, name)))
            for name in ("stdout", "stderr")
        ]
        for thread in threads:
            thread.start()
        threading.Thread(target=_receive_input, args=(stream, process), daemon=True).start()
        for thread in threads:
            thread.join()
        code = process.wait()
        with suppress(TunnelClosedError):
            stream.send_exit({"code": code} if code >= 0 else {"signal": -code})
        stream.close()


def _send_output(stream: Stream, name: str, pipe: IO[bytes]) -> None:
    with suppress(OSError, TunnelClosedError):
        while data := os.read(pipe.fileno(), 65536):
            stream.write(data, channel=name)


def _receive_input(stream: Stream, process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    try:
        while (message := stream.next_message()) is not None:
            name, content = message
            if name == "stdout":
                os.write(process.stdin.fileno(), content)
            elif name == "event" and "signal" in content:
                process.send_signal(getattr(signal, f"SIG{content['signal']}"))
            elif name == "end":
                process.stdin.close()
    except (OSError, ValueError, TunnelClosedError):
        pass
    process.kill()
