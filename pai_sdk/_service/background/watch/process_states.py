"""The state of one process, as far as rules need it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import psutil

# Shells and the first processes of containers, which wait for their children.
_SHELLS = frozenset(("sh", "bash", "dash", "ash", "zsh", "tini", "dumb-init", "docker-init"))
_FOR_EVER = re.compile(r"inf(?:inity)?|\d{6,}(?:\.\d+)?s?|\d{2,}[hd]")


class ProcessState(NamedTuple):
    """A process of an instance."""

    pid: int
    is_stopped: bool = False  # by a signal
    is_traced: bool = False  # stopped by a debugger
    is_blocked: bool = False  # in uninterruptible I/O
    is_shell: bool = False
    is_sleeper: bool = False  # `sleep infinity`, `tail -f /dev/null`


def state_of(process: psutil.Process) -> ProcessState:
    """Returns the state of a process; the arguments are read of few programs only."""
    status, name = process.status(), process.name()
    is_sleeper = name in ("sleep", "tail") and is_endless_sleep(process.cmdline())
    return ProcessState(
        process.pid,
        status == psutil.STATUS_STOPPED,
        status == psutil.STATUS_TRACING_STOP,
        status == psutil.STATUS_DISK_SLEEP,
        name in _SHELLS,
        is_sleeper,
    )


def is_endless_sleep(arguments: Sequence[str]) -> bool:
    """Returns whether a command does nothing for days: it holds an instance open."""
    program = arguments[0].rpartition("/")[2] if arguments else ""
    if program == "sleep":
        return any(_FOR_EVER.fullmatch(each) for each in arguments[1:])
    return program == "tail" and "/dev/null" in arguments
