"""Watches many jobs: their snapshots as they change, until all have ended; for threads and for asyncio."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from pai_sdk.job.async_calls import waking
from pai_sdk.job.job_poller import News, Seat, shared_pollers
from pai_sdk.job.polling import EndCheck, FollowPolicy
from pai_sdk.schemas.record import JobRecord

if TYPE_CHECKING:
    from pai_sdk.job.training_job import TrainingJob

__all__ = ["JobWatch", "same_job"]

Key: TypeAlias = tuple[int, str]


def same_job(job: TrainingJob) -> Key:
    """What two handles on the same job have in common."""
    return id(job._backend), job.id


class JobWatch:
    """One wait for many jobs. `updates` gives what comes; close the watch at the end, in any case.

    Threads: `_hear` is called by worker threads, all else by the thread or the event loop that waits. `_changed`
    guards the queue only. What was taken from the queue belongs to the one who waits.

    Args:
        jobs: the jobs; those that have ended, as far as is known, are not asked for.
        policy: the times.

    Attributes:
        ended: the last snapshot of each job that has ended, by `same_job`.
        lost: why nothing is known of a job any more.
    """

    def __init__(self, jobs: Iterable[TrainingJob], policy: FollowPolicy) -> None:
        self.ended: dict[Key, JobRecord] = {}
        self.lost: dict[Key, Exception] = {}
        self._policy = policy
        self._jobs: dict[Key, TrainingJob] = {}
        self._seats: dict[Key, Seat] = {}
        self._ends: dict[Key, EndCheck] = {}
        self._changed = threading.Condition()
        self._queue: deque[tuple[Key, News]] = deque()
        self._wake: Callable[[], None] = lambda: None
        for job in jobs:
            self.add(job)

    def __enter__(self) -> JobWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, job: TrainingJob) -> None:
        """Watch one more job."""
        key = same_job(job)
        if key in self._jobs:
            return
        self._jobs[key], self._ends[key] = job, EndCheck(self._policy)
        if job._record is not None and job._record.status.is_terminal:
            self._hear(key, job._record)
            return
        seat = self._seats[key] = shared_pollers().join(job._backend, self._policy, job.id)
        seat.listen(partial(self._hear, key), job._record)

    @property
    def unfinished(self) -> list[TrainingJob]:
        """The jobs that have not ended, as far as is known."""
        return [job for key, job in self._jobs.items() if key not in self.ended and key not in self.lost]

    @property
    def trouble(self) -> BaseException | None:
        """The error of the last request, if there was no answer since."""
        return next((trouble for seat in self._seats.values() if (trouble := seat.trouble) is not None), None)

    def updates(self, *, deadline: float | None = None) -> Iterator[tuple[TrainingJob, JobRecord | Exception]]:
        """Each job whose snapshot has changed, until all have ended, or until the deadline.

        Args:
            deadline: on the clock of the policy's schedule.
        """
        while self.unfinished or self._queue:
            left_s = None if deadline is None else max(0.0, deadline - self._policy.schedule.now())
            if not self._policy.schedule.wait(self._changed, lambda: bool(self._queue), left_s):
                return
            yield from self._taken()

    async def updates_async(self) -> AsyncGenerator[tuple[TrainingJob, JobRecord | Exception], None]:
        """The same for asyncio; no thread waits."""
        with waking(self._set_wake) as news:
            while self.unfinished or self._queue:
                news.clear()
                if not self._queue:
                    await news.wait()
                for update in self._taken():
                    yield update

    def close(self) -> None:
        """Leave all pollers. Requests under way end by themselves, and their answers go nowhere."""
        for seat in self._seats.values():
            seat.close()
        self._seats.clear()

    def _set_wake(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def _hear(self, key: Key, news: News) -> None:
        with self._changed:
            self._queue.append((key, news))
            self._changed.notify_all()
        self._wake()

    def _taken(self) -> Sequence[tuple[TrainingJob, JobRecord | Exception]]:
        with self._changed:
            taken = [*self._queue]
            self._queue.clear()
        found = []
        for key, news in taken:
            if key in self.ended or key in self.lost:
                continue
            job = self._jobs[key]
            if not isinstance(news, JobRecord):
                self.lost[key] = news
            else:
                job._keep(news)
                if self._ends[key].has_ended(news):
                    self.ended[key] = news
            if (key in self.ended or key in self.lost) and (seat := self._seats.pop(key, None)) is not None:
                seat.close()
            found.append((job, news))
        return found
