"""Nodes that connect to the service for a tunnel: the token, the relay, and what is said where it cannot be."""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests

from pai_sdk._host.agent.tunnel import websocket as agent_websocket
from pai_sdk._host.agent.tunnel.dialing_out import NODE_PATH
from pai_sdk._host.agent.tunnel.websocket import WebSocket, masked
from pai_sdk._host.execution.node_connections import NodeConnections, ServiceAddress
from pai_sdk._service import server
from pai_sdk.errors import TunnelRefusedError
from tests.service.certificates import Authority
from tests.service.fakes import ScriptedExecutor
from tests.service.services import Client, running_service
from tests.service.tunnel.tunnelling import refusal, running_job, tunnel
from tests.support.waiting import PATIENCE_S, until

ELSEWHERE = "192.0.2.1"


class DialledExecutor(ScriptedExecutor):
    """Its nodes are threads, which connect to the service and echo."""

    capabilities = replace(ScriptedExecutor.capabilities, tunnels=True)
    node = "127.0.0.1"

    def __init__(self) -> None:
        super().__init__()
        self.nodes = NodeConnections()
        self.requests: list[dict[str, Any]] = []
        self.refusal: dict[str, str] | None = None
        self.websockets: list[WebSocket] = []

    def connect_tunnel(self, root: Path, instance: str) -> socket.socket:
        with self.nodes.expect(self.node) as expected:
            self.requests.append(expected.request)
            if self.refusal is None:
                threading.Thread(target=self._echo, args=(expected.request,), daemon=True).start()
            return expected.wait(lambda: self.refusal)

    def _echo(self, request: dict[str, Any]) -> None:
        websocket = dialled(request)
        self.websockets.append(websocket)
        with suppress(OSError):
            while True:
                websocket.send(websocket.receive())
        websocket.close()
        self.websockets.remove(websocket)


def dialled(request: dict[str, Any]) -> WebSocket:
    (address,) = request["addresses"]
    keys = {"token": request["token"], "fingerprint": request["fingerprint"]}
    return WebSocket.open((address[0], address[1]), NODE_PATH, **keys, timeout_s=PATIENCE_S)


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> DialledExecutor:
    executor = DialledExecutor()
    # A service gives its own to the executors that it opens itself.
    monkeypatch.setattr(server, "NodeConnections", lambda: executor.nodes)
    return executor


@pytest.fixture
def operator(tmp_path: Path, executor: DialledExecutor) -> Iterator[Client]:
    with running_service(tmp_path / "data", executor) as client:
        yield client


def test_frames_pass_both_ways_and_the_node_hangs_up_with_the_client(
    operator: Client, executor: DialledExecutor
) -> None:
    job_id = running_job(operator)
    with tunnel(operator, job_id) as client:
        for size in (1, 125, 126, 65_535, 65_536, 100_000):
            message = secrets.token_bytes(size)
            client.send(message)
            assert client.recv(PATIENCE_S) == message
        assert len(executor.websockets) == 1
    until(lambda: not executor.websockets)


def test_a_client_loses_its_tunnel_with_the_node(operator: Client, executor: DialledExecutor) -> None:
    with tunnel(operator, running_job(operator)) as client:
        client.send(b"x")
        assert client.recv(PATIENCE_S) == b"x"
        executor.websockets[0].close()
        with pytest.raises(Exception, match="4503"):
            client.recv(PATIENCE_S)


def test_a_token_is_good_once_and_not_later(operator: Client, executor: DialledExecutor) -> None:
    with tunnel(operator, running_job(operator)):
        (request,) = executor.requests
        for token in (request["token"], "", "x" * 43, f"{request['token']}x"):
            with pytest.raises(ConnectionError, match="404"):
                dialled({**request, "token": token})
    assert requests.get(f"{operator.info.endpoint}{NODE_PATH}", timeout=PATIENCE_S).status_code in (401, 403, 404)
    with executor.nodes.expect("127.0.0.1") as late:
        pass
    assert executor.nodes.accept(late.request["token"]) is None


def test_the_token_is_in_no_log_and_no_repr(
    operator: Client, executor: DialledExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    with tunnel(operator, running_job(operator)):
        (request,) = executor.requests
        with pytest.raises(ConnectionError):
            dialled(request)
    logged = [record for record in caplog.records if record.name.startswith("pai_sdk")]
    assert not any(request["token"] in record.getMessage() for record in logged)


def test_a_node_that_refuses_says_why(operator: Client, executor: DialledExecutor) -> None:
    executor.refusal = {"code": "ServiceNotReachable", "message": "no route"}
    assert refusal(operator, running_job(operator)) == (503, "InstanceNotReady")


def test_a_service_on_loopback_refuses_other_machines_at_once(operator: Client, executor: DialledExecutor) -> None:
    executor.node = ELSEWHERE
    assert refusal(operator, running_job(operator)) == (400, "NotSupported")
    assert not executor.requests


def test_a_service_with_a_certificate_is_known_by_its_fingerprint(
    tmp_path: Path, executor: DialledExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("server", "localhost", "127.0.0.1")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.file))
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    data = tmp_path / "data"
    with running_service(data, executor, tls_cert=files.certificate, tls_key=files.key):
        with executor.nodes.expect("127.0.0.1") as expected:
            websocket = dialled(expected.request)
            far = expected.wait(lambda: None)
            message = secrets.token_bytes(60_000)
            websocket.send(message)
            far.sendall(len(message).to_bytes(4, "big") + message)
            assert websocket.receive() == message
            far.close()
            with pytest.raises(ConnectionError):
                websocket.receive()
            websocket.close()
        with executor.nodes.expect("127.0.0.1") as expected, pytest.raises(ConnectionError, match="certificate"):
            dialled({**expected.request, "fingerprint": "0" * 64})


@pytest.mark.parametrize(
    ("host", "names", "node", "hosts"),
    [
        (
            "0.0.0.0",
            ("train.example.com", "https://proxy.example.com"),
            "127.0.0.1",
            ["127.0.0.1", "train.example.com"],
        ),
        ("10.0.0.5", ("train.example.com",), ELSEWHERE, ["10.0.0.5"]),
        ("127.0.0.1", (), "127.0.0.1", ["127.0.0.1"]),
        ("localhost", (), ELSEWHERE, None),
        ("::1", (), ELSEWHERE, None),
    ],
)
def test_the_addresses_for_a_node(host: str, names: tuple[str, ...], node: str, hosts: list[str] | None) -> None:
    nodes = NodeConnections()
    nodes.service = ServiceAddress(host, 8080, names)
    if hosts is None:
        with pytest.raises(TunnelRefusedError, match="--host") as refused, nodes.expect(node):
            pass
        assert refused.value.code == "NotReachable"
        return
    with nodes.expect(node) as expected:
        assert expected.request["addresses"] == [[name, 8080] for name in hosts]


def test_a_mask_is_the_exclusive_or_of_each_byte() -> None:
    for size in (0, 1, 3, 4, 5, 1000):
        content, mask = secrets.token_bytes(size), secrets.token_bytes(4)
        assert masked(content, mask) == bytes(byte ^ mask[i % 4] for i, byte in enumerate(content))


def test_a_service_that_falls_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_websocket, "_SILENCE_S", 0.05)
    near, far = socket.socketpair()
    websocket = WebSocket(near)
    with pytest.raises(ConnectionError, match="respond"):
        websocket.receive()
    websocket.close()
    far.close()
