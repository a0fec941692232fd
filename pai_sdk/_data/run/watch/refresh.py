"""One pass over all runs lists, reads and publishes new data. The background thread calls it regularly.

    INIT ──> LOADING ──> DONE                       nothing failed
                    ├──> FAILED (error) ──> LOADING  something failed; the next pass tries again
                    └──> LOADING                     more is to be read; the next pass follows at once

A pass always ends in one of these states. A run that cannot be read is a state of that run, and not of the pass.

No run delays other runs: a pass first reads the runs that have grown a little. Then it reads the new and the large
runs, those first that have waited longest, each for a slice of time, and ends when its own time is over. The
remaining data is read in the next pass, which checks for changes again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pai_sdk._data.run.watch.entry import RunEntry
from pai_sdk._data.run.watch.records import ManagerState, RunRecord
from pai_sdk._data.run.watch.roots import RunRoot, RunRoots
from pai_sdk._data.run.watch.run_data import RunData
from pai_sdk._data.run.watch.scan import Scan
from pai_sdk._data.storage.base import Store
from pai_sdk._data.storage.pool import TransferPool
from pai_sdk._wire.pai.status import JobStatus

logger = logging.getLogger(__name__)

Records = Callable[[], Iterable[RunRecord]]

_PUBLISHED_RUNS = 64
"""Runs that are read before the next snapshot. A larger number delays them, a smaller one costs more copies."""

_PARALLEL_BYTES = 32 << 20
"""Above this size, several threads read local files, so that their waits for the disk overlap."""

_RECORDS_S = 0.5
"""The interval at which the records are requested while one pass follows the other."""


@dataclass(frozen=True)
class ReadPace:
    """How the time of a pass is divided among the runs."""

    small_bytes: int = 1 << 20  # unread bytes up to which a run is read in every pass, without a limit of time
    slice_s: float = 0.1  # of a run in a pass
    remote_slice_s: float = 0.5  # a request to a remote store costs more than a local read
    large_runs_s: float = 0.4  # within which a pass starts to read new and large runs


class RunRefresh:
    """The pass that updates the data of a manager."""

    def __init__(
        self,
        stores: Sequence[Store],
        records: Records | None,  # returns data about runs from another source
        open_store: Callable[[str], Store],  # opens the folder of a record
        memory_bytes: int,  # the limit for the points in memory
        threads: int,  # that read at the same time
    ) -> None:
        self.data = RunData(memory_bytes)
        self.state = ManagerState("INIT", epoch=self.data.snapshots.epoch)
        self.pace = ReadPace()
        self.is_closed = False  # set to end a pass early
        # When the last pass started, by the monotonic clock, that fetched the records and left nothing unread of
        # the runs that are finished according to them.
        self.settled_at = float("-inf")
        self._threads = threads
        self._fetch_records = records
        self._roots = RunRoots(stores, open_store, lambda: self.is_closed)
        self._is_behind = False  # of the last pass
        self._records_at = float("-inf")
        self._records_problem = ""

    # ---- the pass, in the background thread -----------------------------------------------------------------

    def run(self, is_requested: bool) -> bool:
        """Runs one pass; returns whether another one is needed to read the remaining data."""
        problems: list[str] = []
        started_at = time.monotonic()
        is_behind, self._is_behind = self._is_behind, False
        self.state = replace(self.state, status="LOADING")
        try:
            if is_requested or not is_behind or started_at - self._records_at >= _RECORDS_S:
                self._records_at = started_at
                self._records_problem = self._read_records()
            problems += filter(None, [self._records_problem])
            # For a caller that waits, all files are checked, and failed reads are tried again at once.
            self._scan(is_requested)
            self._is_behind = self._read(is_requested)
            self._publish_statuses()
            if not self._records_problem and self._has_settled():
                # The time of the records, not of this moment: jobs that finished after the request are not
                # covered.
                self.settled_at = self._records_at
            problems += [f"{root.uri}: {root.error}" for root in self._roots.all() if root.error]
            problems += self._roots.problems.values()
        except Exception as error:
            # The background thread must survive, and the state must have the error.
            logger.exception("runs cannot be refreshed")
            problems.append(f"{type(error).__name__}: {error}")
        finally:
            now = self.data.snapshots.now
            self.state = ManagerState(
                "FAILED" if problems else "LOADING" if self._is_behind else "DONE",
                error="; ".join(problems),
                version=now.version,
                loaded_at=time.time(),
                epoch=self.data.snapshots.epoch,
                runs=len(now.briefs),
                points_bytes=self.data.points_bytes,
                links=tuple(link for root in self._roots.all() if root.links for link in root.links),
            )
        return self._is_behind

    def _read_records(self) -> str:
        """Fetches the records; returns the error message if that failed."""
        if self._fetch_records is None:
            return ""
        try:
            records = {record.id: record for record in self._fetch_records()}
        except Exception as error:  # the records of the previous pass stay
            logger.warning("the records of runs cannot be read: %s", error)
            return f"the records of runs cannot be read: {type(error).__name__}: {error}"
        before, self.data.records = self.data.records, records
        gone, has_other_ids = self._roots.update_records(records)
        removed = [entry.run_id for entry in gone if self._forget(entry)]
        renamed: list[str] = []
        if has_other_ids:
            no_more, renamed = self._rename()
            removed += no_more
        changed = {run_id for run_id, record in records.items() if before.get(run_id) != record}
        briefs = self.data.snapshots.now.briefs
        with_files = [run_id for run_id in briefs if self.data.record_id(run_id) in changed]
        removed_records = [
            run_id for run_id in before if run_id not in records and run_id not in self.data.entries
        ]
        self.data.publish(
            {*changed, *with_files, *renamed, *(set(removed) & records.keys())}, [*removed, *removed_records]
        )
        return ""

    def _rename(self) -> tuple[list[str], list[str]]:
        """Gives the runs below the prefixes the ids of the records; returns old and new ids."""
        entries: dict[str, RunEntry] = {}
        gone: list[str] = []
        new: list[str] = []
        for root in self._roots.all():
            for folder, entry in root.entries.items():
                run_id = self._free_id(root, folder, entries)
                if run_id != entry.run_id:
                    gone.append(entry.run_id)
                    new.append(run_id)
                    entry.run_id = run_id
                entries[run_id] = entry
        # Replaced at the end, because queries of other threads read `entries` without a lock.
        self.data.entries = entries
        return [old_id for old_id in gone if old_id not in entries], new

    def _free_id(self, root: RunRoot, folder: str, used_ids: Mapping[str, RunEntry]) -> str:
        """Returns an unused id. Of several prefixes with the same folder, the first one has the plain id."""
        base_id = self._roots.id_of(root, folder)
        run_id, number = base_id, 1
        while run_id in used_ids:
            number += 1
            run_id = f"{base_id}@{number}"
        return run_id

    def _scan(self, is_requested: bool) -> None:
        roots = self._roots.due(everything=is_requested)
        remote = [root for root in roots if not root.is_local]
        if len(remote) > 1:
            with TransferPool(self._threads) as pool:
                scans = pool.run_all([partial(root.scan, everything=is_requested) for root in remote])
        else:
            scans = [root.scan(everything=is_requested) for root in remote]
        for root, scan in zip(remote, scans, strict=True):
            self._apply(root, scan)
        for root in roots:
            if root.is_local:
                self._apply(root, root.scan(everything=is_requested))

    def _apply(self, root: RunRoot, scan: Scan) -> None:
        new: list[str] = []
        for folder, files in scan.changed.items():
            entry = root.entries.get(folder)
            if entry is not None and entry.run_id in self.data.deleted:
                self._forget(entry)
                entry = None
            if entry is None:
                # A deleted run is listed again when its files change, with a new entry.
                run_id = self._free_id(root, folder, self.data.entries)
                self.data.deleted.discard(run_id)
                entry = RunEntry(run_id, root.folders.store, folder, self.data.memory)
                root.entries[folder] = self.data.entries[run_id] = entry
                new.append(run_id)
            entry.set_files(files)
        removed = [entry for folder in scan.removed if (entry := root.entries.pop(folder, None))]
        for entry in removed:
            self._forget(entry)
        recorded = [entry.run_id for entry in removed if entry.run_id in self.data.records]
        self.data.publish([*new, *recorded], [entry.run_id for entry in removed if entry.run_id not in recorded])

    def _forget(self, entry: RunEntry) -> bool:
        """Removes a run; returns whether it existed."""
        entry.forget()
        return self.data.entries.pop(entry.run_id, None) is not None

    def _read(self, is_requested: bool) -> bool:
        """Reads new data; returns whether some is left for the next pass."""
        now = time.monotonic()
        due = [
            entry
            for entry in self.data.entries.values()
            if entry.is_dirty and (is_requested or entry.retry_at <= now) and entry.run_id not in self.data.deleted
        ]
        due.sort(key=lambda entry: entry.updated_at or 0.0, reverse=True)
        small = [entry for entry in due if entry.refreshed_at and entry.unread_bytes <= self.pace.small_bytes]
        self._read_all(small, float("inf"))
        is_small = {*small}
        large = [entry for entry in due if entry not in is_small]
        large.sort(key=lambda entry: entry.refreshed_at)
        self._read_all(large, time.monotonic() + self.pace.large_runs_s)
        return not self.is_closed and any(entry.is_due(time.monotonic()) for entry in due)

    def _has_settled(self) -> bool:
        """Returns True when all data of the finished runs was read."""
        now = time.monotonic()
        due = (
            entry
            for entry in self.data.entries.values()
            if entry.is_due(now) and entry.run_id not in self.data.deleted
        )
        records = (self.data.record(entry.run_id) for entry in due)
        return not self.is_closed and not any(
            record and JobStatus(record.status).is_terminal for record in records
        )

    def _read_all(self, due: Sequence[RunEntry], until: float) -> None:
        local = [entry for entry in due if entry.is_local]
        remote = [entry for entry in due if not entry.is_local]
        if sum(entry.unread_bytes for entry in local) > _PARALLEL_BYTES:
            remote, local = [*due], []
        for start in range(0, len(local), _PUBLISHED_RUNS):
            self._read_runs(local[start : start + _PUBLISHED_RUNS], until)
        if len(remote) == 1:
            self._read_runs(remote, until)
        elif remote:
            # Each thread publishes the run that it has read, so that a large or slow run does not delay other
            # runs.
            with TransferPool(self._threads) as pool:
                pool.run_all([partial(self._read_runs, [entry], until) for entry in remote])

    def _read_runs(self, entries: Sequence[RunEntry], until: float) -> None:
        read = []
        for entry in entries:
            if self.is_closed:
                return
            if time.monotonic() >= until:
                break
            entry.refresh(self._slice_of(entry))
            read.append(entry.run_id)
        self.data.publish(read)
        self.data.keep_within_budget()

    def _slice_of(self, entry: RunEntry) -> Callable[[bool], bool]:
        """Returns a function that is True when a run's time in this pass is over."""
        until = time.monotonic() + (self.pace.slice_s if entry.is_local else self.pace.remote_slice_s)
        # At least one read in each pass: a slow run progresses, too.
        return lambda has_read: self.is_closed or (has_read and time.monotonic() >= until)

    def _publish_statuses(self) -> None:
        """Publishes the runs that have stopped growing, or grow again."""
        # A status can change without a change of a file: a run stops being `Running` after two minutes.
        now, briefs = time.time(), self.data.snapshots.now.briefs
        changed = []
        for run_id, entry in self.data.entries.items():
            brief = briefs.get(run_id)
            if brief is not None and brief.status != entry.status(self.data.record(run_id), now):
                changed.append(run_id)
        self.data.publish(changed)
