"""`pai-sdk debug`: finds the rank that waits, joins its terminal, describes its port for an editor."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from pai_sdk._client.job.debugging import (
    WaitingProcess,
    join_terminal,
    launch_json,
    select_process,
    wait_for_process,
    waiting_processes,
)
from pai_sdk.errors import InvalidInputError, TunnelRefusedError


def values(rank: int, pid: int = 0, **changes: Any) -> dict[str, Any]:
    default = {
        "kind": "terminal",
        "state": "waiting",
        "file": "/ml/usercode/train.py",
        "function": "step",
        "line": 7,
    }
    paths = {"socket": f"/ml/.pai-sdk-debug/{rank}.sock", "working_dir": "/ml/usercode", "port": None}
    return {"rank": rank, "pid": pid or 100 + rank, "deadline": 4.0, **default, **paths, **changes}


def process(rank: int, pid: int = 0, instance: str = "job-worker-0", **changes: Any) -> WaitingProcess:
    parsed = WaitingProcess.parse(values(rank, pid, **changes), instance)
    assert parsed is not None
    return parsed


class FakeTunnel:
    """A tunnel into an instance with some waiting processes, and with Unix sockets of this machine."""

    def __init__(self, sessions: Any) -> None:
        self.result = {"sessions": sessions}
        self.connection = socket.socket(socket.AF_UNIX)

    def open(self, kind: str, **parameters: Any) -> FakeTunnel:
        if kind == "socket":
            try:
                self.connection.connect(parameters["path"])
            except OSError as error:
                raise TunnelRefusedError("ConnectionRefused", str(error)) from error
        return self

    def read(self) -> bytes:
        return self.connection.recv(4096)

    def write(self, data: bytes) -> None:
        self.connection.sendall(data)

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> FakeTunnel:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def test_the_waiting_processes_of_all_instances_are_listed_by_rank() -> None:
    sessions: dict[str, Any] = {
        "a": [values(3), values(2, pid=9), values(2, pid=4)],
        "b": [values(0), {"rank": "x", "pid": 3}, 7],
        "c": "nonsense",
    }
    listed = waiting_processes([*sessions], lambda name: FakeTunnel(sessions[name]))
    assert [(each.rank, each.pid, each.instance) for each in listed] == [
        (0, 100, "b"),
        (2, 4, "a"),
        (2, 9, "a"),
        (3, 103, "a"),
    ]
    assert "rank 0 in step (train.py:7)" in str(listed[0])


def test_an_instance_that_cannot_be_reached_hides_no_other() -> None:
    def connect(name: str) -> FakeTunnel:
        if name == "a":
            raise TunnelRefusedError("JobNotRunning", "it has ended")
        return FakeTunnel([values(1)])

    assert [each.rank for each in waiting_processes(["a", "b"], connect)] == [1]
    with pytest.raises(TunnelRefusedError):
        waiting_processes(["a"], connect)


def test_a_process_is_selected_by_rank_or_instance() -> None:
    processes = [process(0), process(1, instance="job-worker-1"), process(1, pid=7, state="joined")]
    assert select_process(processes, rank=1) == processes[1]
    assert select_process(processes, rank=None, instance="job-worker-1") == processes[1]
    assert select_process(processes, rank=5) is None
    assert select_process(processes[2:], rank=None) == processes[2]
    with pytest.raises(InvalidInputError):
        select_process(processes, rank=None)


def test_a_rank_is_waited_for_until_it_is_at_a_breakpoint() -> None:
    lists = iter([[], [process(0)], [process(0), process(1)]])
    waits: list[int] = []

    def wait(list_processes: Callable[[], list[WaitingProcess]], timeout_s: float) -> WaitingProcess:
        return wait_for_process(
            list_processes, rank=1, instance=None, timeout_s=timeout_s, poll_s=0, on_wait=lambda: waits.append(1)
        )

    assert wait(lambda: next(lists), 60).rank == 1
    assert waits == [1]
    with pytest.raises(InvalidInputError) as refused:
        wait(lambda: [], 0)
    assert "debugger='terminal'" in refused.value.problems[0].hint
    with pytest.raises(InvalidInputError) as refused:
        wait(lambda: [process(0)], 0)
    assert refused.value.problems[0].hint.endswith(str(process(0)))


@pytest.fixture
def listener(tmp_path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "1.sock"))
    listener.listen()
    return listener


def test_a_terminal_sends_lines_and_shows_what_comes(tmp_path: Path, listener: socket.socket) -> None:
    keys: SimpleQueue[bytes] = SimpleQueue()
    received: list[bytes] = []

    def debugger() -> None:
        with listener, listener.accept()[0] as client:
            client.sendall("(Pdb) é".encode())
            file = client.makefile("rb")
            received.append(file.readline())
            client.sendall(b"42\n(Pdb) ")
            # Ctrl-D
            received.append(file.readline())
            file.close()

    thread = threading.Thread(target=debugger)
    thread.start()
    for line in (b"p x\n", b""):
        keys.put(line)
    output = bytearray()
    with FakeTunnel([]) as tunnel:
        waiting = process(1, socket=str(tmp_path / "1.sock"))
        join_terminal(tunnel, waiting, read=keys.get, write=output.extend)
    thread.join()
    assert received == [b"p x\n", b"EOF\n"]
    assert output.decode() == "(Pdb) é42\n(Pdb) "


def test_a_process_that_waits_no_longer_is_an_error(tmp_path: Path) -> None:
    with FakeTunnel([]) as tunnel, pytest.raises(InvalidInputError):
        join_terminal(tunnel, process(1, socket=str(tmp_path / "none.sock")))


def test_the_configuration_of_an_editor_maps_the_folders() -> None:
    waiting = process(1, kind="debugpy", port=41234, working_dir="/srv/jobs/a/ml/usercode")
    (configuration,) = json.loads(launch_json(waiting, port=5679, local_folder="/home/me/code"))["configurations"]
    assert configuration["connect"] == {"host": "127.0.0.1", "port": 5679}
    assert configuration["pathMappings"] == [
        {"localRoot": "/home/me/code", "remoteRoot": "/srv/jobs/a/ml/usercode"}
    ]
    assert (configuration["type"], configuration["request"]) == ("debugpy", "attach")
    assert (
        json.loads(launch_json(process(1, working_dir=""), port=1, local_folder="x"))["configurations"][0][
            "pathMappings"
        ][0]["remoteRoot"]
        == "/ml/usercode"
    )
