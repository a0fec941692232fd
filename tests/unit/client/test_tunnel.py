"""Tunnels: what they send to the service, what they do when it refuses or is cut off, and what runs in them."""

from __future__ import annotations

import io
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from pai_sdk._client.tunnel.copying import copy_to
from pai_sdk._client.tunnel.opening import JobTunnel, open_tunnel
from pai_sdk._client.tunnel.outputs import RankedOutput
from pai_sdk._client.tunnel.programs import Streams, run_program, sink_of
from pai_sdk._core.endpoint import Endpoint
from pai_sdk._host.agent.tunnel.streams import Stream
from pai_sdk.errors import (
    ConnectionFailedError,
    InvalidInputError,
    JobError,
    NotFoundError,
    PaiError,
    PermissionDeniedError,
    StorageError,
    TunnelClosedError,
)
from tests.support.fake_tunnel import FakeTunnelService
from tests.support.messages import refused
from tests.support.waiting import PATIENCE_S


@pytest.fixture
def service() -> Iterator[FakeTunnelService]:
    with FakeTunnelService() as running:
        yield running


def ran(tunnel: JobTunnel, *argv: str, data: bytes | None = None) -> tuple[int, bytes, bytes]:
    stdout, stderr = io.BytesIO(), io.BytesIO()
    code = run_program(tunnel, argv, Streams(stdout.write, stderr.write, data))
    return code, stdout.getvalue(), stderr.getvalue()


def test_a_program_with_its_input_outputs_and_exit_code(service: FakeTunnelService) -> None:
    with open_tunnel(service.transport(), "t-1", "t-1-worker-0") as tunnel:
        data = bytes(range(256)) * 4096
        assert ran(tunnel, "sh", "-c", "cat; echo no >&2; exit 3", data=data) == (3, data, b"no\n")
        assert ran(tunnel, "sh", "-c", "kill -9 $$")[0] == 137
        code, _, stderr = ran(tunnel, "nosuch")
        assert (code, b"nosuch" in stderr) == (127, True)
    (request,) = service.requests
    assert request.path == "/api/v1/trainingjobs/t-1/instances/t-1-worker-0/tunnel"
    assert request.headers["Authorization"].startswith("ACS3-HMAC-SHA256 Credential=id,")
    assert request.headers["Host"] == service.endpoint.removeprefix("http://")
    assert "Sec-WebSocket-Extensions" not in request.headers


def test_a_command_that_is_too_long_is_the_users_error(service: FakeTunnelService) -> None:
    with open_tunnel(service.transport(), "t-1", "t-1-worker-0") as tunnel:
        with pytest.raises(InvalidInputError) as caught:
            ran(tunnel, "echo", "x" * 100_000)
        assert [problem.where for problem in caught.value.problems] == ["COMMAND"]
        assert ran(tunnel, "printf", "%s", "x" * 60_000)[1] == b"x" * 60_000


def test_a_process_without_stdout_discards_the_output() -> None:
    sink_of(None)(b"output")


def test_sources_that_are_not_readable_are_not_skipped(
    service: FakeTunnelService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scandir = os.scandir

    def refusing(path: str) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    (tmp_path / "data" / "closed").mkdir(parents=True)
    os.mkfifo(tmp_path / "fifo")
    monkeypatch.setattr(os, "scandir", refusing)
    with open_tunnel(service.transport(), "t-1", "t-1-worker-0") as tunnel:
        for source, unreadable in (("data", "data/closed"), ("fifo", "fifo")):
            with pytest.raises(StorageError, match=str(tmp_path / unreadable)):
                copy_to(tunnel, tmp_path / source, "/ml/output", progress=False)


def test_no_byte_is_lost_when_connections_are_cut_off(service: FakeTunnelService, tmp_path: Path) -> None:
    states: list[bool] = []
    is_done, all_cut = threading.Event(), tmp_path / "all-cut"

    def cut() -> None:
        # Not for ever: on a busy machine, a connection may take longer than this to be made again.
        for _ in range(20):
            if is_done.wait(0.05):
                break
            service.cut()
        all_cut.touch()

    with open_tunnel(service.transport(), "t-1", "t-1-master-0") as tunnel:
        cutter = threading.Thread(target=cut)
        stdout = io.BytesIO()
        streams = Streams(stdout.write, stdout.write, b"x" * 3_000_000, has_notices=False)
        tunnel.on_reconnect = states.append
        cutter.start()
        waits = f"until [ -e {all_cut} ]; do sleep 0.05; done"
        code = run_program(tunnel, ["sh", "-c", f"seq 100000; wc -c; {waits}; echo last"], streams)
        is_done.set()
        cutter.join()
    lines = stdout.getvalue().split()
    assert (code, len(lines)) == (0, 100_002)
    assert lines[:100_000] == [b"%d" % number for number in range(1, 100_001)]
    assert lines[-2:] == [b"3000000", b"last"]
    assert states[:2] == [False, True]
    assert len(service.requests) > 2
    assert len({request.headers["x-acs-signature-nonce"] for request in service.requests}) == len(service.requests)


def test_the_end_of_an_abandoned_tunnel_is_reported() -> None:
    has_ended = threading.Event()

    def wait(stream: Stream) -> None:
        stream.confirm({})
        with suppress(TunnelClosedError):
            stream.read()
        has_ended.set()

    with FakeTunnelService(wait=wait) as service:
        tunnel = open_tunnel(service.transport(), "t-1", "i")
        tunnel.open("wait")
        tunnel.abandon()
        assert has_ended.wait(PATIENCE_S)


REFUSALS: list[tuple[int, str, type[PaiError]]] = [
    (403, "Forbidden", PermissionDeniedError),
    (404, "TrainingJobNotFound", NotFoundError),
]


@pytest.mark.parametrize(("status", "code", "kind"), REFUSALS)
def test_refusals_are_typed_and_final(
    service: FakeTunnelService, status: int, code: str, kind: type[PaiError]
) -> None:
    service.refusal = status, code
    with pytest.raises(kind) as raised:
        open_tunnel(service.transport(), "t-1", "t-1-master-0")
    assert getattr(raised.value, "code", "") == code
    assert len(service.requests) == 1


@pytest.mark.parametrize(
    ("code", "kind"), [(4403, PermissionDeniedError), (4404, NotFoundError), (4410, JobError)]
)
def test_a_service_that_closes_a_tunnel_ends_it(
    service: FakeTunnelService, code: int, kind: type[PaiError]
) -> None:
    with open_tunnel(service.transport(), "t-1", "t-1-master-0") as tunnel:
        threading.Timer(0.1, service.close_all, (code, "reason")).start()
        with pytest.raises(kind):
            ran(tunnel, "sleep", "60")
        with pytest.raises(TunnelClosedError):
            tunnel.check()
    assert len(service.requests) == 1


def test_a_busy_service_is_asked_again(service: FakeTunnelService) -> None:
    service.refusal = 503, "InstanceNotReady"
    timer = threading.Timer(0.2, setattr, (service, "refusal", None))
    timer.start()
    with open_tunnel(service.transport(), "t-1", "t-1-master-0") as tunnel:
        assert ran(tunnel, "true")[0] == 0
    assert len(service.requests) > 1


def test_a_service_that_moved_is_found_again(service: FakeTunnelService) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    endpoint = Endpoint(f"http://127.0.0.1:{port}", lambda: service.endpoint)
    with open_tunnel(service.transport(endpoint), "t-1", "t-1-master-0") as tunnel:
        assert ran(tunnel, "echo", "here")[1] == b"here\n"


def test_an_unreachable_service_is_an_error(service: FakeTunnelService) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ConnectionFailedError) as raised:
        open_tunnel(service.transport(f"http://127.0.0.1:{port}"), "t-1", "t-1-master-0")
    assert raised.value.refused


def test_a_server_of_pages_is_no_service() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def respond() -> None:
            with suppress(OSError):
                while True:
                    with closing(server.accept()[0]) as connection:
                        connection.recv(65536)
                        page = b"<html>hello</html>"
                        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n"
                        connection.sendall(head % len(page) + page)

        threading.Thread(target=respond, daemon=True).start()
        with FakeTunnelService() as other:
            transport = other.transport(f"http://127.0.0.1:{server.getsockname()[1]}")
            with pytest.raises(PaiError) as raised:
                open_tunnel(transport, "t-1", "t-1-master-0")
        assert raised.type.__name__ == "InvalidResponseError"


def test_an_earlier_release_has_no_tunnels(service: FakeTunnelService) -> None:
    service.refusal = 404, "InvalidAction.NotFound"
    with refused(InvalidInputError, "JOB"):
        open_tunnel(service.transport(), "t-1", "t-1-master-0")


def test_both_directions_at_once_do_not_block_each_other() -> None:
    """Neither side reads while it writes: a receiver that waited for the sender's lock would stop both."""

    def echo(stream: Stream) -> None:
        while data := stream.read():
            stream.write(data)
        stream.end()
        stream.close()

    total = 64 << 20
    with FakeTunnelService(echo=echo) as service, open_tunnel(service.transport(), "t-1", "i") as tunnel:
        stream = tunnel.open("echo")

        def send() -> None:
            stream.write(bytes(total))
            stream.end()

        sender = threading.Thread(target=send)
        sender.start()
        received = 0
        while data := stream.read():
            received += len(data)
        sender.join(PATIENCE_S)
        assert received == total


def test_lines_of_ranks_are_in_their_order_at_first() -> None:
    stdout, stderr = io.BytesIO(), io.BytesIO()
    output = RankedOutput(11, stdout.write, stderr.write)
    output.sink(10, is_error=False)(b"ten\nno end")
    output.sink(0, is_error=True)(b"error")
    output.sink(1, is_error=False)(b"one\r\n\n")
    output.close()
    assert stdout.getvalue() == b"[ 1] one\r\n[ 1] \n[10] ten\n[10] no end\n"
    assert stderr.getvalue() == b"[ 0] error\n"
