"""The logs of all jobs, in pages."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from weakref import WeakValueDictionary

from pai_sdk.agent.sandbox import Sandbox
from pai_sdk.execution.contract import instances
from pai_sdk.execution.log_index import LogIndex
from pai_sdk.execution.log_times import LogTimes
from pai_sdk.schemas.request import TrainingJobRequest
from pai_sdk.schemas.status import JobStatus
from pai_sdk.service.jobs.merged_log import MergedLog
from pai_sdk.service.state.folder import DataFolder
from pai_sdk.service.state.models import Job
from pai_sdk.service.wire_errors import Fault

__all__ = ["JobLogReader", "LogSlice", "LogWindow", "OpenedLog", "sizes_bytes"]

_KEPT_INDEXES = 512


@dataclass(frozen=True)
class LogWindow:
    """The part of a log that is asked for, by time; None is open."""

    started_at: float | None = None
    ended_at: float | None = None

    @property
    def is_closed(self) -> bool:
        """Whether it leaves anything out."""
        return self.started_at is not None or self.ended_at is not None


@dataclass(frozen=True)
class LogSlice:
    """A page of a log.

    Attributes:
        lines: its lines.
        total: how many lines there are in all, now.
        complete: no line will follow these.
        settled: no line will follow the last one of all.
        unsettled: what was written last is no line yet, and may become one by waiting.
    """

    lines: list[str]
    total: int
    complete: bool
    settled: bool
    unsettled: bool = False


_Log: TypeAlias = LogIndex | MergedLog


@dataclass(frozen=True)
class OpenedLog:
    """The log of an instance, or those of all of them in one order.

    Attributes:
        names: the instances, in rank order.
        log: of the one instance, or of all.
        is_open: whether lines may follow.
    """

    names: Sequence[str]
    log: _Log
    is_open: bool


class JobLogReader:
    """Reads the logs of jobs; keeps the indexes of those read last. Safe to use from several threads."""

    def __init__(self, folder: DataFolder) -> None:
        self._folder = folder
        self._known: OrderedDict[tuple[str, str], _Log] = OrderedDict()
        # Every index that a request is reading now: two instances of one merged log would write its order twice.
        self._in_use: WeakValueDictionary[tuple[str, str], _Log] = WeakValueDictionary()
        self._lock = threading.Lock()

    def instance_names(self, job: Job) -> list[str]:
        """The instances a job has or will have, in rank order."""
        request = TrainingJobRequest.model_validate(job.request)
        return [instance.name for instance in instances(job.id, request)]

    def page(
        self,
        job: Job,
        instance: str | None,
        *,
        start: int,
        limit: int,
        window: LogWindow | None = None,
        most_bytes: int,
    ) -> LogSlice:
        """Lines `start`, `start + 1`, … of one instance, or of all of them in one order.

        Args:
            job: as it was before the log is read: what has ended by then has written all it had to say.
            instance: its name, or None for all.
            start: number of the first line.
            limit: the most lines.
            window: count from, and end at, these times; of each instance, when all are asked for.
            most_bytes: fewer lines rather than more bytes; one line at least.

        Raises:
            Fault: the job has no such instance.
        """
        is_open = not JobStatus(job.status).is_terminal
        names = self._names(job, instance)
        log = self._log(job.id, names)
        if window is not None and window.is_closed and isinstance(log, MergedLog):
            return self._page_of_all(job, names, log, window, start, limit, most_bytes)
        total = log.count(is_open=is_open)
        first, last = 0, total
        if window is not None and isinstance(log, LogIndex):
            numbers = self._lines_in(job, names[0], log, window)
            first, last = numbers.start, numbers.stop
        end = min(last, first + start + limit)
        if isinstance(log, LogIndex):
            end = log.fitting(first + start, end, is_open=is_open, most_bytes=most_bytes)
            lines = log.lines(first + start, end, is_open=is_open)
        else:
            lines = log.lines(first + start, end, is_open=is_open, most_bytes=most_bytes)
        settled = not is_open and not (isinstance(log, MergedLog) and log.is_behind)
        complete = settled and start + len(lines) >= last - first
        return LogSlice(lines, last - first, complete, settled, unsettled=is_open and log.is_unsettled)

    def times(self, job: Job, instance: str, *, start: int, count: int) -> list[float | None]:
        """When lines of an instance were written, in seconds since 1970; None where that is not known.

        Raises:
            Fault: the job has no such instance.
        """
        opened = self.open(job, instance)
        if not isinstance(opened.log, LogIndex):
            return []
        noted = LogTimes.read(Sandbox(self._folder.job_dir(job.id)).times_file(instance))
        return noted.of_lines(opened.log.ends(start, start + count, is_open=opened.is_open))

    def open(self, job: Job, instance: str | None) -> OpenedLog:
        """The index of a log, for readers that need more than a page of it; the arguments are those of `page`.

        Raises:
            Fault: the job has no such instance.
        """
        names = self._names(job, instance)
        return OpenedLog(names, self._log(job.id, names), not JobStatus(job.status).is_terminal)

    def files(self, job: Job, instance: str | None) -> list[Path]:
        """The files a page comes from; they need not be there yet."""
        sandbox = Sandbox(self._folder.job_dir(job.id))
        return [sandbox.log_file(name) for name in self._names(job, instance)]

    def forget(self, job_id: str) -> None:
        """The job is no more."""
        with self._lock:
            for known in (self._known, self._in_use):
                for key in [key for key in known if key[0] == job_id]:
                    known.pop(key, None)  # a weak reference may be gone already

    def _names(self, job: Job, instance: str | None) -> list[str]:
        names = self.instance_names(job)
        if instance is None:
            return names
        if instance not in names:
            raise Fault(
                404,
                "TRAINING_JOB_INSTANCE_NOT_FOUND",
                f"Job {job.id} has no instance {instance[:100]!r}; it has {', '.join(names[:5])}.",
            )
        return [instance]

    def _log(self, job_id: str, names: Sequence[str]) -> _Log:
        key = (job_id, names[0] if len(names) == 1 else "")
        with self._lock:
            if key not in self._known:
                log = self._in_use.get(key) or self._opened(job_id, names)
                self._known[key] = self._in_use[key] = log
                if len(self._known) > _KEPT_INDEXES:
                    self._known.popitem(last=False)
            self._known.move_to_end(key)
            return self._known[key]

    def _opened(self, job_id: str, names: Sequence[str]) -> _Log:
        sandbox = Sandbox(self._folder.job_dir(job_id))
        indexes = [LogIndex(sandbox.log_file(name)) for name in names]
        if len(indexes) == 1:
            return indexes[0]
        return MergedLog(sandbox.logs_dir / "merged.order", indexes)

    def _page_of_all(
        self,
        job: Job,
        names: Sequence[str],
        log: MergedLog,
        window: LogWindow,
        start: int,
        limit: int,
        most_bytes: int,
    ) -> LogSlice:
        is_open = not JobStatus(job.status).is_terminal
        windows = [self._lines_in(job, name, index, window) for name, index in zip(names, log.logs, strict=True)]
        total = log.count_within(windows, is_open=is_open)
        lines = log.lines_within(windows, start, start + limit, is_open=is_open, most_bytes=most_bytes)
        settled = not is_open and not log.is_behind
        complete = settled and start + len(lines) >= total
        return LogSlice(lines, total, complete, settled, unsettled=is_open and log.is_unsettled)

    def _lines_in(self, job: Job, instance: str, log: LogIndex, window: LogWindow) -> range:
        """The numbers of an instance's lines in a window.

        The log's times are known for some of its sizes only, so it is as fine as they are.
        """
        total = log.count(is_open=not JobStatus(job.status).is_terminal)
        noted = LogTimes.read(Sandbox(self._folder.job_dir(job.id)).times_file(instance))
        times, sizes = noted.times, noted.sizes
        if _is_outside(job, times, window):
            return range(0)
        first, last = 0, total
        if window.started_at is not None and times:
            before = bisect_left(times, window.started_at)
            first = log.line_at(sizes[before - 1]) if before else 0
        if window.ended_at is not None and times:
            until = bisect_right(times, window.ended_at)
            last = min(total, log.line_at(sizes[until])) if until < len(sizes) else total
        return range(first, max(first, last))


def _is_outside(job: Job, times: Sequence[float], window: LogWindow) -> bool:
    """Whether nothing was written in the window, since the job had not been created yet, or had ended."""
    if window.ended_at is not None and window.ended_at < min([job.created_at, *times[:1]]):
        return True
    if window.started_at is None or job.ended_at is None:
        return False
    return window.started_at > max([job.ended_at, *times[-1:]])


def sizes_bytes(files: Sequence[Path]) -> list[int]:
    """The sizes of log files: while they are the same, there is no news. Quick."""
    return [_size_bytes(file) for file in files]


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
