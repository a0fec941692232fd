"""Reads the use of NVIDIA GPUs by the processes of this machine, by `nvidia-smi`."""

from __future__ import annotations

import logging
import math
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from pai_sdk._service.periodic_task import PeriodicTask

logger = logging.getLogger(__name__)

_PROGRAM = "nvidia-smi"
_TIMEOUT_S = 5.0
_AFTER_TIMEOUT_S = 600.0  # a program that waits for a broken driver cannot be killed: not many of these
_CLOSE_S = 1.0


class GpuUse(NamedTuple):
    """Use of the GPUs of a process: the largest values of any of them, None where there is none."""

    percent: float | None = None  # of its time
    memory_percent: float | None = None  # of its memory, by all its processes


class GpuMeter:
    """Reads GPUs in a thread of its own while jobs run: `nvidia-smi` may not end if the driver hangs."""

    def __init__(self, has_jobs: Callable[[], bool], *, every_s: float) -> None:
        self._has_jobs, self._every_s = has_jobs, every_s
        self._next_at_s = -math.inf  # on the monotonic clock
        self._uses: Mapping[int, GpuUse] = {}
        self._task = PeriodicTask("gpus", self._pause_s, self._run)

    def start(self) -> None:
        """Starts the thread."""
        self._task.start()

    def wake(self) -> None:
        """Called when a job has started."""
        self._task.wake()

    def close(self) -> None:
        """Stops the thread; one that waits for the driver is left behind."""
        with suppress(TimeoutError):
            self._task.close(_CLOSE_S)

    @property
    def uses(self) -> Mapping[int, GpuUse]:
        """Returns the use of the GPUs of each process that has any, by process id."""
        return self._uses

    def _pause_s(self) -> float | None:
        return max(0.0, self._next_at_s - time.monotonic()) if self._has_jobs() else None

    def _run(self) -> None:
        if time.monotonic() < self._next_at_s or not self._has_jobs():
            return
        uses: Mapping[int, GpuUse] = {}
        pause_s = self._every_s
        try:
            uses = _use_by_process()
        except FileNotFoundError:  # a machine without GPUs
            pause_s = _AFTER_TIMEOUT_S
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            logger.warning("the use of GPUs cannot be read: %s", type(error).__name__)
            pause_s = _AFTER_TIMEOUT_S
        self._uses, self._next_at_s = uses, time.monotonic() + pause_s


def largest(uses: Iterable[GpuUse]) -> GpuUse:
    """Returns the largest values of several GPUs or processes."""
    columns = [*zip(*uses, strict=True)] or [(), ()]
    return GpuUse(*(max((value for value in column if value is not None), default=None) for column in columns))


def _use_by_process() -> dict[int, GpuUse]:
    gpus = [(int(pid), gpu) for pid, gpu in _rows("--query-compute-apps=pid,gpu_uuid") if pid.isdigit()]
    if not gpus:
        return {}
    query = "--query-gpu=uuid,utilization.gpu,memory.used,memory.total"
    uses = {gpu: GpuUse(_percent(use, "100"), _percent(used, total)) for gpu, use, used, total in _rows(query)}
    by_process: dict[int, GpuUse] = {}
    for pid, gpu in gpus:
        by_process[pid] = largest([by_process.get(pid, GpuUse()), uses.get(gpu, GpuUse())])
    return by_process


def _percent(used: str, total: str) -> float | None:
    # A GPU that is divided (MIG) has no such number.
    return 100 * int(used) / int(total) if used.isdigit() and total.isdigit() and int(total) else None


def _rows(query: str) -> Iterator[Sequence[str]]:
    """Yields the columns of a query."""
    program = shutil.which(_PROGRAM)
    if program is None:
        raise FileNotFoundError(_PROGRAM)
    process = subprocess.Popen(
        [program, query, "--format=csv,noheader,nounits"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        output, _ = process.communicate(timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        with suppress(subprocess.TimeoutExpired):  # it waits for the driver, and is left behind
            process.communicate(timeout=1.0)
        raise
    count = query.count(",") + 1
    for line in output.splitlines():
        columns = [column.strip() for column in line.split(",")]
        if len(columns) == count:  # not a message, such as "No devices were found"
            yield columns
