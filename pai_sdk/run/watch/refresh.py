"""One pass over all runs: what is new is found, read and published. The background thread calls it regularly.

    INIT ──> LOADING ──> DONE                       nothing failed
                    ├──> FAILED (error) ──> LOADING  something failed; the next pass tries again
                    └──> LOADING                     more is to be read; the next pass follows at once

A pass always ends in one of these states, whatever it meets. A run that cannot be read is a state of that run, and
not of the pass.

No run holds up the others: a pass reads what has grown a little first. Then it reads the new and the large runs,
those first that have waited the longest, each for a slice of time, and ends when its own time is over. The rest
goes on in the next pass, which looks for changes again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from pai_sdk.base.hints import name_hint
from pai_sdk.errors import RunNotFoundError
from pai_sdk.run.events.reader import Entry, ImageEntry
from pai_sdk.run.events.series import Series, empty_series
from pai_sdk.run.watch.entry import PointsMemory, RunEntry, brief_of_record
from pai_sdk.run.watch.places import Place, RunPlaces
from pai_sdk.run.watch.records import ManagerState, RunBrief, RunRecord
from pai_sdk.run.watch.scan import Scan
from pai_sdk.run.watch.snapshot import RunSnapshots
from pai_sdk.schemas.status import JobStatus
from pai_sdk.storage.base import Store
from pai_sdk.storage.pool import TransferPool

__all__ = ["Records", "RunRefresh"]

logger = logging.getLogger(__name__)

Records = Callable[[], Iterable[RunRecord]]

_PUBLISHED_RUNS = 64
"""Runs that are read before the next snapshot is made. More would be seen later; fewer would cost more copies."""

_MUCH_BYTES = 32 << 20
"""From here on, several threads read local files: they wait for the disk at the same time."""

_LITTLE_BYTES = 1 << 20
"""The bytes that each known run may read in a pass, whatever the time."""

_SLICE_S, _REMOTE_SLICE_S = 0.1, 0.5
"""The time for which a run may read in a pass; a request to a remote store costs more than a local read."""

_MUCH_S = 0.4
"""The time within which a pass begins to read new and large runs."""

_RECORDS_S = 0.5
"""The interval at which the records are requested while one pass follows the other."""

_LOW_MARK = 0.9
"""Points are dropped down to this part of the budget, so that not every pass has to drop some."""


class RunRefresh:
    """All that a manager knows, and the pass that keeps it up to date.

    Args:
        stores: the prefixes.
        records: gives what is known about runs from elsewhere.
        open_store: opens the folder of a record.
        memory_bytes: what the points in memory may take.
        threads: that read at the same time.

    Attributes:
        snapshots: what is published.
        state: of the last pass.
        entries: the runs that have files, by their ids; changed by the background thread only.
        settled_at: when the last pass began, by the monotonic clock, that asked for the records and left nothing
            unread of the runs that have finished by them.
        is_closed: set to end a pass early.
    """

    def __init__(
        self,
        stores: Sequence[Store],
        records: Records | None,
        open_store: Callable[[str], Store],
        memory_bytes: int,
        threads: int,
    ) -> None:
        self.snapshots = RunSnapshots()
        self.state = ManagerState("INIT", epoch=self.snapshots.epoch)
        self.entries: dict[str, RunEntry] = {}
        self.is_closed = False
        self.settled_at = float("-inf")
        self._memory = PointsMemory()
        self._memory_bytes = memory_bytes
        self._threads = threads
        self._ask_for_records = records
        self._records: Mapping[str, RunRecord] = {}
        self._places = RunPlaces(stores, open_store, lambda: self.is_closed)
        self._deleted: set[str] = set()
        self._is_behind = False  # of the last pass
        self._records_at = float("-inf")
        self._records_problem = ""

    # ---- the pass, in the background thread -----------------------------------------------------------------

    def run(self, is_asked: bool) -> bool:
        """One pass.

        Args:
            is_asked: a caller waits for it: all files are looked at, and what failed is tried again at once.

        Returns:
            Whether more is to be read, by another pass.
        """
        problems: list[str] = []
        begun_at = time.monotonic()
        is_behind, self._is_behind = self._is_behind, False
        self.state = replace(self.state, status="LOADING")
        try:
            if is_asked or not is_behind or begun_at - self._records_at >= _RECORDS_S:
                self._records_at = begun_at
                self._records_problem = self._take_records()
            problems += filter(None, [self._records_problem])
            self._scan(is_asked)
            self._is_behind = self._read(is_asked)
            self._publish_statuses()
            if not self._records_problem and self._has_settled():
                self.settled_at = self._records_at
            problems += [f"{one.uri}: {one.error}" for one in self._places.all() if one.error]
            problems += self._places.problems.values()
        except Exception as error:
            logger.exception("runs cannot be refreshed")
            problems.append(f"{type(error).__name__}: {error}")
        finally:
            now = self.snapshots.now
            self.state = ManagerState(
                "FAILED" if problems else "LOADING" if self._is_behind else "DONE",
                error="; ".join(problems),
                version=now.version,
                loaded_at=time.time(),
                epoch=self.snapshots.epoch,
                runs=len(now.briefs),
                points_bytes=self.points_bytes,
                links=tuple(link for place in self._places.all() if place.links for link in place.links),
            )
        return self._is_behind

    def _take_records(self) -> str:
        """Ask for the records; returns why that failed."""
        if self._ask_for_records is None:
            return ""
        try:
            records = {record.id: record for record in self._ask_for_records()}
        except Exception as error:  # those of the last time stay
            logger.warning("the records of runs cannot be read: %s", error)
            return f"the records of runs cannot be read: {type(error).__name__}: {error}"
        before, self._records = self._records, records
        gone, has_other_ids = self._places.take(records)
        removed = [entry.run_id for entry in gone if self._forget(entry)]
        renamed: list[str] = []
        if has_other_ids:
            no_more, renamed = self._rename()
            removed += no_more
        changed = {one for one, record in records.items() if before.get(one) != record}
        known = self.snapshots.now.briefs
        with_files = [one for one in known if self._record_id(one) in changed]
        lost = [one for one in before if one not in records and one not in self.entries]
        self._publish({*changed, *with_files, *renamed, *(set(removed) & records.keys())}, [*removed, *lost])
        return ""

    def _rename(self) -> tuple[list[str], list[str]]:
        """Give the runs below the prefixes the ids that the records say; returns old and new ids."""
        entries: dict[str, RunEntry] = {}
        gone: list[str] = []
        new: list[str] = []
        for place in self._places.all():
            for folder, entry in place.entries.items():
                run_id = self._free_id(place, folder, entries)
                if run_id != entry.run_id:
                    gone.append(entry.run_id)
                    new.append(run_id)
                    entry.run_id = run_id
                entries[run_id] = entry
        self.entries = entries
        return [one for one in gone if one not in entries], new

    def _free_id(self, place: Place, folder: str, taken: Mapping[str, RunEntry]) -> str:
        """The id of a run. Of several prefixes with the same folder, the first one has the plain id."""
        wanted = self._places.id_of(place, folder)
        run_id, number = wanted, 1
        while run_id in taken:
            number += 1
            run_id = f"{wanted}@{number}"
        return run_id

    def _scan(self, is_asked: bool) -> None:
        places = self._places.due(everything=is_asked)
        remote = [place for place in places if not place.is_local]
        if len(remote) > 1:
            with TransferPool(self._threads) as pool:
                found = pool.run_all([partial(place.scan, everything=is_asked) for place in remote])
        else:
            found = [place.scan(everything=is_asked) for place in remote]
        for place, scan in zip(remote, found, strict=True):
            self._apply(place, scan)
        for place in places:
            if place.is_local:
                self._apply(place, place.scan(everything=is_asked))

    def _apply(self, place: Place, scan: Scan) -> None:
        new: list[str] = []
        for folder, files in scan.changed.items():
            entry = place.entries.get(folder)
            if entry is not None and entry.run_id in self._deleted:
                self._forget(entry)
                entry = None
            if entry is None:
                run_id = self._free_id(place, folder, self.entries)
                self._deleted.discard(run_id)
                entry = RunEntry(run_id, place.folders.store, folder, self._memory)
                place.entries[folder] = self.entries[run_id] = entry
                new.append(run_id)
            entry.listed(files)
        gone = [entry for folder in scan.removed if (entry := place.entries.pop(folder, None))]
        for entry in gone:
            self._forget(entry)
        kept = [entry.run_id for entry in gone if entry.run_id in self._records]
        self._publish([*new, *kept], [entry.run_id for entry in gone if entry.run_id not in kept])

    def _forget(self, entry: RunEntry) -> bool:
        """Take a run out of those that are known; whether it was there."""
        entry.forget()
        return self.entries.pop(entry.run_id, None) is not None

    def _read(self, is_asked: bool) -> bool:
        """Read what is new; returns whether something is left for the next pass."""
        now = time.monotonic()
        due = [
            entry
            for entry in self.entries.values()
            if entry.is_dirty and (is_asked or entry.retry_at <= now) and entry.run_id not in self._deleted
        ]
        due.sort(key=lambda entry: entry.updated_at or 0.0, reverse=True)
        little = [entry for entry in due if entry.refreshed_at and entry.unread_bytes <= _LITTLE_BYTES]
        self._read_all(little, float("inf"))
        is_little = {*little}
        much = [entry for entry in due if entry not in is_little]
        self._read_all(sorted(much, key=lambda entry: entry.refreshed_at), time.monotonic() + _MUCH_S)
        return not self.is_closed and any(entry.is_due(time.monotonic()) for entry in due)

    def _has_settled(self) -> bool:
        """Returns True when nothing is left to be read of the runs that have finished."""
        now = time.monotonic()
        due = (one for one in self.entries.values() if one.is_due(now) and one.run_id not in self._deleted)
        records = (self._record(one.run_id) for one in due)
        return not self.is_closed and not any(one and JobStatus(one.status).is_terminal for one in records)

    def _read_all(self, due: Sequence[RunEntry], until: float) -> None:
        local = [entry for entry in due if entry.is_local]
        remote = [entry for entry in due if not entry.is_local]
        if sum(entry.unread_bytes for entry in local) > _MUCH_BYTES:
            remote, local = [*due], []
        for begin in range(0, len(local), _PUBLISHED_RUNS):
            self._read_some(local[begin : begin + _PUBLISHED_RUNS], until)
        if len(remote) == 1:
            self._read_some(remote, until)
        elif remote:
            # Each thread publishes what it has read: a large or slow run does not hold up the others.
            with TransferPool(self._threads) as pool:
                pool.run_all([partial(self._read_some, [entry], until) for entry in remote])

    def _read_some(self, entries: Sequence[RunEntry], until: float) -> None:
        read = []
        for entry in entries:
            if self.is_closed:
                return
            if time.monotonic() >= until:
                break
            entry.refresh(self._slice_of(entry))
            read.append(entry.run_id)
        self._publish(read)
        self.keep_within_budget()

    def _slice_of(self, entry: RunEntry) -> Callable[[bool], bool]:
        """Returns True when a run's time in this pass is over. It makes progress in each pass, however slowly."""
        until = time.monotonic() + (_SLICE_S if entry.is_local else _REMOTE_SLICE_S)
        return lambda has_read: self.is_closed or (has_read and time.monotonic() >= until)

    def _publish_statuses(self) -> None:
        """Publish the runs that have stopped growing, or have a file again."""
        now, briefs = time.time(), self.snapshots.now.briefs
        changed = []
        for run_id, entry in self.entries.items():
            brief = briefs.get(run_id)
            if brief is not None and brief.status != entry.status(self._record(run_id), now):
                changed.append(run_id)
        self._publish(changed)

    def _publish(self, ids: Iterable[str], removed: Iterable[str] = ()) -> None:
        self.snapshots.publish(ids, self._brief, removed)

    def _brief(self, run_id: str, version: int) -> RunBrief | None:
        if run_id in self._deleted:
            return None
        entry, record = self.entries.get(run_id), self._record(run_id)
        if entry is not None:
            return entry.brief(record, version, time.time())
        return None if record is None else brief_of_record(record, version)

    def _record(self, run_id: str) -> RunRecord | None:
        return self._records.get(self._record_id(run_id))

    def _record_id(self, run_id: str) -> str:
        """The id of the record that a run belongs to: its own, or that of a folder around it."""
        place = run_id
        while place and place not in self._records:
            place = place.rpartition("/")[0]
        return place or run_id

    # ---- from any thread ------------------------------------------------------------------------------------

    def delete(self, run_id: str) -> None:
        """Forget a run until its files change."""
        # First: each snapshot that is published from now on leaves it out.
        self._deleted.add(run_id)
        self.snapshots.publish((), self._brief, [run_id])
        entry = self.entries.get(run_id)
        if entry is not None:
            entry.drop_points()

    @property
    def points_bytes(self) -> int:
        """The memory that points take."""
        return self._memory.used_bytes

    def keep_within_budget(self, needed: RunEntry | None = None) -> None:
        """Drop the points of the runs that were not asked for the longest, until the others fit."""
        excess = self.points_bytes - self._memory_bytes
        if excess <= 0:
            return
        excess += int(self._memory_bytes * (1 - _LOW_MARK))
        for entry in sorted([*self.entries.values()], key=lambda entry: entry.used_at):
            if excess <= 0:
                return
            if entry is not needed and entry.points_bytes:
                before = entry.points_bytes
                entry.drop_points()
                excess -= before - entry.points_bytes

    def current_state(self) -> ManagerState:
        """The state of the last pass, with what is published by now."""
        now = self.snapshots.now
        return replace(self.state, version=now.version, runs=len(now.briefs), points_bytes=self.points_bytes)

    def known(self, run_id: str) -> RunBrief:
        """The brief of a run.

        Raises:
            RunNotFoundError: there is none with this id.
        """
        briefs = self.snapshots.now.briefs
        if run_id not in briefs:
            hint = name_hint(run_id, briefs) if briefs else "no run has been found yet"
            raise RunNotFoundError(f"there is no run {run_id!r}; {hint}", run_id=run_id)
        return briefs[run_id]

    def series(self, run_id: str, tag: str) -> Series:
        """The points of a metric; its run has it.

        Raises:
            RunNotFoundError: the run was removed in between.
            StorageError: its files had to be read again, which failed.
        """
        entry = self.entries.get(run_id)
        if entry is None:
            self.known(run_id)
            return empty_series(tag)
        series = entry.series(tag)
        self.keep_within_budget(entry)
        return series

    def images(self, run_id: str, tag: str, wanted: int | None) -> list[ImageEntry]:
        """The images of a tag, which the run has; raises as `series`."""
        entry = self.entries.get(run_id)
        if entry is None:
            self.known(run_id)
            return []
        return entry.images(tag, wanted)

    def others(self, run_id: str, kind: Literal["texts", "histograms", "tensors"], tag: str) -> list[Entry]:
        """The texts, histograms or tensors of a tag, which the run has; raises as `series`."""
        entry = self.entries.get(run_id)
        if entry is None:
            self.known(run_id)
            return []
        found = entry.entries(kind, tag)
        self.keep_within_budget(entry)
        return found

    def many_series(self, ids: Sequence[str], tag: str) -> dict[str, Series]:
        """The points of a metric of many runs, without the runs that were removed in between.

        Raises:
            StorageError: files had to be read again, which failed.
        """
        entries = {run_id: entry for run_id in ids if (entry := self.entries.get(run_id)) is not None}
        found = {run_id: entry.series(tag) for run_id, entry in entries.items()}
        self.keep_within_budget()
        return found
