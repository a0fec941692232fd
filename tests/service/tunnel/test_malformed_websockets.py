"""Clients that speak the protocol of WebSockets badly: each loses its connection, and the service goes on."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from pai_sdk._service import standby
from pai_sdk._service.http_server import HttpServer
from pai_sdk._service.settings import ConnectionLimits
from tests.service.services import Client, running_service
from tests.service.tunnel.test_tunnel_memory import raw_tunnel
from tests.service.tunnel.tunnelling import TunnelledExecutor, running_job, tunnel
from tests.support.waiting import PATIENCE_S

HEAD = "Host: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
KEY = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with running_service(tmp_path_factory.mktemp("service") / "data", TunnelledExecutor()) as client:
        yield client


@pytest.fixture(scope="module")
def job_id(operator: Client) -> str:
    return running_job(operator)


def read_to_end(end: socket.socket) -> bytes:
    """All that the service sends until it closes the connection."""
    end.settimeout(PATIENCE_S)
    data = bytearray()
    with suppress(ConnectionResetError):
        while part := end.recv(1 << 16):
            data += part
    return bytes(data)


@pytest.mark.parametrize(
    ("request_line", "headers", "status"),
    [
        ("GET / HTTP/1.1", HEAD + KEY, 401),
        ("GET /openapi.json HTTP/1.1", HEAD + KEY, 401),
        ("GET /ui/ HTTP/1.1", HEAD + KEY, 401),
        ("POST / HTTP/1.1", HEAD + KEY, 405),
        ("GET / HTTP/1.1", HEAD, 400),
        ("GET / HTTP/1.1", HEAD + KEY.replace("13", "7"), 400),
        ("GET / HTTP/1.1", HEAD + KEY + "X: " + "x" * 20_000 + "\r\n", 400),
        ("GET / HTTP/1.1", HEAD + KEY + "".join(f"X-{n}: 1\r\n" for n in range(300)), 400),
        ("GET / HTTP/1.1", HEAD + KEY + "Content-Length: 5\r\n", 400),
    ],
)
def test_a_request_that_opens_nothing_gets_a_response(
    operator: Client, request_line: str, headers: str, status: int
) -> None:
    address = urlsplit(operator.info.endpoint)
    with socket.create_connection((address.hostname, address.port), PATIENCE_S) as end:
        end.sendall(f"{request_line}\r\n{headers}\r\n".encode())
        assert int(read_to_end(end).split()[1]) in (status, 400)  # earlier releases of websockets


@pytest.mark.parametrize(
    "sent",
    [
        b"\x82\x05hello",  # without a mask
        b"\x83\x80\0\0\0\0",  # an unknown kind of frame
        b"\xf2\x80\0\0\0\0",  # bits of an extension
        b"\x80\x80\0\0\0\0",  # the rest of nothing
        b"\x82\xff" + b"\xff" * 12,  # of 2⁶⁴ bytes
        b"\x02\x81\0\0\0\0a\x82\x81\0\0\0\0b",  # a message within another one
        b"\x89\xff" + (1000).to_bytes(8, "big") + bytes(1004),  # a long ping
        b"\x88\x81\0\0\0\0a",  # half a code
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        random.Random(1).randbytes(100_000),
        random.Random(2).randbytes(100_000),
    ],
)
def test_bytes_that_are_no_frame_end_the_connection(operator: Client, job_id: str, sent: bytes) -> None:
    with raw_tunnel(operator, job_id) as end:
        with suppress(OSError):
            end.sendall(sent)
            end.shutdown(socket.SHUT_WR)
        read_to_end(end)
    with tunnel(operator, job_id) as websocket:
        websocket.send(b"still there")
        assert websocket.recv(PATIENCE_S) == b"still there"


def test_a_standby_responds_to_it_as_to_any_request(client_of_standby: tuple[str, int]) -> None:
    with socket.create_connection(client_of_standby, PATIENCE_S) as end:
        end.sendall(f"GET /api/v1/trainingjobs HTTP/1.1\r\n{HEAD}{KEY}\r\n".encode())
        end.settimeout(PATIENCE_S)
        head = end.recv(1 << 16).lower()
        assert head.startswith(b"http/1.1 503")
        assert b"retry-after: 1" in head


@pytest.fixture
def client_of_standby() -> Iterator[tuple[str, int]]:
    """The address of a server as a standby has it."""
    ready = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = HttpServer(standby._refuse, ConnectionLimits(), on_end=lambda: None)
        server.on_ready = ready.set
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        assert ready.wait(PATIENCE_S)
        yield listener.getsockname()
        server.should_exit = True
        thread.join(PATIENCE_S)
