"""Marks jobs that a process reads or waits for: `prune` does not delete them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from pai_sdk._core.files import locked


@dataclass
class _Reading:
    """The parts of one job that this process reads, and its lock."""

    lock: ExitStack
    parts: set[str] = field(default_factory=set)


class Readers:
    """The readers of this process. A job with readers is locked (flock, shared) until all have finished.

    Thread-safe: `_lock` guards the dict. The file lock is acquired while `_lock` is held, but without waiting. A
    process has one file lock for all its readers of a job.
    """

    def __init__(self, lock: str, *, expires_after_s: float) -> None:
        self._name = lock
        # A reader without a read for so long, such as an open notebook, no longer protects the job.
        self._expires_after_s = expires_after_s
        self._lock = threading.Lock()
        self._readings: dict[Path, _Reading] = {}

    def start(self, root: Path, part: str) -> None:
        """Records that this process reads a part of a job: the log of an instance, or its state."""
        with self._lock, suppress(OSError):  # the folder may be deleted, or the disk full
            reading = self._readings.get(root)
            if reading is None:
                with ExitStack() as stack:
                    # Not waiting: `prune` holds the lock exclusively, and is about to delete the job.
                    if not stack.enter_context(locked(root / self._name, shared=True, waits=False)):
                        return
                    reading = self._readings[root] = _Reading(stack.pop_all())
            reading.parts.add(part)
            os.utime(root / self._name)  # other processes read the time of the last read from it

    def finish(self, root: Path, part: str) -> None:
        """Records that a part was read to its end."""
        with self._lock:
            reading = self._readings.get(root)
            if reading is None:
                return
            reading.parts.discard(part)
            # The last part releases the lock; other threads may read other parts of the job.
            if not reading.parts:
                self._readings.pop(root).lock.close()

    @contextmanager
    def exclude(self, root: Path) -> Iterator[bool]:
        """Locks a job's folder against new readers; yields False if any process is reading the job."""
        with locked(root / self._name, waits=False) as is_exclusive:
            yield is_exclusive or time.time() - (root / self._name).stat().st_mtime > self._expires_after_s

    def close(self) -> None:
        """Releases all locks."""
        with self._lock:
            for reading in self._readings.values():
                reading.lock.close()
            self._readings.clear()
