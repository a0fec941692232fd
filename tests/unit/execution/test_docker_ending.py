"""How a job of containers ended, told from what its instances wrote and what the engine says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pai_sdk.execution.distributed import Instance, name_instances
from pai_sdk.execution.docker.ending import ContainerEnd, ending
from pai_sdk.execution.docker.runfolder import RunFolder

JOB = {"memory_bytes": None, "max_running_s": None}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    run = RunFolder(tmp_path / "run")
    run.prepare({}, [])
    run.go()
    return run


def told(run: RunFolder, ends: dict[str, ContainerEnd | None], count: int = 1) -> dict[str, Any]:
    instances: tuple[Instance, ...] = name_instances("j", "PyTorchJob", count)
    return ending(JOB, run, instances, ends)


def test_a_success_that_could_not_be_written_down_is_one(run: RunFolder) -> None:
    """The disk was full; the engine knows the exit code."""
    state = told(run, {"j-master-0": ContainerEnd(0)})
    assert (state["succeeded"], state["reason_code"]) == (True, "")


def test_a_failure_that_could_not_be_written_down_keeps_its_code(run: RunFolder) -> None:
    state = told(run, {"j-master-0": ContainerEnd(3)})
    assert (state["failed_instance"], state["reason_code"]) == ("j-master-0", "NonZeroExit")


@pytest.mark.parametrize(
    ("end", "code", "says"),
    [
        (ContainerEnd(137), "KilledBySignal", "killed from outside (exit code 137)"),
        (ContainerEnd(255), "KilledBySignal", "killed from outside (exit code 255)"),
        (ContainerEnd(137, out_of_memory=True), "OutOfMemory", "ran out of memory"),
        (ContainerEnd(128, error="no GPU"), "ContainerNotStarted", "could not be started: no GPU"),
        (ContainerEnd(2, words="sh: Permission denied"), "ContainerNotStarted", "It said: sh: Permission denied"),
        (None, "SupervisorLost", "was removed from outside"),
    ],
)
def test_an_instance_that_could_not_tell_itself(
    run: RunFolder, end: ContainerEnd | None, code: str, says: str
) -> None:
    for is_told_by_us in (False, True):
        if is_told_by_us:
            run.tell_failure("j-master-0", end.code if end else 137)
        state = told(run, {"j-master-0": end} if end else {})
        assert (state["failed_instance"], state["reason_code"]) == ("j-master-0", code)
        assert says in state["reason_message"]


def test_an_instance_that_was_paused_too_long(run: RunFolder) -> None:
    """The others took it for lost; when it came back it found that the job had failed."""
    run.tell_failure("j-worker-0", 137)
    for name in ("j-master-0", "j-worker-0"):
        (run.path / f"{name}.why").write_text("peer\n")
        (run.path / f"{name}.exit").write_text("143\n")
    state = told(run, {}, count=2)
    assert state["failed_instance"] == "j-worker-0"
    assert "no sign of life" in state["reason_message"]


def test_half_a_wish_to_stop_is_a_wish(run: RunFolder) -> None:
    (run.path / "stop").write_text('{"reason_co')
    assert run.stop_wish == ("", "")
