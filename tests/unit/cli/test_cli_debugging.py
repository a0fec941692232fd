"""`pai-sdk stacks` and `pai-sdk debug`, against an instance in memory."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pai_sdk._host.agent.tunnel.streams import Stream
from pai_sdk.errors import InvalidInputError
from tests.support.fake_backend import FakeBackend
from tests.support.fake_tunnel import FakeInstance
from tests.unit.cli.conftest import Pai

FILE = "/ml/usercode/train.py"


def process(rank: int, function: str) -> dict[str, Any]:
    frames = [{"function": "main", "file": FILE, "line": 9}, {"function": function, "file": FILE, "line": 3}]
    return {
        "pid": rank + 1,
        "rank": rank,
        "kind": "rank",
        "program": "python train.py",
        "threads": [{"frames": frames}],
    }


class Instances(FakeInstance):
    """Two ranks in each instance: one of them is not in the collective operation; and what waits in a debugger."""

    def __init__(self) -> None:
        super().__init__(stacks=self.read_stacks, debuggers=self.list_debuggers, socket=self.join)
        self.parameters: list[dict[str, Any]] = []
        self.sessions: list[dict[str, Any]] = []
        self.received: list[bytes] = []
        self.has_detached = threading.Event()

    def read_stacks(self, stream: Stream) -> None:
        self.parameters.append(dict(stream.parameters))
        processes = [process(0, "all_reduce"), process(1, "load"), process(2, "all_reduce")]
        stream.write(json.dumps({"processes": processes}).encode())
        stream.end()
        stream.send_exit({"code": 0})

    def list_debuggers(self, stream: Stream) -> None:
        stream.confirm({"sessions": self.sessions})
        stream.close()

    def join(self, stream: Stream) -> None:
        self.parameters.append(dict(stream.parameters))
        stream.write(b"(Pdb) ")
        while b"EOF\n" not in b"".join(self.received):
            self.received.append(stream.read())
        stream.write(b"Detached\n")
        stream.end()
        stream.send_exit({"code": 0})


@contextmanager
def invalid(where: str) -> Iterator[None]:
    with pytest.raises(InvalidInputError) as refused:
        yield
    assert [problem.where for problem in refused.value.problems] == [where]


@pytest.fixture
def instances(memory: FakeBackend) -> Instances:
    memory.lines = {"train1-master-0": [], "train1-worker-0": []}
    memory.instance = made = Instances()
    return made


def session(rank: int, **values: Any) -> dict[str, Any]:
    default = {"kind": "terminal", "state": "waiting", "file": FILE, "function": "step", "line": 7}
    return {
        "rank": rank,
        "pid": 40 + rank,
        "socket": f"/ml/.pai-sdk-debug/{rank}.sock",
        "port": None,
        **default,
        **values,
    }


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """What is typed into the terminal."""
    reader, writer = os.pipe()
    os.write(writer, b"p x\n")
    os.close(writer)
    monkeypatch.setattr("pai_sdk._client.job.debugging._read_stdin", lambda: os.read(reader, 4096))
    return b"p x\n"


def test_the_stacks_are_printed_with_the_odd_rank_first(pai: Pai, instances: Instances) -> None:
    printed = pai("stacks", "train1:0").stdout.splitlines()
    assert "3 ranks" in printed[0]
    assert printed[2].startswith("rank 1:")
    assert instances.parameters == [{"native": False, "timeout_s": 60.0}]


def test_options_reach_the_instances(pai: Pai, memory: FakeBackend, instances: Instances) -> None:
    values = json.loads(pai("stacks", "train1", "--native", "--timeout", "5", "--json").stdout)
    assert values["odd_ranks"] == [1]
    assert {process["instance"] for process in values["processes"]} == {"train1-master-0", "train1-worker-0"}
    assert instances.parameters == [{"native": True, "timeout_s": 5.0}] * 2
    for timeout in ("0", "-1", "nan"):
        with invalid("timeout"):
            pai("stacks", "train1", "--timeout", timeout)
    memory.status = "Succeed"
    with invalid("JOB"):
        pai("stacks", "train1")


def test_a_rank_that_waits_is_joined(pai: Pai, instances: Instances, typed: bytes) -> None:
    instances.sessions = [session(0), session(1)]
    joined = pai("debug", "train1:1")
    assert joined.exit_code == 0
    assert joined.stdout == "(Pdb) Detached\n"
    assert b"".join(instances.received) == typed + b"EOF\n"
    assert instances.parameters[-1]["path"] == "/ml/.pai-sdk-debug/1.sock"


def test_one_of_several_ranks_must_be_named(pai: Pai, instances: Instances) -> None:
    instances.sessions = [session(0), session(1)]
    with invalid("JOB"):
        pai("debug", "train1", "--wait", "0")
    instances.sessions = []
    with invalid("JOB"):
        pai("debug", "train1:1", "--wait", "0")


def test_the_kind_of_client_must_fit(pai: Pai, instances: Instances) -> None:
    instances.sessions = [session(0)]
    with invalid("--editor"):
        pai("debug", "train1:0", "--editor")
    instances.sessions = [session(0, kind="debugpy", port=5)]
    with invalid("--editor"):
        pai("debug", "train1:0")


def test_another_client_is_announced(pai: Pai, instances: Instances, typed: bytes) -> None:
    instances.sessions = [session(0, state="joined")]
    assert "replacing" in pai("debug", "train1:0").stderr


def test_the_port_of_an_editor_is_forwarded(
    pai: Pai, instances: Instances, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupt(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr("pai_sdk._client.tunnel.forwarding.PortForward.wait", interrupt)
    instances.sessions = [session(1, kind="debugpy", port=41234, working_dir="/ml/usercode")]
    printed = pai("debug", "train1:1", "--editor", "--port", "0", "--source", str(tmp_path))
    (configuration,) = json.loads(printed.stdout)["configurations"]
    assert configuration["connect"]["port"] > 0
    assert configuration["pathMappings"] == [{"localRoot": str(tmp_path), "remoteRoot": "/ml/usercode"}]
