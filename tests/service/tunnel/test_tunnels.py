"""The WebSocket into an instance: frames, instances, ends."""

from __future__ import annotations

import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from pai_sdk._host.agent.tunnel.link import ResumableLink, SocketTransport
from pai_sdk._host.agent.tunnel.sessions import Sessions
from pai_sdk._service.settings import ConnectionLimits, TunnelLimits
from pai_sdk.errors import TunnelRefusedError
from tests.service.certificates import Authority
from tests.service.services import Client, job_body
from tests.service.tunnel.tunnelling import (
    TunnelledExecutor,
    as_stream,
    close_code,
    read_frame,
    refusal,
    running_job,
    tunnel,
)
from tests.support.waiting import PATIENCE_S, until


@pytest.fixture
def executor() -> TunnelledExecutor:
    return TunnelledExecutor()


@pytest.fixture
def operator(start: Callable[..., Any], executor: TunnelledExecutor) -> Iterator[Client]:
    with start(executor) as client:
        yield client


def root_of(client: Client, job_id: str) -> Path:
    return client.info.data_dir / "jobs" / job_id


def test_frames_pass_in_both_directions(operator: Client, executor: TunnelledExecutor) -> None:
    job_id = running_job(operator)
    with tunnel(operator, job_id) as websocket:
        for size in (0, 1, 125, 126, 65_535, 65_536, 128 << 10):
            websocket.send(frame := bytes(size))
            assert websocket.recv(PATIENCE_S) == frame
    assert executor.connected == [(job_id, f"{job_id}-master-0")]


def test_ten_thousand_random_frames_pass_in_both_directions(operator: Client) -> None:
    job_id = running_job(operator)
    chance = random.Random(40)
    frames = [chance.randbytes(int(10 ** chance.uniform(0, 3.5))) for _ in range(10_000)]
    with tunnel(operator, job_id) as websocket:
        sender = threading.Thread(target=lambda: [websocket.send(frame) for frame in frames])
        sender.start()
        assert [websocket.recv(PATIENCE_S) for _ in frames] == frames
        sender.join()


@pytest.mark.parametrize(
    ("name", "connected"),
    [("first", "master-0"), ("", "master-0"), ("worker-1", "worker-1"), ("{job_id}-worker-0", "worker-0")],
)
def test_an_instance_has_a_short_and_a_complete_name(
    operator: Client, executor: TunnelledExecutor, name: str, connected: str
) -> None:
    job_id = running_job(operator, ComputeResource={"EcsSpec": "local", "EcsCount": 3})
    with tunnel(operator, job_id, name.format(job_id=job_id)):
        assert executor.connected == [(job_id, f"{job_id}-{connected}")]


def test_a_job_that_does_not_run_has_no_tunnel(operator: Client, executor: TunnelledExecutor) -> None:
    assert refusal(operator, "train000000000000") == (404, "TRAINING_JOB_NOT_FOUND")
    job_id = running_job(operator)
    assert refusal(operator, job_id, "worker-7") == (404, "TRAINING_JOB_INSTANCE_NOT_FOUND")
    executor.is_reachable = False
    assert refusal(operator, job_id) == (503, "InstanceNotReady")
    executor.succeed(root_of(operator, job_id))
    assert refusal(operator, job_id) == (409, "JobNotRunning")
    operator.until(job_id)
    assert refusal(operator, job_id) == (409, "JobNotRunning")


def test_a_job_of_an_earlier_release_is_refused_for_good(
    operator: Client, executor: TunnelledExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = iter(["NotSupported", "InstanceNotRunning", "NotReady"])

    def connect_tunnel(root: Path, instance: str) -> socket.socket:
        raise TunnelRefusedError(next(codes), "the job was started by a release without tunnels")

    job_id = running_job(operator)
    monkeypatch.setattr(executor, "connect_tunnel", connect_tunnel)
    # A client repeats the others.
    assert refusal(operator, job_id) == (400, "NotSupported")
    assert [refusal(operator, job_id) for _ in range(2)] == 2 * [(503, "InstanceNotReady")]


def test_a_waiting_job_has_no_tunnel(start: Callable[..., Any], executor: TunnelledExecutor) -> None:
    with start(executor, slots=1) as client:
        running_job(client)
        assert refusal(client, client.create(job_body())) == (409, "JobNotRunning")


def test_an_executor_without_tunnels_says_so(start: Callable[..., Any], executor: TunnelledExecutor) -> None:
    executor.__dict__["capabilities"] = type(executor).mro()[1].capabilities
    with start(executor) as client:
        assert refusal(client, running_job(client)) == (400, "NotSupported")


def test_a_tunnel_ends_with_its_job(operator: Client, executor: TunnelledExecutor) -> None:
    job_id = running_job(operator)
    with tunnel(operator, job_id) as open_end, tunnel(operator, job_id) as closed_end:
        executor.succeed(root_of(operator, job_id))
        executor.ends[1].sendall(as_stream(b"the last output"))
        executor.ends[1].shutdown(socket.SHUT_RDWR)
        assert closed_end.recv(PATIENCE_S) == b"the last output"
        assert [close_code(open_end), close_code(closed_end)] == [4410, 4410]


def test_a_tunnel_ends_with_a_deleted_job(operator: Client, executor: TunnelledExecutor) -> None:
    job_id = running_job(operator)
    with tunnel(operator, job_id) as websocket:
        operator.call("PUT", f"/trainingjobs/{job_id}/stop")
        operator.until(job_id)
        operator.call("DELETE", f"/trainingjobs/{job_id}")
        assert close_code(websocket) == 4410


def test_a_connection_that_ends_before_its_job_can_be_opened_again(
    start: Callable[..., Any], executor: TunnelledExecutor
) -> None:
    with start(executor, tunnels=TunnelLimits(last_state_s=0.1)) as client:
        job_id = running_job(client)
        with tunnel(client, job_id) as websocket:
            executor.hang_up()
            assert close_code(websocket) == 4503
        with tunnel(client, job_id) as websocket:
            websocket.send(b"again")
            assert websocket.recv(PATIENCE_S) == b"again"


def test_the_end_of_the_client_ends_the_connection_to_the_job(start: Callable[..., Any]) -> None:
    received: Queue[bytes] = Queue()

    def serve(end: socket.socket) -> None:
        received.put(read_frame(end))
        received.put(end.recv(1))

    with start(TunnelledExecutor(serve)) as client:
        with tunnel(client, running_job(client)) as websocket:
            websocket.send(b"goodbye")
        assert [received.get(timeout=PATIENCE_S) for _ in range(2)] == [b"goodbye", b""]


@pytest.mark.parametrize(
    ("message", "code"), [("text", 1003), (bytes((128 << 10) + 1), 1009), (bytes(1 << 20), 1009)]
)
def test_a_message_that_is_no_frame_ends_the_tunnel(operator: Client, message: str | bytes, code: int) -> None:
    with tunnel(operator, running_job(operator)) as websocket:
        with suppress(ConnectionClosed):  # before all of it was sent
            websocket.send(message)
        assert close_code(websocket) == code


@pytest.mark.parametrize("content", [b"\xff\xff\xff\xff", (1 << 20).to_bytes(4, "big") + bytes(1 << 20), b"\0\0"])
def test_a_job_that_sends_something_else_ends_its_tunnel_only(
    start: Callable[..., Any], executor: TunnelledExecutor, content: bytes
) -> None:
    with start(executor, tunnels=TunnelLimits(last_state_s=0.1)) as client:
        job_id = running_job(client)
        with tunnel(client, job_id) as websocket, tunnel(client, job_id) as other:
            try:
                executor.ends[0].sendall(content)
                executor.ends[0].shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            assert close_code(websocket) == 4503
            other.send(b"still there")
            assert other.recv(PATIENCE_S) == b"still there"


def test_a_hundred_tunnels_at_once(operator: Client) -> None:
    job_id = running_job(operator)
    with ExitStack() as stack:
        websockets = [stack.enter_context(tunnel(operator, job_id)) for _ in range(100)]
        for number, websocket in enumerate(websockets):
            websocket.send(str(number).encode())
        assert [websocket.recv(PATIENCE_S) for websocket in websockets] == [
            str(number).encode() for number in range(100)
        ]
        assert operator.get(f"/trainingjobs/{job_id}")["Status"] == "Running"


def test_a_service_that_stops_closes_its_tunnels_in_time(
    start: Callable[..., Any], executor: TunnelledExecutor
) -> None:
    with ExitStack() as stack:
        with start(executor, connections=ConnectionLimits(grace_s=PATIENCE_S / 2)) as client:
            job_id = running_job(client)
            websockets = [stack.enter_context(tunnel(client, job_id)) for _ in range(10)]
            stopped_at = time.monotonic()
        assert time.monotonic() - stopped_at < PATIENCE_S / 2
        assert {close_code(websocket) for websocket in websockets} == {1012}


def test_a_service_that_stops_does_not_wait_for_a_client_that_does_not_read(start: Callable[..., Any]) -> None:
    def flood(end: socket.socket) -> None:
        try:
            while True:
                end.sendall(as_stream(bytes(60_000)))
        except OSError:
            pass

    with ExitStack() as stack:
        with start(TunnelledExecutor(flood), tunnels=TunnelLimits(stall_s=PATIENCE_S)) as client:
            websocket = stack.enter_context(tunnel(client, running_job(client), close_timeout=0.1))
            assert websocket.recv(PATIENCE_S)
            stopped_at = time.monotonic()
        assert time.monotonic() - stopped_at < PATIENCE_S / 2


def test_a_tunnel_is_encrypted_if_the_service_is(
    start: Callable[..., Any], executor: TunnelledExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("127.0.0.1")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.file))
    trusting = ssl.create_default_context(cafile=authority.file)
    starting = start(executor, tls_cert=files.certificate, tls_key=files.key)
    with starting as client, tunnel(client, running_job(client), ssl=trusting) as websocket:
        for size in (1, 65_536, 128 << 10):
            websocket.send(bytes(size))
            assert websocket.recv(PATIENCE_S) == bytes(size)


def test_a_request_without_a_websocket_is_told_to_open_one(operator: Client) -> None:
    job_id = running_job(operator)
    answer = operator.call("GET", f"/trainingjobs/{job_id}/instances/first/tunnel")
    assert (answer.status_code, answer.json()["Code"]) == (426, "UpgradeRequired")


def test_other_paths_open_no_websocket(operator: Client) -> None:
    assert refusal(operator, "train000000000000", "a/b") == (404, "InvalidAction.NotFound")


class WebSocketTransport:
    """A WebSocket of a client, as a link uses it."""

    def __init__(self, client: Client, job_id: str, stack: ExitStack) -> None:
        try:
            self._websocket = stack.enter_context(tunnel(client, job_id, close_timeout=0.1))
        except InvalidStatus as error:
            raise ConnectionError from error

    def send(self, frame: bytes) -> None:
        try:
            self._websocket.send(frame)
        except ConnectionClosed as error:
            raise ConnectionError from error

    def receive(self, timeout_s: float | None) -> bytes:
        try:
            received = self._websocket.recv(timeout_s)
        except ConnectionClosed as error:
            raise ConnectionError from error
        assert isinstance(received, bytes)
        return received

    def close(self) -> None:
        self._websocket.close()


def test_restarts_of_the_service_and_cuts_lose_and_repeat_nothing(start: Callable[..., Any]) -> None:
    links, received, done = list[ResumableLink](), list[bytes](), threading.Event()
    numbers = [number.to_bytes(4, "big") + bytes(number % 5_000) for number in range(6_000)]

    def on_session(link: ResumableLink, instance: str) -> None:
        links.append(link)
        link.start(lambda frame: link.send(bytes(frame), waits=False), lambda error: None)

    def receive(frame: memoryview) -> None:
        received.append(bytes(frame))
        if len(received) == len(numbers):
            done.set()

    sessions, limits = Sessions(on_session), TunnelLimits(last_state_s=0.1)
    executor = TunnelledExecutor(lambda end: sessions.serve(SocketTransport(end)))
    with ExitStack() as stack:
        with start(executor, tunnels=limits) as client:
            job_id = running_job(client)
            link = ResumableLink.connect(lambda: WebSocketTransport(client, job_id, stack))
            link.start(receive, lambda error: None)
            sender = threading.Thread(target=lambda: [link.send(number) for number in numbers])
            sender.start()
            until(lambda: len(received) > 500)
            executor.hang_up()
            until(lambda: len(received) > 1_500)
        with start(executor, tunnels=limits):
            until(lambda: len(received) > 3_000)
        with start(executor, tunnels=limits):
            assert done.wait(PATIENCE_S)
            sender.join()
            assert received == numbers
            assert len(links) == 1
            link.close()
        assert len(executor.connected) >= 4
