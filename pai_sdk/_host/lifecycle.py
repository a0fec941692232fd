"""The life of a job on a host: one state machine for the jobs of a service and for local jobs in Docker.

    staging ──start──▶ running ──last process gone──▶ finishing ──outputs saved──▶ reported
       ▲                                                  │
       └────────── waiting for the next attempt ◀─────────┘

The executor keeps the state of the attempt that runs. A `JobStore` keeps the rest: the number of the attempt, stop
requests, what is saved, what was reported. `JobLife` keeps nothing, so another process continues after a kill:

    killed while              the next process finds            and
    staging                   no start                          stages again; `stage` clears the folder first
    starting                  a start without its end           withdraws it, or finds that the job has started
    running                   the state of the executor         continues
    saving                    an exit                           sends the rest; the folder records what was sent
    recording a retry         an exit                           records the retry
    renewing                  a folder of an earlier attempt    renews it again
    reporting                 an exit                           sends nothing, and reports

One process at a time may call `start` and `finish` of a job: the store says how it excludes the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from pai_sdk._core.reasons import REASON_OUTPUTS_NOT_SAVED, REASON_STOPPED_BY_USER
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.execution.base import ExecutionState, Executor
from pai_sdk._wire.pai.job_retries import JobRetries
from pai_sdk._wire.pai.status import JobStatus

STOPPED_MESSAGE = "The job was stopped by its user."


class JobStore(Protocol):
    """What is recorded of one job, and how its files are moved. Every method may be called again after a kill."""

    @property
    def sandbox(self) -> Sandbox:
        """Returns the folder of the job."""

    @property
    def retries(self) -> JobRetries:
        """Returns after which exits another attempt follows."""

    @property
    def attempt(self) -> int:
        """Returns the number of the attempt that runs, or that starts next."""

    @property
    def stop_requested(self) -> bool:
        """Returns whether a stop was requested."""

    def stage(self) -> None:
        """Fills the folder of the job before its first attempt."""

    def launch(self) -> None:
        """Hands the job over to the executor."""

    def save_outputs(self) -> str:
        """Saves the metrics of the logs and the outputs; returns what could not be saved, or an empty string."""

    def retry(self, state: ExecutionState, wait_s: float) -> bool:
        """Records an exit that another attempt follows; returns False if a stop was faster."""

    def report(self, state: ExecutionState, unsaved: str) -> None:
        """Reports the job as finished."""


@dataclass(frozen=True)
class JobLife:
    """Moves one job on, by its executor and over its store."""

    executor: Executor
    store: JobStore

    def observe(self) -> ExecutionState:
        """Returns the state of the current attempt."""
        # A retry is recorded, but the folder still has the exit of the attempt before it.
        return ExecutionState("absent") if self._is_behind else self.executor.state(self.store.sandbox.root)

    def start(self) -> bool:
        """Starts the current attempt, once; returns False while resources of the last attempt remain."""
        root, attempt = self.store.sandbox.root, self.store.attempt
        if self._is_behind and not self.executor.renew(root, attempt=attempt):
            return False
        # A process may have been killed during the start: the job must start once, with complete inputs.
        self.executor.withdraw(root)
        if self.executor.state(root).phase == "absent":
            if attempt == 1:  # later attempts continue with the files of the last one
                self.store.stage()
            self.store.launch()
        return True

    def finish(self, state: ExecutionState) -> bool:
        """Saves the outputs of an exit, then reports it; returns False if another attempt follows instead."""
        # In this order, because clients may exit when the job is reported as finished.
        store, unsaved = self.store, self.store.save_outputs()
        can_retry = not store.stop_requested and store.retries.allow(store.attempt, state.reason_code)
        if can_retry and store.retry(state, store.retries.wait_s(store.attempt)):
            return False
        store.report(state, unsaved)
        return True

    def stop(self) -> None:
        """Asks the instances to exit, because the user has requested it; has no effect before a start."""
        root = self.store.sandbox.root
        self.executor.stop(root, reason_code=REASON_STOPPED_BY_USER, reason_message=STOPPED_MESSAGE)

    @property
    def _is_behind(self) -> bool:
        attempt = self.store.attempt
        return attempt > 1 and self.store.sandbox.attempt < attempt


# ---- decisions ------------------------------------------------------------------------------------------------


def waiting_state(ended: ExecutionState, *, stopped_at: float | None) -> ExecutionState:
    """Returns the state between two attempts: absent, with the reason of the last exit; ended after a stop."""
    if stopped_at is None:
        return replace(ended, phase="absent")
    return replace(
        ended,
        reason_code=REASON_STOPPED_BY_USER,
        reason_message=stopped_before_start_message(attempt=2),
        ended_at=max(stopped_at, ended.ended_at or 0.0),
    )


def stopped_before_start_message(attempt: int, cause: str = "") -> str:
    """Returns the reason of a job that was stopped before this attempt has started."""
    again = " again" if attempt > 1 else ""
    return f"The job was stopped before it started{again}{cause}."


def outcome(state: ExecutionState, *, unsaved_message: str = "") -> tuple[JobStatus, str | None, str | None]:
    """Returns status, reason code and reason of a job; a success with unsaved outputs is a failure."""
    if state.phase in ("absent", "preparing"):
        status = JobStatus.INITIALIZING
    elif state.phase == "running":
        status = JobStatus.RUNNING
    elif state.reason_code == REASON_STOPPED_BY_USER:
        status = JobStatus.TERMINATED
    elif state.succeeded and unsaved_message:
        return JobStatus.FAILED, REASON_OUTPUTS_NOT_SAVED, unsaved_message
    else:
        status = JobStatus.SUCCEED if state.succeeded else JobStatus.FAILED
    return status, state.reason_code or None, state.reason_message or None
