"""The signals of one running job, read cheaply: new parts of logs, new points, the use of its processes."""

from __future__ import annotations

import shutil
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pai_sdk._core.files import open_plain
from pai_sdk._data.rules.log_lines import MAX_LINE, metric_lines, split_lines
from pai_sdk._data.rules.signals import PRINTED, InstanceSample, Point, Sample
from pai_sdk._data.run.events.points import Part
from pai_sdk._data.stacks.processes import ProcessStack
from pai_sdk._service.background.usage import InstanceUse

_MAX_NEW_BYTES = 64 << 10  # of a log in one sample; of more, the last ones, and the values of metrics before
_CHUNK_BYTES = 1 << 20
_MAX_SEARCH_S = 0.1  # CPU time of one job and sample, about 25 MiB of flooded logs
_MAX_POINTS = 200  # of one part: a restarted service reads all event files again
_MAX_PENDING = 5000


@dataclass(frozen=True)
class JobTimes:
    """What the database has about a running job.

    Attributes:
        elapsed_s: since the start of the attempt.
        max_run_s: the time limit; None for no limit.
        fraction: the completed part, as the log says.
        remaining_s: the remaining time, as the log says.
    """

    elapsed_s: float | None = None
    max_run_s: float | None = None
    fraction: float | None = None
    remaining_s: float | None = None


@dataclass
class _Log:
    path: Path
    offset: int = 0


@dataclass
class JobSignals:
    """Reads the signals of one attempt of a job. Points are added by another thread."""

    root: Path
    logs: Mapping[str, Path]  # by instance, in rank order
    _logs: dict[str, _Log] = field(init=False)
    _points: deque[Point] = field(default_factory=lambda: deque(maxlen=_MAX_PENDING))
    _last_wall_s: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._logs = {name: _Log(path) for name, path in self.logs.items()}

    def add(self, part: Part) -> None:
        """Adds new points of a metric, from any thread."""
        count, rank = len(part.value), PRINTED if part.is_from_log else part.rank
        points = [
            Point(part.name, value, part.instance, rank, step, wall)
            for wall, step, value in part.rows(max(0, count - _MAX_POINTS))
        ]
        with self._lock:
            self._points.extend(points)

    def sample(
        self,
        uses: Mapping[str, InstanceUse],
        ended: Sequence[str],
        debugged: Sequence[str],
        times: JobTimes,
        stacks: Sequence[ProcessStack] | None,
    ) -> Sample:
        """Returns the signals since the last sample."""
        free, total = self._disk()
        search_until_s = time.thread_time() + _MAX_SEARCH_S
        return Sample(
            time.monotonic(),
            {
                name: self._instance(
                    _new_lines(log, search_until_s), log, uses.get(name), name in ended, name in debugged
                )
                for name, log in self._logs.items()
            },
            self._new_points(),
            stacks,
            elapsed_s=times.elapsed_s,
            fraction=times.fraction,
            remaining_s=times.remaining_s,
            max_run_s=times.max_run_s,
            disk_free=free,
            disk_total=total,
        )

    def _instance(
        self, lines: list[str], log: _Log, use: InstanceUse | None, has_ended: bool, is_debugged: bool
    ) -> InstanceSample:
        if use is None:
            return InstanceSample(log.offset, lines, has_ended=has_ended, is_debugged=is_debugged)
        idle = [each for each in use.processes if each.is_shell or each.is_sleeper]
        return InstanceSample(
            log.offset,
            lines,
            use.cores,
            use.io_bytes_per_s,
            use.gpu_percent,
            is_stopped=any(each.is_stopped for each in use.processes),
            is_debugged=is_debugged or any(each.is_traced for each in use.processes),
            is_blocked=any(each.is_blocked for each in use.processes),
            is_placeholder=len(idle) == len(use.processes) and any(each.is_sleeper for each in idle),
            has_ended=has_ended,
        )

    def _new_points(self) -> list[Point]:
        with self._lock:
            points = [*self._points]
            self._points.clear()
        # NaN come in parts of their own; a restarted service gets old points again.
        points.sort(key=lambda point: point.wall_s or 0.0)
        new = []
        for point in points:
            key = f"{point.instance}/{point.rank}/{point.name}"
            wall_s = point.wall_s or 0.0
            if wall_s <= 0 or wall_s > self._last_wall_s.get(key, 0.0):
                new.append(point)
                self._last_wall_s[key] = wall_s
        return new

    def _disk(self) -> tuple[int | None, int | None]:
        try:
            usage = shutil.disk_usage(self.root)
        except OSError:
            return None, None
        return usage.free, usage.total

    def to_json(self) -> dict[str, Any]:
        """Returns how far logs and points are read."""
        return {
            "offsets": {name: log.offset for name, log in self._logs.items()},
            "last_wall_s": dict([*self._last_wall_s.items()][-_MAX_PENDING:]),
        }

    def resume(self, state: Mapping[str, Any]) -> None:
        """Continues from a state of `to_json`."""
        for name, offset in state["offsets"].items():
            if name in self._logs:
                self._logs[name].offset = int(offset)
        self._last_wall_s.update({key: float(wall) for key, wall in state["last_wall_s"].items()})


def _new_lines(log: _Log, search_until_s: float) -> list[str]:
    """Returns the lines behind the offset, and moves it; a log that was replaced is read from its start.

    Of a flooded log: the last lines, and those before them that might have values of metrics.
    """
    lines = list[str]()
    with suppress(OSError), open_plain(log.path) as file:
        size = file.seek(0, 2)
        at = log.offset if log.offset <= size else 0
        tail = max(at, size - _MAX_NEW_BYTES)
        log.offset = size
        while tail - at > MAX_LINE and time.thread_time() < search_until_s:
            file.seek(at)
            chunk = file.read(min(_CHUNK_BYTES, tail - at))
            complete = chunk[: chunk.rfind(b"\n") + 1] or chunk
            lines += metric_lines(complete)
            at += len(complete) or tail  # a log that was truncated meanwhile
        if size > at:
            file.seek(at if tail - at <= MAX_LINE else tail)
            lines += split_lines(file.read(_MAX_NEW_BYTES + MAX_LINE))
    return lines
