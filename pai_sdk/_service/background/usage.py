"""Samples the resource usage of running jobs on this machine periodically: processor, memory, disk and GPUs."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from pai_sdk._core.files import append_to
from pai_sdk._service.background.gpu_use import GpuMeter, GpuUse, largest
from pai_sdk._service.background.watch.process_states import ProcessState, state_of
from pai_sdk._service.periodic_task import PeriodicTask
from pai_sdk._service.services.usage import sample_line, usage_file

logger = logging.getLogger(__name__)

_EVERY_S = 10.0
_SAMPLES_PER_GPU_READ = 3  # each starts a program
_FIRST_S = 1.0  # new jobs are sampled earlier: many finish within ten seconds
_NEW_S = 60.0  # an instance without processes for so long is not starting any more
_MARK = "PAI_INSTANCE_NAME"  # a variable in the environment of all processes of an instance


@dataclass(frozen=True)
class InstanceUse:
    """What an instance has used since the sample before the last one, and its processes at the last one."""

    cores: float  # CPU time per second
    io_bytes_per_s: float
    processes: tuple[ProcessState, ...]
    gpu_percent: float | None = None  # of the busiest GPU that its processes have; None if they have none


@dataclass(frozen=True)
class _Used:
    """Resources that one process has used since it started."""

    process: tuple[int, float]
    cpu_s: float = 0.0
    read_bytes: int = 0
    written_bytes: int = 0
    state: ProcessState | None = None


@dataclass
class _Watched:
    """One instance: the file of its samples, and the usage of its processes at the last sample."""

    file: Path
    polled_at_s: float  # monotonic time
    used: dict[tuple[int, float], _Used] = field(default_factory=dict)
    has_processes: bool = False
    use: InstanceUse | None = None  # at the last sample; None before the first one


class UsageMeter:
    """Samples the processes of running jobs in one thread, which sleeps without jobs."""

    def __init__(self, *, every_s: float = _EVERY_S, first_s: float = _FIRST_S) -> None:
        self._every_s = every_s
        self._first_s = first_s
        self._watched: dict[str, dict[str, _Watched]] = {}
        self._lock = threading.Lock()
        self._sample_at = math.inf  # on the monotonic clock
        self._gpus = GpuMeter(lambda: bool(self._watched), every_s=_SAMPLES_PER_GPU_READ * every_s)
        self.task = PeriodicTask(
            "usage",
            self._pause_s,
            self._run,
            retry_s=every_s,
            on_error=lambda error: logger.error("the usage of the running jobs cannot be read", exc_info=error),
        )

    def start(self) -> None:
        """Starts the threads."""
        self._gpus.start()
        self.task.start()

    def close(self) -> None:
        """Stops the threads."""
        self.task.close()
        self._gpus.close()

    def watch(self, job_id: str, logs: Mapping[str, Path]) -> None:
        """Samples a job from now on."""
        now = time.monotonic()
        with self._lock:
            self._watched[job_id] = {name: _Watched(usage_file(log), now) for name, log in logs.items()}
            self._sample_at = min(self._sample_at, now + self._first_s)
        self.task.wake()
        self._gpus.wake()

    def uses(self, job_id: str) -> dict[str, InstanceUse]:
        """Returns the last use of each instance of a job that has processes on this machine."""
        with self._lock:
            watched = self._watched.get(job_id, {})
            return {name: each.use for name, each in watched.items() if each.use is not None}

    def finish(self, job_id: str) -> None:
        """Stops sampling a job."""
        with self._lock:
            self._watched.pop(job_id, None)

    def _run(self) -> None:
        # Woken by `watch`: only the pause changes.
        if time.monotonic() < self._sample_at:
            return
        with self._lock:
            instances = self._instances()
        _sample(instances, self._gpus.uses)
        with self._lock:
            instances = self._instances()  # again: a job may have been added during the sample
            # From the end of a sample, so that slow samples have a pause between them.
            now = time.monotonic()
            is_new = any(not each.has_processes and now - each.polled_at_s < _NEW_S for each in instances.values())
            pause_s = self._first_s if is_new else self._every_s
            self._sample_at = now + pause_s if instances else math.inf

    def _pause_s(self) -> float | None:
        return None if self._sample_at == math.inf else max(0.0, self._sample_at - time.monotonic())

    def _instances(self) -> dict[str, _Watched]:
        return {name: instance for job in self._watched.values() for name, instance in job.items()}


def _sample(instances: Mapping[str, _Watched], gpus: Mapping[int, GpuUse]) -> None:
    started_s = time.monotonic()
    usages: dict[str, list[_Used]] = {}
    memory_bytes: Counter[str] = Counter()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):  # it has exited, or belongs to another user
            name = process.environ().get(_MARK, "")
            if name in instances:
                with process.oneshot():
                    used, rss_bytes = _used_by(process), process.memory_info().rss
                usages.setdefault(name, []).append(used)
                memory_bytes[name] += rss_bytes
    # From the start of one sample to the end of the next: a slow sample must not result in more than 100 %.
    finished_s = time.monotonic()
    for name in instances.keys() - usages.keys():
        instances[name].use = None
    for name, processes in usages.items():
        elapsed_s = max(finished_s - instances[name].polled_at_s, 0.001)
        instances[name].polled_at_s, instances[name].has_processes = started_s, True
        gpu = largest(gpus[used.process[0]] for used in processes if used.process[0] in gpus)
        _append_sample(instances[name], processes, memory_bytes[name], elapsed_s, gpu)


def _used_by(process: psutil.Process) -> _Used:
    times = process.cpu_times()
    # Not available on macOS, nor for processes of other users.
    io = process.io_counters() if hasattr(process, "io_counters") else None
    return _Used(
        (process.pid, process.create_time()),
        times.user + times.system,
        io.read_bytes if io else 0,
        io.write_bytes if io else 0,
        state_of(process),
    )


def _append_sample(
    instance: _Watched,
    processes: Sequence[_Used],
    memory_bytes: int,
    elapsed_s: float,
    gpu: GpuUse,
) -> None:
    """Appends the usage since the last sample; for new processes, since their start."""
    cpu_s = read_bytes = written_bytes = 0.0
    for used in processes:
        # Without its start time, a process that reuses a pid would count as the earlier one.
        before = instance.used.get(used.process, _Used(used.process))
        cpu_s += used.cpu_s - before.cpu_s
        read_bytes += used.read_bytes - before.read_bytes
        written_bytes += used.written_bytes - before.written_bytes
    instance.used = {used.process: used for used in processes}
    states = tuple(used.state for used in processes if used.state is not None)
    instance.use = InstanceUse(cpu_s / elapsed_s, (read_bytes + written_bytes) / elapsed_s, states, gpu.percent)
    values = (
        100 * cpu_s / elapsed_s / (os.cpu_count() or 1),
        100 * memory_bytes / psutil.virtual_memory().total,
        read_bytes / elapsed_s,
        written_bytes / elapsed_s,
        *gpu,
    )
    # A sample is lost if the disk is full, or the job was deleted.
    with suppress(OSError):
        append_to(instance.file, sample_line(time.time(), values))
