"""Passes results of worker threads to the consumer that waits for them: a thread or an event loop.

worker threads ──put──▶ UpdateQueue ──wait──▶ a thread; it blocks until the deadline at most
└─wait_async──▶ a task of asyncio; no thread waits
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Generic, TypeVar

from pai_sdk._client.job.follow.polling import FollowPolicy, PollState
from pai_sdk._client.job.follow.workers import Schedule
from pai_sdk._core.retry import single_attempt
from pai_sdk.errors import PaiError

T = TypeVar("T")


class UpdateQueue(Generic[T]):
    """A queue with any number of producers and one consumer, which is a thread or a task.

    Locks: `changed` guards the queue. It is reentrant, so that the owner can guard its own fields with it.
    Within it, only the lock of the event loop is acquired, which `put` wakes.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.changed = threading.Condition()
        self._schedule = schedule  # the clock; it also lets a waiting main thread handle Ctrl-C
        self._items: deque[T] = deque()
        self._wake_loop: Callable[[], None] | None = None

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> None:
        """Appends an item and wakes the consumer."""
        with self.changed:
            self._items.append(item)
            self.changed.notify_all()
            if self._wake_loop is not None:
                self._wake_loop()  # does not run the task: `call_soon_threadsafe` only schedules it
                self._wake_loop = None

    def take(self) -> T:
        """Removes and returns the first item; there must be one."""
        with self.changed:
            return self._items.popleft()

    def clear(self) -> None:
        """Drops all items."""
        with self.changed:
            self._items.clear()

    def wait(self, deadline: float | None) -> bool:
        """Blocks until there is an item; returns False at the deadline, by the clock of the schedule."""
        remaining_s = None if deadline is None else max(0.0, deadline - self._schedule.now())
        return self._schedule.wait(self.changed, lambda: bool(self._items), remaining_s)

    async def wait_async(self) -> None:
        """Suspends the task until there is an item."""
        import asyncio  # for weight: an asyncio program has it

        loop, has_item = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop has been closed, and no task waits any more
                loop.call_soon_threadsafe(has_item.set)

        with self.changed:
            # Checked and registered under one lock: a `put` in between would wake nobody.
            if self._items:
                return
            self._wake_loop = wake
        await has_item.wait()


async def ask(call: Callable[[], T], endpoint: str, policy: FollowPolicy) -> T:
    """Makes a request in a worker thread, and repeats it after transient errors."""
    import asyncio  # for weight, as above

    poll = PollState(policy)
    while True:
        future: Future[T] = Future()
        step = partial(_attempt, call, future)
        policy.schedule.call_later(step, endpoint=endpoint, is_retry=poll.trouble is not None)
        try:
            # A cancelled task cancels the future: a request that has not started is not made, and the response of
            # one under way is dropped.
            return await asyncio.wrap_future(future)
        except PaiError as error:
            pause_s = poll.pause_after(error, may_pass=error.may_pass)
            if pause_s is None:
                raise
        await asyncio.sleep(pause_s)


def _attempt(call: Callable[[], T], future: Future[T]) -> None:
    if not future.set_running_or_notify_cancel():
        return  # the task was cancelled before a thread was free
    try:
        with single_attempt():
            response = call()
    except Exception as error:  # of any kind: a future without a result would suspend the task for ever
        future.set_exception(error)
    else:
        future.set_result(response)
