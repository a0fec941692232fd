"""A few threads for everything that is followed: however many jobs and instances, they do not become more."""

from __future__ import annotations

import functools
import heapq
import itertools
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

__all__ = ["Schedule", "Step", "Workers", "shared_workers"]

Step: TypeAlias = Callable[[], None]

_MOST_RETRIES = 2  # of one endpoint at a time: one that never answers holds each of them for half a minute


class Schedule(Protocol):
    """When steps are done, and by what clock. A test has one whose time is made up."""

    def now(self) -> float:
        """Monotonic time in seconds."""
        ...

    def later(self, step: Step, delay_s: float = 0.0, *, endpoint: str = "", is_retry: bool = False) -> None:
        """Do a step once, after a delay.

        Args:
            step: what to do.
            delay_s: the delay, in seconds.
            endpoint: the service that the step asks; the steps of one endpoint never take all threads.
            is_retry: the last answer of the endpoint was an error; very few such steps run at the same time.
        """
        ...

    def wait(self, news: threading.Condition, is_there: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait until something is there, and somebody has notified of it; False when it was not in time."""
        ...

    def may_hold(self, endpoint: str = "", *, keep_free: int = 0) -> AbstractContextManager[bool]:
        """Whether a step may ask for an answer that is held back; only if so many others still could."""
        ...


@dataclass(frozen=True)
class _Task:
    step: Step
    endpoint: str
    is_retry: bool


@dataclass
class _Endpoint:
    """The threads that one endpoint has now, and the tasks that are due and wait for one of them to end."""

    running: int = 0
    retrying: int = 0
    held: int = 0
    waiting: deque[_Task] = field(default_factory=deque)
    waiting_retries: deque[_Task] = field(default_factory=deque)

    @property
    def is_idle(self) -> bool:
        return not (self.running or self.held or self.waiting or self.waiting_retries)


class Workers:
    """Does steps in a bounded number of threads, which end by themselves when there is nothing to do.

    A step may wait for an answer that a service holds back, but never all threads do: some always remain for steps
    that are quick, so that what comes new is served at once. For the same reason one endpoint never has all
    threads, and has very few once it fails: a service that is down must not stop the reading of other services.

    Args:
        limit: the most threads.
        spare: threads that never wait for an answer that is held back, nor serve the endpoint that has the others.
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
        self._most_of_one = limit - spare
        self._most_held_of_one = limit - spare - spare // 2
        self._idle_s = idle_s
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, _Task]] = []
        self._endpoints: dict[str, _Endpoint] = {}
        self._order = itertools.count()
        self._threads = 0
        self._waiting = 0
        self._has_timekeeper = False

    def now(self) -> float:
        """Monotonic time in seconds."""
        return time.monotonic()

    def later(self, step: Step, delay_s: float = 0.0, *, endpoint: str = "", is_retry: bool = False) -> None:
        """Do a step once, after a delay. It must not raise. See `Schedule.later`."""
        with self._changed:
            due = self.now() + delay_s
            is_next = not self._due or due < self._due[0][0]
            heapq.heappush(self._due, (due, next(self._order), _Task(step, endpoint, is_retry)))
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
    def may_hold(self, endpoint: str = "", *, keep_free: int = 0) -> Iterator[bool]:
        """Whether a step may ask for an answer that is held back; only if so many others still could."""
        with self._changed:
            mine = self._endpoints.setdefault(endpoint, _Endpoint())
            granted = min(self._holds_left, self._most_held_of_one - mine.held) > keep_free
            self._holds_left -= granted
            mine.held += granted
        try:
            yield granted
        finally:
            with self._changed:
                self._holds_left += granted
                mine.held -= granted
                self._forget_if_idle(endpoint)

    def _work(self) -> None:
        while (task := self._next_task()) is not None:
            task.step()
            self._end(task)

    def _next_task(self) -> _Task | None:
        """The next task, when its time has come; None when the thread is no longer needed."""
        with self._changed:
            while True:
                left_s = self._due[0][0] - self.now() if self._due else None
                if left_s is not None and left_s <= 0:
                    task = heapq.heappop(self._due)[2]
                    if not self._begin(task):
                        continue
                    self._see_to_the_next()
                    return task
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

    def _begin(self, task: _Task) -> bool:
        """Count a task as running; False if its endpoint has enough threads, and then the task waits for one."""
        endpoint = self._endpoints.setdefault(task.endpoint, _Endpoint())
        if task.is_retry and endpoint.retrying >= _MOST_RETRIES:
            endpoint.waiting_retries.append(task)
            return False
        if endpoint.running >= self._most_of_one:
            (endpoint.waiting_retries if task.is_retry else endpoint.waiting).append(task)
            return False
        endpoint.running += 1
        endpoint.retrying += task.is_retry
        return True

    def _end(self, task: _Task) -> None:
        """Count a task as done, and make one that has waited for this due."""
        with self._changed:
            endpoint = self._endpoints[task.endpoint]
            endpoint.running -= 1
            endpoint.retrying -= task.is_retry
            if endpoint.waiting:
                self._make_due(endpoint.waiting.popleft())
            if endpoint.waiting_retries and endpoint.retrying < _MOST_RETRIES:
                self._make_due(endpoint.waiting_retries.popleft())
            self._forget_if_idle(task.endpoint)

    def _make_due(self, task: _Task) -> None:
        # The thread that calls this looks for its next task at once, so none has to be woken.
        heapq.heappush(self._due, (self.now(), next(self._order), task))

    def _forget_if_idle(self, name: str) -> None:
        endpoint = self._endpoints.get(name)
        if endpoint is not None and endpoint.is_idle:
            del self._endpoints[name]

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
if sys.platform != "win32":
    os.register_at_fork(after_in_child=shared_workers.cache_clear)
