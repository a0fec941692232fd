"""Looking at a job of containers: what an instance writes between two looks counts."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pai_sdk._host.agent.distributed import name_instances
from pai_sdk._host.agent.journal import Journal
from pai_sdk._host.agent.protocol import ExecutionState
from pai_sdk._host.execution.docker.containers import JobContainers
from pai_sdk._host.execution.docker.engine import Absence, Engine
from pai_sdk._host.execution.docker.executor import DockerExecutor
from pai_sdk._host.execution.docker.shared_folder import SharedFolder
from pai_sdk.errors import EngineNotFoundError


def container(name: str, status: str, code: int = 0) -> Any:
    state = {"Status": status, "ExitCode": code, "OOMKilled": False}
    return SimpleNamespace(name=name, status=status, attrs={"State": state})


@pytest.mark.parametrize("code", [0, 5])
def test_an_instance_that_ends_while_it_is_looked_at_has_told_its_end_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Above all, an early success must not be taken for a failure, which would end the others."""
    shared = SharedFolder(tmp_path / "shared")
    shared.prepare({}, [])
    shared.go()
    journal = Journal(tmp_path / "state")
    journal.path.mkdir()
    instances = [asdict(one) for one in name_instances("j", "PyTorchJob", 2)]
    journal.write_job(
        {"job_id": "j", "instances": instances, "max_running_s": None, "grace_s": 1, "memory_bytes": None}
    )

    def of(job_id: str) -> list[Any]:
        (shared.path / "j-worker-0.exit").write_text(f"{code}\n")
        return [container("j-master-0", "running"), container("j-worker-0", "exited", code)]

    executor = DockerExecutor()
    monkeypatch.setattr(executor._containers, "of", of)
    assert executor.state(tmp_path).phase != "ended"
    assert shared.first_failure is None


def job_of(root: Path, *, count: int = 3) -> SharedFolder:
    """A job whose instances have begun."""
    shared = SharedFolder(root / "shared")
    shared.prepare({}, [])
    shared.go()
    journal = Journal(root / "state")
    journal.path.mkdir()
    instances = [asdict(one) for one in name_instances("j", "PyTorchJob", count)]
    facts = {"job_id": "j", "max_running_s": None, "grace_s": 1, "memory_bytes": None}
    journal.write_job({**facts, "instances": instances})
    return shared


class Paused:
    """One instance of three is paused; the others have ended, since they missed it."""

    def __init__(self) -> None:
        self.paused = container("j-worker-0", "paused")
        self.paused.kill = self.kill

    def list(self, **_: Any) -> list[Any]:
        return [self.paused]

    def kill(self) -> None:
        self.paused.status = "exited"
        self.paused.attrs["State"] |= {"Status": "exited", "ExitCode": 137}


def test_a_paused_instance_that_the_others_took_for_lost_is_killed_after_the_grace_period(tmp_path: Path) -> None:
    """It cannot hear that it is to end, so without us the job would never end."""
    shared, engine_has = job_of(tmp_path), Paused()
    (shared.path / "failed").write_text("j-worker-0 137 silent\n")
    (shared.path / "j-worker-0.beat").touch()
    for name in ("j-master-0", "j-worker-1"):
        (shared.path / f"{name}.why").write_text("peer\n")
        (shared.path / f"{name}.exit").write_text("143\n")
    executor = DockerExecutor(lambda: engine_of(containers=engine_has))
    assert executor.state(tmp_path).phase != "ended"
    assert engine_has.paused.status == "paused", "its grace period is not over"
    long_ago = time.time() - 60
    os.utime(shared.path / "failed", (long_ago, long_ago))
    executor._polls.forget(tmp_path)
    executor.state(tmp_path)
    assert engine_has.paused.status == "exited"
    executor._polls.forget(tmp_path)
    executor._containers.remove = lambda job_id: None  # type: ignore[method-assign]
    state = executor.state(tmp_path)
    assert (state.phase, state.failed_instance, state.reason_code) == ("ended", "j-worker-0", "SupervisorLost")
    assert "its container was paused" in state.reason_message


def test_an_instance_that_still_gives_its_files_to_their_owner_is_not_killed(tmp_path: Path) -> None:
    shared, engine_has = job_of(tmp_path), Paused()
    shared.request_stop("StoppedByUser", "by Ann")
    (shared.path / "j-worker-0.exit.part").write_text("0\n")
    JobContainers(lambda: engine_of(containers=engine_has)).kill("j", shared)
    assert engine_has.paused.status == "paused"


def engine_of(*, containers: object = None, events: list[dict[str, Any]] | None = None) -> Engine:
    """An engine that has these containers, and remembers these events."""

    def tell(**_: Any) -> Iterator[dict[str, Any]]:
        yield from events or []

    client = SimpleNamespace(containers=containers, api=SimpleNamespace(events=tell))
    engine = SimpleNamespace(client=client, is_podman=False, check_responds=lambda: None)
    return cast("Engine", engine)


def event(action: str, of: str = "id-1", at: float = 50.0) -> dict[str, Any]:
    return {"Action": action, "Actor": {"ID": of}, "timeNano": int(at * 1e9)}


@pytest.mark.parametrize(
    ("events", "has_restarted"),
    [
        ([event("start"), event("kill")], False),
        ([event("die")], True),
        ([], True),
        ([event("start", of="another"), event("kill")], True),
        ([event("pull", of="another", at=101)] * 256, None),
        ([event("pull", of="another", at=99)] * 256, True),
    ],
    ids=["its own start", "a later engine", "just started", "others since", "too many since", "many before"],
)
def test_an_engine_that_does_not_know_the_start_of_a_container_has_restarted(
    events: list[dict[str, Any]], has_restarted: bool | None
) -> None:
    """An engine keeps its last 256 events, and loses them when it ends. The job began at second 100."""
    found = SimpleNamespace(list=lambda **_: [SimpleNamespace(id="id-1")])
    containers = JobContainers(lambda: engine_of(containers=found, events=events))
    assert containers.engine_has_restarted("j", since=100.0) is has_restarted


def kill_event(signal: str) -> dict[str, Any]:
    return {**event("kill"), "Actor": {"ID": "id-1", "Attributes": {"signal": signal}}}


@pytest.mark.parametrize(
    ("events", "code"),
    [
        ([kill_event("9")], "KilledBySignal"),
        ([kill_event("15"), kill_event("9")], "KilledBySignal"),
        ([], "OutOfMemory"),
        ([kill_event("15")], "OutOfMemory"),
    ],
    ids=["docker kill", "docker stop", "by the kernel", "asked to end only"],
)
def test_a_container_that_survived_a_lack_of_memory_and_was_killed_later_says_by_whom(
    tmp_path: Path, events: list[dict[str, Any]], code: str
) -> None:
    """The engine's `OOMKilled` stays true after the kernel has killed any process of the container."""
    job_of(tmp_path, count=1)
    state = {"Status": "exited", "ExitCode": 137, "OOMKilled": True}
    container = SimpleNamespace(id="id-1", name="j-master-0", status="exited", attrs={"State": state})
    container.logs = lambda **_: b""
    engine_has = SimpleNamespace(list=lambda **_: [container])
    executor = DockerExecutor(lambda: engine_of(containers=engine_has, events=[event("start"), *events]))
    executor._containers.remove = lambda job_id: None  # type: ignore[method-assign]
    ended = executor.state(tmp_path)
    assert (ended.phase, ended.reason_code) == ("ended", code)


def test_an_end_that_cannot_be_written_down_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shared = job_of(tmp_path)
    for name in ("j-master-0", "j-worker-0", "j-worker-1"):
        (shared.path / f"{name}.exit").write_text("0\n")

    def write_state(journal: Journal, state: ExecutionState) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(Journal, "write_state", write_state)
    executor = DockerExecutor()
    monkeypatch.setattr(executor._containers, "of", lambda job_id: [])
    for _ in range(3):
        assert executor.state(tmp_path).phase == "ended"
    assert [record.getMessage() for record in caplog.records] == [
        "the end of job j cannot be saved: [Errno 28] no space"
    ]


def test_one_look_waits_only_once_for_an_engine_that_hangs(tmp_path: Path) -> None:
    """All instances have told their end. What is left to be removed is removed by a later look."""
    shared = job_of(tmp_path)
    for name in ("j-master-0", "j-worker-0", "j-worker-1"):
        (shared.path / f"{name}.exit").write_text("0\n")
    asked = []

    def find() -> Engine:
        asked.append("engine")
        raise EngineNotFoundError("it hangs")

    now = 0.0
    executor = DockerExecutor(find)
    executor._polls.absence = Absence(lambda: now)
    for _ in range(3):
        assert executor.state(tmp_path).succeeded
    assert len(asked) == 1
    now = 60.0 + time.monotonic()
    assert executor.state(tmp_path).succeeded
    assert len(asked) == 2
