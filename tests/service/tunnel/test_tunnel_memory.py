"""The memory of a service, with clients and jobs that send without an end and read nothing."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from pai_sdk._service.settings import ServiceInfo
from tests.service.services import Client
from tests.service.tunnel.tunnelling import running_job, signed_headers
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.slow

MOST_GROWTH_KIB = 8 << 10
ROOT = Path(__file__).resolve().parents[3]
OPENING = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}
MASK = bytes(4)
LARGE = b"\x82\xff" + (64 << 10).to_bytes(8, "big") + MASK + bytes(64 << 10)
EMPTY = b"\x82\x80" + MASK
PING = b"\x89\x80" + MASK
EMPTY_PARTS = b"\x00\x80" + MASK


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Client]]:
    """A process with a service, whose jobs send without an end and read nothing."""
    data_dir = tmp_path_factory.mktemp("service") / "data"
    program = [sys.executable, "-m", "tests.service.tunnel.silent_service", str(data_dir)]
    with subprocess.Popen(program, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        info = ServiceInfo(**json.loads(process.stdout.readline()))
        yield process.pid, Client(info)
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0


def rss_kib(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(re.findall(r"VmRSS:\s+(\d+)", text)[0])


def raw_tunnel(client: Client, job_id: str) -> socket.socket:
    """An open WebSocket, as a socket of which nothing more is read."""
    url = f"{client.info.endpoint}/api/v1/trainingjobs/{job_id}/instances/first/tunnel"
    address = urlsplit(url)
    headers = {"Host": address.netloc, **signed_headers(client, url), **OPENING}
    lines = [f"GET {address.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    end = socket.create_connection((address.hostname, address.port), PATIENCE_S)
    end.sendall("\r\n".join(lines).encode())
    assert end.recv(12) == b"HTTP/1.1 101"
    return end


@pytest.mark.parametrize("sent", [LARGE, EMPTY * 10_000, PING * 10_000, b"\x02\x80" + MASK + EMPTY_PARTS * 10_000])
def test_sides_that_read_nothing_cost_little_memory(service: tuple[int, Client], sent: bytes) -> None:
    pid, client = service
    job_id = running_job(client)
    raw_tunnel(client, job_id).close()  # what is loaded with the first one
    before = rss_kib(pid)
    with ExitStack() as stack:
        ends = [stack.enter_context(raw_tunnel(client, job_id)) for _ in range(4)]
        senders = [threading.Thread(target=send_until_blocked, args=(end, sent)) for end in ends]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        grown = rss_kib(pid) - before
        assert client.get(f"/trainingjobs/{job_id}")["Status"] == "Running"
    assert grown < MOST_GROWTH_KIB
    until(lambda: rss_kib(pid) - before < MOST_GROWTH_KIB)


def send_until_blocked(end: socket.socket, data: bytes) -> None:
    """Sends until the service accepts nothing more for a second, or has closed the connection."""
    end.settimeout(1.0)
    deadline = time.monotonic() + PATIENCE_S
    with suppress(OSError):
        while time.monotonic() < deadline:
            end.send(data)
