"""Ports and sockets of an instance: connections into it, and out of it to the client."""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pai_sdk._host.agent.tunnel import pumps
from pai_sdk._host.agent.tunnel.streams import Stream, Tunnel
from pai_sdk.errors import TunnelRefusedError
from tests.support.tunnels import INSTANCE, RunningTunnel
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tunnels enter Linux processes")


@contextmanager
def echoing(
    family: socket.AddressFamily = socket.AF_INET, address: object = ("127.0.0.1", 0)
) -> Iterator[socket.socket]:
    """A server that sends back what it gets, and says goodbye after the end of it."""
    with socket.socket(family) as listener:
        listener.bind(address)
        listener.listen(200)

        def serve(connection: socket.socket) -> None:
            with connection:
                while data := connection.recv(65536):
                    connection.sendall(data)
                connection.sendall(b"goodbye")

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                pumps.start(serve, connection)

        thread = pumps.start(accept)
        yield listener
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def read_all(stream: Stream) -> bytes:
    content = b""
    while data := stream.read():
        content += data
    return content


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", socket.gethostname()])
def test_a_connection_with_half_close(tunnel: Tunnel, host: str) -> None:
    with echoing() as listener, tunnel.open("connect", host=host, port=listener.getsockname()[1]) as stream:
        stream.write(b"hello ")
        stream.end()
        assert read_all(stream) == b"hello goodbye"


def test_the_name_of_the_instance_is_a_host(running: RunningTunnel) -> None:
    with running.open(lambda: running.dial(INSTANCE)) as tunnel, echoing() as listener:
        stream = tunnel.open("connect", host=INSTANCE, port=listener.getsockname()[1])
        stream.end()
        assert read_all(stream) == b"goodbye"


@pytest.mark.parametrize(
    ("host", "port", "code"),
    [
        ("example.com", 80, "InvalidRequest"),
        ("169.254.169.254", 80, "InvalidRequest"),
        ("127.0.0.1.example.com", 80, "InvalidRequest"),
        ("0.0.0.0", 80, "InvalidRequest"),
        (7, 80, "InvalidRequest"),
        ("localhost", 0, "InvalidRequest"),
        ("localhost", 65536, "InvalidRequest"),
        ("localhost", "80", "InvalidRequest"),
        ("localhost", 1, "ConnectionRefused"),
    ],
)
def test_connections_that_are_refused(tunnel: Tunnel, host: object, port: object, code: str) -> None:
    with pytest.raises(TunnelRefusedError) as caught:
        tunnel.open("connect", host=host, port=port)
    assert caught.value.code == code


def test_a_hundred_connections_at_once(tunnel: Tunnel) -> None:
    with echoing() as listener:
        port = listener.getsockname()[1]
        streams = [tunnel.open("connect", host="localhost", port=port) for _ in range(100)]
        for number, stream in enumerate(streams):
            stream.write(b"%d " % number * 1000)
        for stream in streams:
            stream.end()
        for number, stream in enumerate(streams):
            assert read_all(stream) == b"%d " % number * 1000 + b"goodbye"


def test_a_connection_that_is_reset(tunnel: Tunnel) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stream = tunnel.open("connect", port=listener.getsockname()[1])
        connection, _ = listener.accept()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.close()
        assert stream.read() == b""
        # And the other way round.
        stream = tunnel.open("connect", port=listener.getsockname()[1])
        connection, _ = listener.accept()
        stream.close()
        connection.settimeout(PATIENCE_S)
        assert connection.recv(1) == b""
        connection.close()


def test_connections_to_a_listening_port_arrive_at_the_client(tunnel: Tunnel) -> None:
    listening = tunnel.open("listen", port=0)
    port = listening.result["port"]

    def answer() -> None:
        for _ in range(2):
            stream = tunnel.accept(PATIENCE_S)
            assert stream.kind == "accepted"
            assert stream.parameters["listener"] == listening.result["listener"]
            stream.write(b"from the client: " + stream.read())
            stream.end()

    answering = threading.Thread(target=answer)
    answering.start()
    for number in range(2):
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
            connection.sendall(b"%d" % number)
            connection.shutdown(socket.SHUT_WR)
            assert connection.makefile("rb").read() == b"from the client: %d" % number
    answering.join()
    with pytest.raises(TunnelRefusedError) as caught:
        tunnel.open("listen", port=port)
    assert caught.value.code == "PortInUse"
    listening.close()
    until(lambda: is_refused(port), "the end of the port")


def is_refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S).close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:
        pass
    return False


def test_a_client_that_refuses_a_connection(tunnel: Tunnel) -> None:
    listening = tunnel.open("listen", port=0)
    refusing = threading.Thread(
        target=lambda: tunnel.accept(PATIENCE_S).refuse("ConnectionRefused", "nothing listens")
    )
    refusing.start()
    connection = socket.create_connection(("127.0.0.1", listening.result["port"]), timeout=PATIENCE_S)
    with connection, pytest.raises(ConnectionResetError):
        connection.recv(1)
    refusing.join()
    listening.close()


# ---- unix sockets and stacks ------------------------------------------------------------------------------


def test_a_socket_of_the_instance(tunnel: Tunnel, running: RunningTunnel) -> None:
    path = running.folder / "debugger.sock"
    with echoing(socket.AF_UNIX, str(path)):
        for name in (str(path), "debugger.sock"):
            stream = tunnel.open("socket", path=name)
            stream.write(b"hello ")
            stream.end()
            assert read_all(stream) == b"hello goodbye"
    path.unlink()
    with pytest.raises(TunnelRefusedError) as caught:
        tunnel.open("socket", path=str(path))
    assert caught.value.code == "NotFound"


def test_sockets_outside_of_the_instance(tunnel: Tunnel, running: RunningTunnel) -> None:
    (running.folder / "link").unlink(missing_ok=True)  # of the first run, if this is another one
    (running.folder / "link").symlink_to("/run")
    for path in ("/run/docker.sock", "../" * 12 + "run/x", "link/x", "/var/run/x", ""):
        with pytest.raises(TunnelRefusedError) as caught:
            tunnel.open("socket", path=path)
        assert caught.value.code == "InvalidRequest"


def test_a_socket_with_a_long_path(tunnel: Tunnel) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        deep = Path(folder) / ("a" * 150)
        deep.mkdir()
        descriptor = os.open(deep, os.O_PATH)
        with echoing(socket.AF_UNIX, f"/proc/self/fd/{descriptor}/s"):
            stream = tunnel.open("socket", path=str(deep / "s"))
            stream.end()
            assert read_all(stream) == b"goodbye"
        os.close(descriptor)


def test_stacks_of_an_instance(tunnel: Tunnel) -> None:
    stream = tunnel.open("stacks", native=False, timeout_s=20)
    content = json.loads(read_all(stream))
    assert stream.wait_exit(20) == 0
    assert len(content["processes"]) == 1
