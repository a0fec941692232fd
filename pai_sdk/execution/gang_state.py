"""The state of a job, put together from those of its instances on their nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pai_sdk.agent.protocol import Ending, ExecutionState, InstanceState
from pai_sdk.agent.reasons import REASON_KILLED_BY_SIGNAL, REASON_NON_ZERO_EXIT

__all__ = ["ended", "ending_of", "is_secondary", "job_state", "lost"]

# Reasons of a process that lost its connection to another instance: an exception, or an abort by a signal.
_EXITS = frozenset({REASON_NON_ZERO_EXIT, REASON_KILLED_BY_SIGNAL})


def is_secondary(failure: Ending | None, lost_instance: str = "") -> bool:
    """Return whether the loss of an instance may be the cause of a failure that was recorded before the loss.

    Instances that talk to each other fail by themselves as soon as one of them is lost, and a cluster notices a
    lost node only seconds or minutes later. So a job's first exit code is final when all other instances have
    reported their end, or were lost: a loss wins over an exit code, and over nothing else, such as a stop request.

    Args:
        failure: the reason that is recorded.
        lost_instance: the instance that was lost; its own exit code is no consequence of its loss.
    """
    return failure is not None and failure.code in _EXITS and failure.failed_instance != lost_instance


def ending_of(state: ExecutionState) -> Ending | None:
    """The ending that a state already has."""
    return Ending(state.reason_code, state.reason_message, state.failed_instance) if state.reason_code else None


def job_state(
    before: ExecutionState, parts: Sequence[ExecutionState | None], ending: Ending | None, *, now: float
) -> ExecutionState:
    """The state of the job.

    Args:
        before: its last state, which has all instances in rank order.
        parts: the state of each instance on its node; None before it has begun there.
        ending: why the job does not succeed.
        now: seconds since 1970.
    """
    phases = {part.phase if part else "absent" for part in parts}
    instances = tuple(
        replace(one, status=part.instances[0].status, exit_code=part.instances[0].exit_code) if part else one
        for one, part in zip(before.instances, parts, strict=True)
    )
    state = replace(before, instances=instances, reason_code="", reason_message="")
    if ending is not None:
        state = replace(
            state,
            reason_code=ending.code,
            reason_message=ending.message,
            failed_instance=ending.failed_instance,
        )
    if phases <= {"absent", "preparing"}:
        return replace(state, phase="preparing")
    begun = min([now, *(part.started_at for part in parts if part and part.started_at)])
    state = replace(state, phase="running", started_at=before.started_at or begun)
    return ended(state, now=now) if phases == {"ended"} else state


def ended(state: ExecutionState, *, now: float) -> ExecutionState:
    """The end of a job: no process of it is left."""
    succeeded = all(one.status == "Succeed" for one in state.instances)
    instances = tuple(_at_end(one) for one in state.instances)
    state = replace(state, phase="ended", ended_at=now, started_at=state.started_at or now, instances=instances)
    if succeeded:  # a stop that came too late
        return replace(state, succeeded=True, reason_code="", reason_message="", failed_instance=None)
    return replace(state, succeeded=False)


def lost(name: str, role: str) -> ExecutionState:
    """The state of an instance that was lost with its node."""
    return ExecutionState("ended", succeeded=False, instances=(InstanceState(name, role, "Failed"),))


def _at_end(one: InstanceState) -> InstanceState:
    return replace(one, status="Terminated") if one.status in ("Pending", "Running") else one
