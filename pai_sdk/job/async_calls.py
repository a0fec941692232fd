"""From worker threads to an event loop: wake it, or call a backend for it. No thread waits for a loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TypeVar

from pai_sdk.base.retry import one_attempt
from pai_sdk.errors import PaiError
from pai_sdk.job.polling import FollowPolicy, PollState

__all__ = ["ask", "waking"]

T = TypeVar("T")


@contextmanager
def waking(set_wake: Callable[[Callable[[], None]], None]) -> Iterator[asyncio.Event]:
    """Give an event of the running loop that worker threads set.

    Args:
        set_wake: takes the function that they call; at the end, one that does nothing.

    Example:
        >>> async def next_update(stream):
        ...     with waking(stream.set_wake) as news:
        ...         await news.wait()
    """
    loop, news = asyncio.get_running_loop(), asyncio.Event()
    set_wake(partial(_tell, loop, news.set))
    try:
        yield news
    finally:
        set_wake(lambda: None)


async def ask(call: Callable[[], T], endpoint: str, policy: FollowPolicy) -> T:
    """Make a request in a worker thread. A fault that may pass is repeated, as a follower does.

    If the task is cancelled, a request that was not begun is not made. One under way ends by itself, and its
    answer goes nowhere.

    Args:
        call: makes the request.
        endpoint: the service that it goes to.
        policy: the threads, and how long a fault is waited out.

    Raises:
        PaiError: as `call`.
    """
    poll = PollState(policy)
    while True:
        try:
            return await _attempt(call, endpoint, policy, is_retry=poll.trouble is not None)
        except PaiError as fault:
            pause_s = poll.pause_after(fault, may_pass=fault.may_pass)
            if pause_s is None:
                raise
        await asyncio.sleep(pause_s)


async def _attempt(call: Callable[[], T], endpoint: str, policy: FollowPolicy, *, is_retry: bool) -> T:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def step() -> None:
        if future.cancelled():
            return
        try:
            with one_attempt():
                answer = call()
        except Exception as fault:
            _tell(loop, partial(_finish, future.set_exception, fault))
        else:
            _tell(loop, partial(_finish, future.set_result, answer))

    def _finish(give: Callable[[T], None] | Callable[[BaseException], None], what: T | Exception) -> None:
        if not future.done():  # it may be cancelled
            give(what)  # type: ignore[arg-type] # each is given its own

    policy.schedule.call_later(step, endpoint=endpoint, is_retry=is_retry)
    return await future


def _tell(loop: asyncio.AbstractEventLoop, what: Callable[[], object]) -> None:
    with suppress(RuntimeError):  # the loop has been closed, and nobody waits any more
        loop.call_soon_threadsafe(what)
