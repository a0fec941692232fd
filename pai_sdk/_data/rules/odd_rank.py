"""Which rank is where no other rank is, by stacks, step counters and CPU."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from pai_sdk._data.rules.signals import BUSY_CORES, Stack

# Frames of a rank that waits for other ranks.
_WAITING_FUNCTION = re.compile(
    r"all_?reduce|all_?gather|all_?to_?all|reduce_scatter|\bbarrier\b|monitored_barrier|broadcast|\brecv|\birecv"
    r"|_recv|recvfrom|recvmsg|accept|synchronize|wait_for_everyone|ncclgroup|c10d|\bepoll|\bpoll\b|\bselect\b",
    re.IGNORECASE,
)
_WAITING_FILE = re.compile(r"torch/distributed|horovod|mpi4py|deepspeed/comm|gloo|nccl|/socket\.py$")
_SPINNING_CORES = 0.8
_MAX_EVIDENCE_FRAMES = 12


def wait_function(stack: Stack) -> str | None:
    """Returns the outermost function in which a rank waits for others; None if it does something else."""
    waiting = None
    for frame in stack:  # the innermost first
        is_waiting = _WAITING_FUNCTION.search(frame.function) or _WAITING_FILE.search(frame.file)
        if is_waiting:
            waiting = frame.function
        elif waiting is None and not _is_library(frame.file):
            return None  # its own code is innermost: it works, sleeps, or is blocked there
        elif waiting is not None:
            break
    return waiting


def _is_library(file: str) -> bool:
    return not file or "site-packages" in file or "/lib/python" in file or file.startswith("<")


def odd_by_stacks(stacks: Mapping[str, Stack]) -> str | None:
    """Returns the only rank that differs from all others; None if there is none, or more than one."""
    readable = {name: stack for name, stack in stacks.items() if stack}
    if len(readable) < 2:
        return None
    waits = {name: wait_function(stack) for name, stack in readable.items()}
    working = [name for name, function in waits.items() if function is None]
    if working and len(working) < len(readable):
        return working[0] if len(working) == 1 else None
    if not working:  # all wait: one of them elsewhere
        return _single(waits)
    # By functions, without lines: the root of a collective has another line of its own.
    return _single({name: tuple(frame.function for frame in stack) for name, stack in readable.items()})


def _single(keys: Mapping[str, Any]) -> str | None:
    """Returns the only name with a key of its own, if all others share one; of two, neither is odd."""
    counts = Counter(keys.values())
    if len(keys) < 3 or len(counts) != 2 or min(counts.values()) != 1:
        return None
    return next(name for name, key in keys.items() if counts[key] == 1)


def odd_by_steps(steps: Mapping[str, int]) -> str | None:
    """Returns the only rank that is behind all others."""
    if len(steps) < 2:
        return None
    min_step = min(steps.values())
    behind = [name for name, step in steps.items() if step == min_step]
    return behind[0] if len(behind) == 1 else None


def odd_by_cpu(cores: Mapping[str, float]) -> str | None:
    """Returns the only idle rank of a job whose other ranks spin, as those that wait in NCCL and MPI do."""
    idle = [name for name, used in cores.items() if used < BUSY_CORES]
    spins = all(used >= _SPINNING_CORES for name, used in cores.items() if name not in idle)
    return idle[0] if len(idle) == 1 and len(cores) >= 3 and spins else None


def stack_lines(stack: Stack) -> list[str]:
    """Formats a stack, the innermost frame first."""
    return [
        f"{frame.function} ({frame.file}:{frame.line})" if frame.file else frame.function
        for frame in stack[:_MAX_EVIDENCE_FRAMES]
    ]
