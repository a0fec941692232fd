"""Memory of the instances of a job, and kills by the kernel for lack of it. Linux only.

The limit is polled, not set: RLIMIT_AS counts addresses, of which CUDA and allocators reserve far more than
memory, and a control group needs rights that a service rarely has. Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_KIB = 1024


def exceeds(limit_bytes: int, processes: Iterable[int]) -> bool:
    """Returns True if these processes together use more memory than the limit; shared memory counts once."""
    # What several of them share, as the workers of a data loader do, counts once.
    processes = list(processes)
    # The cheap sum (RSS) is never too low, since it counts shared memory several times.
    if sum(_kib(process, "status", "VmRSS:") for process in processes) * _KIB <= limit_bytes:
        return False
    return sum(_kib(process, "smaps_rollup", "Pss:") for process in processes) * _KIB > limit_bytes


def kernel_kills() -> int | None:
    """Returns how many processes the kernel has killed for lack of memory since boot; None if unknown."""
    with suppress(OSError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return None


def has_killed_since(before: int | None) -> bool | None:
    """Returns True if the kernel has killed since `kernel_kills` returned `before`; None if unknown."""
    now = kernel_kills()
    if before is None or now is None or now < before:  # the machine was started anew
        return None
    return now > before


def _kib(process: int, file: str, field: str) -> int:
    """Returns one field of a file in /proc; 0 for a process that has exited."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/{file}").read_text(errors="replace").splitlines():
            if line.startswith(field):
                return int(line.split()[1])
    return 0
