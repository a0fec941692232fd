"""A node is lost while the instances talk to each other: the others fail first, and Slurm notices it later."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pai_sdk._host.agent.journal import Journal
from pai_sdk._host.agent.protocol import Ending, ExecutionState, InstanceState
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.agent.slurm.gang_folder import Claim, GangFolder
from pai_sdk._host.execution.slurm.executor import SlurmExecutor
from pai_sdk._host.execution.slurm.options import SlurmOptions
from pai_sdk._host.execution.slurm.queue import QueuedJob

NAMES = ("j-master-0", "j-worker-0")
LONG_AGO = time.time() - 600


class Gang:
    """A job of two instances that runs, in a folder; the test says what its instances and Slurm write."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.job = Sandbox(root)
        self.gang = GangFolder(self.job.shared_dir)
        for folder in (self.job.state_dir, self.job.shared_dir, self.job.logs_dir, self.job.ml):
            folder.mkdir(parents=True, exist_ok=True)
        states = tuple(InstanceState(name, name.split("-")[1]) for name in NAMES)
        Journal(self.job.state_dir).write_state(ExecutionState("preparing", instances=states))
        assert self.gang.try_claim(Claim("7"))
        for name in NAMES:
            self.gang.make_sandbox(name, self.job)
            self.write(name, "Running")
        self.executor = SlurmExecutor(root.parent, root.parent / "cache", SlurmOptions())
        self.slurm_says("RUNNING")

    def write(self, name: str, status: str, exit_code: int | None = None, reason: str = "") -> None:
        """Write the state of an instance, as its supervisor does."""
        phase = "running" if status == "Running" else "ended"
        state = ExecutionState(
            phase,
            started_at=1.0,
            ended_at=2.0 if phase == "ended" else None,
            succeeded=None if phase == "running" else status == "Succeed",
            instances=(InstanceState(name, "worker", status, exit_code),),
            failed_instance=name if status == "Failed" else None,
            reason_code=reason,
            reason_message=f"{name}: {reason}" if reason else "",
        )
        Journal(self.gang.sandbox(name).state_dir).write_state(state)

    def fail(self, name: str, reason: str = "NonZeroExit", exit_code: int = 1) -> None:
        """Let an instance fail, as its task writes it."""
        self.write(name, "Failed", exit_code, reason)
        self.gang.write_ending(Ending(reason, f"{name}: {reason}", name))

    def fall_silent(self, *names: str, at: float = LONG_AGO) -> None:
        """Give no more signs of life since then."""
        for name in names:
            os.utime(self.gang.path / name / "beat", (at, at))

    def slurm_says(self, state: str, *, is_preempted: bool = False) -> None:
        """Have Slurm report the job in this state."""
        entry = QueuedJob("7", state, is_preempted, "None", self.root.name, self.root)
        self.executor._queue.find = lambda root: [entry]  # type: ignore[method-assign]

    def state(self) -> ExecutionState:
        return self.executor.state(self.root)


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    found = Gang(tmp_path / "j")
    yield found
    found.executor.close()


@pytest.mark.parametrize(("reason", "exit_code"), [("NonZeroExit", 1), ("KilledBySignal", 134)])
def test_an_instance_that_misses_a_lost_one_is_not_the_cause(gang: Gang, reason: str, exit_code: int) -> None:
    gang.fail("j-master-0", reason, exit_code)
    gang.fall_silent("j-worker-0")
    assert gang.state().phase == "running", "Slurm has not noticed it yet"
    gang.slurm_says("NODE_FAIL")
    gang.fall_silent("", "j-master-0", "j-worker-0")
    state = gang.state()
    assert (state.phase, state.reason_code, state.failed_instance) == ("ended", "NodeLost", "j-worker-0")
    assert gang.state() == state


def _keep_stop(gang: Gang) -> None:
    Journal(gang.job.state_dir).request_stop("StoppedByUser", "by Ann")


def _fail_of_memory(gang: Gang) -> None:
    gang.fail("j-master-0", "OutOfMemory", 137)


def _fail_long_before(gang: Gang) -> None:
    gang.fail("j-master-0")
    os.utime(gang.gang.path / "ending", (LONG_AGO - 60, LONG_AGO - 60))


def _fail_itself(gang: Gang) -> None:
    """Its end is not in its own state: the node was lost before that was written."""
    gang.gang.write_ending(Ending("NonZeroExit", "1", "j-worker-0"))
    gang.write("j-master-0", "Terminated", 143)


@pytest.mark.parametrize(
    ("happens", "code"),
    [
        (_keep_stop, "StoppedByUser"),
        (_fail_of_memory, "OutOfMemory"),
        (_fail_long_before, "NonZeroExit"),
        (_fail_itself, "NonZeroExit"),
    ],
    ids=["a stop", "a reason of its own", "it lived on after the failure", "the failed one was lost later"],
)
def test_a_lost_node_does_not_win_over(gang: Gang, happens: Callable[[Gang], None], code: str) -> None:
    happens(gang)
    gang.fall_silent("", *NAMES)
    gang.slurm_says("NODE_FAIL")
    state = gang.state()
    assert (state.phase, state.reason_code) == ("ended", code)


def test_a_failure_in_a_job_that_loses_no_node_is_the_reason(gang: Gang) -> None:
    gang.fail("j-master-0")
    gang.write("j-worker-0", "Terminated", 143, "NonZeroExit")
    gang.slurm_says("FAILED")
    state = gang.state()
    assert (state.phase, state.reason_code, state.failed_instance) == ("ended", "NonZeroExit", "j-master-0")


def test_an_instance_that_misses_a_preempted_one_is_not_the_cause(gang: Gang) -> None:
    gang.gang.record_sigterm("j-worker-0")
    gang.write("j-worker-0", "Succeed", 0)
    gang.fail("j-master-0")
    assert gang.state().phase == "running", "Slurm has not said why it ends the job"
    gang.slurm_says("PREEMPTED")
    state = gang.state()
    assert (state.phase, state.reason_code) == ("ended", "Preempted")
