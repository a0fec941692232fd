"""An executor whose instances are threads of the test, and clients of tunnels."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import requests
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from pai_sdk._client.api.transport import Acs3Auth
from pai_sdk._core.config.credentials import static_credentials
from pai_sdk.errors import PaiError
from tests.service.fakes import ScriptedExecutor
from tests.service.services import Client, job_body
from tests.support.waiting import PATIENCE_S


class TunnelledExecutor(ScriptedExecutor):
    """Connects each tunnel to `serve`, which gets the instance's end in a thread; the default echoes."""

    capabilities = replace(ScriptedExecutor.capabilities, tunnels=True)

    def __init__(self, serve: Callable[[socket.socket], None] | None = None) -> None:
        super().__init__()
        self.serve = serve or echo
        self.connected: list[tuple[str, str]] = []
        self.ends: list[socket.socket] = []
        self.is_reachable = True

    def connect_tunnel(self, root: Path, instance: str) -> socket.socket:
        if not self.is_reachable:
            raise PaiError("it has not started yet")
        ours, theirs = socket.socketpair()
        self.connected.append((root.name, instance))
        self.ends.append(theirs)
        threading.Thread(target=self.serve, args=(theirs,), daemon=True).start()
        return ours

    def hang_up(self) -> None:
        """End all tunnels on the side of the job."""
        for end in self.ends:
            end.shutdown(socket.SHUT_RDWR)


def read_exactly(end: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        if not (part := end.recv(count - len(data))):
            raise ConnectionError
        data += part
    return bytes(data)


def read_frame(end: socket.socket) -> bytes:
    return read_exactly(end, int.from_bytes(read_exactly(end, 4), "big"))


def as_stream(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def echo(end: socket.socket) -> None:
    try:
        while True:
            end.sendall(as_stream(read_frame(end)))
    except OSError:
        end.close()


def running_job(client: Client, command: str = "true", **fields: Any) -> str:
    job_id = client.create(job_body(command, **fields))
    client.until(job_id, "Running")
    return job_id


def signed_headers(client: Client, url: str) -> dict[str, str]:
    key = static_credentials(client.info.access_key_id, client.info.access_key_secret)
    request = requests.Request("GET", url, auth=Acs3Auth(key, "Any", "2022-01-12")).prepare()
    own = ("host", "connection", "accept", "accept-encoding", "user-agent")
    return {name: value for name, value in request.headers.items() if name.lower() not in own}


def tunnel(
    client: Client, job_id: str, instance: str = "first", headers: dict[str, str] | None = None, **options: Any
) -> ClientConnection:
    """A WebSocket, as the library opens it; raises InvalidStatus if it is refused."""
    url = f"{client.info.endpoint}/api/v1/trainingjobs/{job_id}/instances/{instance}/tunnel"
    signed = signed_headers(client, url)
    options = {"open_timeout": PATIENCE_S, "compression": None, "max_size": 1 << 20, **options}
    if "proxy" in signature(connect).parameters:  # earlier releases know no proxies
        options.setdefault("proxy", None)
    return connect(url.replace("http", "ws", 1), additional_headers=signed | (headers or {}), **options)


def close_code(websocket: ClientConnection) -> int:
    """The code with which the service closes it."""
    try:
        while True:
            websocket.recv(PATIENCE_S)
    except ConnectionClosed as closed:
        return closed.rcvd.code if closed.rcvd is not None else 1006


def refusal(client: Client, job_id: str, instance: str = "first", **options: Any) -> tuple[int, str]:
    """The status and the code of the error with which the service refuses a tunnel."""
    with pytest.raises(InvalidStatus) as refused, tunnel(client, job_id, instance, **options):
        pass
    response = refused.value.response
    assert response.headers["x-acs-request-id"]
    return response.status_code, json.loads(response.body or b"")["Code"]
