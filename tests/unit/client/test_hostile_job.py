"""A job whose tunnel has bad intentions: typed errors, bounded memory, no control of the terminal."""

from __future__ import annotations

import os
import socket
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pai_sdk._client.job.debugging import WaitingProcess
from pai_sdk._client.job.stacks import JobStacks, read_stacks
from pai_sdk._client.tunnel.copying import copy_from
from pai_sdk._client.tunnel.forwarding import ForwardedPort, PortForward
from pai_sdk._client.tunnel.opening import open_tunnel
from pai_sdk._data.stacks.processes import parse_processes
from pai_sdk._host.agent.tunnel.streams import Stream
from pai_sdk.cli.tables import print_error
from pai_sdk.errors import PathConflictError, StorageError, TunnelClosedError, TunnelError
from tests.support.fake_tunnel import FakeTunnelService
from tests.support.waiting import PATIENCE_S

_ESCAPE = "\x1b]52;c;aGk=\x07"


def header(kind: bytes, size: int) -> bytes:
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


def sends(*chunks: bytes, outcome: dict[str, int], result: dict[str, Any] | None = None) -> Any:
    """Returns a handler of `read_archive`."""

    def handle(stream: Stream) -> None:
        stream.confirm({"kind": "folder", "name": "x", "size_bytes": 1, **(result or {})})
        try:
            for chunk in chunks:
                stream.write(chunk)
        except (TunnelError, OSError):
            return
        stream.end()
        stream.send_exit(outcome)
        stream.close()

    return handle


def copied(handler: Callable[[Stream], None], target: Path) -> None:
    with (
        FakeTunnelService(read_archive=handler) as service,
        open_tunnel(service.transport(), "t-1", "t-1-worker-0") as tunnel,
    ):
        copy_from(tunnel, "/ml/x", target, progress=False)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_an_endless_header_costs_little_memory(tmp_path: Path, kind: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(StorageError):
            copied(sends(header(kind, 40 << 20), *[bytes(1 << 16)] * 640, outcome={"code": 0}), tmp_path / "x")
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert not [*tmp_path.iterdir()]


def pax(**fields: str) -> bytes:
    info = tarfile.TarInfo("a")
    info.pax_headers = fields
    return info.tobuf(tarfile.PAX_FORMAT)


@pytest.mark.parametrize(
    "data",
    [
        (header(tarfile.XHDTYPE, 0)) * 3000,
        (header(tarfile.GNUTYPE_LONGNAME, 0)) * 3000,
        header(tarfile.XHDTYPE, 512) + b"\xff" * 512,
    ],
)
def test_headers_that_exhaust_the_parser_are_a_damaged_archive(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(StorageError):
        copied(sends(data, bytes(1024), outcome={"code": 0}), tmp_path / "x")


def test_a_time_that_is_no_number_is_left_out(tmp_path: Path) -> None:
    copied(sends(pax(mtime="nan"), bytes(1024), outcome={"code": 0}), tmp_path / "x")
    assert (tmp_path / "x" / "a").read_bytes() == b""


def test_a_size_that_is_no_number_is_ignored(tmp_path: Path) -> None:
    copied(sends(bytes(1024), result={"size_bytes": "many"}, outcome={"code": 0}), tmp_path / "x")


def test_an_archiver_that_was_killed_between_two_entries_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        copied(sends(tarfile.TarInfo("a").tobuf(), outcome={"signal": 9}), tmp_path / "x")
    assert not [*tmp_path.iterdir()]


def test_a_copy_replaces_no_pipe_within_a_folder(tmp_path: Path) -> None:
    target = tmp_path / "x"
    target.mkdir()
    os.mkfifo(target / "a")
    with pytest.raises(PathConflictError):
        copied(sends(tarfile.TarInfo("a").tobuf(), bytes(1024), outcome={"code": 0}), target.parent)
    assert (target / "a").is_fifo()


def test_connections_that_belong_to_no_listener_do_not_end_a_forward() -> None:
    codes = list[str]()

    def listen(stream: Stream) -> None:
        stream.confirm({"port": "none"})
        listeners: list[Any] = [[], {}, None, 10**30]
        for listener in listeners:
            with pytest.raises(TunnelError) as caught:
                stream.tunnel.open("accepted", listener=listener, peer="x")
            codes.append(getattr(caught.value, "code", ""))
        stream.tunnel.open("accepted", listener=stream.number, peer="x").write(b"hello")

    with socket.create_server(("127.0.0.1", 0)) as server, FakeTunnelService(listen=listen) as service:
        server.settimeout(PATIENCE_S)
        tunnel = open_tunnel(service.transport(), "t-1", "t-1-worker-0")
        with PortForward(tunnel, [ForwardedPort(server.getsockname()[1], 80)], reverse=True) as forward:
            connection, _ = server.accept()
            with connection:
                assert connection.recv(5) == b"hello"
            assert not forward.wait(0)
    assert codes == ["NotFound"] * 4


def test_errors_with_text_of_a_job_do_not_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(f"error: {_ESCAPE}no\nsecond \x1b[2Jline")
    assert capsys.readouterr().err == "error: no\nsecond line\n"


def test_stacks_do_not_control_the_terminal() -> None:
    threads = [{"name": "main", "frames": [{"function": f"f{_ESCAPE}", "file": "a.py", "line": 1}]}]
    values = {
        "processes": [{"rank": 0, "pid": 1, "program": f"python{_ESCAPE}", "kind": "rank", "threads": threads}]
    }
    stacks = JobStacks("t-1", tuple(parse_processes(values, instance="w-0")), {"w-1": f"no{_ESCAPE}"})
    assert "python" in repr(stacks)
    assert "\x1b" not in repr(stacks)


def test_stacks_that_exhaust_the_parser_are_an_error() -> None:
    def send(stream: Stream) -> None:
        stream.write(b"[" * 100_000)
        stream.end()
        stream.close()

    with FakeTunnelService(stacks=send) as service, pytest.raises(TunnelClosedError) as caught:
        read_stacks("t-1", ["w-0"], lambda name: open_tunnel(service.transport(), "t-1", name), timeout_s=10)
    assert caught.value.code == "InvalidResponse"


def test_names_in_a_debugger_do_not_control_the_terminal() -> None:
    process = WaitingProcess.parse({"rank": 0, "pid": 1, "function": f"f{_ESCAPE}", "file": "a\x1b[2J.py"}, "w-0")
    assert str(process) == "rank 0 in f (a.py:0)"
