"""The final state of a job of containers, from files of its instances and reports of the engine."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pai_sdk._core.reasons import (
    REASON_DISK_FULL,
    REASON_ENGINE_RESTARTED,
    REASON_KILLED_BY_SIGNAL,
    REASON_MAX_RUNNING_TIME,
    REASON_OUT_OF_MEMORY,
    REASON_REQUIREMENTS_FAILED,
    REASON_STOPPED_FROM_OUTSIDE,
    REASON_SUPERVISOR_LOST,
    disk_full_log_message,
    disk_full_message,
    exit_reason,
    max_running_time_message,
    memory_limit_message,
    requirements_message,
)
from pai_sdk._host.agent.memory import has_killed_since
from pai_sdk._host.agent.protocol import ExecutionState, InstanceState, StopRequest
from pai_sdk._host.execution.docker.shared_folder import SharedFolder

_INTERRUPTED = "The process that submitted this job ended before all containers were started. Submit it again."

_CONTAINER_REMOVED = "The container of {name} was removed by another program, so its exit code is unknown."
_NO_HEARTBEAT = (
    "Instance {name} sent no heartbeat for 20 seconds, so the others were ended; its container was paused, or "
    "the machine was too busy."
)
_EXITED_EARLY = "The container of {name} ended before it could write its log. It said: {output}"
_STOPPED_FROM_OUTSIDE = (
    "A container of the job was told to end (SIGTERM) by `docker stop` or a similar command. Submit the job "
    "again; checkpoints it had written are still there."
)
_STOPPED_OR_RESTARTED = (
    "A container of the job was told to end (SIGTERM): by `docker stop`, or because the Docker engine or the "
    "machine was restarted. Submit the job again; checkpoints it had written are still there."
)
_ENGINE_RESTARTED = (
    "The Docker engine or the machine was restarted or shut down, and ended the job's containers. Submit the job "
    "again; checkpoints it had written are still there."
)
_NO_SPACE = "No space left on device"
_NUM_LOG_LINES = 20
_MAX_LINE_CHARACTERS = 200
_FULL_DISK_BYTES = 8 << 20
_FULL_DISK_SHARE = 8  # a small disk counts as full when less than an eighth of it is free
_KILLED_CODES = (137, 255)  # 255: a restarted engine found the container dead
_KILLED = (
    "The container of {name} was killed from outside (exit code {code}): by `docker kill` or `docker stop`, or "
    "because the engine or the machine was restarted. Submit the job again; checkpoints it had written are still "
    "there."
)


@dataclass(frozen=True)
class ContainerExit:
    """The exit of a container, as the engine reports it."""

    code: int
    out_of_memory: bool = False  # the kernel killed a process in it for lack of memory
    error: str = ""  # why it could not be started; otherwise empty
    output: str = ""  # what it printed before it opened its log


def ending(
    job: Mapping[str, Any],
    shared: SharedFolder,
    container_exits: Mapping[str, ContainerExit | None],
    engine_has_restarted: Callable[[bool | None], bool | None] = lambda _: False,
) -> ExecutionState:
    """Returns the final state of a job, from its properties, its folder and the exits of its containers."""
    instances = shared.instances
    exits = [instance_exit for instance in instances if (instance_exit := shared.read_exit(instance.name))]
    # `engine_has_restarted` is called if containers were stopped from outside; its argument is the result to
    # assume if the engine does not respond. It returns None if unknown.
    failed, code, message = _reason(job, shared, container_exits, engine_has_restarted)
    return ExecutionState(
        "ended",
        started_at=shared.started_at,
        ended_at=max((item.at for item in exits), default=time.time()),
        succeeded=not code,
        instances=tuple(
            shared.final_state(item, _exit_code(item.name, shared, container_exits)) for item in instances
        ),
        failed_instance=failed,
        reason_code=code,
        reason_message=message,
    )


def interrupted() -> ExecutionState:
    """Returns the final state of a job whose submitter was killed before any instance started."""
    return ExecutionState(
        "ended",
        ended_at=time.time(),
        succeeded=False,
        reason_code=REASON_SUPERVISOR_LOST,
        reason_message=_INTERRUPTED,
    )


def stopped_before_start(shared: SharedFolder) -> ExecutionState:
    """Returns the final state of a job that was stopped before it had containers."""
    code, message = (shared.stop_request or StopRequest()).reported
    return ExecutionState(
        "ended",
        ended_at=time.time(),
        succeeded=False,
        instances=tuple(
            InstanceState(instance.name, instance.role, "Terminated") for instance in shared.instances
        ),
        reason_code=code,
        reason_message=message,
    )


def _reason(
    job: Mapping[str, Any],
    shared: SharedFolder,
    container_exits: Mapping[str, ContainerExit | None],
    engine_has_restarted: Callable[[bool | None], bool | None],
) -> tuple[str | None, str, str]:
    """Returns the failed instance, the reason's code and its message; empty for a success."""
    names = [instance.name for instance in shared.instances]
    end_reasons = {shared.end_reason(name) for name in names}
    failure, request = shared.first_failure, shared.stop_request
    # In the order of causes: an earlier event explains a later one.
    if not shared.is_launched:
        return None, REASON_SUPERVISOR_LOST, _INTERRUPTED
    if shared.requirements_failed:
        instance_exit, refusal = shared.read_exit(names[0]), shared.requirements_problem
        problem = refusal or shared.pip_problem(names[0])
        message = requirements_message(instance_exit.code if instance_exit else 1, problem, has_pip=not refusal)
        return names[0], REASON_REQUIREMENTS_FAILED, message
    if failure is None and "timeout" in end_reasons:
        return None, REASON_MAX_RUNNING_TIME, max_running_time_message(job["max_running_s"])
    if failure is None and (
        "stopped" in end_reasons or (request is not None and _was_killed_late(shared, container_exits))
    ):
        code, message = (request or StopRequest()).reported
        if code == REASON_STOPPED_FROM_OUTSIDE:
            return None, *_stopped_from_outside(engine_has_restarted(True))
        return None, code, message
    if failure is None:
        failure = _unwritten_failure(shared, container_exits)
    if failure is None:
        can_fail = [instance.name for instance in shared.instances if instance.can_fail_job]
        missing = next(
            (name for name in can_fail if shared.read_exit(name) is None and not container_exits.get(name)), None
        )
        return (
            (missing, REASON_SUPERVISOR_LOST, _CONTAINER_REMOVED.format(name=missing))
            if missing
            else (None, "", "")
        )
    name, exit_code = failure
    if _was_killed_from_outside(name, exit_code, shared, container_exits.get(name)) and engine_has_restarted(None):
        return name, REASON_ENGINE_RESTARTED, _ENGINE_RESTARTED
    return name, *_failure_reason(name, exit_code, shared, container_exits.get(name), job)


def _stopped_from_outside(engine_has_restarted: bool | None) -> tuple[str, str]:
    if engine_has_restarted:
        return REASON_ENGINE_RESTARTED, _ENGINE_RESTARTED
    return (
        REASON_STOPPED_FROM_OUTSIDE,
        _STOPPED_OR_RESTARTED if engine_has_restarted is None else _STOPPED_FROM_OUTSIDE,
    )


def _unwritten_failure(
    shared: SharedFolder, container_exits: Mapping[str, ContainerExit | None]
) -> tuple[str, int] | None:
    """Returns an instance that failed, and its exit code; first one that the executor has not stopped."""
    exits = [
        (instance.name, _exit_code(instance.name, shared, container_exits))
        for instance in shared.instances
        if instance.can_fail_job and shared.end_reason(instance.name) != "done"
    ]
    failures = [(name, exit_code) for name, exit_code in exits if exit_code]
    return min(failures, key=lambda failure: bool(shared.end_reason(failure[0])), default=None)


def _was_killed_late(shared: SharedFolder, container_exits: Mapping[str, ContainerExit | None]) -> bool:
    """Returns whether an instance was killed because it did not exit within its grace period."""
    silent = [instance.name for instance in shared.instances if shared.read_exit(instance.name) is None]
    return any((container_exit := container_exits.get(name)) is None or container_exit.code for name in silent)


def _was_killed_from_outside(
    name: str, exit_code: int, shared: SharedFolder, container_exit: ContainerExit | None
) -> bool:
    """Returns whether an external signal killed the instance before it could write its exit code."""
    has_no_cause = container_exit is not None and not (
        container_exit.error or container_exit.output or container_exit.out_of_memory
    )
    return (
        has_no_cause
        and exit_code in _KILLED_CODES
        and shared.read_exit(name) is None
        and not shared.end_reason(name)
    )


def _failure_reason(
    name: str, exit_code: int, shared: SharedFolder, container_exit: ContainerExit | None, job: Mapping[str, Any]
) -> tuple[str, str]:
    has_exit = shared.read_exit(name) is not None
    # The other instances reported it as lost; after that it exited by itself, or the executor killed it.
    if shared.end_reason(name) == "peer" or (has_exit and shared.is_failure_silent):
        return REASON_SUPERVISOR_LOST, _NO_HEARTBEAT.format(name=name)
    if container_exit is None and not has_exit:
        return REASON_SUPERVISOR_LOST, _CONTAINER_REMOVED.format(name=name)
    if container_exit is not None and container_exit.error:
        return "ContainerNotStarted", f"The container of {name} could not be started: {container_exit.error}"
    if container_exit is not None and container_exit.output:
        return "ContainerNotStarted", _EXITED_EARLY.format(name=name, output=container_exit.output)
    is_oom = shared.ran_out_of_memory(name) or (container_exit is not None and container_exit.out_of_memory)
    if is_oom and exit_code != 0:
        return REASON_OUT_OF_MEMORY, memory_limit_message(name, exit_code, _memory_bytes(name, shared, job))
    if exit_code in _KILLED_CODES and not has_exit:
        return REASON_KILLED_BY_SIGNAL, _KILLED.format(name=name, code=exit_code)
    message = _disk_full(name, exit_code, shared, job)
    if message:
        return REASON_DISK_FULL, message
    return exit_reason(name, exit_code, kernel_killed=has_killed_since(job.get("kernel_kills")))


def _memory_bytes(name: str, shared: SharedFolder, job: Mapping[str, Any]) -> int | None:
    """Returns the memory limit of an instance."""
    groups = {instance.name: instance.group for instance in shared.instances}
    limits = job.get("memory_bytes_by_role") or [job["memory_bytes"]]
    limit: int | None = limits[groups.get(name, 0)]
    return limit


def _disk_full(name: str, exit_code: int, shared: SharedFolder, job: Mapping[str, Any]) -> str:
    """Returns the message for an instance that failed because of a full disk; otherwise ""."""
    for folder in (shared.path.parent, *(Path(path) for path in job.get("outputs", {}).values())):
        if _is_full(folder):
            return disk_full_message(name, exit_code, str(folder))
    # When the exit is first read, the disk may have free space again, or the full disk was inside the container:
    # then only the log has the error.
    error_line = next((line for line in shared.log_tail(name, _NUM_LOG_LINES) if _NO_SPACE in line), None)
    return disk_full_log_message(name, exit_code, error_line.strip()[:_MAX_LINE_CHARACTERS]) if error_line else ""


def _is_full(folder: Path) -> bool:
    try:
        disk = shutil.disk_usage(folder)
    except OSError:
        return False
    return disk.free < min(_FULL_DISK_BYTES, disk.total // _FULL_DISK_SHARE)


def _exit_code(name: str, shared: SharedFolder, container_exits: Mapping[str, ContainerExit | None]) -> int | None:
    """Returns an instance's exit code from its own file, or else from the engine."""
    any_exit = shared.read_exit(name) or container_exits.get(name)
    return any_exit.code if any_exit else None
