"""The published state of a manager's runs, and the subscriptions to its changes.

A snapshot is never changed: a change creates the next one, with the next version. So a query reads a snapshot
without a lock, and it never waits for a file. The lock of `RunSnapshots` is held while a snapshot is created,
which needs no I/O.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pai_sdk._data.run.watch.records import Change, RunBrief

"""The number of removed runs that are stored for subscribers; one that has missed more receives all runs again."""


@dataclass(frozen=True)
class Snapshot:
    """All runs at one moment."""

    version: int = 0
    briefs: Mapping[str, RunBrief] = field(default_factory=dict)
    removed: Mapping[str, int] = field(default_factory=dict)  # by id: the version of the removal
    forgotten: int = 0  # the last version whose removed runs are no longer stored

    def since(self, version: int) -> Change:
        """Returns the changes since a version."""
        if not self.forgotten <= version <= self.version:
            return Change(tuple(self.briefs), self.version, resync=True)
        changed = tuple(run_id for run_id, brief in self.briefs.items() if brief.version > version)
        removed = tuple(run_id for run_id, removed_in in self.removed.items() if removed_in > version)
        return Change(changed, self.version, removed)


class RunSnapshots:
    """Publishes the snapshots of one manager, one after the other."""

    def __init__(self, *, max_removals: int = 10_000) -> None:
        self._max_removals = max_removals
        # Versions start at 0 in each manager. By the epoch, a client detects that its version is of another one.
        self.epoch = secrets.token_hex(4)
        self.now = Snapshot()
        self._changed = threading.Condition()
        self._is_closed = False

    def publish(
        self, ids: Iterable[str], make: Callable[[str, int], RunBrief | None], removed: Iterable[str] = ()
    ) -> None:
        """Publishes the next snapshot: `ids` are new or changed, `removed` are gone.

        `make` is called with each id and the version, under the lock: it reads no file. It returns the run's
        brief, or None to leave it out.
        """
        with self._changed:
            last = self.now
            version = last.version + 1
            briefs = dict(last.briefs)  # a copy: readers use the last snapshot without a lock
            removals = {run_id: version for run_id in removed if briefs.pop(run_id, None) is not None}
            created = ((run_id, make(run_id, version)) for run_id in ids)
            changed = {run_id: brief for run_id, brief in created if brief is not None}
            # Without a change there is no new version, or all subscribers would wake for nothing.
            if not removals and not changed:
                return
            briefs.update(changed)
            remembered, forgotten = last.removed, last.forgotten
            if removals or not remembered.keys().isdisjoint(changed):
                # Oldest removals first, since dicts keep the order of insertion.
                merged = {
                    **{run_id: removed_in for run_id, removed_in in remembered.items() if run_id not in removals},
                    **removals,
                }
                merged = {run_id: removed_in for run_id, removed_in in merged.items() if run_id not in briefs}
                for run_id in list(merged)[: max(len(merged) - self._max_removals, 0)]:
                    forgotten = max(forgotten, merged.pop(run_id))
                remembered = merged
            # One assignment: readers get the old or the new snapshot, never a mixture.
            self.now = Snapshot(version, briefs, remembered, forgotten)
            self._changed.notify_all()

    def wait(
        self, version: int, timeout_s: float | None, should_stop: Callable[[], bool] = lambda: False
    ) -> Snapshot | None:
        """Waits for a snapshot of another version; returns None after the timeout, `close` or `should_stop`."""
        with self._changed:
            # Compared by `!=`: the version of another manager can be larger than the current one.
            self._changed.wait_for(
                lambda: self._is_closed or should_stop() or self.now.version != version, timeout_s
            )
            return self.now if self.now.version != version else None

    def wake(self) -> None:
        """Makes all waiting threads check their conditions."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Ends all subscriptions."""
        self._is_closed = True  # before `wake`, which acquires the lock: no waiting thread can miss it
        self.wake()


class Subscription:
    """The changes of a manager's runs, one after the other; an iterator that waits for the next one.

    A slow or disconnected subscriber loses nothing: the next `Change` has all changes since the previous one. So
    no queue can grow. If these changes are no longer stored, as for a version of another manager, the change has
    `resync=True` and all runs.
    """

    def __init__(self, snapshots: RunSnapshots, since: int | None = None) -> None:
        self._snapshots = snapshots
        self._is_closed = False
        # The last version that the subscriber has read: of the last change, or `since`.
        self.version = snapshots.now.version if since is None else since

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Change]:
        while (change := self.get()) is not None:
            yield change

    def get(self, timeout_s: float | None = None) -> Change | None:
        """Waits for the next change; returns None after the timeout (None: no limit), and after `close`."""
        snapshot = self._snapshots.wait(self.version, timeout_s, lambda: self._is_closed)
        if snapshot is None or self._is_closed:
            return None
        change, self.version = snapshot.since(self.version), snapshot.version
        return change

    def close(self) -> None:
        """Ends the iteration, from any thread."""
        self._is_closed = True
        self._snapshots.wake()
