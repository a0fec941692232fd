"""Reading the logs of local jobs: lines by number, and the metrics in them."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pai_sdk.execution.contract import instances
from pai_sdk.execution.log_index import LogIndex
from pai_sdk.execution.sandbox import Sandbox
from pai_sdk.job.record import LogPage, MetricPoint
from pai_sdk.job.request import TrainingJobRequest

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
        waited = False
        while True:
            # Asked before the lines: what was written before the end is among them then.
            goes_on = is_open()
            lines = index.lines(start, start + limit, is_open=goes_on)
            if lines or not goes_on or time.monotonic() >= deadline:
                total = index.count(is_open=goes_on)
                complete = not goes_on and start + len(lines) >= total
                return LogPage(tuple(lines), complete=complete, waited=waited, total=total)
            waited = True
            time.sleep(_LOOK_S)

    def _index(self, path: Path) -> LogIndex:
        with self._lock:
            if path not in self._indexes and len(self._indexes) >= _MOST_INDEXES:
                self._indexes.pop(next(iter(self._indexes)))
            return self._indexes.setdefault(path, LogIndex(path))


def metric_values(
    sandbox: Sandbox, job_id: str, request: TrainingJobRequest, *, name: str | None
) -> Iterator[MetricPoint]:
    """The values found by the job's metric definitions, instance after instance."""
    spec = request.algorithm_spec
    patterns = [
        (definition.name, re.compile(definition.regex))
        for definition in (spec.metric_definitions or () if spec else ())
        if name is None or definition.name == name
    ]
    if not patterns:
        return
    for instance in instances(job_id, request):
        path = sandbox.log_file(instance.name)
        if not path.exists():
            continue
        with path.open(encoding="utf-8", errors="replace") as log:
            for line in log:
                yield from _values(line, patterns)


def _values(line: str, patterns: list[tuple[str, re.Pattern[str]]]) -> Iterator[MetricPoint]:
    for name, pattern in patterns:
        for match in pattern.finditer(line):
            try:
                yield MetricPoint(name=name, value=float(match.group(1)))
            except (ValueError, IndexError):
                continue
