"""What others do to a job of containers between two lines of who looks at it: its submitter, hands, lookers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from pai_sdk._core.files import locked
from pai_sdk._host.agent.distributed import name_instances
from pai_sdk._host.agent.journal import Journal
from pai_sdk._host.execution.base import ExecutionState
from pai_sdk._host.execution.docker.executor import ContainerPolls, DockerExecutor
from pai_sdk._host.execution.docker.shared_folder import SharedFolder
from pai_sdk.errors import EngineNotFoundError
from tests.unit.host.execution.test_docker_looks import container


@pytest.fixture
def shared(tmp_path: Path) -> SharedFolder:
    """The folder of a job of two instances that are not let go yet."""
    shared = SharedFolder(tmp_path / "shared")
    shared.prepare({}, [])
    for name in ("j-master-0", "j-worker-0"):
        (shared.path / f"{name}.beat").touch()
    journal = Journal(tmp_path / "state")
    journal.path.mkdir()
    instances = [asdict(one) for one in name_instances("j", "PyTorchJob", 2)]
    facts = {"max_running_s": None, "grace_s": 1, "memory_bytes": None, "give_to": "1:1"}
    journal.write_job({"job_id": "j", "instances": instances, **facts})
    return shared


class Containers:
    """What the engine has, and who is at it."""

    def __init__(self, of: Callable[[], list[Any]], restore_owner: Callable[[], None] = lambda: None) -> None:
        self._of, self._give_back = of, restore_owner
        self.done: list[str] = []

    def of(self, job_id: str) -> list[Any]:
        return self._of()

    def restore_owner(self, job_id: str, to: str) -> None:
        self._give_back()
        self.done.append("given back")

    def engine_has_restarted(self, job_id: str, *, since: float) -> bool:
        self._of()
        return False

    def remove(self, job_id: str) -> None:
        self.done.append("removed")


def executor_of(containers: Containers) -> DockerExecutor:
    executor = DockerExecutor()
    executor._containers = containers  # type: ignore[assignment]
    executor._polls = ContainerPolls(containers)  # type: ignore[arg-type]
    return executor


def test_a_container_that_is_made_while_the_engine_is_asked_has_not_gone(
    tmp_path: Path, shared: SharedFolder
) -> None:
    """Neither then, nor at the next look, which must not go by what was seen too early."""
    names = ["j-master-0"]

    def of() -> list[Any]:
        found = [container(name, "running") for name in names]
        names[1:] = ["j-worker-0"]
        shared.go()
        return found

    executor = executor_of(Containers(of))
    with locked(tmp_path / "state" / "lock"):  # its submitter is at work
        assert executor.state(tmp_path).phase != "ended"
    assert executor.state(tmp_path).phase != "ended"
    assert shared.first_failure is None


def test_a_job_that_is_let_go_at_this_moment_was_not_interrupted(
    tmp_path: Path, shared: SharedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_locked(_: object) -> bool:  # its submitter lets it go, and then the lock
        shared.go()
        return False

    monkeypatch.setattr(Journal, "is_locked", is_locked)
    both = [container(name, "running") for name in ("j-master-0", "j-worker-0")]
    assert executor_of(Containers(lambda: both)).state(tmp_path).phase != "ended"


def test_a_start_that_is_taken_back_at_this_moment_has_no_end(
    tmp_path: Path, shared: SharedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_locked(_: object) -> bool:
        Journal(tmp_path / "state").forget_job()
        return False

    monkeypatch.setattr(Journal, "is_locked", is_locked)
    assert executor_of(Containers(list)).state(tmp_path).phase == "absent"
    assert Journal(tmp_path / "state").read_state() is None


def test_a_container_that_is_about_to_be_removed_was_removed_from_outside(
    tmp_path: Path, shared: SharedFolder
) -> None:
    """The engine kills it first, and for a moment shows it as one that was killed."""
    shared.go()
    both = [container(name, "removing", 137) for name in ("j-master-0", "j-worker-0")]
    state = executor_of(Containers(lambda: both)).state(tmp_path)
    assert (state.phase, state.succeeded) == ("ended", False)
    assert "removed by another program" in state.reason_message


def test_how_a_container_ended_is_known_though_the_engine_goes_away_then(
    tmp_path: Path, shared: SharedFolder
) -> None:
    shared.go()
    looks = iter([[container(name, "exited", 137) for name in ("j-master-0", "j-worker-0")]])

    def of() -> list[Any]:
        if (found := next(looks, None)) is None:
            raise EngineNotFoundError("it does not answer any more")
        return found

    state = executor_of(Containers(of)).state(tmp_path)
    assert (state.phase, state.instances[0].exit_code) == ("ended", 137)
    assert "killed from outside" in state.reason_message


def test_one_that_podman_is_stopping_has_not_ended(tmp_path: Path, shared: SharedFolder) -> None:
    shared.go()
    both = [container(name, "stopping") for name in ("j-master-0", "j-worker-0")]
    assert executor_of(Containers(lambda: both)).state(tmp_path).phase != "ended"


def test_who_is_told_of_the_end_finds_nothing_left_to_do(tmp_path: Path, shared: SharedFolder) -> None:
    """Its process may end at once, and with it the thread that has just begun to give back and to remove."""
    shared.go()
    told: list[tuple[ExecutionState, list[str]]] = []

    def look() -> None:
        told.append((executor.state(tmp_path), list(containers.done)))

    another = threading.Thread(target=look)

    def restore_owner() -> None:
        another.start()
        another.join(0.5)  # however long it takes: it is not to come back before this one does

    killed = [container(name, "exited", 137) for name in ("j-master-0", "j-worker-0")]
    containers = Containers(lambda: killed, restore_owner)
    executor = executor_of(containers)
    assert executor.state(tmp_path).phase == "ended"
    another.join()
    ((state, done),) = told
    assert state.phase != "ended" or done == ["given back", "removed"]
    assert containers.done == ["given back", "removed"]
