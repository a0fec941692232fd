"""The runs of a manager: their briefs, and their points in memory."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Literal

from pai_sdk._core.names.hints import name_hint
from pai_sdk._data.run.events.reader import Entry, ImageEntry
from pai_sdk._data.run.events.series import Series, empty_series
from pai_sdk._data.run.watch.entry import PointsMemory, RunEntry, brief_of_record
from pai_sdk._data.run.watch.records import RunBrief, RunRecord
from pai_sdk._data.run.watch.snapshot import RunSnapshots
from pai_sdk.errors import RunNotFoundError

_LOW_MARK = 0.9
"""Points are dropped down to this part of the budget, so that not every pass has to drop some."""


class RunData:
    """The known runs with their data. A pass changes them in the background thread; any thread reads them.

    Attributes:
        entries: the runs with files, by id. The pass replaces the dict, or adds and removes entries.
        records: data about runs from another source, by id.
        deleted: ids of removed runs, which are not published again until their files change.
    """

    def __init__(self, memory_bytes: int) -> None:
        self.snapshots = RunSnapshots()
        self.entries: dict[str, RunEntry] = {}
        self.records: Mapping[str, RunRecord] = {}
        self.deleted: set[str] = set()
        self.memory = PointsMemory()
        self._memory_bytes = memory_bytes  # the limit for the points in memory

    def publish(self, ids: Iterable[str], removed: Iterable[str] = ()) -> None:
        """Publishes the briefs of changed runs, and removes others."""
        self.snapshots.publish(ids, self._brief, removed)

    def _brief(self, run_id: str, version: int) -> RunBrief | None:
        if run_id in self.deleted:
            return None
        entry, record = self.entries.get(run_id), self.record(run_id)
        if entry is not None:
            return entry.brief(record, version, time.time())
        return None if record is None else brief_of_record(record, version)

    def record(self, run_id: str) -> RunRecord | None:
        """Returns the record of a run, or of a parent folder of the run."""
        return self.records.get(self.record_id(run_id))

    def record_id(self, run_id: str) -> str:
        """Returns the id of the record of a run, or of a parent folder of the run."""
        candidate = run_id
        while candidate and candidate not in self.records:
            candidate = candidate.rpartition("/")[0]
        return candidate or run_id

    def delete(self, run_id: str) -> None:
        """Removes a run until its files change."""
        # Before the publication: a concurrent pass must not publish the run again.
        self.deleted.add(run_id)
        # The entry stays, so that the files are not taken for those of a new run; its points are freed.
        self.snapshots.publish((), self._brief, [run_id])
        entry = self.entries.get(run_id)
        if entry is not None:
            entry.drop_points()

    @property
    def points_bytes(self) -> int:
        """The memory of the points."""
        return self.memory.used_bytes

    def keep_within_budget(self, needed: RunEntry | None = None) -> None:
        """Drops the points of the least recently requested runs, until the remaining ones fit."""
        excess = self.points_bytes - self._memory_bytes
        if excess <= 0:
            return
        excess += int(self._memory_bytes * (1 - _LOW_MARK))
        # Iterates over a copy: the background thread adds and removes entries meanwhile.
        for entry in sorted([*self.entries.values()], key=lambda entry: entry.used_at):
            if excess <= 0:
                return
            # `needed` has the points that the caller is about to return.
            if entry is not needed and entry.points_bytes:
                before = entry.points_bytes
                entry.drop_points()
                excess -= before - entry.points_bytes

    def get_brief(self, run_id: str) -> RunBrief:
        """Returns the brief of a run; raises RunNotFoundError."""
        briefs = self.snapshots.now.briefs
        if run_id not in briefs:
            hint = name_hint(run_id, briefs) if briefs else "no run has been found yet"
            raise RunNotFoundError(f"there is no run {run_id!r}; {hint}", run_id=run_id)
        return briefs[run_id]

    def series(self, run_id: str, tag: str) -> Series:
        """Returns the points of a metric that the run has; raises RunNotFoundError if it was removed meanwhile."""
        entry = self.entries.get(run_id)
        if entry is None:
            self.get_brief(run_id)
            return empty_series(tag)
        series = entry.series(tag)
        self.keep_within_budget(entry)
        return series

    def images(self, run_id: str, tag: str, number: int | None) -> list[ImageEntry]:
        """Returns the images of a tag that the run has; raises RunNotFoundError if it was removed meanwhile."""
        entry = self.entries.get(run_id)
        if entry is None:
            self.get_brief(run_id)
            return []
        return entry.images(tag, number)

    def read_entries(self, run_id: str, kind: Literal["texts", "histograms", "tensors"], tag: str) -> list[Entry]:
        """Returns texts, histograms or tensors of a tag that the run has; RunNotFoundError if it was removed."""
        entry = self.entries.get(run_id)
        if entry is None:
            self.get_brief(run_id)
            return []
        entries = entry.entries(kind, tag)
        self.keep_within_budget(entry)
        return entries
