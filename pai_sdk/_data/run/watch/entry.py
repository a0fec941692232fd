"""One run of a manager: the listed files, the reader, and the brief."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from pai_sdk._data.run.events.reader import Entry, ImageEntry, RunReader
from pai_sdk._data.run.events.run_files import RunEnd
from pai_sdk._data.run.events.series import Series
from pai_sdk._data.run.watch.names import folder_of
from pai_sdk._data.run.watch.records import RunBrief, RunOfJob, RunRecord
from pai_sdk._data.run.watch.scan import LIVE_S
from pai_sdk._data.storage.base import Store
from pai_sdk._data.storage.stored_file import StoredFile
from pai_sdk._data.storage.stores.local import LocalStore
from pai_sdk._wire.pai.status import JobStatus

if TYPE_CHECKING:
    from pai_sdk._data.run.events.series import TagSummary

logger = logging.getLogger(__name__)

_LOCK_S = 0.05  # a pass skips a run that a query reads for longer than this
_FIRST_PAUSE_S, _MAX_PAUSE_S = 1.0, 60.0
_FIELDS_OF_JOB = [field.name for field in fields(RunOfJob) if field.kw_only]
_START_TIME = re.compile(r"(?:tfevents|summary)\.([0-9]{9,11})(?:\.|$|_)")


class PointsMemory:
    """Counts the memory that the points of all runs use."""

    def __init__(self) -> None:
        # Of all runs. Each reports its own changes: summing up ten thousand runs took a millisecond of each
        # request.
        self.used_bytes = 0
        # Guards the total and each run's part. No thread waits for anything else while it holds the lock.
        self.lock = threading.Lock()


class RunEntry:
    """One run.

    The files are read by one thread at a time, which holds `lock`. While holding it, a thread may acquire the lock
    of the memory to change `points_bytes`. All other attributes need no lock.
    """

    def __init__(self, run_id: str, store: Store, folder: str, memory: PointsMemory) -> None:
        self.run_id = run_id
        self.uri = store.uri.rstrip("/") if folder == "." else store.uri + folder
        self._name = folder if folder != "." else folder_of(store.uri).rpartition("/")[2]
        self.files: tuple[StoredFile, ...] = ()  # of the last scan
        self.is_dirty = True  # the files have changed since they were read, or could not be read
        self.retry_at = 0.0  # when a failed read is tried again, on the monotonic clock
        # When the points were requested and the files were read last, on the monotonic clock.
        self.used_at = self.refreshed_at = 0.0
        self.points_bytes = 0  # counted in the memory, and guarded by its lock
        self._memory = memory
        self._is_forgotten = False
        self.lock = threading.Lock()  # held while the files are read
        self.is_local = isinstance(store, LocalStore)
        self.reader = RunReader(store)
        self._error = ""
        self._failures = 0
        self._has_points = True
        self._cached_series: dict[str, tuple[int, Series]] = {}
        self._version = -1  # of the reader, when it was refreshed last
        self._is_read = False
        self._read_bytes = 0
        self._tags: Mapping[str, TagSummary] = MappingProxyType({})
        self._hparams: Mapping[str, Any] = MappingProxyType({})
        self._damaged = 0
        self._end: RunEnd | None = None

    @property
    def unread_bytes(self) -> int:
        """The bytes by which the files have grown since they were read."""
        return sum(file.size_bytes for file in self.files) - self._read_bytes

    def set_files(self, files: tuple[StoredFile, ...]) -> None:
        """Sets the files of a new scan, and makes the run dirty."""
        self.files = files
        self.is_dirty = True
        self.retry_at = 0.0

    def is_due(self, now: float) -> bool:
        """Returns True if the files are to be read now."""
        return self.is_dirty and self.retry_at <= now

    def refresh(self, should_stop: Callable[[bool], bool]) -> None:
        """Reads new data of the files, until `should_stop(has_read)`; a failure becomes the state of this run."""
        self.refreshed_at = time.monotonic()
        # A query may be reading this run again from the start. A pass must not let other runs wait for it.
        if not self.lock.acquire(timeout=_LOCK_S):
            return
        try:
            self.is_dirty = False  # before reading, because a scan may set it again meanwhile
            files = self.files
            try:
                self.reader.refresh(files, should_stop)
                self.is_dirty |= self.reader.is_behind
                self._tags, self._hparams = self.reader.tags(), flat(self.reader.hparams())
                self._damaged = len(self.reader.damaged)
                self._end = self.reader.end
                # Cached series of earlier versions are stale from here on.
                self._version = self.reader.version
                self._error, self._failures = "", 0
                self._read_bytes = self.reader.read_bytes
            except Exception as error:  # of any kind: a damaged run must not fail the pass
                self._failed(error)
            finally:
                # Also after a failure: the run is then listed with an error, not as loading.
                self._is_read = True
                self._count_points(self.reader.nbytes if self._has_points else 0)
        finally:
            self.lock.release()

    def _failed(self, error: Exception) -> None:
        self.is_dirty = True
        # 1, 2, 4 … 60 s. `_failures` is bounded because the power is computed before `min` applies.
        pause = min(_FIRST_PAUSE_S * 2**self._failures, _MAX_PAUSE_S)
        self.retry_at = time.monotonic() + pause
        self._failures = min(self._failures + 1, 10)
        self._error = f"{type(error).__name__}: {error}"
        logger.warning("run %s cannot be read: %s", self.run_id, self._error)

    def series(self, tag: str) -> Series:
        """Returns the points of a metric. They are read again when they are not in memory."""
        self.used_at = time.monotonic()
        # While a pass reads the files of this run, the last points are returned again, so that no caller waits for
        # the disk or the network because a run grows.
        cached = self._cached_series.get(tag)
        if cached is not None and (cached[0] == self._version or self.lock.locked()):
            return cached[1]
        with self.lock:
            series = self.reader.series(tag)
            if not self._has_points:
                self._has_points = True
                self._count_points(self.reader.nbytes)
            self._cached_series[tag] = (self._version, series)
        return series

    def images(self, tag: str, number: int | None) -> list[ImageEntry]:
        """Reads the images of a tag from the files."""
        self.used_at = time.monotonic()
        with self.lock:
            return self.reader.images(tag, number)

    def entries(self, kind: Literal["texts", "histograms", "tensors"], tag: str) -> list[Entry]:
        """Returns the texts, histograms or tensors of a tag, read again when they are not in memory."""
        self.used_at = time.monotonic()
        with self.lock:
            readers = {
                "texts": self.reader.texts,
                "histograms": self.reader.histograms,
                "tensors": self.reader.tensors,
            }
            entries = readers[kind](tag)
            if not self._has_points:
                self._has_points = True
                self._count_points(self.reader.nbytes)
        return entries

    def drop_points(self) -> bool:
        """Frees the memory of the points; returns False while the files are being read."""
        # Never waits: the thread that holds the lock reads this run, and needs its points.
        if not self.lock.acquire(blocking=False):
            return False
        try:
            self.reader.drop_points()
            self._cached_series = {}
            self._has_points = False
            self._count_points(0)
            return True
        finally:
            self.lock.release()

    def forget(self) -> None:
        """Removes the run's points from the total; later reads by queries do not count."""
        # Under the lock of the memory: a query that still reads must not add to the total afterwards.
        with self._memory.lock:
            if not self._is_forgotten:
                self._is_forgotten = True
                self._memory.used_bytes -= self.points_bytes

    def _count_points(self, size_bytes: int) -> None:
        with self._memory.lock:
            if not self._is_forgotten:
                # Only the difference: the total of ten thousand runs is not summed up for each change.
                self._memory.used_bytes += size_bytes - self.points_bytes
            self.points_bytes = size_bytes

    @property
    def updated_at(self) -> float | None:
        """The time of the last change of a file, in seconds since 1970."""
        times = [file.modified_ns for file in self.files if file.modified_ns is not None]
        return max(times) / 1e9 if times else None

    def status(self, record: RunRecord | None, now: float) -> str:
        """Returns the status of the run; `now` is in seconds since 1970."""
        if record is not None and record.status:
            return record.status
        if self._error:
            return "Failed"
        if self._end is not None:
            return self._end.status if JobStatus(self._end.status).is_terminal else "Unknown"
        updated_at = self.updated_at
        return "Running" if updated_at is not None and now - updated_at < LIVE_S else "Unknown"

    def brief(self, record: RunRecord | None, version: int, now: float) -> RunBrief:
        """Returns the entry of a list of runs."""
        started_at = self._started_at()
        return RunBrief(
            id=self.run_id,
            uri=self.uri,
            status=self.status(record, now),
            name=(record.name or record.id) + self.run_id.removeprefix(record.id) if record else self._name,
            created_at=record.created_at if record and record.created_at is not None else started_at,
            updated_at=self.updated_at,
            ended_at=record.ended_at if record else self._end and self._end.wall,
            tags=self._tags,
            hparams=_merged(record, self._hparams),
            labels=record.labels if record else MappingProxyType({}),
            damaged=self._damaged,
            is_loading=not self._is_read or (self.is_dirty and not self._error),
            error=self._error,
            version=version,
            **(_of_job(record) if record else {"started_at": started_at}),
        )

    def _started_at(self) -> float | None:
        """Returns the start time from the names of the files, else from their modification times."""
        file_times = [float(match[1]) for file in self.files if (match := _START_TIME.search(file.path))]
        changed = [file.modified_ns / 1e9 for file in self.files if file.modified_ns is not None]
        return min(file_times or changed, default=None)


def brief_of_record(record: RunRecord, version: int) -> RunBrief:
    """Returns the brief of a run that has written no event file yet."""
    return RunBrief(
        id=record.id,
        uri=record.uri,
        status=record.status or "Unknown",
        name=record.name or record.id,
        created_at=record.created_at,
        updated_at=record.ended_at or record.created_at,
        ended_at=record.ended_at,
        hparams=_merged(record, {}),
        labels=record.labels,
        version=version,
        **_of_job(record),
    )


def _of_job(record: RunRecord) -> dict[str, Any]:
    """Returns what only the job of a run has."""
    return {name: getattr(record, name) for name in _FIELDS_OF_JOB}


def flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns nested hyperparameters with dots between the names."""
    flattened: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            flattened.update({f"{name}.{inner}": inner_value for inner, inner_value in flat(value).items()})
        else:
            flattened[str(name)] = value
    return flattened


def _merged(record: RunRecord | None, hparams: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**flat(record.hparams), **hparams} if record is not None and record.hparams else hparams
