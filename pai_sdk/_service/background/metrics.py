"""Collects metrics of running jobs: reported ones, and matches of metric definitions in their logs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import regex

from pai_sdk._data.logs.times import LogTimes
from pai_sdk._data.run.events.points import Part, valid_time
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.execution.contract import instances
from pai_sdk._host.execution.job_metrics import JobMetrics
from pai_sdk._host.execution.log_metrics import MAX_LINE, is_refused
from pai_sdk._service.background.usage import UsageMeter
from pai_sdk._service.periodic_task import PeriodicTask
from pai_sdk._service.services.jobs.job_table import Jobs
from pai_sdk._service.services.jobs.progress_figures import progress_patterns
from pai_sdk._service.wire_errors import WireError
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.pai.spec import AlgorithmSpec

logger = logging.getLogger(__name__)

_PAUSE_S = 0.5
# CPU time of the reading thread, not wall time: no metric may be lost on a slow machine.
_MAX_MATCH_S = 0.05
_MAX_CHUNK_S = 2.0
_USUAL_LINE = 4096  # characters; a pattern that is slow for longer lines is applied to both ends of these


@dataclass
class _Definition:
    """A metric or progress definition of one job. A pattern that takes too long is not used again."""

    name: str
    pattern: Any  # the library has no types
    is_progress: bool = False
    trouble: str = ""
    is_slow: bool = False  # too slow for lines of more than `_USUAL_LINE`

    def matches(self, lines: list[str]) -> Iterator[tuple[int, str | None]]:
        """Yields line number and first group of each match."""
        if self.trouble:
            return
        started_at = time.thread_time()
        for number, line in enumerate(lines):
            try:
                groups = self._matches_in(line)
            except TimeoutError:
                self.trouble = f"its regex needs more than {_MAX_MATCH_S:g} s for a single line"
                return
            for text in groups:
                yield number, text
            if time.thread_time() - started_at > _MAX_CHUNK_S:
                self.trouble = f"its regex needs more than {_MAX_CHUNK_S:g} s for {len(lines)} lines"
                return

    def _matches_in(self, line: str) -> list[str | None]:
        """Returns all matches; for a slow pattern, only those in both ends of a long line."""
        if len(line) <= _USUAL_LINE:
            return self._matches(line)
        if not self.is_slow:
            try:
                return self._matches(line)
            except TimeoutError:
                self.is_slow = True
        return [*self._matches(line[: _USUAL_LINE // 2]), *self._matches(line[-(_USUAL_LINE // 2) :])]

    def _matches(self, line: str) -> list[str | None]:
        started_at = time.thread_time()
        while True:
            try:
                # `concurrent` releases the GIL, and the timeout bounds the search: a hostile pattern cannot block
                # the service.
                matches = self.pattern.finditer(line, timeout=_MAX_MATCH_S, concurrent=True)
                return [match.group(1) for match in matches]
            except TimeoutError:
                # The timeout of the regex module counts CPU time of all threads: retry if other threads used it.
                if time.thread_time() - started_at >= _MAX_MATCH_S:
                    raise


@dataclass
class _WatchedJob:
    job_id: str
    definitions: list[_Definition]
    metrics: JobMetrics
    latest: dict[str, dict[str, Any]] = field(default_factory=dict)  # not yet stored
    reported_slow: set[str] = field(default_factory=set)  # slow definitions after the event about them
    lock: threading.Lock = field(default_factory=threading.Lock)


class MetricsCollector:
    """Writes metrics from the logs of running jobs into event files, and stores the last value of each metric.

    One thread reads all jobs; another one samples resource usage. Points are read from event files on request.

    `_lock` guards the dict of watched jobs. The lock of a watched job guards its fields: the collector's thread
    and `finish` acquire it for one chunk of a file at a time. `_lock` is never held while a job's lock is
    acquired.
    """

    def __init__(self, jobs: Jobs, *, usage_interval_s: float = 10.0) -> None:
        self._jobs = jobs
        # Set before `start`: called with the new points of a job, and after a job was added.
        self.on_points: Callable[[str, Part], object] = lambda job_id, part: None
        self.on_watch: Callable[[], object] = lambda: None
        self._watched: dict[str, _WatchedJob] = {}
        self._lock = threading.Lock()
        self.usage = UsageMeter(every_s=usage_interval_s)
        # A job that is watched after this was read has woken the task.
        self._task = PeriodicTask("metrics", lambda: _PAUSE_S if self._watched else None, self._run)

    def start(self) -> None:
        """Starts the threads."""
        self.usage.start()
        self._task.start()

    def close(self) -> None:
        """Stops the threads; unread metrics are read after the next start."""
        self._task.close()
        self.usage.close()

    def watch(self, job_id: str, request: TrainingJobRequest, sandbox: Sandbox) -> None:
        """Watches a job: reads its metrics from where the last service stopped, and samples its usage."""
        names = [instance.name for instance in instances(job_id, request)]
        self.usage.watch(job_id, {name: sandbox.log_file(name) for name in names})
        definitions = [] if request.algorithm_spec is None else _definitions(request.algorithm_spec)
        metrics = JobMetrics(
            job_id,
            request,
            sandbox,
            times=lambda name: LogTimes.read(sandbox.times_file(name)),
            now=time.time,
        )
        watched = _WatchedJob(job_id, definitions, metrics)
        metrics.call_not_finite(lambda part: self.on_points(job_id, part))
        with self._lock:
            self._watched.setdefault(job_id, watched)
        self._task.wake()
        self.on_watch()

    @property
    def job_ids(self) -> list[str]:
        """Returns the watched jobs."""
        with self._lock:
            return [*self._watched]

    def finish(self, job_id: str, *, is_cancelled: Callable[[], bool] = lambda: False) -> bool:
        """Reads the remaining metrics of a job and stops watching it; returns False if it was cancelled."""
        self.usage.finish(job_id)
        with self._lock:
            watched = self._watched.get(job_id)
        if watched is not None and not self._read(watched, is_final=True, is_cancelled=is_cancelled):
            return False
        with self._lock:
            self._watched.pop(job_id, None)
        return True

    def _run(self) -> None:
        with self._lock:
            watched_jobs = list(self._watched.values())
        for watched in watched_jobs:
            try:
                self._read(watched, is_final=False, is_cancelled=self._task.closing.is_set)
            except Exception:  # one job must not stop the metrics of others
                logger.exception("the metrics of job %s cannot be read", watched.job_id)

    def _read(self, watched: _WatchedJob, *, is_final: bool, is_cancelled: Callable[[], bool]) -> bool:
        """Reads new data; returns False if it was cancelled."""
        steps = self._steps(watched, is_final=is_final)
        while True:
            with watched.lock:  # for one chunk, so that `finish` does not wait for a complete log
                if next(steps, None) is None:
                    return True
            if is_cancelled():
                return False

    def _steps(self, watched: _WatchedJob, *, is_final: bool) -> Iterator[bool]:
        """Reads one chunk of one file per step."""
        try:
            yield from self._read_logs(watched, is_final=is_final)
            for part, is_latest in watched.metrics.read_latest():
                self.on_points(watched.job_id, part)
                if is_latest:
                    wall, step, value = next(part.rows(-1))
                    watched.latest[part.name] = {
                        "timestamp": valid_time(wall, is_from_log=False),
                        "value": value,
                        "step": None if part.is_from_log else step,
                        "instance": part.instance,
                    }
                yield True
            if watched.latest:
                self._jobs.set_latest_metrics(watched.job_id, watched.latest)
                watched.latest = {}
        except WireError:
            return  # the job was deleted since

    def _read_logs(self, watched: _WatchedJob, *, is_final: bool) -> Iterator[bool]:
        try:
            for progress in watched.metrics.write(watched.definitions, is_final=is_final):
                if progress:
                    self._jobs.set_progress(watched.job_id, progress)
                self._report_troubles(watched)
                yield True
        except OSError as error:
            if not is_refused(error):  # for example a full disk: the next pass retries
                raise
            watched.definitions = []
            self._jobs.add_event(
                watched.job_id,
                f"Metrics in the log are no longer read: {error.strerror} ({error.filename}); they are written "
                "into the job's output tensorboard, which it must not change.",
            )

    def _report_troubles(self, watched: _WatchedJob) -> None:
        """Adds an event for each definition that is no longer used, once."""
        for definition in watched.definitions:
            if definition.trouble:
                self._jobs.add_event(
                    watched.job_id, f"Metric {definition.name!r} is no longer read: {definition.trouble}."
                )
        watched.definitions = [definition for definition in watched.definitions if not definition.trouble]
        if watched.metrics.has_first_long_line():
            self._jobs.add_event(
                watched.job_id,
                f"The log has lines of more than {MAX_LINE:,} bytes: metrics are found in the first and the last "
                f"{MAX_LINE // 2:,} bytes of these.",
            )
        for definition in watched.definitions:
            if definition.is_slow and definition.name not in watched.reported_slow:
                watched.reported_slow.add(definition.name)
                self._jobs.add_event(
                    watched.job_id,
                    f"The regex of metric {definition.name!r} is slow for long lines: of these it is applied to "
                    f"the first and the last {_USUAL_LINE // 2:,} characters.",
                )


def _definitions(spec: AlgorithmSpec) -> list[_Definition]:
    metrics = [_Definition(metric.name, _compiled(metric.regex)) for metric in spec.metric_definitions]
    figures = [_Definition(name, _compiled(text), is_progress=True) for name, text in progress_patterns(spec)]
    return [*metrics, *figures]


def _compiled(pattern: str) -> Any:
    # Not in the cache of the regex module, which would keep it after the job.
    return regex.compile(pattern, cache_pattern=False)
