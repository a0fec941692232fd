"""Time that is made up: steps are done one after another, and an hour passes at once."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pai_sdk._client.job.follow.workers import Step


class SimulatedTime:
    """A schedule for one follower. The thread that waits runs the steps that are due, in the order of their time.

    Attributes:
        time: seconds since the beginning.
        due: what is to be done, and when.
    """

    def __init__(self) -> None:
        self.time = 0.0
        self.due: list[tuple[float, int, Step]] = []
        self._order = itertools.count()

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds

    def call_later(self, step: Step, delay_s: float = 0.0, *, endpoint: str = "", is_retry: bool = False) -> None:
        heapq.heappush(self.due, (self.time + delay_s, next(self._order), step))

    def wait(self, news: threading.Condition, is_there: Callable[[], bool], timeout_s: float | None) -> bool:
        deadline = float("inf") if timeout_s is None else self.time + timeout_s
        while not is_there():
            assert self.due or timeout_s is not None, "nothing will ever happen"
            if not self.due or self.due[0][0] > deadline or self.time > deadline:
                self.time = max(self.time, deadline)
                return False
            self.step()
        return True

    def step(self) -> None:
        """Do what is due next."""
        due, _, step = heapq.heappop(self.due)
        self.time = max(self.time, due)  # the step before may have taken its time
        step()

    @contextmanager
    def long_poll_slot(self, endpoint: str = "", *, keep_free: int = 0) -> Iterator[bool]:
        yield True
