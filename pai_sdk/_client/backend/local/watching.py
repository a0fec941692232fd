"""Reads the logs of local jobs: lines by number, and metrics."""

from __future__ import annotations

import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pai_sdk._client.backend.local.jobs import LocalJob
from pai_sdk._client.backend.local.support import mounts_of
from pai_sdk._data.logs.reader import LogReader, OpenLog, OpenLogs, StoredPage
from pai_sdk._data.run.events.points import metric_points
from pai_sdk._host.execution.docker.shared_folder import SharedFolder
from pai_sdk._host.execution.job_metrics import JobMetrics
from pai_sdk._host.execution.log_metrics import MAX_LINE, RegexPattern
from pai_sdk._wire.pai.record import LogPage, MetricPoint

logger = logging.getLogger(__name__)

_POLL_INTERVAL_S = 0.02
_MAX_LOGS = 256
_MAX_JOBS = 256
_LATEST_EVERY_S = 1.0


class LocalLogs:
    """The logs of local jobs. Thread-safe."""

    def __init__(self) -> None:
        self._logs: OpenLogs[Path] = OpenLogs(_MAX_LOGS)

    def read(self, job: LocalJob, instance: str, start: int, limit: int, *, wait_s: float) -> LogPage:
        """Reads lines of one log; waits for a line if there is none yet."""
        deadline = time.monotonic() + wait_s
        while True:
            # Checked before the log is read: a log that was read after the end of the job is complete.
            is_open = job.is_log_open(instance)
            page = self._page(job, instance, start, limit, is_open=is_open)
            if page.count or not is_open or time.monotonic() >= deadline:
                lines = tuple(page.decoded_lines)
                return LogPage(lines, complete=page.is_complete, waited=wait_s > 0, total=page.total)
            time.sleep(_POLL_INTERVAL_S)

    def times(self, job: LocalJob, instance: str, start: int, count: int) -> list[float | None]:
        """Returns the times at which lines of one log were written."""
        page = self._page(job, instance, start, count, is_open=job.is_log_open(instance))
        return [line.time for line in page.lines()]

    def _page(self, job: LocalJob, instance: str, start: int, limit: int, *, is_open: bool) -> StoredPage:
        path = job.sandbox.log_file(instance)
        log = self._logs.get(path, lambda: OpenLog([job.files.log(instance)], path))
        return LogReader(log, is_open=is_open).page(start, limit, max_bytes=sys.maxsize)


def metric_values(job: LocalJob, *, name: str | None, is_final: bool) -> Iterator[MetricPoint]:
    """Yields the values that the job has reported or that its metric definitions match; oldest first."""
    reader = _MetricReader(job)
    # `is_final`: the job has finished, so its last line counts without a line break.
    reader.write(is_final=is_final)
    return metric_points([*reader.metrics.read_on()], name)


class LatestMetrics:
    """The last value of each metric of local jobs. Files are read incrementally, once a second at most.

    `_lock` guards all fields and is held while files are read: concurrent callers for one job get the same values.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        # Monotonic, in seconds.
        self._clock = clock
        self._lock = threading.Lock()
        self._readers: dict[str, _MetricReader] = {}

    def of(self, job: LocalJob, *, is_final: bool) -> list[MetricPoint]:
        """Returns the last values, in the order in which the metrics first appeared."""
        with self._lock:
            reader = self._reader(job)
            if reader.is_due("read", self._clock(), is_final=is_final):
                reader.write(is_final=is_final)
                for part, is_latest in reader.metrics.read_latest():
                    if is_latest:
                        reader.latest[part.name] = next(part.last())
            return list(reader.latest.values())

    def write(self, job: LocalJob, *, is_final: bool) -> None:
        """Writes the metrics of the logs into event files, which clients watch."""
        with self._lock:
            reader = self._reader(job)
            if reader.is_due("write", self._clock(), is_final=is_final):
                reader.write(is_final=is_final)

    def _reader(self, job: LocalJob) -> _MetricReader:
        if job.id not in self._readers:
            # The oldest reader is dropped; it reads its files from the start if it is needed again.
            if len(self._readers) >= _MAX_JOBS:
                self._readers.pop(next(iter(self._readers)))
            self._readers[job.id] = _MetricReader(job)
        return self._readers[job.id]


class _MetricReader:
    """The metrics of one job, and when they were last read."""

    def __init__(self, job: LocalJob) -> None:
        self.latest: dict[str, MetricPoint] = {}
        self._due: dict[str, tuple[float, bool]] = {}  # by action: next time, and whether the last run was final
        request = job.request
        definitions = request.algorithm_spec.metric_definitions if request.algorithm_spec else ()
        self._patterns = [RegexPattern(each.name, re.compile(each.regex)) for each in definitions]
        times, outside = SharedFolder(job.sandbox.shared_dir).log_times, mounts_of(request).outputs
        self.metrics = JobMetrics(
            job.id, request, job.sandbox, times=times, tensorboard=outside.get("tensorboard")
        )

    def is_due(self, action: str, now: float, *, is_final: bool) -> bool:
        """Returns True if an action is due: once a second, and once more after the end of the job."""
        due_at, was_final = self._due.get(action, (0.0, False))
        if was_final or (now < due_at and not is_final):
            return False
        # Before the work: a failing read is not repeated at once.
        self._due[action] = now + _LATEST_EVERY_S, is_final
        return True

    def write(self, *, is_final: bool) -> None:
        """Writes the metrics that were logged since the last call."""
        try:
            for _ in self.metrics.write(self._patterns, is_final=is_final):
                pass
            if self.metrics.has_first_long_line():
                logger.warning(
                    "the log has lines of more than %d bytes: metrics are read from their first and last %d bytes",
                    MAX_LINE,
                    MAX_LINE // 2,
                )
        except OSError as error:
            logger.warning("the metrics in the log cannot be written into the output tensorboard: %s", error)
