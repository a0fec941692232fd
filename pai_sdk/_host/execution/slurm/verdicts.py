"""Why Slurm has ended a job, or has never started it."""

from __future__ import annotations

from collections.abc import Sequence

from pai_sdk._core.reasons import (
    REASON_MAX_RUNNING_TIME,
    REASON_NODE_LOST,
    REASON_OUT_OF_MEMORY,
    REASON_PREEMPTED,
    REASON_SANDBOX_FAILED,
    REASON_STOPPED_FROM_OUTSIDE,
    REASON_SUPERVISOR_LOST,
    supervisor_lost_message,
)
from pai_sdk._host.agent.protocol import Ending
from pai_sdk._host.execution.slurm.queue import QueuedJob

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
    "Slurm does not know the job any more: its controller has lost its state, or the job ended while the "
    "service did not run. Submit it again."
)


def verdict(queued: Sequence[QueuedJob]) -> Ending | None:
    """Returns why Slurm has ended a job; None if the job has exited by itself, as far as Slurm knows."""
    for entry in queued:
        state = "PREEMPTED" if entry.is_preempted else entry.state
        if state in _VERDICTS:
            code, reason = _VERDICTS[state]
            return Ending(code, f"Slurm terminated the job (Slurm job {entry.number}, {state}): {reason}.")
    return None


def lost(queued: Sequence[QueuedJob]) -> Ending:
    """Returns the ending of a job whose instances could not report one."""
    if not queued:
        return Ending(REASON_NODE_LOST, _UNKNOWN)
    return verdict(queued) or Ending(REASON_SUPERVISOR_LOST, supervisor_lost_message())


def never_started(queued: Sequence[QueuedJob], log: str) -> Ending:
    """Returns the ending of a job whose instances never started; `log` is the output of Slurm's commands."""
    ending = verdict(queued)
    if ending is not None or not queued:
        return ending or Ending(REASON_NODE_LOST, _UNKNOWN)
    output = f" It printed: {log}" if log else ""
    return Ending(
        REASON_SANDBOX_FAILED,
        f"The job could not be run on its node (Slurm job {queued[0].number}, {queued[0].state}). The folders of "
        f"jobs and the Python of this service must be at the same paths on every node.{output}",
    )
