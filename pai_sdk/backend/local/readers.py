"""The jobs that are being read or waited for, in this process or another: `prune` does not remove them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from pai_sdk.base.files import locked


@dataclass
class _Reading:
    """The parts of one job that this process reads, and the lock that it holds meanwhile."""

    held: ExitStack
    parts: set[str] = field(default_factory=set)


class Readers:
    """The readers of this process. Each job that has some is locked (flock, shared) until they are done.

    Safe to use from several threads: `_lock` guards the dict. The file lock is taken while `_lock` is held, but
    never waited for. A process has one file lock for all its readers of a job.

    Args:
        lock: the name of the lock file in a job's folder.
        forgotten_after_s: a reader that has not read for so long, as in a notebook that was left open, no longer
            keeps the job.

    Example:
        >>> readers = Readers("readers.lock", forgotten_after_s=60)
        >>> readers.begin(Path("/srv/jobs/local-1"), "log")  # doctest: +SKIP
        >>> with readers.kept_out(Path("/srv/jobs/local-1")) as may_be_removed:  # doctest: +SKIP
        ...     may_be_removed
        False
    """

    def __init__(self, lock: str, *, forgotten_after_s: float) -> None:
        self._name = lock
        self._forgotten_after_s = forgotten_after_s
        self._lock = threading.Lock()
        self._readings: dict[Path, _Reading] = {}

    def begin(self, root: Path, part: str) -> None:
        """Note that this process reads a part of a job, or continues to.

        Args:
            root: the job's folder.
            part: what is read: the log of an instance, or the job's state.
        """
        with self._lock, suppress(OSError):  # the folder may be gone, or the disk full
            reading = self._readings.get(root)
            if reading is None:
                with ExitStack() as stack:
                    if not stack.enter_context(locked(root / self._name, shared=True, waits=False)):
                        return
                    reading = self._readings[root] = _Reading(stack.pop_all())
            reading.parts.add(part)
            os.utime(root / self._name)

    def end(self, root: Path, part: str) -> None:
        """Note that a part has been read to its end."""
        with self._lock:
            reading = self._readings.get(root)
            if reading is None:
                return
            reading.parts.discard(part)
            if not reading.parts:
                self._readings.pop(root).held.close()

    @contextmanager
    def kept_out(self, root: Path) -> Iterator[bool]:
        """Exclude readers from a job's folder; gives False if any process is reading the job."""
        with locked(root / self._name, waits=False) as is_ours:
            yield is_ours or time.time() - (root / self._name).stat().st_mtime > self._forgotten_after_s

    def close(self) -> None:
        """Release all locks."""
        with self._lock:
            for reading in self._readings.values():
                reading.held.close()
            self._readings.clear()
