"""What starts the processes of a job on a machine we control, and how it tells what became of them.

An executor keeps no state in memory that it could lose: all of it is in the job's folder, so that another process,
or the same one after a crash, goes on where the first one was cut off.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from pai_sdk.schemas.request import TrainingJobRequest

__all__ = ["ExecutionState", "Executor", "InstanceState", "Phase"]

Phase: TypeAlias = Literal["absent", "preparing", "running", "ended"]
"""`absent`: never started here. `preparing`: requirements are being installed. `ended`: no process is left."""


@dataclass(frozen=True)
class InstanceState:
    """One worker. `status` is PAI's word for it: `Pending`, `Running`, `Succeed`, `Failed`, `Terminated`."""

    name: str
    role: str
    status: str = "Pending"
    exit_code: int | None = None


@dataclass(frozen=True)
class ExecutionState:
    """What an executor knows of a job.

    Attributes:
        phase: how far it is.
        started_at, ended_at: seconds since 1970, UTC.
        succeeded: whether all instances ended with 0; None before the end.
        instances: in rank order.
        failed_instance: the first that failed.
        reason_code: why it did not succeed: one of the REASON_* constants of `execution.reasons`.
        reason_message: the same as a sentence for people.
    """

    phase: Phase
    started_at: float | None = None
    ended_at: float | None = None
    succeeded: bool | None = None
    instances: tuple[InstanceState, ...] = field(default=())
    failed_instance: str | None = None
    reason_code: str = ""
    reason_message: str = ""


class Executor(Protocol):
    """Starts, watches and stops jobs whose sandbox has been filled (`execution.sandbox.Sandbox`)."""

    def start(self, root: Path, job_id: str, request: TrainingJobRequest) -> None:
        """Begin; returns at once. A second call for a job that was started does nothing."""
        ...

    def withdraw(self, root: Path) -> None:
        """Take back a start that was cut off: what has not begun yet will not; a job that has begun goes on.

        For whoever is to fill the sandbox anew: afterwards `state` tells for good whether the job has begun.
        """
        ...

    def state(self, root: Path) -> ExecutionState:
        """What is known now, read from the job's folder; never raises for a job that was cut off."""
        ...

    def stop(self, root: Path, *, reason_code: str, reason_message: str) -> None:
        """Ask all instances to end: SIGTERM, a grace period, SIGKILL for the whole process tree."""
        ...
