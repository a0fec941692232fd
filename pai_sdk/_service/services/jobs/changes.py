"""Changes of jobs: finish times, and notifications of long polls, which wait without a thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

_MAX_JOBS = 10_000  # finish times of older jobs are dropped: readers have long read their files


class Subscription:
    """The changes that one request waits for. Register, then read, then wait: so no change is missed."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Wakes the request."""
        self._event.set()

    async def wait(self, timeout_s: float) -> bool:
        """Waits for a change; returns False after the timeout. The next wait is for later changes."""
        try:
            await asyncio.wait_for(self._event.wait(), timeout_s)
        except (TimeoutError, asyncio.TimeoutError):
            return False
        # Cleared before the caller reads: a change after this line sets it again, and is not lost.
        self._event.clear()
        return True


class Changes:
    """The waiting requests, by job. `publish` is thread-safe; all other methods must run in the event loop.

    There is no lock: `publish` schedules the notification on the loop, and only the loop accesses the sets.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, set[Subscription]] = defaultdict(set)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.closed = False

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Sets the event loop of the requests; before this call, `publish` has no effect."""
        self._loop = loop

    def publish(self, job_id: str) -> None:
        """Notifies requests of a change; call it after the change is committed."""
        # Read once: a local variable cannot become None between the check and the call.
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._notify, job_id)

    @contextmanager
    def of(self, *job_ids: str) -> Iterator[Subscription]:
        """Registers for the changes of one or more jobs during the block."""
        subscription = Subscription()
        for job_id in job_ids:
            self._waiting[job_id].add(subscription)
        try:
            yield subscription
        finally:
            for job_id in job_ids:
                waiting = self._waiting[job_id]
                waiting.discard(subscription)
                # Otherwise an empty set would remain for each job that was ever waited for.
                if not waiting:
                    del self._waiting[job_id]

    def release(self) -> None:
        """Wakes all waiting requests; later requests do not wait. Must run in the loop."""
        self.closed = True
        for job_id in list(self._waiting):
            self._notify(job_id)

    def _notify(self, job_id: str) -> None:
        for subscription in self._waiting.get(job_id, ()):
            subscription.notify()


class FinishTimes:
    """The finish times of the latest jobs, for readers that must have read their last files. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards both
        self._times: dict[str, float] = {}
        self._last = float("-inf")

    def add(self, job_id: str) -> None:
        """Records that a job finishes now."""
        with self._lock:
            self._times.pop(job_id, None)  # moves it to the end: the first entry is the oldest
            self._last = self._times[job_id] = time.monotonic()
            if len(self._times) > _MAX_JOBS:
                del self._times[next(iter(self._times))]

    def of(self, job_id: str | None) -> float:
        """Returns the time of one job, or of the last one of all; minus infinity if none is recorded."""
        with self._lock:
            return self._last if job_id is None else self._times.get(job_id, float("-inf"))
