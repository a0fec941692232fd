"""The end of a job of containers, from files of its instances and reports of the engine."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pai_sdk.agent.memory import has_killed_since
from pai_sdk.agent.protocol import ExecutionState, InstanceState, StopRequest
from pai_sdk.agent.reasons import (
    REASON_DISK_FULL,
    REASON_ENGINE_RESTARTED,
    REASON_KILLED_BY_SIGNAL,
    REASON_MAX_RUNNING_TIME,
    REASON_OUT_OF_MEMORY,
    REASON_REQUIREMENTS_FAILED,
    REASON_STOPPED_FROM_OUTSIDE,
    REASON_SUPERVISOR_LOST,
    disk_full_message,
    disk_full_said_message,
    exit_reason,
    max_running_time_message,
    memory_limit_message,
    requirements_message,
)
from pai_sdk.execution.docker.shared_folder import SharedFolder

__all__ = ["ContainerEnd", "ending", "interrupted", "stopped_before_start"]

_INTERRUPTED = "The process that submitted this job ended before all containers were started. Submit it again."

_GONE = "The container of {name} was removed from outside, so its exit code is not known."
_SILENT = (
    "Instance {name} sent no heartbeat for 20 seconds, so the others were ended; its container was paused, or "
    "the machine was too busy."
)
_SAID = "The container of {name} ended before it could write its log. It said: {words}"
_STOPPED_FROM_OUTSIDE = (
    "A container of the job was told to end (SIGTERM) by `docker stop` or a similar command. Submit the job "
    "again; checkpoints it had written are still there."
)
_STOPPED_SOMEHOW = (
    "A container of the job was told to end (SIGTERM): by `docker stop`, or because the Docker engine or the "
    "machine was restarted. Submit the job again; checkpoints it had written are still there."
)
_ENGINE_RESTARTED = (
    "The Docker engine or the machine was restarted or shut down, and ended the job's containers. Submit the job "
    "again; checkpoints it had written are still there."
)
_NO_SPACE = "No space left on device"
_LAST_LINES = 20
_LONGEST_LINE = 200
_FULL_DISK_BYTES = 8 << 20
_FULL_DISK_SHARE = 8  # a small disk is full when less than an eighth of it is free
_KILLED_CODES = (137, 255)  # 255: an engine that has just started found the container dead
_KILLED = (
    "The container of {name} was killed from outside (exit code {code}): by `docker kill` or `docker stop`, or "
    "because the engine or the machine was restarted. Submit the job again; checkpoints it had written are still "
    "there."
)


@dataclass(frozen=True)
class ContainerEnd:
    """The end of a container, as the engine reports it.

    Attributes:
        code: its exit code.
        out_of_memory: the kernel killed something in it for lack of memory.
        error: why it could not be started, if it could not.
        words: its output before it opened its log.
    """

    code: int
    out_of_memory: bool = False
    error: str = ""
    words: str = ""


def ending(
    job: Mapping[str, Any],
    shared: SharedFolder,
    ends: Mapping[str, ContainerEnd | None],
    engine_has_restarted: Callable[[bool | None], bool | None] = lambda _: False,
) -> ExecutionState:
    """The final state of a job.

    Args:
        job: what is known of it since its start.
        shared: the folder that its instances write to.
        ends: how each container ended, as far as the engine knows it.
        engine_has_restarted: asked where the containers were ended from outside; None when it is not known. Its
            argument is the result to suppose where the engine does not respond.
    """
    instances = shared.instances
    exits = [found for instance in instances if (found := shared.exit_of(instance.name))]
    failed, code, message = _reason(job, shared, ends, engine_has_restarted)
    return ExecutionState(
        "ended",
        started_at=shared.begun_at,
        ended_at=max((one.at for one in exits), default=time.time()),
        succeeded=not code,
        instances=tuple(shared.final_state(one, _exit_code(one.name, shared, ends)) for one in instances),
        failed_instance=failed,
        reason_code=code,
        reason_message=message,
    )


def interrupted() -> ExecutionState:
    """The end of a job whose submitter was killed before anything of it began."""
    return ExecutionState(
        "ended",
        ended_at=time.time(),
        succeeded=False,
        reason_code=REASON_SUPERVISOR_LOST,
        reason_message=_INTERRUPTED,
    )


def stopped_before_start(shared: SharedFolder) -> ExecutionState:
    """The final state of a job that was stopped before it had containers."""
    code, message = (shared.stop_request or StopRequest()).reported
    return ExecutionState(
        "ended",
        ended_at=time.time(),
        succeeded=False,
        instances=tuple(InstanceState(one.name, one.role, "Terminated") for one in shared.instances),
        reason_code=code,
        reason_message=message,
    )


def _reason(
    job: Mapping[str, Any],
    shared: SharedFolder,
    ends: Mapping[str, ContainerEnd | None],
    engine_has_restarted: Callable[[bool | None], bool | None],
) -> tuple[str | None, str, str]:
    """The instance to blame, the reason's code and its sentence; empty for a success.

    The checks are in the order of causes: what came first explains what came later.
    """
    names = [instance.name for instance in shared.instances]
    whys = {shared.why(name) for name in names}
    failure, request = shared.first_failure, shared.stop_request
    if not shared.has_begun:
        return None, REASON_SUPERVISOR_LOST, _INTERRUPTED
    if shared.requirements_failed:
        ended, refusal = shared.exit_of(names[0]), shared.requirements_problem
        problem = refusal or shared.pip_problem(names[0])
        message = requirements_message(ended.code if ended else 1, problem, has_pip=not refusal)
        return names[0], REASON_REQUIREMENTS_FAILED, message
    if failure is None and "timeout" in whys:
        return None, REASON_MAX_RUNNING_TIME, max_running_time_message(job["max_running_s"])
    if failure is None and ("stopped" in whys or (request is not None and _was_cut_off(shared, ends))):
        code, message = (request or StopRequest()).reported
        if code == REASON_STOPPED_FROM_OUTSIDE:
            return None, *_stopped_from_outside(engine_has_restarted(True))
        return None, code, message
    if failure is None:
        failure = _unwritten_failure(shared, ends)
    if failure is None:
        gone = next((name for name in names if shared.exit_of(name) is None and not ends.get(name)), None)
        return (gone, REASON_SUPERVISOR_LOST, _GONE.format(name=gone)) if gone else (None, "", "")
    name, exit_code = failure
    if _was_killed_from_outside(name, exit_code, shared, ends.get(name)) and engine_has_restarted(None):
        return name, REASON_ENGINE_RESTARTED, _ENGINE_RESTARTED
    return name, *_failure_reason(name, exit_code, shared, ends.get(name), job)


def _stopped_from_outside(engine_has_restarted: bool | None) -> tuple[str, str]:
    if engine_has_restarted:
        return REASON_ENGINE_RESTARTED, _ENGINE_RESTARTED
    return REASON_STOPPED_FROM_OUTSIDE, _STOPPED_SOMEHOW if engine_has_restarted is None else _STOPPED_FROM_OUTSIDE


def _unwritten_failure(shared: SharedFolder, ends: Mapping[str, ContainerEnd | None]) -> tuple[str, int] | None:
    """An instance that did not succeed, and its exit code; rather one that the executor has not ended."""
    exits = [(one.name, _exit_code(one.name, shared, ends)) for one in shared.instances]
    failures = [(name, exit_code) for name, exit_code in exits if exit_code]
    return min(failures, key=lambda failure: bool(shared.why(failure[0])), default=None)


def _was_cut_off(shared: SharedFolder, ends: Mapping[str, ContainerEnd | None]) -> bool:
    """Return whether an instance had to be killed, because it did not end within its grace period."""
    silent = [one.name for one in shared.instances if shared.exit_of(one.name) is None]
    return any((end := ends.get(name)) is None or end.code for name in silent)


def _was_killed_from_outside(name: str, exit_code: int, shared: SharedFolder, end: ContainerEnd | None) -> bool:
    """Return whether a signal from elsewhere killed it before it could write its exit code."""
    is_plain = end is not None and not (end.error or end.words or end.out_of_memory)
    return is_plain and exit_code in _KILLED_CODES and shared.exit_of(name) is None and not shared.why(name)


def _failure_reason(
    name: str, exit_code: int, shared: SharedFolder, end: ContainerEnd | None, job: Mapping[str, Any]
) -> tuple[str, str]:
    has_exit = shared.exit_of(name) is not None
    # The others took it for lost; then it went on and ended, or the executor killed it.
    if shared.why(name) == "peer" or (has_exit and shared.is_failure_silent):
        return REASON_SUPERVISOR_LOST, _SILENT.format(name=name)
    if end is None and not has_exit:
        return REASON_SUPERVISOR_LOST, _GONE.format(name=name)
    if end is not None and end.error:
        return "ContainerNotStarted", f"The container of {name} could not be started: {end.error}"
    if end is not None and end.words:
        return "ContainerNotStarted", _SAID.format(name=name, words=end.words)
    is_oom = shared.ran_out_of_memory(name) or (end is not None and end.out_of_memory)
    if is_oom and exit_code != 0:
        return REASON_OUT_OF_MEMORY, memory_limit_message(name, exit_code, job["memory_bytes"])
    if exit_code in _KILLED_CODES and not has_exit:
        return REASON_KILLED_BY_SIGNAL, _KILLED.format(name=name, code=exit_code)
    message = _disk_full(name, exit_code, shared, job)
    if message:
        return REASON_DISK_FULL, message
    return exit_reason(name, exit_code, kernel_killed=has_killed_since(job.get("kernel_kills")))


def _disk_full(name: str, exit_code: int, shared: SharedFolder, job: Mapping[str, Any]) -> str:
    """The sentence for an instance that failed because of a full disk; empty for another.

    At the first look after the end there may be free space again, or the disk was inside the container: then the
    log has the error.
    """
    for folder in (shared.path.parent, *(Path(path) for path in job.get("outputs", {}).values())):
        if _is_full(folder):
            return disk_full_message(name, exit_code, str(folder))
    said = next((line for line in shared.log_tail(name, _LAST_LINES) if _NO_SPACE in line), None)
    return disk_full_said_message(name, exit_code, said.strip()[:_LONGEST_LINE]) if said else ""


def _is_full(folder: Path) -> bool:
    try:
        disk = shutil.disk_usage(folder)
    except OSError:
        return False
    return disk.free < min(_FULL_DISK_BYTES, disk.total // _FULL_DISK_SHARE)


def _exit_code(name: str, shared: SharedFolder, ends: Mapping[str, ContainerEnd | None]) -> int | None:
    """An instance's exit code by its own account, or else by the engine's."""
    ended = shared.exit_of(name) or ends.get(name)
    return ended.code if ended else None
