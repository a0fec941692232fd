"""A few threads for everything that is followed: however many jobs and instances, they do not become more."""

from __future__ import annotations

import functools
import heapq
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TypeAlias

__all__ = ["Schedule", "Step", "Workers", "shared_workers"]

Step: TypeAlias = Callable[[], None]


class Schedule(Protocol):
    """When steps are done, and by what clock. A test has one whose time is made up."""

    def now(self) -> float:
        """Seconds on a clock that nobody sets."""
        ...

    def later(self, step: Step, delay_s: float = 0.0) -> None:
        """Do a step once, as soon as so many seconds have passed."""
        ...

    def wait(self, news: threading.Condition, is_there: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait until something is there, and somebody has notified of it; False when it was not in time."""
        ...

    def may_hold(self, *, keep_free: int = 0) -> AbstractContextManager[bool]:
        """Whether a step may ask for an answer that is held back; only if so many others still could."""
        ...


class Workers:
    """Does steps in a bounded number of threads, which end by themselves when there is nothing to do.

    A step may wait for an answer that a service holds back, but never all threads do: some always remain for steps
    that are quick, so that what comes new is served at once.

    Args:
        limit: the most threads.
        spare: so many of them never wait for an answer that is held back.
        idle_s: how long a thread stays without work.

    Example:
        >>> done = threading.Event()
        >>> Workers().later(done.set, 0.01)
        >>> done.wait(60)
        True
    """

    def __init__(self, limit: int = 16, *, spare: int = 4, idle_s: float = 0.5) -> None:
        self._limit = limit
        self._holds_left = limit - spare
        self._idle_s = idle_s
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, Step]] = []
        self._order = itertools.count()
        self._threads = 0
        self._waiting = 0
        self._has_timekeeper = False

    def now(self) -> float:
        """Seconds on a clock that nobody sets."""
        return time.monotonic()

    def later(self, step: Step, delay_s: float = 0.0) -> None:
        """Do a step once, as soon as so many seconds have passed. It must not raise."""
        with self._changed:
            due = self.now() + delay_s
            is_next = not self._due or due < self._due[0][0]
            heapq.heappush(self._due, (due, next(self._order), step))
            if self._waiting and delay_s <= 0:
                self._changed.notify()
            elif self._waiting and is_next:
                self._changed.notify_all()  # the timekeeper among them, who waits for a later time
            elif not self._waiting:
                self._one_more()

    def wait(self, news: threading.Condition, is_there: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait until something is there, and somebody has notified of it; False when it was not in time."""
        try:
            with news:
                return news.wait_for(is_there, timeout_s)
        except RuntimeError as fault:
            # Ctrl-C may come just when the condition has let go of its lock: then the end of `with`, which lets go
            # of it again, fails, and nobody would know of the interrupt.
            if isinstance(fault.__context__, KeyboardInterrupt):
                raise fault.__context__ from None
            raise

    @contextmanager
    def may_hold(self, *, keep_free: int = 0) -> Iterator[bool]:
        """Whether a step may ask for an answer that is held back; only if so many others still could."""
        with self._changed:
            granted = self._holds_left > keep_free
            self._holds_left -= granted
        try:
            yield granted
        finally:
            with self._changed:
                self._holds_left += granted

    def _work(self) -> None:
        while (step := self._next_step()) is not None:
            step()

    def _next_step(self) -> Step | None:
        """The next step, when its time has come; None when the thread is no longer needed."""
        with self._changed:
            while True:
                left_s = self._due[0][0] - self.now() if self._due else None
                if left_s is not None and left_s <= 0:
                    step = heapq.heappop(self._due)[2]
                    self._see_to_the_next()
                    return step
                # One thread waits for the next due time. The others need not wake for it.
                keeps_time = left_s is not None and not self._has_timekeeper
                self._has_timekeeper |= keeps_time
                self._waiting += 1
                was_woken = self._changed.wait(left_s if keeps_time else self._idle_s)
                self._waiting -= 1
                if keeps_time:
                    self._has_timekeeper = False
                elif not was_woken and not self._is_needed():
                    self._threads -= 1
                    return None

    def _is_needed(self) -> bool:
        """Whether a thread that has waited in vain stays: nobody else keeps the time, or a step is due.

        Whoever brought that step may have woken this very thread, a moment after it had stopped waiting.
        """
        if not self._due:
            return False
        return not self._has_timekeeper or self._due[0][0] <= self.now()

    def _see_to_the_next(self) -> None:
        """Whoever goes to work leaves the clock, or a step that is due as well, to another."""
        if not self._due:
            return
        if self._waiting:
            self._changed.notify()
        else:
            self._one_more()

    def _one_more(self) -> None:
        if self._threads < self._limit:
            self._threads += 1
            threading.Thread(target=self._work, name=f"pai-log-{self._threads}", daemon=True).start()


@functools.cache
def shared_workers() -> Workers:
    """The threads of this process: what bounds them has to be one thing for all streams."""
    return Workers()


# A child of a fork has none of its parent's threads.
os.register_at_fork(after_in_child=shared_workers.cache_clear)
