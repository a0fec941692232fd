"""Reading the logs of local jobs: lines by number, and the metrics in them."""

from __future__ import annotations

import heapq
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pai_sdk.agent.sandbox import Sandbox
from pai_sdk.execution.contract import instances
from pai_sdk.execution.docker.shared_folder import SharedFolder
from pai_sdk.execution.log_index import LogIndex
from pai_sdk.execution.log_times import LogTimes
from pai_sdk.schemas.record import LogPage, MetricPoint
from pai_sdk.schemas.request import TrainingJobRequest
from pai_sdk.schemas.wire import wire_time

__all__ = ["LocalLogs", "metric_values"]

_LOOK_S = 0.02
_MOST_INDEXES = 256


class LocalLogs:
    """The logs of local jobs. What was read once is found again quickly; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._indexes: dict[Path, LogIndex] = {}

    def read(self, path: Path, start: int, limit: int, *, wait_s: float, is_open: Callable[[], bool]) -> LogPage:
        """Lines of one log; when there are none yet, the answer waits for some."""
        index = self._index(path)
        deadline = time.monotonic() + wait_s
        while True:
            # Asked before the lines: what was written before the end is among them then.
            goes_on = is_open()
            lines = index.lines(start, start + limit, is_open=goes_on)
            if lines or not goes_on or time.monotonic() >= deadline:
                total = index.count(is_open=goes_on)
                complete = not goes_on and start + len(lines) >= total
                return LogPage(tuple(lines), complete=complete, waited=wait_s > 0, total=total)
            time.sleep(_LOOK_S)

    def _index(self, path: Path) -> LogIndex:
        with self._lock:
            if path not in self._indexes and len(self._indexes) >= _MOST_INDEXES:
                self._indexes.pop(next(iter(self._indexes)))
            return self._indexes.setdefault(path, LogIndex(path))


def metric_values(
    sandbox: Sandbox, job_id: str, request: TrainingJobRequest, *, name: str | None
) -> Iterator[MetricPoint]:
    """The values found by the job's metric definitions, the oldest first where their times are known."""
    spec = request.algorithm_spec
    patterns = [
        (definition.name, re.compile(definition.regex))
        for definition in (spec.metric_definitions or () if spec else ())
        if name is None or definition.name == name
    ]
    if not patterns:
        return
    shared = SharedFolder(sandbox.shared_dir)
    logs = [
        _values_in(sandbox.log_file(instance.name), shared.log_times(instance.name), patterns)
        for instance in instances(job_id, request)
    ]
    yield from heapq.merge(*logs, key=lambda point: point.timestamp or "")


def _values_in(path: Path, times: LogTimes, patterns: list[tuple[str, re.Pattern[str]]]) -> Iterator[MetricPoint]:
    if not path.exists():
        return
    with path.open("rb") as log:
        # What was written behind the last note came with the end.
        last = wire_time(os.fstat(log.fileno()).st_mtime) if times.times else None
        offset = 0
        for line in log:
            offset += len(line)
            at = times.of_byte(offset - 1)
            timestamp = last if at is None else wire_time(at)
            for state in line.decode(errors="replace").splitlines():  # of a progress bar: `\r` ends each
                for name, value in _values(state, patterns):
                    yield MetricPoint(name=name, value=value, timestamp=timestamp)


def _values(line: str, patterns: list[tuple[str, re.Pattern[str]]]) -> Iterator[tuple[str, float]]:
    for name, pattern in patterns:
        for match in pattern.finditer(line):
            try:
                value = float(match.group(1) or "")
            except (ValueError, IndexError):
                continue
            if math.isfinite(value):
                yield name, value
