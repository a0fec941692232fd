"""Memory of the instances of a job, and kills by the kernel for lack of it. Linux only.

A limit is watched rather than set: RLIMIT_AS counts addresses, which CUDA and allocators take far more of than
memory, and a control group needs rights that a service rarely has. Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

__all__ = ["has_killed_since", "is_above", "kernel_kills"]

_KIB = 1024


def is_above(limit_bytes: int, processes: Iterable[int]) -> bool:
    """Return whether these processes together hold more than that.

    What several of them share, as the workers of a data loader do, counts once.

    Example:
        >>> is_above(1 << 60, [1])
        False
    """
    processes = list(processes)
    # The sum that is had cheaply is never too low, since it counts what is shared several times.
    if sum(_kib(process, "status", "VmRSS:") for process in processes) * _KIB <= limit_bytes:
        return False
    return sum(_kib(process, "smaps_rollup", "Pss:") for process in processes) * _KIB > limit_bytes


def kernel_kills() -> int | None:
    """Number of processes that the kernel has killed for lack of memory since its start; None if unknown."""
    with suppress(OSError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return None


def has_killed_since(before: int | None) -> bool | None:
    """Return whether it has killed since `kernel_kills` returned `before`; None when that is not known.

    Example:
        >>> has_killed_since(None) is None
        True
    """
    now = kernel_kills()
    if before is None or now is None or now < before:  # the machine was started anew
        return None
    return now > before


def _kib(process: int, file: str, field: str) -> int:
    """One field of a file in /proc; 0 for a process that has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/{file}").read_text(errors="replace").splitlines():
            if line.startswith(field):
                return int(line.split()[1])
    return 0
