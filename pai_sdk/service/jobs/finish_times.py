"""When jobs have finished, by a clock that is never set."""

from __future__ import annotations

import threading
import time

__all__ = ["FinishTimes"]

_MAX_JOBS = 10_000


class FinishTimes:
    """The times at which the latest jobs finished, for readers that must have seen what they wrote last.

    Safe to use from several threads.

    Example:
        >>> times = FinishTimes()
        >>> times.add("train1")
        >>> times.of("train1") == times.of(None), times.of("train2")
        (True, -inf)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards both
        self._times: dict[str, float] = {}
        self._last = float("-inf")

    def add(self, job_id: str) -> None:
        """Record that a job finishes now."""
        with self._lock:
            self._times.pop(job_id, None)  # so that the oldest is the first
            self._last = self._times[job_id] = time.monotonic()
            if len(self._times) > _MAX_JOBS:
                del self._times[next(iter(self._times))]

    def of(self, job_id: str | None) -> float:
        """Returns the time of one job, or of the last one of all; minus infinity where none is recorded."""
        with self._lock:
            return self._last if job_id is None else self._times.get(job_id, float("-inf"))
