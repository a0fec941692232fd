"""How a job of containers ended: from what its instances wrote, and what the engine says of them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pai_sdk.agent.distributed import Instance
from pai_sdk.agent.memory import has_killed_since
from pai_sdk.agent.reasons import (
    REASON_DISK_FULL,
    REASON_ENGINE_RESTARTED,
    REASON_KILLED_BY_SIGNAL,
    REASON_MAX_RUNNING_TIME,
    REASON_OUT_OF_MEMORY,
    REASON_REQUIREMENTS_FAILED,
    REASON_STOPPED_BY_USER,
    REASON_STOPPED_FROM_OUTSIDE,
    REASON_SUPERVISOR_LOST,
    disk_full_message,
    disk_full_said_message,
    exit_reason,
    max_running_time_message,
    memory_limit_message,
    requirements_message,
)
from pai_sdk.execution.base import ExecutionState
from pai_sdk.execution.docker.shared_folder import SharedFolder

__all__ = ["ContainerEnd", "ending", "interrupted", "stopped_before_start"]

_INTERRUPTED = "The process that submitted this job ended before all containers were started. Submit it again."

_GONE = "The container of {name} is gone, and how it ended is not known; it was removed from outside."
_SILENT = (
    "Instance {name} gave no sign of life for 20 seconds, so the others were ended; its container was paused, or "
    "the machine too busy."
)
_SAID = "The container of {name} ended before it could write its log. It said: {words}"
_STOPPED = "The job was stopped. The reason could not be written down, since the disk was full."
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
_FULL_DISK_SHARE = 8  # of a small disk, one part in so many
_KILLED_CODES = (137, 255)  # 255: the engine or the machine started anew, and found it dead
_KILLED = (
    "The container of {name} was killed from outside (exit code {code}): by `docker kill` or `docker stop`, or "
    "because the engine or the machine was restarted. Submit the job again; checkpoints it had written are still "
    "there."
)


@dataclass(frozen=True)
class ContainerEnd:
    """How the engine says that a container ended.

    Attributes:
        code: its exit code.
        out_of_memory: the kernel killed something in it for lack of memory.
        error: why it could not be started, if it could not.
        words: what it said before it could write a log.
    """

    code: int
    out_of_memory: bool = False
    error: str = ""
    words: str = ""


def ending(
    job: Mapping[str, Any],
    shared: SharedFolder,
    instances: Sequence[Instance],
    ends: Mapping[str, ContainerEnd | None],
    engine_has_restarted: Callable[[bool | None], bool | None] = lambda _: False,
) -> dict[str, Any]:
    """The final state of a job, as `ExecutionState` has it.

    Args:
        job: what is known of it since its start.
        shared: the folder that its instances write to.
        instances: all of them.
        ends: how each container ended, as far as the engine knows it.
        engine_has_restarted: asked where the containers were ended from outside; None when it is not known. It is
            given what to suppose where the engine does not answer.
    """
    shown = [_instance(instance, shared, ends.get(instance.name)) for instance in instances]
    exits = [found for instance in instances if (found := shared.exit_of(instance.name))]
    failed, code, message = _reason(job, shared, instances, ends, engine_has_restarted)
    return {
        "phase": "ended",
        "started_at": shared.begun_at,
        "ended_at": max((one.at for one in exits), default=time.time()),
        "succeeded": not code,
        "instances": shown,
        "failed_instance": failed,
        "reason_code": code,
        "reason_message": message,
    }


def interrupted() -> ExecutionState:
    """The end of a job whose submitter was killed before anything of it began."""
    return ExecutionState(
        "ended",
        ended_at=time.time(),
        succeeded=False,
        reason_code=REASON_SUPERVISOR_LOST,
        reason_message=_INTERRUPTED,
    )


def stopped_before_start(shared: SharedFolder, instances: Sequence[Instance]) -> dict[str, Any]:
    """The final state of a job that was stopped before it had containers."""
    code, message = shared.stop_wish or ("", "")
    return {
        "phase": "ended",
        "ended_at": time.time(),
        "succeeded": False,
        "instances": [{"name": one.name, "role": one.role, "status": "Terminated"} for one in instances],
        "reason_code": code or REASON_STOPPED_BY_USER,
        "reason_message": message,
    }


def _reason(
    job: Mapping[str, Any],
    shared: SharedFolder,
    instances: Sequence[Instance],
    ends: Mapping[str, ContainerEnd | None],
    engine_has_restarted: Callable[[bool | None], bool | None],
) -> tuple[str | None, str, str]:
    """The instance to blame, the reason's code and its sentence; empty for a success."""
    whys = {shared.why(instance.name) for instance in instances}
    failure = shared.first_failure
    if not shared.has_begun:
        return None, REASON_SUPERVISOR_LOST, _INTERRUPTED
    if shared.requirements_failed:
        first = instances[0].name
        ended = shared.exit_of(first)
        refusal = shared.requirements_problem
        problem = refusal or shared.pip_problem(first)
        message = requirements_message(ended.code if ended else 1, problem, has_pip=not refusal)
        return first, REASON_REQUIREMENTS_FAILED, message
    if failure is None and "timeout" in whys:
        return None, REASON_MAX_RUNNING_TIME, max_running_time_message(job["max_running_s"])
    if failure is None and (
        "stopped" in whys or (shared.stop_wish is not None and _was_cut_off(shared, instances, ends))
    ):
        code, message = shared.stop_wish or ("", "")
        if code == REASON_STOPPED_FROM_OUTSIDE:
            return None, *_stopped_from_outside(engine_has_restarted(True))
        return None, code or REASON_STOPPED_BY_USER, message or _STOPPED
    if failure is None:
        failure = _unnoted_failure(shared, instances, ends)
    if failure is None:
        gone = next((i.name for i in instances if shared.exit_of(i.name) is None and not ends.get(i.name)), None)
        return (gone, REASON_SUPERVISOR_LOST, _GONE.format(name=gone)) if gone else (None, "", "")
    name, exit_code = failure
    if _was_killed_from_outside(name, exit_code, shared, ends.get(name)) and engine_has_restarted(None):
        return name, REASON_ENGINE_RESTARTED, _ENGINE_RESTARTED
    return name, *_failure_reason(name, exit_code, shared, ends.get(name), job)


def _stopped_from_outside(engine_has_restarted: bool | None) -> tuple[str, str]:
    if engine_has_restarted:
        return REASON_ENGINE_RESTARTED, _ENGINE_RESTARTED
    return REASON_STOPPED_FROM_OUTSIDE, _STOPPED_SOMEHOW if engine_has_restarted is None else _STOPPED_FROM_OUTSIDE


def _unnoted_failure(
    shared: SharedFolder, instances: Sequence[Instance], ends: Mapping[str, ContainerEnd | None]
) -> tuple[str, int] | None:
    """An instance that did not succeed, and its exit code; rather one that was not ended by us."""
    exits = [(one.name, _exit_code(one, shared, ends.get(one.name))) for one in instances]
    failures = [(name, exit_code) for name, exit_code in exits if exit_code]
    return min(failures, key=lambda failure: bool(shared.why(failure[0])), default=None)


def _was_cut_off(
    shared: SharedFolder, instances: Sequence[Instance], ends: Mapping[str, ContainerEnd | None]
) -> bool:
    """Whether an instance had to be killed, since it did not end when it was asked to."""
    silent = [instance.name for instance in instances if shared.exit_of(instance.name) is None]
    return any((end := ends.get(name)) is None or end.code for name in silent)


def _was_killed_from_outside(name: str, exit_code: int, shared: SharedFolder, end: ContainerEnd | None) -> bool:
    """Whether it ended without a word, by a signal that was not ours."""
    is_plain = end is not None and not (end.error or end.words or end.out_of_memory)
    return is_plain and exit_code in _KILLED_CODES and shared.exit_of(name) is None and not shared.why(name)


def _failure_reason(
    name: str, exit_code: int, shared: SharedFolder, end: ContainerEnd | None, job: Mapping[str, Any]
) -> tuple[str, str]:
    is_told = shared.exit_of(name) is not None
    # Taken for lost by the others, it came back all the same, or was killed by us.
    if shared.why(name) == "peer" or (is_told and shared.is_failure_silence):
        return REASON_SUPERVISOR_LOST, _SILENT.format(name=name)
    if end is None and not is_told:
        return REASON_SUPERVISOR_LOST, _GONE.format(name=name)
    if end is not None and end.error:
        return "ContainerNotStarted", f"The container of {name} could not be started: {end.error}"
    if end is not None and end.words:
        return "ContainerNotStarted", _SAID.format(name=name, words=end.words)
    is_oom = shared.ran_out_of_memory(name) or (end is not None and end.out_of_memory)
    if is_oom and exit_code != 0:
        return REASON_OUT_OF_MEMORY, memory_limit_message(name, exit_code, job["memory_bytes"])
    if exit_code in _KILLED_CODES and not is_told:
        return REASON_KILLED_BY_SIGNAL, _KILLED.format(name=name, code=exit_code)
    message = _disk_full(name, exit_code, shared, job)
    if message:
        return REASON_DISK_FULL, message
    return exit_reason(name, exit_code, kernel_killed=has_killed_since(job.get("kernel_kills")))


def _disk_full(name: str, exit_code: int, shared: SharedFolder, job: Mapping[str, Any]) -> str:
    """What to say of an instance that failed for a full disk; empty for another.

    By the first look at the end there may be free space again, and the full disk may be within the container:
    then the log tells.
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


def _instance(instance: Instance, shared: SharedFolder, end: ContainerEnd | None) -> dict[str, Any]:
    code = _exit_code(instance, shared, end)
    status = "Terminated" if shared.why(instance.name) else "Succeed" if code == 0 else "Failed"
    return {"name": instance.name, "role": instance.role, "status": status, "exit_code": code}


def _exit_code(instance: Instance, shared: SharedFolder, end: ContainerEnd | None) -> int | None:
    """An instance's exit code by its own account, or else by the engine's."""
    ended = shared.exit_of(instance.name)
    return ended.code if ended else end.code if end else None
