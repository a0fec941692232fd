"""`job.stacks()`: all ranks at once, bounded; what cannot be read is reported beside what can."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pai_sdk._client.job.stacks import JobStacks, read_stacks
from pai_sdk._data.stacks.frames import Frame
from pai_sdk.errors import TunnelClosedError, TunnelRefusedError

TRAIN = "/ml/usercode/train.py"


def process(rank: int | None, *functions: str, pid: int = 7, kind: str = "rank", **values: Any) -> dict[str, Any]:
    frames = [{"function": name, "file": TRAIN, "line": 10 * n} for n, name in enumerate(functions, 1)]
    threads = [{"id": pid, "name": "MainThread", "frames": frames}] if frames else []
    return {"pid": pid, "rank": rank, "kind": kind, "program": "python train.py", "threads": threads, **values}


class FakeTunnel:
    """A tunnel whose instance sends some bytes."""

    def __init__(self, content: bytes, on_read: Callable[[], object] = lambda: None) -> None:
        self.content = content
        self.parameters: dict[str, Any] = {}
        self.on_read = on_read
        self.is_abandoned = threading.Event()

    def open(self, kind: str, **parameters: Any) -> FakeTunnel:
        self.parameters = {"kind": kind, **parameters}
        return self

    def read(self) -> bytes:
        self.on_read()
        chunk, self.content = self.content[:1000], self.content[1000:]
        return chunk

    def close(self) -> None:
        pass

    def abandon(self) -> None:
        self.is_abandoned.set()

    def __enter__(self) -> FakeTunnel:
        return self

    def __exit__(self, *exc: object) -> None:
        pass


def response(*processes: dict[str, Any]) -> bytes:
    return json.dumps({"processes": processes}).encode()


def ranks(count: int, odd: int) -> dict[str, bytes]:
    """The responses of instances of which one is in `load`, and the others wait for it."""
    return {
        f"job-worker-{rank}": response(
            process(rank, "main", "load" if rank == odd else "all_reduce", pid=100 + rank, cpu_percent=0.0)
        )
        for rank in range(count)
    }


def read(responses: dict[str, bytes], **options: Any) -> JobStacks:
    return read_stacks("job", [*responses], lambda name: FakeTunnel(responses[name]), **options)


def test_the_odd_rank_comes_first() -> None:
    stacks = read(ranks(64, odd=40))
    assert stacks.odd_ranks == (40,)
    assert [group.ranks for group in stacks.groups] == [(40,), (*range(40), *range(41, 64))]
    lines = repr(stacks).splitlines()
    assert "64 ranks" in lines[0]
    assert lines[2].startswith("rank 40:")
    assert "load (train.py:20)" in lines[2]
    assert any(line.startswith("ranks 0-39, 41-63:") for line in lines)


def test_its_values_are_json_and_html() -> None:
    stacks = read(ranks(3, odd=1))
    values = json.loads(json.dumps(stacks.to_dict()))
    assert (values["odd_ranks"], values["groups"][0]["ranks"]) == ([1], [1])
    assert values["groups"][0]["user_frame"] == {"function": "load", "file": TRAIN, "line": 20}
    assert len(values["processes"]) == 3
    html = stacks._repr_html_()
    assert html.count("<details") == 2
    assert html.count("<details open") == 1


def test_names_of_a_job_are_no_html() -> None:
    stacks = read({"a": response(process(0, "<script>alert(1)</script>"))})
    assert "<script>" not in stacks._repr_html_()


def test_the_request_has_its_options() -> None:
    tunnel = FakeTunnel(response(process(0, "main")))
    read_stacks("job", ["a"], lambda _: tunnel, native=True, timeout_s=5)
    assert tunnel.parameters == {"kind": "stacks", "native": True, "timeout_s": 5}


def test_instances_that_cannot_be_read_are_reported() -> None:
    responses = {**ranks(3, odd=1), "job-worker-3": b"{", "job-worker-4": b"[]"}

    def connect(name: str) -> FakeTunnel:
        if name == "job-worker-0":
            raise TunnelRefusedError("JobNotRunning", "it has ended")
        return FakeTunnel(responses[name])

    stacks = read_stacks("job", [*responses], connect)
    assert [*stacks.problems] == ["job-worker-0", "job-worker-3"]
    assert "job-worker-0 could not be read" in repr(stacks)
    with pytest.raises(TunnelRefusedError) as refused:
        read_stacks("job", ["job-worker-0"], connect)
    assert refused.value.code == "JobNotRunning"


def test_an_instance_that_does_not_respond_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pai_sdk._client.job.stacks._SLACK_S", 0.0)
    stuck = FakeTunnel(b"")
    stuck.on_read = stuck.is_abandoned.wait
    tunnels = {"a": FakeTunnel(response(process(0, "main"))), "b": stuck}
    stacks = read_stacks("job", ["a", "b"], lambda name: tunnels[name], timeout_s=0.5)
    assert [process.rank for process in stacks.processes] == [0]
    assert [*stacks.problems] == ["b"]
    assert stuck.is_abandoned.is_set()


def test_responses_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pai_sdk._client.job.stacks._MAX_BYTES", 5000)
    with pytest.raises(TunnelClosedError) as refused:
        read({"a": b"x" * 10_000})
    assert refused.value.code == "InvalidResponse"


def test_few_tunnels_are_open_at_once() -> None:
    lock, counts = threading.Lock(), [0, 0]

    class Counted(FakeTunnel):
        def __enter__(self) -> Counted:
            with lock:
                counts[0] += 1
                counts[1] = max(counts)
            return self

        def __exit__(self, *exc: object) -> None:
            with lock:
                counts[0] -= 1

    responses = ranks(200, odd=3)
    assert read_stacks("job", [*responses], lambda name: Counted(responses[name])).odd_ranks == (3,)
    assert counts[1] <= 32


def test_an_instance_speaks_for_itself_only() -> None:
    stacks = read({"job-worker-0": response(process(0, "main", instance="job-ps-0"))})
    assert stacks.processes[0].instance == "job-worker-0"


def test_children_threads_and_kernel_of_the_odd_rank_are_printed() -> None:
    responses = ranks(3, odd=1)
    thread = {"id": 9, "name": "prefetch", "frames": [{"function": "fill", "file": TRAIN, "line": 5}]}
    odd = process(1, "main", "load", syscall="futex", cpu_percent=3.0)
    odd["threads"].append(thread)
    children = [process(1, "worker", pid=50 + n, kind="child", state="S") for n in range(8)]
    responses["job-worker-1"] = response(odd, *children)
    text = repr(read(responses))
    assert "thread prefetch: fill (train.py:5)" in text
    assert text.count("child 5") == 6
    assert "2 more children" in text
    assert "3 % CPU, in futex" in text


def test_a_job_without_stacks_has_the_reason() -> None:
    text = repr(read({"a": response(process(0, problem="py-spy: Permission denied", state="T"))}))
    assert "Permission denied" in text
    assert "stopped" in text
    assert "job-ps-1" in repr(read({"job-ps-1": response(process(None, "serve"))}))


def test_long_stacks_are_shortened_at_their_outer_end() -> None:
    text = repr(read({"a": response(process(0, *(f"f{n}" for n in range(100))))}))
    assert "f99 " in text
    assert "f0 " not in text


def test_a_debugger_comes_first_and_is_not_odd() -> None:
    responses = ranks(3, odd=1)
    waiting = process(2, "main", "step")
    waiting["threads"][0]["frames"].append(Frame("interaction", "/usr/lib/python3.11/pdb.py", 3)._asdict())
    responses["job-worker-2"] = response(waiting)
    stacks = read(responses)
    assert stacks.odd_ranks == ()
    assert "rank 2: waiting in a debugger, in step (train.py:20)" in repr(stacks)
