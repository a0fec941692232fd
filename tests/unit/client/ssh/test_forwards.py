"""Forwarded ports of OpenSSH in both directions, and what editors do with them."""

from __future__ import annotations

import re
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.waiting import PATIENCE_S
from tests.unit.client.ssh.conftest import ROOT, Host

BODY = bytes(range(256)) * 1000


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    request_queue_size = 200


@pytest.fixture(scope="module")
def web_port() -> Iterator[int]:
    with _Server(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def forwarding(host: Host, *options: str) -> Iterator[str]:
    """Runs a connection of its own with these options; yields what it printed while they were set up."""
    script = host.command(
        *options, "-o", "ExitOnForwardFailure=yes", "job.pai", "echo ready; read x", is_shared=False
    )
    with subprocess.Popen(
        script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        assert client.stderr is not None
        assert client.stdout.readline() == "ready\n"
        printed = client.stderr.readline() if "-R" in options else ""
        try:
            yield printed
        finally:
            client.stdin.close()
            client.wait(PATIENCE_S)


def fetch(port: int) -> bytes:
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request("GET", "/")
        return connection.getresponse().read()
    finally:
        connection.close()


def through_socks(proxy_port: int, host: str, port: int) -> socket.socket:
    """Connects through a SOCKS proxy, as editors do."""
    connection = socket.create_connection(("127.0.0.1", proxy_port), timeout=PATIENCE_S)
    connection.sendall(b"\x05\x01\x00")
    assert connection.recv(2) == b"\x05\x00"
    name = host.encode()
    connection.sendall(b"\x05\x01\x00\x03" + bytes([len(name)]) + name + struct.pack(">H", port))
    if connection.recv(10)[1:2] != b"\x00":
        connection.close()
        raise ConnectionRefusedError(host)
    return connection


def test_a_hundred_requests_at_once(host: Host, web_port: int) -> None:
    port = free_port()
    with forwarding(host, "-L", f"{port}:localhost:{web_port}"), ThreadPoolExecutor(100) as pool:
        bodies = [*pool.map(fetch, [port] * 100)]
    assert all(body == BODY for body in bodies)


def test_a_dynamic_forward_reaches_the_instance_only(host: Host, web_port: int) -> None:
    port = free_port()
    with forwarding(host, "-D", str(port)):
        with through_socks(port, "127.0.0.1", web_port) as connection:
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert b"".join(iter(lambda: connection.recv(65536), b"")).endswith(BODY)
        with pytest.raises((ConnectionError, AssertionError)):
            through_socks(port, "other.invalid", 80)


def test_half_closed_connections(host: Host) -> None:
    port = free_port()
    server = socket.create_server(("127.0.0.1", 0))
    with server, forwarding(host, "-L", f"{port}:127.0.0.1:{server.getsockname()[1]}"):
        near = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        far, _ = server.accept()
        with near, far:
            far.settimeout(PATIENCE_S)
            near.sendall(b"request")
            near.shutdown(socket.SHUT_WR)
            assert b"".join(iter(lambda: far.recv(100), b"")) == b"request"
            far.sendall(b"response")
            far.shutdown(socket.SHUT_WR)
            assert b"".join(iter(lambda: near.recv(100), b"")) == b"response"


def test_a_forward_that_nobody_reads_stops_no_other_one(host: Host, web_port: int) -> None:
    port, silent_port = free_port(), free_port()
    with socket.create_server(("127.0.0.1", 0)) as server:
        options = (
            "-L",
            f"{port}:localhost:{web_port}",
            "-L",
            f"{silent_port}:localhost:{server.getsockname()[1]}",
        )
        with forwarding(host, *options), socket.create_connection(("127.0.0.1", silent_port)) as near:
            far, _ = server.accept()
            with far:
                near.settimeout(1)
                with pytest.raises(TimeoutError):
                    near.sendall(bytes(64 << 20))
                assert fetch(port) == BODY


def test_ports_of_the_client_in_the_job(host: Host, web_port: int) -> None:
    with forwarding(host, "-R", f"0:localhost:{web_port}") as printed:
        match = re.search(r"Allocated port (\d+)", printed)
        assert match is not None
        with ThreadPoolExecutor(10) as pool:
            assert [*pool.map(fetch, [int(match[1])] * 20)] == [BODY] * 20
    with pytest.raises(OSError):
        fetch(int(match[1]))


def test_a_port_of_the_job_that_is_in_use(host: Host, web_port: int) -> None:
    options = ("-o", "ExitOnForwardFailure=yes", "-R", f"{web_port}:localhost:1")
    done = host.ssh(*options, "true", is_shared=False)
    assert done.returncode == 255
    assert b"remote port forwarding failed" in done.stderr


def test_what_is_refused_says_so_and_ends_nothing(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", ":0")
    done = host.ssh("-X", "-A", "echo still here $SSH_AUTH_SOCK", is_shared=False)
    assert done.stdout == b"still here\n"
    assert b"X11 forwarding request failed" in done.stderr


def test_an_editor_installs_its_server_and_reaches_it(host: Host) -> None:
    # As VS Code does: a script as the input of `bash`, `key==value` lines, a server on loopback, and SOCKS to it.
    program = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)\n"
        "while True: c, _ = s.accept(); c.sendall(c.recv(100).upper()); c.close()"
    )
    script = f"""
echo "start=={1}"
cat > {host.files}/server.py <<'END'
{program}
END
{sys.executable} {host.files}/server.py > {host.files}/port &
echo $! > {host.files}/server.pid
until [ -s {host.files}/port ]; do sleep 0.05; done
echo "port==$(cat {host.files}/port)"
echo "end==1"
exec sleep 1000
"""
    proxy_port = free_port()
    command = host.command("-T", "-D", str(proxy_port), "job.pai", "bash", is_shared=False)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write(script)
        client.stdin.flush()
        lines: dict[str, str] = {}
        while "end" not in lines:
            key, _, value = client.stdout.readline().strip().partition("==")
            lines[key] = value
        for _ in range(5):
            with through_socks(proxy_port, "127.0.0.1", int(lines["port"])) as connection:
                connection.sendall(b"hello")
                assert connection.recv(100) == b"HELLO"
        client.terminate()
        client.wait(PATIENCE_S)
