"""Metrics of the running jobs: what they report, and what their metric definitions find in their logs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import regex

from pai_sdk.agent.sandbox import Sandbox
from pai_sdk.execution.contract import instances
from pai_sdk.execution.log_metrics import MAX_LINE, LogMetrics, is_refused
from pai_sdk.logs.times import LogTimes
from pai_sdk.run.events.points import JobPoints, valid_time
from pai_sdk.schemas.request import TrainingJobRequest
from pai_sdk.schemas.spec import AlgorithmSpec
from pai_sdk.service.jobs.job_table import Jobs
from pai_sdk.service.jobs.metric_pages import open_points
from pai_sdk.service.jobs.progress_figures import progress_patterns
from pai_sdk.service.jobs.usage import UsageMeter
from pai_sdk.service.wire_errors import WireError

__all__ = ["MetricsCollector"]

logger = logging.getLogger(__name__)

_PAUSE_S = 0.5
# CPU time of the reading thread, not wall time: on a slow machine no metric must get lost.
_LONGEST_MATCH_S = 0.05
_LONGEST_CHUNK_S = 2.0
_USUAL_LINE = 4096  # characters; a pattern that is too slow for a longer line is applied to its two ends


@dataclass
class _Definition:
    """One metric of one job, or a figure of its progress. A pattern that takes too long is not applied again."""

    name: str
    pattern: Any  # the library has no types
    is_progress: bool = False
    trouble: str = ""
    is_slow: bool = False  # too slow for lines of more than `_USUAL_LINE`

    def matches(self, lines: list[str]) -> Iterator[tuple[int, str | None]]:
        """The first group of each match in the lines, with the number of its line."""
        if self.trouble:
            return
        begun = time.thread_time()
        for number, line in enumerate(lines):
            try:
                texts = self._matches_in(line)
            except TimeoutError:
                self.trouble = f"its regex needs more than {_LONGEST_MATCH_S:g} s for a single line"
                return
            for text in texts:
                yield number, text
            if time.thread_time() - begun > _LONGEST_CHUNK_S:
                self.trouble = f"its regex needs more than {_LONGEST_CHUNK_S:g} s for {len(lines)} lines"
                return

    def _matches_in(self, line: str) -> list[str | None]:
        """All matches; once a long line has taken too long, those in the two ends of long lines."""
        if len(line) <= _USUAL_LINE:
            return self._matches(line)
        if not self.is_slow:
            try:
                return self._matches(line)
            except TimeoutError:
                self.is_slow = True
        return [*self._matches(line[: _USUAL_LINE // 2]), *self._matches(line[-(_USUAL_LINE // 2) :])]

    def _matches(self, line: str) -> list[str | None]:
        begun = time.thread_time()
        while True:
            try:
                # The GIL is let go and there is a limit, so a hostile pattern cannot stop the service.
                found = self.pattern.finditer(line, timeout=_LONGEST_MATCH_S, concurrent=True)
                return [match.group(1) for match in found]
            except TimeoutError:
                # The library counts the processor time of all threads together: it may have been the others'.
                if time.thread_time() - begun >= _LONGEST_MATCH_S:
                    raise


@dataclass
class _WatchedJob:
    job_id: str
    definitions: list[_Definition]
    logs: LogMetrics
    points: JobPoints
    latest: dict[str, dict[str, Any]] = field(default_factory=dict)  # that are not stored yet
    sources: dict[str, tuple[Any, ...]] = field(default_factory=dict)  # by metric: the order of whose value it is
    has_long_lines: bool = False  # and there is an event that says so
    cut_definitions: set[str] = field(default_factory=set)  # likewise
    lock: threading.Lock = field(default_factory=threading.Lock)


class MetricsCollector:
    """Writes what is found in the logs of running jobs into event files, and notes the last value of each metric.

    One thread does this; another meters all jobs. Points are read from the event files when they are requested.

    `_lock` guards the dict of watched jobs. The lock of a watched job guards all that is in it: the collector's
    thread and `finish` take it for one piece of a file at a time. `_lock` is never held while a job's lock is
    taken.
    """

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._watched: dict[str, _WatchedJob] = {}
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._closing = False
        self._usage = UsageMeter()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._usage.start()
        self._thread.start()

    def close(self) -> None:
        """Stop; what was not read yet is read after the next start."""
        self._closing = True
        self._woken.set()
        self._thread.join()
        self._usage.close()

    def watch(self, job_id: str, request: TrainingJobRequest, sandbox: Sandbox) -> None:
        """Read the metrics of a job from now on, where it left off, and note what its instances use."""
        names = [instance.name for instance in instances(job_id, request)]
        self._usage.watch(job_id, {name: sandbox.log_file(name) for name in names})
        definitions = [] if request.algorithm_spec is None else _definitions(request.algorithm_spec)
        logs = LogMetrics(
            sandbox, names, times=lambda name: LogTimes.read(sandbox.times_file(name)), now=time.time
        )
        watched = _WatchedJob(job_id, definitions, logs, open_points(job_id, request, sandbox))
        with self._lock:
            self._watched.setdefault(job_id, watched)
        self._woken.set()

    def finish(self, job_id: str, *, is_cancelled: Callable[[], bool] = lambda: False) -> bool:
        """Read the rest of a job's metrics, when no instance writes any more, and let go of it.

        Args:
            job_id: which.
            is_cancelled: asked now and then.

        Returns:
            Whether all was read; False when it was cancelled.
        """
        self._usage.finish(job_id)
        with self._lock:
            watched = self._watched.get(job_id)
        if watched is not None and not self._read(watched, is_final=True, is_cancelled=is_cancelled):
            return False
        with self._lock:
            self._watched.pop(job_id, None)
        return True

    def _run(self) -> None:
        while not self._closing:
            with self._lock:
                watched_jobs = list(self._watched.values())
            for watched in watched_jobs:
                try:
                    self._read(watched, is_final=False, is_cancelled=lambda: self._closing)
                except Exception:  # whatever it is, the other jobs' metrics are still to be read
                    logger.exception("the metrics of job %s cannot be read", watched.job_id)
            self._woken.wait(_PAUSE_S if watched_jobs else None)
            self._woken.clear()

    def _read(self, watched: _WatchedJob, *, is_final: bool, is_cancelled: Callable[[], bool]) -> bool:
        """Read what is new; False when it was cancelled."""
        steps = self._steps(watched, is_final=is_final)
        while True:
            with watched.lock:  # for one piece only: the scheduler's `finish` need not wait for a whole log
                if next(steps, None) is None:
                    return True
            if is_cancelled():
                return False

    def _steps(self, watched: _WatchedJob, *, is_final: bool) -> Iterator[bool]:
        """Read one piece of one file with each step."""
        try:
            yield from self._read_logs(watched, is_final=is_final)
            for part in watched.points.read_on():
                for wall, step, value in part.rows(-1):
                    order = part.order
                    if watched.sources.setdefault(part.name, order) < order:
                        continue  # of another instance than the one that is meant by the name
                    watched.sources[part.name] = order
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
            return  # the job was deleted meanwhile

    def _read_logs(self, watched: _WatchedJob, *, is_final: bool) -> Iterator[bool]:
        try:
            for progress in watched.logs.read_on(watched.definitions, is_final=is_final):
                if progress:
                    self._jobs.set_progress(watched.job_id, progress)
                self._note_troubles(watched)
                yield True
        except OSError as error:
            if not is_refused(error):  # a full disk: it is tried again
                raise
            watched.definitions = []
            self._jobs.note(
                watched.job_id,
                f"Metrics in the log are no longer read: {error.strerror} ({error.filename}); they are written "
                "into the job's output tensorboard, which it must not change.",
            )

    def _note_troubles(self, watched: _WatchedJob) -> None:
        """Note each definition that is given up, once."""
        for definition in watched.definitions:
            if definition.trouble:
                self._jobs.note(
                    watched.job_id, f"Metric {definition.name!r} is no longer read: {definition.trouble}."
                )
        watched.definitions = [definition for definition in watched.definitions if not definition.trouble]
        if watched.logs.long_lines and not watched.has_long_lines:
            watched.has_long_lines = True
            self._jobs.note(
                watched.job_id,
                f"The log has lines of more than {MAX_LINE:,} bytes: metrics are found in the first and the last "
                f"{MAX_LINE // 2:,} bytes of these.",
            )
        for definition in watched.definitions:
            if definition.is_slow and definition.name not in watched.cut_definitions:
                watched.cut_definitions.add(definition.name)
                self._jobs.note(
                    watched.job_id,
                    f"The regex of metric {definition.name!r} is slow for long lines: of these it is applied to "
                    f"the first and the last {_USUAL_LINE // 2:,} characters.",
                )


def _definitions(spec: AlgorithmSpec) -> list[_Definition]:
    metrics = [_Definition(metric.name, _compiled(metric.regex)) for metric in spec.metric_definitions]
    figures = [_Definition(name, _compiled(text), is_progress=True) for name, text in progress_patterns(spec)]
    return [*metrics, *figures]


def _compiled(pattern: str) -> Any:
    # Not kept in the library's own memory of patterns, which would outlive the job.
    return regex.compile(pattern, cache_pattern=False)
