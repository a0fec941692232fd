"""Tunnels by ordinary requests, as clients behind a proxy without WebSockets use them."""

from __future__ import annotations

import random
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests

from pai_sdk._client.api.transport import Acs3Auth
from pai_sdk._core.config.credentials import static_credentials
from pai_sdk._service.services.jobs.tunnel_sessions import POLL_S
from pai_sdk._service.settings import TunnelLimits
from tests.service.identity.test_two_users import user
from tests.service.services import Client
from tests.service.tunnel.tunnelling import TunnelledExecutor, as_stream, running_job
from tests.support.waiting import PATIENCE_S, until


class PolledTunnel:
    """A tunnel by POST and GET, with the number of each message."""

    def __init__(self, client: Client, job_id: str, session_id: str = "") -> None:
        path = f"/trainingjobs/{job_id}/instances/first/tunnel/sessions/{session_id or secrets.token_hex(16)}"
        self._client, self._url = client, f"{client.info.endpoint}/api/v1{path}"
        self.session = requests.Session()
        self.sent = self.polled = 0

    def request(self, method: str, number: int, message: bytes = b"") -> requests.Response:
        key = static_credentials(self._client.info.access_key_id, self._client.info.access_key_secret)
        return self.session.request(
            method,
            self._url,
            params={"Number": str(number)},
            data=message,
            auth=Acs3Auth(key, "Any", "2022-01-12"),
            timeout=PATIENCE_S,
        )

    def send(self, *frames: bytes) -> None:
        answer = self.request("POST", self.sent, b"".join(map(as_stream, frames)))
        assert answer.status_code == 200, answer.text
        self.sent += 1

    def receive(self) -> list[bytes]:
        answer = self.request("GET", self.polled)
        assert answer.status_code == 200, answer.text
        self.polled += 1
        return frames_of(answer.content)

    def refusal(self, method: str = "GET", number: int | None = None, message: bytes = b"") -> tuple[int, str]:
        expected = self.polled if method == "GET" else self.sent
        answer = self.request(method, expected if number is None else number, message)
        return answer.status_code, answer.json()["Code"]


def frames_of(message: bytes) -> list[bytes]:
    frames, position = [], 0
    while position < len(message):
        end = position + 4 + int.from_bytes(message[position : position + 4], "big")
        frames.append(message[position + 4 : end])
        position = end
    assert position == len(message) <= 256 << 10
    return frames


@pytest.fixture
def executor() -> TunnelledExecutor:
    return TunnelledExecutor()


@pytest.fixture
def operator(start: Callable[..., Any], executor: TunnelledExecutor) -> Iterator[Client]:
    with start(executor, tunnels=TunnelLimits(last_state_s=0.1)) as client:
        yield client


def test_random_frames_pass_in_both_directions(operator: Client) -> None:
    job_id, chance = running_job(operator), random.Random(40)
    frames = [chance.randbytes(int(10 ** chance.uniform(0, 4.8))) for _ in range(300)]
    tunnel, received = PolledTunnel(operator, job_id), list[bytes]()
    tunnel.send()

    def receive() -> None:
        while len(received) < len(frames):
            received.extend(tunnel.receive())

    receiver = threading.Thread(target=receive)
    receiver.start()
    sender = PolledTunnel(operator, job_id)
    sender._url, sender.sent = tunnel._url, tunnel.sent
    for number in range(0, len(frames), 3):
        sender.send(*frames[number : number + 3])
    receiver.join(PATIENCE_S)
    assert received == frames


def test_a_repeated_request_repeats_nothing(operator: Client, executor: TunnelledExecutor) -> None:
    tunnel = PolledTunnel(operator, running_job(operator))
    for _ in range(2):
        assert tunnel.request("POST", 0, as_stream(b"first")).status_code == 200
    for _ in range(2):
        assert frames_of(tunnel.request("GET", 0).content) == [b"first"]
    tunnel.sent = tunnel.polled = 1
    tunnel.send(b"second")
    assert tunnel.receive() == [b"second"]
    assert tunnel.refusal("POST", 7) == (409, "TunnelOutOfOrder")
    assert tunnel.refusal("GET", 0) == (409, "TunnelOutOfOrder")
    assert len(executor.connected) == 1


def test_a_job_that_sends_faster_than_its_client_polls_waits(start: Callable[..., Any]) -> None:
    sent = [0]

    def flood(end: socket.socket) -> None:
        with suppress(OSError):
            while True:
                end.sendall(as_stream(sent[0].to_bytes(8, "big") + bytes(50_000)))
                sent[0] += 1

    with start(TunnelledExecutor(flood)) as client:
        tunnel = PolledTunnel(client, running_job(client))
        tunnel.send()
        received = [frame for _ in range(30) for frame in tunnel.receive()]
        assert [int.from_bytes(frame[:8], "big") for frame in received] == [*range(len(received))]
        assert sent[0] - len(received) < 40  # what the buffers have, and those of the sockets


def test_the_rights_are_those_of_a_websocket(operator: Client) -> None:
    alice, bob, admin = user(operator, "alice"), user(operator, "bob"), user(operator, "carol", "admin")
    job_id = running_job(alice)
    assert PolledTunnel(bob, job_id).refusal("POST") == (404, "TRAINING_JOB_NOT_FOUND")
    of_admin = PolledTunnel(admin, job_id, session_id := secrets.token_hex(16))
    of_admin.send(b"hello")
    stranger = PolledTunnel(alice, job_id, session_id)
    assert stranger.refusal() == stranger.refusal("POST", 1) == (404, "TunnelSessionNotFound")
    assert stranger.refusal("POST", 0) == stranger.refusal("DELETE") == (404, "TunnelSessionNotFound")
    assert of_admin.receive() == [b"hello"]
    of_alice = PolledTunnel(alice, job_id)
    of_alice.send()
    operator.call("PUT", "/users/alice", body={"Right": "read"})
    assert of_alice.refusal() == (403, "Forbidden.NoPermission")
    found = operator.get("/audit", PageSize="100")["Entries"]
    opened = [entry["User"] for entry in found if "/sessions/" in entry["Path"] and entry["Status"] == 200]
    assert opened == ["alice", "carol"]


def test_a_revoked_key_ends_a_waiting_poll(operator: Client) -> None:
    alice = user(operator, "alice")
    tunnel = PolledTunnel(alice, running_job(alice))
    tunnel.send()
    threading.Timer(0.3, operator.call, ("DELETE", f"/users/alice/keys/{alice.info.access_key_id}")).start()
    started_at = time.monotonic()
    assert tunnel.refusal()[0] == 403
    assert time.monotonic() - started_at < POLL_S


def test_a_session_ends_with_its_job_after_its_last_frames(operator: Client, executor: TunnelledExecutor) -> None:
    job_id = running_job(operator)
    tunnel = PolledTunnel(operator, job_id)
    tunnel.send(b"last")
    until(lambda: len(executor.ends) == 1)
    assert tunnel.receive() == [b"last"]
    executor.ends[0].sendall(as_stream(b"output"))
    executor.succeed(Path(operator.info.data_dir) / "jobs" / job_id)
    operator.until(job_id)
    assert tunnel.receive() == [b"output"]
    assert tunnel.refusal() == (409, "JobNotRunning")
    assert PolledTunnel(operator, job_id).refusal("POST") == (409, "JobNotRunning")


def test_a_session_ends_with_its_connection_or_its_client(operator: Client, executor: TunnelledExecutor) -> None:
    job_id = running_job(operator)
    lost, closed = (PolledTunnel(operator, job_id) for _ in range(2))
    for tunnel in (lost, closed):
        tunnel.send()
    executor.ends[0].shutdown(socket.SHUT_RDWR)
    assert lost.refusal() == (503, "InstanceNotReady")
    assert closed.request("DELETE", 0).status_code == 200
    assert closed.refusal() == (404, "TunnelSessionNotFound")
    until(lambda: executor.ends[1].fileno() == -1)


def test_a_session_without_requests_ends_by_itself(start: Callable[..., Any], executor: TunnelledExecutor) -> None:
    with start(executor, tunnels=TunnelLimits(idle_session_s=0.5)) as client:
        idle = PolledTunnel(client, running_job(client))
        idle.send()
        until(lambda: executor.ends[0].fileno() == -1)
        assert idle.refusal() == (404, "TunnelSessionNotFound")


@pytest.mark.parametrize(
    ("message", "status"),
    [(b"\0", 400), (b"\0\0\0\5abcd", 400), (b"\1\0\0\0" + bytes(70_000), 400), (bytes((256 << 10) + 4), 413)],
)
def test_a_message_that_is_no_list_of_frames_is_refused(operator: Client, message: bytes, status: int) -> None:
    tunnel = PolledTunnel(operator, running_job(operator))
    tunnel.send()
    assert tunnel.refusal("POST", 1, message)[0] == status
    tunnel.send(b"still open")
    assert tunnel.receive() == [b"still open"]


def test_a_session_has_an_id_that_nobody_can_guess(operator: Client) -> None:
    job_id = running_job(operator)
    assert PolledTunnel(operator, job_id, "short").refusal("POST")[0] == 400
    assert PolledTunnel(operator, job_id).refusal("POST", 3) == (404, "TunnelSessionNotFound")
