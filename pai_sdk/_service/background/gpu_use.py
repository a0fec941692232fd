"""Reads the use of NVIDIA GPUs by the processes of this machine, by `nvidia-smi`."""

from __future__ import annotations

import logging
import math
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from pai_sdk._service.periodic_task import PeriodicTask

logger = logging.getLogger(__name__)

_PROGRAM = "nvidia-smi"
GPU_EVERY_S = 30.0
_TIMEOUT_S = 5.0
_AFTER_TIMEOUT_S = 600.0  # a program that waits for a broken driver cannot be killed: not many of these
_CLOSE_S = 1.0


class GpuMeter:
    """Reads GPUs in a thread of its own while jobs run: `nvidia-smi` may not end if the driver hangs."""

    def __init__(self, has_jobs: Callable[[], bool], *, every_s: float) -> None:
        self._has_jobs, self._every_s = has_jobs, every_s
        self._next_at_s = -math.inf  # on the monotonic clock
        self._percent: Mapping[int, float] = {}
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
    def percent(self) -> Mapping[int, float]:
        """Returns the use of the busiest GPU of each process that has any, by process id."""
        return self._percent

    def _pause_s(self) -> float | None:
        return max(0.0, self._next_at_s - time.monotonic()) if self._has_jobs() else None

    def _run(self) -> None:
        if time.monotonic() < self._next_at_s or not self._has_jobs():
            return
        self._percent = {}
        pause_s = self._every_s
        try:
            self._percent = _percent_by_process()
        except FileNotFoundError:  # a machine without GPUs
            pause_s = _AFTER_TIMEOUT_S
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            logger.warning("the use of GPUs cannot be read: %s", type(error).__name__)
            pause_s = _AFTER_TIMEOUT_S
        self._next_at_s = time.monotonic() + pause_s


def _percent_by_process() -> dict[int, float]:
    gpus = [(int(pid), gpu) for pid, gpu in _rows("--query-compute-apps=pid,gpu_uuid") if pid.isdigit()]
    if not gpus:
        return {}
    # A GPU that is divided (MIG) has no such number.
    uses = {gpu: float(use) for gpu, use in _rows("--query-gpu=uuid,utilization.gpu") if use.isdigit()}
    percent: dict[int, float] = {}
    for pid, gpu in gpus:
        if gpu in uses:
            percent[pid] = max(percent.get(pid, 0.0), uses[gpu])
    return percent


def _rows(query: str) -> Iterator[tuple[str, str]]:
    """Yields the two columns of a query."""
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
    for line in output.splitlines():
        first, _, second = line.partition(",")
        yield first.strip(), second.strip()
