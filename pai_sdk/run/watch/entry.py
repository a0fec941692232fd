"""One run as a manager has it: its files as they were listed, its reader, and its brief."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from pai_sdk.run.events.reader import Entry, ImageEntry, RunEnd, RunReader
from pai_sdk.run.events.series import Series
from pai_sdk.run.watch.names import folder_of
from pai_sdk.run.watch.records import RunBrief, RunRecord
from pai_sdk.run.watch.scan import LIVE_S
from pai_sdk.schemas.status import JobStatus
from pai_sdk.storage.base import Store
from pai_sdk.storage.stored_file import StoredFile
from pai_sdk.storage.stores.local import LocalStore

if TYPE_CHECKING:
    from pai_sdk.run.events.series import TagSummary

__all__ = ["PointsMemory", "RunEntry", "brief_of_record", "flat"]

logger = logging.getLogger(__name__)

_LOCK_S = 0.05
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_BEGAN = re.compile(r"(?:tfevents|summary)\.([0-9]{9,11})(?:\.|$|_)")


class PointsMemory:
    """The memory that the points of all known runs take.

    Each run says when its own changes: to sum up ten thousand of them took a millisecond of each request.

    Attributes:
        used_bytes: of all known runs.
        lock: guards it and each run's part; nothing is waited for while it is held.
    """

    def __init__(self) -> None:
        self.used_bytes = 0
        self.lock = threading.Lock()


class RunEntry:
    """One run.

    Its files are read by one thread at a time, which holds `lock`. Within that, the lock of the memory is taken to
    change `points_bytes`. All else needs no lock.

    Args:
        run_id: its id.
        store: has its files.
        folder: in the store.
        memory: counts its points.

    Attributes:
        run_id: its id.
        uri: its folder.
        files: as they were listed last.
        is_dirty: whether they have changed since they were read, or could not be read.
        retry_at: when what failed is tried again, on the monotonic clock.
        refreshed_at: when its files were read last, likewise.
        used_at: when its points were requested last, likewise.
        points_bytes: the memory of its points.
        lock: held while its files are read.
    """

    def __init__(self, run_id: str, store: Store, folder: str, memory: PointsMemory) -> None:
        self.run_id = run_id
        self.uri = store.uri.rstrip("/") if folder == "." else store.uri + folder
        self._name = folder if folder != "." else folder_of(store.uri).rpartition("/")[2]
        self.files: tuple[StoredFile, ...] = ()
        self.is_dirty = True
        self.retry_at = 0.0
        self.used_at = self.refreshed_at = 0.0
        self.points_bytes = 0
        self._memory = memory
        self._is_forgotten = False
        self.lock = threading.Lock()
        self.is_local = isinstance(store, LocalStore)
        self.reader = RunReader(store)
        self._error = ""
        self._failures = 0
        self._has_points = True
        self._given: dict[str, tuple[int, Series]] = {}
        self._version = -1  # of the reader, when it was refreshed last
        self._is_read = False
        self._read_bytes = 0
        self._tags: Mapping[str, TagSummary] = MappingProxyType({})
        self._hparams: Mapping[str, Any] = MappingProxyType({})
        self._damaged = 0
        self._end: RunEnd | None = None

    @property
    def unread_bytes(self) -> int:
        """The bytes by which its files have grown since they were read."""
        return sum(file.size_bytes for file in self.files) - self._read_bytes

    def listed(self, files: tuple[StoredFile, ...]) -> None:
        """The scan has found other files."""
        self.files = files
        self.is_dirty = True
        self.retry_at = 0.0

    def is_due(self, now: float) -> bool:
        """Returns True when its files are to be read now."""
        return self.is_dirty and self.retry_at <= now

    def refresh(self, is_over: Callable[[bool], bool]) -> None:
        """Read what is new in its files. A failure is kept as the state of this run, and tried again later.

        Args:
            is_over: asked whether to end the call, with whether it has come any further; the run stays due then.
        """
        self.refreshed_at = time.monotonic()
        # A query may be reading this run again, as a whole. The other runs do not wait for it.
        if not self.lock.acquire(timeout=_LOCK_S):
            return
        try:
            self.is_dirty = False  # first: a scan may find more while this reads
            files = self.files
            try:
                self.reader.refresh(files, is_over)
                self.is_dirty |= self.reader.is_behind
                self._tags, self._hparams = self.reader.tags(), flat(self.reader.hparams())
                self._damaged = len(self.reader.damaged)
                self._end = self.reader.end
                self._version = self.reader.version
                self._error, self._failures = "", 0
                self._read_bytes = self.reader.read_bytes
            except Exception as error:  # whatever it is, it concerns this run only
                self._failed(error)
            finally:
                self._is_read = True
                self._count_points(self.reader.nbytes if self._has_points else 0)
        finally:
            self.lock.release()

    def _failed(self, error: Exception) -> None:
        self.is_dirty = True
        pause = min(_FIRST_PAUSE_S * 2**self._failures, _LONGEST_PAUSE_S)
        self.retry_at = time.monotonic() + pause
        self._failures = min(self._failures + 1, 10)
        self._error = f"{type(error).__name__}: {error}"
        logger.warning("run %s cannot be read: %s", self.run_id, self._error)

    def series(self, tag: str) -> Series:
        """The points of a metric. They are read again when they are not in memory.

        While a pass reads the files of this run, the last points are returned again: no caller
        waits for the disk or the network because a run grows.
        """
        self.used_at = time.monotonic()
        given = self._given.get(tag)
        if given is not None and (given[0] == self._version or self.lock.locked()):
            return given[1]
        with self.lock:
            series = self.reader.series(tag)
            if not self._has_points:
                self._has_points = True
                self._count_points(self.reader.nbytes)
            self._given[tag] = (self._version, series)
        return series

    def images(self, tag: str, wanted: int | None) -> list[ImageEntry]:
        """The images of a tag, which are read from the files."""
        self.used_at = time.monotonic()
        with self.lock:
            return self.reader.images(tag, wanted)

    def entries(self, kind: Literal["texts", "histograms", "tensors"], tag: str) -> list[Entry]:
        """The texts, histograms or tensors of a tag, likewise."""
        self.used_at = time.monotonic()
        with self.lock:
            found = {
                "texts": self.reader.texts,
                "histograms": self.reader.histograms,
                "tensors": self.reader.tensors,
            }
            entries = found[kind](tag)
            if not self._has_points:
                self._has_points = True
                self._count_points(self.reader.nbytes)
        return entries

    def drop_points(self) -> bool:
        """Free the memory of its points, unless its files are being read."""
        if not self.lock.acquire(blocking=False):
            return False
        try:
            self.reader.drop_points()
            self._given = {}
            self._has_points = False
            self._count_points(0)
            return True
        finally:
            self.lock.release()

    def forget(self) -> None:
        """The run is not known any more: what a query still reads of it counts no longer."""
        with self._memory.lock:
            if not self._is_forgotten:
                self._is_forgotten = True
                self._memory.used_bytes -= self.points_bytes

    def _count_points(self, size_bytes: int) -> None:
        with self._memory.lock:
            if not self._is_forgotten:
                self._memory.used_bytes += size_bytes - self.points_bytes
            self.points_bytes = size_bytes

    @property
    def updated_at(self) -> float | None:
        """The time of the last change of a file of it, in seconds since 1970."""
        times = [file.modified_ns for file in self.files if file.modified_ns is not None]
        return max(times) / 1e9 if times else None

    def status(self, record: RunRecord | None, now: float) -> str:
        """Its status; `now` is in seconds since 1970."""
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
        return RunBrief(
            id=self.run_id,
            uri=self.uri,
            status=self.status(record, now),
            name=(record.name or record.id) + self.run_id.removeprefix(record.id) if record else self._name,
            created_at=record.created_at if record and record.created_at is not None else self._began(),
            updated_at=self.updated_at,
            ended_at=record.ended_at if record else self._end and self._end.wall,
            tags=self._tags,
            hparams=_merged(record, self._hparams),
            labels=record.labels if record else MappingProxyType({}),
            damaged=self._damaged,
            is_loading=not self._is_read or (self.is_dirty and not self._error),
            error=self._error,
            version=version,
        )

    def _began(self) -> float | None:
        """Returns the time at which it began, by the names of its files; else by their times."""
        named = [float(found[1]) for file in self.files if (found := _BEGAN.search(file.path))]
        changed = [file.modified_ns / 1e9 for file in self.files if file.modified_ns is not None]
        return min(named or changed, default=None)


def brief_of_record(record: RunRecord, version: int) -> RunBrief:
    """A run that has written no event file yet."""
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
    )


def flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Nested hyperparameters with dots between the names.

    Example:
        >>> flat({"optim": {"lr": 0.1, "betas": [0.9, 0.99]}, "seed": 1})
        {'optim.lr': 0.1, 'optim.betas': [0.9, 0.99], 'seed': 1}
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            found.update({f"{name}.{inner}": one for inner, one in flat(value).items()})
        else:
            found[str(name)] = value
    return found


def _merged(record: RunRecord | None, own: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**flat(record.hparams), **own} if record is not None and record.hparams else own
