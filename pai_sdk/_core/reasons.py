"""Reasons of jobs that did not succeed: a code for programs, a sentence for people. Standard library only."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable

REASON_NON_ZERO_EXIT = "NonZeroExit"
REASON_OUT_OF_MEMORY = "OutOfMemory"
REASON_OUTPUTS_NOT_SAVED = "OutputsNotSaved"
REASON_KILLED_BY_SIGNAL = "KilledBySignal"
REASON_COMMAND_NOT_FOUND = "CommandNotFound"
REASON_NOT_EXECUTABLE = "NotExecutable"
REASON_REQUIREMENTS_FAILED = "RequirementsFailed"
REASON_MAX_RUNNING_TIME = "MaxRunningTimeExceeded"
REASON_STOPPED_BY_USER = "StoppedByUser"
REASON_STOPPED_FROM_OUTSIDE = "StoppedFromOutside"
"""Not by `job.stop()`: a signal ended what runs the job, such as that of `docker stop`."""
REASON_ENGINE_RESTARTED = "EngineRestarted"
"""The Docker engine ended or started anew, and took the job's containers along: submit the job again."""
REASON_USER_REMOVED = "UserRemoved"
"""The user was removed from the service while the job waited in the queue."""
REASON_NODE_LOST = "NodeLost"
"""A node of the cluster, or the process on it with an instance, was lost: submit the job again."""
REASON_PREEMPTED = "Preempted"
"""The cluster has ended the job to make room for another one: submit the job again."""
REASON_RESTARTED_BY_RULE = "RestartedByRule"
"""A rule about running jobs with `action="restart"` has ended the attempt; another one follows."""
REASON_SUPERVISOR_LOST = "SupervisorLost"
REASON_SANDBOX_FAILED = "SandboxFailed"
REASON_DISK_FULL = "DiskFull"
REASON_ENGINE_AWAY = "EngineAway"
"""Of a job that has not ended, as far as is known."""

# What to do, in the sentences below.
_LOWER_BATCH = "use a smaller batch or a larger instance."
_RAISE_MEMORY = "Use a smaller batch, or raise instance_spec.memory."
_CHECK_COMMAND = (
    "Check its spelling, or add the package that provides it to the requirements; an existing script may have "
    "Windows line endings (CRLF)."
)
_START_BY_INTERPRETER = "Start it by its interpreter (`python train.py`, `sh run.sh`) or set its x bit."
_FREE_FOLDER = "Free some space there, or write less."
_FREE_DISK = "Free some space on that disk, or write less; the size of /dev/shm is instance_spec.shared_memory."
_USE_PIP = "Use an image with Python and pip, or leave out the requirements."
_CHECK_REQUIREMENTS = "check names, versions and the package index."
_RAISE_TIME = "Raise max_run_time if it needs more."
_SUBMIT_WRITTEN = "Submit it again; checkpoints it had written are still there."
_SUBMIT_SAVED = "Submit it again; checkpoints it had saved are still there."
_SUBMIT = "Submit it again."
_ADVICE = (
    *(_LOWER_BATCH, _RAISE_MEMORY, _CHECK_COMMAND, _START_BY_INTERPRETER, _FREE_FOLDER, _FREE_DISK, _USE_PIP),
    *(_CHECK_REQUIREMENTS, _RAISE_TIME, _SUBMIT_WRITTEN, _SUBMIT_SAVED, _SUBMIT),
)

_MISSING_MODULE = re.compile(r"(?:\bModuleNotFoundError|/python[\d.]*): No module named '?([\w.]{1,100})(?:'|$)")
# A shell reports "killed by signal n" as exit code 128 + n.
_SIGNAL_BASE = 128
# SIGKILL as a number: on Windows, where clients also read the reasons, `signal` has no such name.
_KILLED = _SIGNAL_BASE + 9


def exit_reason(instance: str, exit_code: int, *, kernel_killed: bool | None = None) -> tuple[str, str]:
    """Returns reason code and sentence for an instance that exited with another code than 0."""
    # The code is that of a shell. `kernel_killed`: for lack of memory, meanwhile; None if unknown.
    if exit_code == _KILLED and kernel_killed is not False:
        return REASON_OUT_OF_MEMORY, (
            f"Instance {instance} was killed (exit code 137, SIGKILL), most likely by the kernel since memory ran "
            f"out: {_LOWER_BATCH}"
        )
    if exit_code == _KILLED:
        return REASON_KILLED_BY_SIGNAL, (
            f"Instance {instance} was killed by signal SIGKILL (exit code 137). It was not killed because memory "
            "ran out."
        )
    if exit_code == 127:
        return REASON_COMMAND_NOT_FOUND, (
            f"Instance {instance} ended with exit code 127: a program of the command was not found; the log's "
            f"last lines name it. {_CHECK_COMMAND}"
        )
    if exit_code == 126:
        return REASON_NOT_EXECUTABLE, (
            f"Instance {instance} ended with exit code 126: a program of the command is not executable. "
            f"{_START_BY_INTERPRETER}"
        )
    name = _signal_name(exit_code)
    if name:
        return REASON_KILLED_BY_SIGNAL, (
            f"Instance {instance} was ended by signal {name} (exit code {exit_code})."
        )
    short = " The kernel has killed processes meanwhile because memory ran out." if kernel_killed else ""
    return REASON_NON_ZERO_EXIT, f"Instance {instance} ended with exit code {exit_code}.{short}"


def split_advice(message: str) -> tuple[str, str]:
    """Returns the sentence of a reason without its advice, and the advice; empty if it has none."""
    for advice in _ADVICE:
        before, separator, after = message.partition(advice)
        if separator:
            return f"{before.rstrip(' :;.')}.{after}", f"{advice[0].upper()}{advice[1:]}"
    return message, ""


def image_unused_message(image: str) -> str:
    """Returns the sentence that a job runs as processes of a host, with the host's own programs."""
    return (
        f"Jobs run as processes, not in containers: the image {image!r} is not used, and its packages and "
        "programs are not there. Name packages in requirements, or serve with `pai-sdk serve --executor docker`."
    )


def missing_module(lines: Iterable[str]) -> str:
    """Returns the last module that Python did not find, from the last lines of a log; empty without one."""
    module = ""
    for line in lines:
        if match := _MISSING_MODULE.search(line):
            module = match[1]
    return module


def memory_limit_message(instance: str, exit_code: int, limit_bytes: int | None) -> str:
    """Returns the sentence for an instance that exceeded its memory limit; None for an unknown limit."""
    limit = f" of {_format_bytes(limit_bytes)}" if limit_bytes else ""
    return (
        f"Instance {instance} ran out of memory: it reached its limit{limit} and was killed (exit code "
        f"{exit_code}). {_RAISE_MEMORY}"
    )


def disk_full_message(instance: str, exit_code: int, folder: str = "") -> str:
    """Returns the sentence for an instance that failed while its disk was full."""
    disk = f"disk of {folder}" if folder else "disk that its outputs and logs are written to"
    return f"Instance {instance} ended with exit code {exit_code}, and the {disk} is full. {_FREE_FOLDER}"


def disk_full_log_message(instance: str, exit_code: int, line: str) -> str:
    """Returns the sentence for an instance that failed after its log mentioned a full disk."""
    return f"Instance {instance} ended with exit code {exit_code}, and its log says: {line}. {_FREE_DISK}"


def requirements_message(exit_code: int, problem: str = "", *, has_pip: bool = True) -> str:
    """Returns the sentence for requirements that could not be installed; an empty `problem` is unknown."""
    # pip could not run: `problem` is the reason.
    if not has_pip:
        return f"The Python requirements could not be installed: {problem}. {_USE_PIP}"
    details = f"{problem} (pip's exit code: {exit_code})" if problem else f"pip ended with exit code {exit_code}"
    return (
        f"The Python requirements could not be installed: {details}. pip's output is in the first instance's "
        f"log; {_CHECK_REQUIREMENTS}"
    )


def max_running_time_message(seconds: float) -> str:
    """Returns the sentence for a job that exceeded its time limit."""
    return f"The job was stopped: it reached its limit of {seconds:g} seconds. {_RAISE_TIME}"


def supervisor_lost_message() -> str:
    """Returns the sentence for a job whose end was not observed."""
    return (
        "The process that supervised this job was killed or the machine went down, so the job did not "
        f"finish. {_SUBMIT_WRITTEN}"
    )


def machine_lost_message(machine: str) -> str:
    """Returns the sentence for a job whose processes are on a machine that no longer serves."""
    return (
        f"The processes of this job were on {machine}, and the service has moved to another machine, which cannot "
        f"reach them. {_SUBMIT_SAVED}"
    )


def node_lost_message(instance: str, node: str, *, is_alive: bool) -> str:
    """Returns the sentence for an instance that was lost with its node, or alone if the node is still alive."""
    event = (
        f"The process that had instance {instance} on node {node} was killed"
        if is_alive
        else f"Instance {instance} was lost with its node {node}: the cluster does not reach it any more"
    )
    return f"{event}. The job was ended; log lines and files that had not arrived are lost. {_SUBMIT}"


def _format_bytes(size_bytes: int) -> str:
    mebibytes = size_bytes / (1 << 20)
    return f"{mebibytes:g} MiB" if mebibytes < 1024 else f"{mebibytes / 1024:g} GiB"


def _signal_name(exit_code: int) -> str:
    try:
        return signal.Signals(exit_code - _SIGNAL_BASE).name
    except ValueError:
        return ""
