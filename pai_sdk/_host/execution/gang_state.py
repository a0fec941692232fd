"""Combines the states of a job's instances into the state of the job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pai_sdk._core.reasons import REASON_KILLED_BY_SIGNAL, REASON_NON_ZERO_EXIT
from pai_sdk._host.agent.distributed import Instance
from pai_sdk._host.agent.protocol import Ending, ExecutionState, InstanceState

# Reasons of a process that lost its connection to another instance: an exception, or an abort by a signal.
_EXITS = frozenset({REASON_NON_ZERO_EXIT, REASON_KILLED_BY_SIGNAL})


def is_secondary(failure: Ending | None, lost_instance: str = "") -> bool:
    """Returns whether the loss of an instance may have caused a failure that was recorded before the loss.

    Instances that communicate fail within moments of losing a peer, but a cluster reports a lost node only seconds
    or minutes later. So the first exit code is final only when all other instances have ended or were lost: a loss
    replaces an exit code, and nothing else, such as a stop request. The exit code of `lost_instance` itself is
    never secondary.
    """
    return failure is not None and failure.code in _EXITS and failure.failed_instance != lost_instance


def ending_of(state: ExecutionState) -> Ending | None:
    """Returns the ending that a state already has."""
    return Ending(state.reason_code, state.reason_message, state.failed_instance) if state.reason_code else None


def merged(
    instances: Sequence[InstanceState], parts: Sequence[ExecutionState | None]
) -> tuple[InstanceState, ...]:
    """Returns the instances of a job with the states that they have reported, in rank order."""
    return tuple(
        replace(instance, status=part.instances[0].status, exit_code=part.instances[0].exit_code)
        if part
        else instance
        for instance, part in zip(instances, parts, strict=True)
    )


def is_complete(instances: Sequence[InstanceState]) -> bool:
    """Returns whether all instances have succeeded that their job waits for."""
    return all(instance.status == "Succeed" for instance in instances if instance.is_awaited)


def has_succeeded(instances: Sequence[InstanceState]) -> bool:
    """Returns whether a job without running instances has succeeded."""
    has_failed = any(instance.status == "Failed" and instance.can_fail_job for instance in instances)
    return is_complete(instances) and not has_failed


def job_state(
    before: ExecutionState, parts: Sequence[ExecutionState | None], ending: Ending | None, *, now: float
) -> ExecutionState:
    """Returns the state of the job from its last state and the states of its instances, in rank order."""
    # A part is None before the instance has started; `ending` is why the job does not succeed.
    phases = {part.phase if part else "absent" for part in parts}
    state = replace(before, instances=merged(before.instances, parts), reason_code="", reason_message="")
    if ending is not None:
        state = replace(
            state,
            reason_code=ending.code,
            reason_message=ending.message,
            failed_instance=ending.failed_instance,
        )
    if phases <= {"absent", "preparing"}:
        return replace(state, phase="preparing")
    started_at = min([now, *(part.started_at for part in parts if part and part.started_at)])
    state = replace(state, phase="running", started_at=before.started_at or started_at)
    return ended(state, now=now) if phases == {"ended"} else state


def ended(state: ExecutionState, *, now: float) -> ExecutionState:
    """Returns the final state of a job that has no process left."""
    succeeded = has_succeeded(state.instances)
    instances = tuple(_terminated(instance) for instance in state.instances)
    state = replace(state, phase="ended", ended_at=now, started_at=state.started_at or now, instances=instances)
    # A stop request that arrived after the last exit does not count.
    if succeeded:
        return replace(state, succeeded=True, reason_code="", reason_message="", failed_instance=None)
    return replace(state, succeeded=False)


def initial_states(instances: Sequence[Instance]) -> tuple[InstanceState, ...]:
    """Returns the instances of a job before its start."""
    return tuple(
        InstanceState(each.name, each.role, is_awaited=each.is_awaited, can_fail_job=each.can_fail_job)
        for each in instances
    )


def lost(name: str, role: str, status: str = "Failed") -> ExecutionState:
    """Returns the state of an instance that was lost with its node, or that never starts."""
    return ExecutionState("ended", succeeded=False, instances=(InstanceState(name, role, status),))


def _terminated(instance: InstanceState) -> InstanceState:
    return replace(instance, status="Terminated") if instance.status in ("Pending", "Running") else instance
