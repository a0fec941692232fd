"""The life of a job, by a store and an executor in memory; a process may be killed before or after each call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from pai_sdk._core.reasons import REASON_NODE_LOST, REASON_STOPPED_BY_USER
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.execution.base import ExecutionState, Executor
from pai_sdk._host.lifecycle import JobLife, outcome, stopped_before_start_message, waiting_state
from pai_sdk._wire.pai.job_retries import JobRetries

LOST = ExecutionState("ended", succeeded=False, reason_code=REASON_NODE_LOST, reason_message="gone", ended_at=5.0)
DONE = ExecutionState("ended", succeeded=True, ended_at=5.0)


class Killed(BaseException):
    """The process of the test's machine."""


@dataclass
class Machine:
    """What is on disk; `calls` are the changes, of which the one with the number `kill_at` is cut off."""

    root: Path
    exits: list[ExecutionState]
    kill_at: int = -1
    is_done_first: bool = False  # the change is made before the kill
    calls: list[str] = field(default_factory=list)
    state: ExecutionState = field(default_factory=lambda: ExecutionState("absent"))
    attempt: int = 1
    stop_requested: bool = False
    retries: JobRetries = field(default_factory=lambda: JobRetries(2))
    is_staged: bool = False
    is_saved: bool = False
    reported: list[ExecutionState] = field(default_factory=list)

    def change(self, name: str, make: Callable[[], Any]) -> None:
        is_killed = len(self.calls) == self.kill_at
        self.calls.append(name)
        if not is_killed or self.is_done_first:
            make()
        if is_killed:
            raise Killed

    # The store.

    @property
    def sandbox(self) -> Sandbox:
        return Sandbox(self.root)

    def stage(self) -> None:
        self.change("stage", lambda: setattr(self, "is_staged", True))

    def launch(self) -> None:
        assert self.is_staged
        self.change("launch", lambda: setattr(self, "state", ExecutionState("running")))

    def save_outputs(self) -> str:
        self.change("save", lambda: setattr(self, "is_saved", True))
        return ""

    def retry(self, state: ExecutionState, wait_s: float) -> bool:
        self.change("retry", lambda: setattr(self, "attempt", self.attempt + 1))
        return True

    def report(self, state: ExecutionState, unsaved: str) -> None:
        assert self.is_saved
        self.change("report", lambda: self.reported.append(state))

    # The executor.

    def renew_executor(self, attempt: int) -> bool:
        def make() -> None:
            self.state, self.is_saved = ExecutionState("absent"), False
            self.sandbox.forget_attempt(attempt)

        self.change("renew", make)
        return True

    def live(self) -> None:
        """Move the job on until it is reported, as a process does."""
        life = JobLife(cast("Executor", _MachineExecutor(self)), self)
        while not self.reported:
            state = life.observe()
            if state.phase == "absent":
                assert life.start()
            elif state.phase == "running":
                self.state = self.exits.pop(0)
            else:
                life.finish(state)


class _MachineExecutor:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def withdraw(self, root: Path) -> None:
        return None

    def state(self, root: Path) -> ExecutionState:
        return self._machine.state

    def renew(self, root: Path, *, attempt: int) -> bool:
        return self._machine.renew_executor(attempt)


def test_each_attempt_is_saved_and_the_last_one_reported(tmp_path: Path) -> None:
    machine = Machine(tmp_path, [LOST, DONE])
    machine.live()
    assert machine.calls == ["stage", "launch", "save", "retry", "renew", "launch", "save", "report"]
    assert machine.reported == [DONE]


@pytest.mark.parametrize("kill_at", range(9))
@pytest.mark.parametrize("is_done_first", [False, True])
def test_another_process_continues_after_a_kill(tmp_path: Path, kill_at: int, is_done_first: bool) -> None:
    machine = Machine(tmp_path, [LOST, DONE], kill_at, is_done_first)
    try:
        machine.live()
    except Killed:
        machine.live()
    assert machine.exits == [], "each attempt has started once"
    assert (machine.attempt, machine.reported) == (2, [DONE])


def test_attempts_end_with_their_number(tmp_path: Path) -> None:
    machine = Machine(tmp_path, [LOST, LOST, LOST])
    machine.live()
    assert (machine.attempt, machine.reported) == (3, [LOST])


def test_a_stop_is_followed_by_no_attempt(tmp_path: Path) -> None:
    machine = Machine(tmp_path, [LOST], stop_requested=True)
    machine.live()
    assert machine.reported == [LOST]


def test_between_two_attempts_a_job_is_absent_with_the_reason_of_its_exit() -> None:
    waiting = waiting_state(LOST, stopped_at=None)
    assert (waiting.phase, waiting.reason_code) == ("absent", REASON_NODE_LOST)
    stopped = waiting_state(LOST, stopped_at=7.0)
    assert (stopped.phase, stopped.reason_code, stopped.ended_at) == ("ended", REASON_STOPPED_BY_USER, 7.0)
    assert stopped.reason_message == stopped_before_start_message(2)


def test_a_success_whose_outputs_are_lost_is_a_failure() -> None:
    assert outcome(DONE)[0] == "Succeed"
    assert outcome(DONE, unsaved_message="lost") == ("Failed", "OutputsNotSaved", "lost")
    assert outcome(LOST, unsaved_message="lost") == ("Failed", REASON_NODE_LOST, "gone")
