"""The worker threads that follow jobs."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack

import pytest

from pai_sdk._client.job.follow.workers import Workers
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.interpreter


class InterruptedLock:
    """A lock. Ctrl-C comes just as it is let go of for the first time, as a condition does before it waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_first = True

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        return self._lock.acquire(blocking, timeout)

    def release(self) -> None:
        self._lock.release()
        if self._is_first:
            self._is_first = False
            raise KeyboardInterrupt

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def test_an_interrupt_while_a_wait_begins_stays_an_interrupt() -> None:
    lock = InterruptedLock()
    news = threading.Condition(lock)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        Workers().wait(news, lambda: False, 0.01)
    assert lock.acquire(blocking=False), "no other thread can go on"


def test_another_fault_while_somebody_waits_is_reported() -> None:
    def is_there() -> bool:
        raise RuntimeError("a fault of the question")

    with pytest.raises(RuntimeError, match="a fault of the question"):
        Workers().wait(threading.Condition(), is_there, 0.01)


def test_a_step_that_wakes_a_thread_which_has_just_stopped_waiting_is_done_all_the_same() -> None:
    idle_s, done = 0.05, threading.Event()

    class Skipping(Workers):
        skipped_s = 0.0

        def now(self) -> float:
            return time.monotonic() + self.skipped_s

    class TooLate(threading.Condition):
        """A step comes when the wait of an idle thread is over and it has not gone on yet: it hears of nothing."""

        is_late = False

        def wait(self, timeout: float | None = None) -> bool:
            was_woken = super().wait(timeout)
            if timeout == idle_s and not was_woken and not done.is_set():
                self.is_late = True
                workers.call_later(done.set)
                self.is_late = False
            return was_woken

        def notify(self, n: int = 1) -> None:
            if not self.is_late:
                super().notify(n)

    workers = Skipping(2, spare=0, idle_s=idle_s)
    workers._changed = TooLate()
    hour_later = threading.Event()
    workers.call_later(hour_later.set, 3600)  # one thread waits for this, and the other idles
    workers.call_later(lambda: None)
    try:
        assert done.wait(PATIENCE_S)
        assert not hour_later.is_set()
    finally:
        workers.skipped_s = 3601
        workers.call_later(lambda: None)
    assert hour_later.wait(PATIENCE_S)


def test_an_endpoint_that_failed_has_two_threads_until_it_answers() -> None:
    workers, over, begun = Workers(6, spare=2), threading.Event(), threading.Semaphore(0)
    running: list[int] = []

    def hang() -> None:
        running.append(1)
        begun.release()
        over.wait(PATIENCE_S)

    for _ in range(10):
        workers.call_later(hang, endpoint="down", is_retry=True)
    assert begun.acquire(timeout=PATIENCE_S)
    assert begun.acquire(timeout=PATIENCE_S)
    others = [threading.Event() for _ in range(20)]
    for other in others:
        workers.call_later(other.set, endpoint="down")
    assert all(other.wait(PATIENCE_S) for other in others), "its first questions are asked all the same"
    assert len(running) == 2
    over.set()
    assert all(begun.acquire(timeout=PATIENCE_S) for _ in range(8)), "and all are done in the end"


def test_no_endpoint_has_all_answers_that_are_held_back() -> None:
    workers = Workers(8, spare=2)
    with ExitStack() as held:
        granted = [held.enter_context(workers.long_poll_slot("one")) for _ in range(8)]
        assert granted == [True] * 5 + [False] * 3
        assert held.enter_context(workers.long_poll_slot("another"))
        assert not held.enter_context(workers.long_poll_slot("a third"))
    with workers.long_poll_slot("one") as granted_again:
        assert granted_again


def test_what_is_known_of_endpoints_does_not_grow() -> None:
    workers, done = Workers(2, spare=0), threading.Semaphore(0)
    for number in range(50):
        workers.call_later(lambda: done.release(), endpoint=f"https://{number}.example")
    assert all(done.acquire(timeout=PATIENCE_S) for _ in range(50))
    until(lambda: not workers._endpoints)
