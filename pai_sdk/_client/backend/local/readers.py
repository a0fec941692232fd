"""Marks jobs that a process reads or waits for: `prune` does not delete them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from pai_sdk._core.files import locked

STATE = "state"
"""The part of a job that a waiting process reads; the other parts are the names of instances, with their logs."""

_LOCK = "readers.lock"
_EARLIER_LOCK = "waiting.lock"  # of processes of an earlier release that wait for a job
_READS_ON_WITHIN_S = 600.0  # a pager may display a page of a log for minutes
_WAITS_AGAIN_WITHIN_S = 30.0  # a waiting process polls the state every few seconds


class Readers:
    """The readers of this process. A job with readers is locked (flock, shared) until all have finished.

    A reader that does not return, such as an open notebook, no longer protects the job: the lock expires
    `_READS_ON_WITHIN_S` after the time of its file, which for waiting processes is in the past.

    Thread-safe: `_lock` guards the dict. The file lock is acquired while `_lock` is held, but without waiting. A
    process has one file lock for all its readers of a job.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readings: dict[Path, tuple[ExitStack, set[str]]] = {}  # by job: its lock, the parts that are read

    def start(self, root: Path, part: str) -> None:
        """Records that this process reads a part of a job."""
        file = root / _LOCK
        with self._lock, suppress(OSError):  # the folder may be deleted, or the disk full
            last_read_at = file.stat().st_mtime if file.exists() else 0.0
            if root not in self._readings:
                with ExitStack() as stack:
                    # Not waiting: `prune` holds the lock exclusively, and is about to delete the job.
                    if not stack.enter_context(locked(file, shared=True, waits=False)):
                        return
                    self._readings[root] = stack.pop_all(), set()
            self._readings[root][1].add(part)
            now = time.time()
            read_at = now if part != STATE else now - _READS_ON_WITHIN_S + _WAITS_AGAIN_WITHIN_S
            # Other processes may read logs of the job, so a waiting one never sets the time back.
            os.utime(file, (now, max(read_at, last_read_at)))

    def finish(self, root: Path, part: str | None = None) -> None:
        """Records that a part was read to its end; without a part, that the job was deleted."""
        with self._lock:
            if root in self._readings:
                lock, parts = self._readings[root]
                parts.discard(part or "")
                # The last part releases the lock; other threads may read other parts of the job.
                if not parts or part is None:
                    del self._readings[root]
                    lock.close()

    @contextmanager
    def exclude(self, root: Path) -> Iterator[bool]:
        """Locks a job's folder against new readers; yields False if any process is reading the job."""
        with ExitStack() as stack:
            limits_s = {_LOCK: _READS_ON_WITHIN_S, _EARLIER_LOCK: _WAITS_AGAIN_WITHIN_S}
            yield all(_is_free(root / name, limit_s, stack) for name, limit_s in limits_s.items())

    def close(self) -> None:
        """Releases all locks."""
        with self._lock:
            for lock, _ in self._readings.values():
                lock.close()
            self._readings.clear()


def _is_free(lock: Path, expires_after_s: float, stack: ExitStack) -> bool:
    """Locks a file until the stack is closed; returns whether no other process uses it."""
    if lock.name == _EARLIER_LOCK and not lock.exists():
        return True
    is_exclusive = stack.enter_context(locked(lock, waits=False))
    return is_exclusive or time.time() - lock.stat().st_mtime > expires_after_s
