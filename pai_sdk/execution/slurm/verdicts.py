"""Why Slurm has ended a job, or never began it."""

from __future__ import annotations

from collections.abc import Sequence

from pai_sdk.agent.protocol import Ending
from pai_sdk.agent.reasons import (
    REASON_MAX_RUNNING_TIME,
    REASON_NODE_LOST,
    REASON_OUT_OF_MEMORY,
    REASON_PREEMPTED,
    REASON_SANDBOX_FAILED,
    REASON_STOPPED_FROM_OUTSIDE,
    REASON_SUPERVISOR_LOST,
    supervisor_lost_message,
)
from pai_sdk.execution.slurm.queue import QueuedJob

__all__ = ["lost", "not_begun", "verdict"]

_VERDICTS = {
    "PREEMPTED": (REASON_PREEMPTED, "it had to make room for another job; submit it again"),
    "NODE_FAIL": (REASON_NODE_LOST, "a node of it failed; submit it again"),
    "BOOT_FAIL": (REASON_NODE_LOST, "a node for it could not be booted; submit it again"),
    "TIMEOUT": (
        REASON_MAX_RUNNING_TIME,
        "it reached the time limit of its partition; set max_run_time, or choose a partition with a longer limit",
    ),
    "DEADLINE": (REASON_MAX_RUNNING_TIME, "it reached its deadline"),
    "OUT_OF_MEMORY": (
        REASON_OUT_OF_MEMORY,
        "it used more memory than Slurm gave it; use a smaller batch, or raise instance_spec.memory",
    ),
    "CANCELLED": (
        REASON_STOPPED_FROM_OUTSIDE,
        "it was cancelled there: by scancel, an administrator, or a controller that had forgotten that it runs",
    ),
    "REVOKED": (REASON_STOPPED_FROM_OUTSIDE, "another cluster has taken it over"),
}
_UNKNOWN = (
    "Slurm does not know the job any more: its controller has lost its state, or the job ended while nobody "
    "asked. Submit it again."
)


def verdict(found: Sequence[QueuedJob]) -> Ending | None:
    """Why Slurm has ended a job; None where the job has ended by itself, as far as Slurm knows.

    Args:
        found: the Slurm jobs of the job, all of them over; empty when Slurm knows of none.
    """
    for entry in found:
        state = "PREEMPTED" if entry.is_preempted else entry.state
        if state in _VERDICTS:
            code, why = _VERDICTS[state]
            return Ending(code, f"Slurm has ended the job (Slurm job {entry.number}, {state}): {why}.")
    return None


def lost(found: Sequence[QueuedJob]) -> Ending:
    """Why a job ended whose instances could not say so."""
    if not found:
        return Ending(REASON_NODE_LOST, _UNKNOWN)
    return verdict(found) or Ending(REASON_SUPERVISOR_LOST, supervisor_lost_message())


def not_begun(found: Sequence[QueuedJob], log: str) -> Ending:
    """Why a job ended whose instances never began.

    Args:
        found: its Slurm jobs, all of them over.
        log: the last lines of what Slurm's commands printed on the node.
    """
    ending = verdict(found)
    if ending is not None or not found:
        return ending or Ending(REASON_NODE_LOST, _UNKNOWN)
    said = f" It printed: {log}" if log else ""
    return Ending(
        REASON_SANDBOX_FAILED,
        f"The job could not be run on its node (Slurm job {found[0].number}, {found[0].state}). The folders of "
        f"jobs and the Python of this service must be at the same paths on every node.{said}",
    )
