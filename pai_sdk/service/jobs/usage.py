"""Use of this machine by the instances of running jobs: processor, memory and disk, sampled periodically.

The notes of an instance lie in a file beside its log, one line each: time, and a number for each of `MEASURED`.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from pai_sdk.base.files import append_to

__all__ = ["MEASURED", "UsageMeter", "read_usage"]

logger = logging.getLogger(__name__)

MEASURED = ("CpuCoreUsage", "MemoryUsage", "DiskReadRate", "DiskWriteRate")
"""Percent of the machine's cores, percent of its memory, bytes per second."""

_EVERY_S = 10.0
_FIRST_S = 1.0  # a job that has just begun is looked at sooner: many are over before ten seconds
_NEW_S = 60.0  # one that is not found for so long is not about to begin
_MARK = "PAI_INSTANCE_NAME"


@dataclass(frozen=True)
class _Used:
    """Resources that one process has used since it began."""

    process: tuple[int, float]
    cpu_s: float = 0.0
    read_bytes: int = 0
    written_bytes: int = 0


@dataclass
class _Watched:
    """One instance: where its notes go, and what its processes had used when it was looked at last."""

    file: Path
    looked_at_s: float  # monotonic time
    used: dict[tuple[int, float], _Used] = field(default_factory=dict)
    is_known: bool = False


class UsageMeter:
    """One thread that looks at the processes of running jobs; without one, it sleeps.

    Processes are told apart by the variable `PAI_INSTANCE_NAME` that each of a job's has.

    Args:
        every_s: how often it looks.
        first_s: how often it looks for instances it has not found yet.
    """

    def __init__(self, *, every_s: float = _EVERY_S, first_s: float = _FIRST_S) -> None:
        self._every_s = every_s
        self._first_s = first_s
        self._watched: dict[str, dict[str, _Watched]] = {}
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="usage", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """Stop; what was noted stays."""
        self._closing.set()
        self._woken.set()
        self._thread.join()

    def watch(self, job_id: str, logs: Mapping[str, Path]) -> None:
        """Look at a job from now on.

        Args:
            job_id: which.
            logs: the log file of each of its instances.
        """
        now = time.monotonic()
        with self._lock:
            self._watched[job_id] = {name: _Watched(_usage_file(log), now) for name, log in logs.items()}
        self._woken.set()

    def finish(self, job_id: str) -> None:
        """Look at a job no more."""
        with self._lock:
            self._watched.pop(job_id, None)

    def _run(self) -> None:
        next_s = 0.0
        while not self._closing.is_set():
            with self._lock:
                instances = {name: one for job in self._watched.values() for name, one in job.items()}
            now = time.monotonic()
            is_new = any(not one.is_known and now - one.looked_at_s < _NEW_S for one in instances.values())
            pause_s = self._first_s if is_new else max(0.0, next_s - time.monotonic())
            if self._woken.wait(pause_s if instances else None):
                self._woken.clear()
                continue
            try:
                _look(instances)
            except (OSError, psutil.Error):
                logger.exception("the usage of the running jobs cannot be read")
            next_s = time.monotonic() + self._every_s  # after it: two looks are never close together


def read_usage(log: Path, metric: str, *, begin: float, end: float, step_s: float) -> list[tuple[float, float]]:
    """The values of one metric of one instance: the mean of each step, with the time the step begins.

    Args:
        log: the instance's log file.
        metric: one of `MEASURED`; the others are not measured, and have no values.
        begin: from when on, in seconds since 1970.
        end: until when.
        step_s: the length of a step.
    """
    steps: dict[float, list[float]] = {}
    if metric in MEASURED:
        for moment, values in _notes(_usage_file(log)):
            if begin <= moment <= end:
                steps.setdefault(math.floor(moment / step_s) * step_s, []).append(values[MEASURED.index(metric)])
    return [(moment, sum(values) / len(values)) for moment, values in sorted(steps.items())]


def _usage_file(log: Path) -> Path:
    return log.with_suffix(".usage")


def _notes(file: Path) -> Iterator[tuple[float, Sequence[float]]]:
    with suppress(FileNotFoundError), file.open(encoding="ascii", errors="replace") as lines:
        for line in lines:
            try:
                moment, *values = map(float, line.split())
            except ValueError:
                continue  # cut off by a full disk
            if len(values) == len(MEASURED):
                yield moment, values


def _look(instances: Mapping[str, _Watched]) -> None:
    begun_s = time.monotonic()
    found: dict[str, list[_Used]] = {}
    memory_bytes: Counter[str] = Counter()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):  # it has ended, or belongs to another user
            name = process.environ().get(_MARK, "")
            if name in instances:
                with process.oneshot():
                    used, rss_bytes = _used_by(process), process.memory_info().rss
                found.setdefault(name, []).append(used)
                memory_bytes[name] += rss_bytes
    # From the start of one look to the end of the next: a slow look must not show more than 100 %.
    ended_s = time.monotonic()
    for name, processes in found.items():
        elapsed_s = max(ended_s - instances[name].looked_at_s, 0.001)
        instances[name].looked_at_s, instances[name].is_known = begun_s, True
        _note(instances[name], processes, memory_bytes[name], elapsed_s)


def _used_by(process: psutil.Process) -> _Used:
    times = process.cpu_times()
    # Not every system tells, and none tells of another user's process.
    io = process.io_counters() if hasattr(process, "io_counters") else None
    return _Used(
        (process.pid, process.create_time()),
        times.user + times.system,
        io.read_bytes if io else 0,
        io.write_bytes if io else 0,
    )


def _note(instance: _Watched, processes: Sequence[_Used], memory_bytes: int, elapsed_s: float) -> None:
    """Write down what the processes have used since the last look; all that those new since then have."""
    cpu_s = read_bytes = written_bytes = 0.0
    for used in processes:
        before = instance.used.get(used.process, _Used(used.process))
        cpu_s += used.cpu_s - before.cpu_s
        read_bytes += used.read_bytes - before.read_bytes
        written_bytes += used.written_bytes - before.written_bytes
    instance.used = {used.process: used for used in processes}
    values = (
        100 * cpu_s / elapsed_s / (os.cpu_count() or 1),
        100 * memory_bytes / psutil.virtual_memory().total,
        read_bytes / elapsed_s,
        written_bytes / elapsed_s,
    )
    # On a full disk, and in the folder of a job that was deleted, there is nothing to be noted.
    line = f"{time.time():.3f} {' '.join(f'{value:.4f}' for value in values)}\n"
    with suppress(OSError):
        append_to(instance.file, line.encode("ascii"))
