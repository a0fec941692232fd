"""A bounded thread pool for all followers of a process, for any number of jobs and instances."""

from __future__ import annotations

import functools
import heapq
import itertools
import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

Step: TypeAlias = Callable[[], None]

_SIGNAL_CHECK_S = 1.0  # the longest delay of a missed Ctrl-C
# Of one endpoint at the same time. An endpoint that never responds keeps a thread for half a minute each time.
_MAX_RETRIES = 2


class Schedule(Protocol):
    """Runs steps later, by its own clock. Tests use one with simulated time."""

    def now(self) -> float:
        """Returns monotonic time in seconds."""
        ...

    def call_later(self, step: Step, delay_s: float = 0.0, *, endpoint: str = "", is_retry: bool = False) -> None:
        """Runs a step once, after a delay; the steps of one `endpoint`, a service, never use all threads.

        `is_retry`: the last response of the endpoint was an error; very few such steps run at the same time.
        """
        ...

    def wait(self, news: threading.Condition, is_ready: Callable[[], bool], timeout_s: float | None) -> bool:
        """Waits for a notification until `is_ready()` is true; False after the timeout."""
        ...

    def long_poll_slot(self, endpoint: str = "", *, keep_free: int = 0) -> AbstractContextManager[bool]:
        """Yields whether a step is allowed to make a long poll: if more than `keep_free` slots are free."""
        ...


@dataclass(frozen=True)
class _Task:
    step: Step
    endpoint: str
    is_retry: bool


@dataclass
class _Endpoint:
    """The threads that one endpoint uses, and its due tasks that wait for a thread."""

    running: int = 0
    retrying: int = 0
    long_polls: int = 0
    waiting: deque[_Task] = field(default_factory=deque)
    waiting_retries: deque[_Task] = field(default_factory=deque)

    @property
    def is_idle(self) -> bool:
        return not (self.running or self.long_polls or self.waiting or self.waiting_retries)


class Workers:
    """Runs steps in a bounded number of threads, which exit when there is no work.

        step    scheduled (heap) -> due -> running -> done
                                     ^-> queued at its endpoint, which has enough threads
        thread  started -> idle <-> running -> exited, after `idle_s` without work
                            idle: one is the timekeeper and waits for the first due time; the others wait for work

    Locks: `_changed` guards all fields. A thread holds it to pop or finish a task, never while a step runs.
    A step can call `call_later` while it holds a lock of its own, never the other way round. All private methods
    but `_work`, `_next_task` and `_release` are called with `_changed` held.
    """

    def __init__(self, limit: int = 16, *, spare: int = 4, idle_s: float = 0.5) -> None:
        self._limit = limit
        # `spare` threads never make a long poll, and never serve the endpoint that uses all the others, so that
        # new work starts at once. An endpoint that fails has very few threads: a service that is down must not
        # stop the reading of other services.
        self._free_slots = limit - spare
        # Of 16 threads with 4 spare: 12 for one endpoint, 12 long polls in all, 10 of them for one endpoint.
        self._max_per_endpoint = limit - spare
        self._max_slots_per_endpoint = limit - spare - spare // 2
        self._idle_s = idle_s
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, _Task]] = []
        self._endpoints: dict[str, _Endpoint] = {}
        self._order = itertools.count()
        self._threads = 0
        self._waiting = 0
        self._has_timekeeper = False

    def now(self) -> float:
        """Returns monotonic time in seconds."""
        return time.monotonic()

    def call_later(self, step: Step, delay_s: float = 0.0, *, endpoint: str = "", is_retry: bool = False) -> None:
        """Runs a step once, after a delay. It must not raise. See `Schedule.call_later`."""
        with self._changed:
            due = self.now() + delay_s
            is_next = not self._due or due < self._due[0][0]
            heapq.heappush(self._due, (due, next(self._order), _Task(step, endpoint, is_retry)))
            if self._waiting and delay_s <= 0:
                self._changed.notify()
            elif self._waiting and is_next:
                self._changed.notify_all()  # also the timekeeper, which waits for a later time
            elif not self._waiting:
                self._start_thread()

    def wait(self, news: threading.Condition, is_ready: Callable[[], bool], timeout_s: float | None) -> bool:
        """Waits for a notification until `is_ready()` is true; False after the timeout."""
        try:
            with news:
                return _wait_for(news, is_ready, timeout_s)
        except RuntimeError as error:
            # Ctrl-C may arrive just after the condition has released its lock. The exit of `with` then releases it
            # again, fails with this error, and would hide the interrupt.
            if isinstance(error.__context__, KeyboardInterrupt):
                raise error.__context__ from None
            raise

    @contextmanager
    def long_poll_slot(self, endpoint: str = "", *, keep_free: int = 0) -> Iterator[bool]:
        """Yields whether a step is allowed to make a long poll: if more than `keep_free` slots are free."""
        with self._changed:
            state = self._endpoints.setdefault(endpoint, _Endpoint())
            granted = min(self._free_slots, self._max_slots_per_endpoint - state.long_polls) > keep_free
            self._free_slots -= granted
            state.long_polls += granted
        try:
            yield granted
        finally:
            with self._changed:
                self._free_slots += granted
                state.long_polls -= granted
                self._remove_if_idle(endpoint)

    def _work(self) -> None:
        while (task := self._next_task()) is not None:
            task.step()
            self._release(task)

    def _next_task(self) -> _Task | None:
        """Returns the next task, when it is due; None when the thread is no longer needed."""
        with self._changed:
            while True:
                delay_s = self._due[0][0] - self.now() if self._due else None
                if delay_s is not None and delay_s <= 0:
                    task = heapq.heappop(self._due)[2]
                    if not self._admit(task):
                        continue
                    self._wake_another_thread()
                    return task
                # One thread, the timekeeper, waits for the next due time; the others need not wake for it.
                keeps_time = delay_s is not None and not self._has_timekeeper
                self._has_timekeeper |= keeps_time
                self._waiting += 1
                was_woken = self._changed.wait(delay_s if keeps_time else self._idle_s)
                self._waiting -= 1
                if keeps_time:
                    self._has_timekeeper = False
                elif not was_woken and not self._must_stay():
                    self._threads -= 1
                    return None

    def _admit(self, task: _Task) -> bool:
        """Counts a task as running; queues it and returns False if its endpoint has enough threads."""
        endpoint = self._endpoints.setdefault(task.endpoint, _Endpoint())
        if task.is_retry and endpoint.retrying >= _MAX_RETRIES:
            endpoint.waiting_retries.append(task)
            return False
        if endpoint.running >= self._max_per_endpoint:
            (endpoint.waiting_retries if task.is_retry else endpoint.waiting).append(task)
            return False
        endpoint.running += 1
        endpoint.retrying += task.is_retry
        return True

    def _release(self, task: _Task) -> None:
        """Counts a task as done, and makes a queued task of its endpoint due."""
        with self._changed:
            endpoint = self._endpoints[task.endpoint]
            endpoint.running -= 1
            endpoint.retrying -= task.is_retry
            if endpoint.waiting:
                self._make_due(endpoint.waiting.popleft())
            if endpoint.waiting_retries and endpoint.retrying < _MAX_RETRIES:
                self._make_due(endpoint.waiting_retries.popleft())
            self._remove_if_idle(task.endpoint)

    def _make_due(self, task: _Task) -> None:
        # No thread is woken: the thread that calls this pops its next task immediately.
        heapq.heappush(self._due, (self.now(), next(self._order), task))

    def _remove_if_idle(self, name: str) -> None:
        endpoint = self._endpoints.get(name)
        if endpoint is not None and endpoint.is_idle:
            del self._endpoints[name]

    def _must_stay(self) -> bool:
        """Returns whether an idle thread stays: no other thread is the timekeeper, or a step is due."""
        if not self._due:
            return False
        # A due step: its `notify` may have gone to this thread just after the wait had timed out.
        return not self._has_timekeeper or self._due[0][0] <= self.now()

    def _wake_another_thread(self) -> None:
        """Wakes a thread that waits for the next due time or pops the next task, in place of this one."""
        if not self._due:
            return
        if self._waiting:
            self._changed.notify()
        else:
            self._start_thread()

    def _start_thread(self) -> None:
        if self._threads < self._limit:
            self._threads += 1
            threading.Thread(target=self._work, name=f"pai-log-{self._threads}", daemon=True).start()


@functools.cache
def shared_workers() -> Workers:
    """Returns the pool of this process, which bounds the threads of all streams."""
    return Workers()


# A forked child has none of its parent's threads: the inherited pool would count threads that do not exist.
if sys.platform != "win32":
    os.register_at_fork(after_in_child=shared_workers.cache_clear)


def _wait_for(news: threading.Condition, is_ready: Callable[[], bool], timeout_s: float | None) -> bool:
    """Waits like `Condition.wait_for`; the main thread wakes every second to handle signals."""
    # CPython may miss a signal that arrives just before the thread starts to wait for a lock: the wait continues,
    # and the handler runs only when the thread wakes.
    if threading.current_thread() is not threading.main_thread():
        return news.wait_for(is_ready, timeout_s)
    deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
    while not news.wait_for(is_ready, min(_SIGNAL_CHECK_S, deadline - time.monotonic())):
        if time.monotonic() >= deadline:
            return False
    return True
