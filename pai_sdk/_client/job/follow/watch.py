"""Watches many jobs until all have finished, for threads and for asyncio."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator
from functools import partial
from typing import Generic, Protocol, TypeAlias, TypeVar

from pai_sdk._client.backend.base import Backend
from pai_sdk._client.job.follow.poller import Subscription, Update, shared_pollers
from pai_sdk._client.job.follow.polling import EndCheck, FollowPolicy
from pai_sdk._client.job.follow.updates import UpdateQueue
from pai_sdk._wire.pai.record import JobRecord

Key: TypeAlias = tuple[int, str]


class JobHandle(Protocol):
    """The parts of a `TrainingJob` that a watch uses."""

    id: str
    backend: Backend
    last_record: JobRecord | None


Job = TypeVar("Job", bound=JobHandle)


def same_job(job: JobHandle) -> Key:
    """Returns a key that is equal for all handles on the same job."""
    # With the backend object: jobs of two services may have equal ids.
    return id(job.backend), job.id


class JobWatch(Generic[Job]):
    """One wait for many jobs. `updates` yields their changes; the watch must be closed.

    Threads: worker threads put updates into the queue. Only the waiting thread or task uses everything else.
    """

    def __init__(self, jobs: Iterable[Job], policy: FollowPolicy) -> None:
        self.finished: dict[Key, JobRecord] = {}  # the last snapshots, by `same_job`
        self.lost: dict[Key, Exception] = {}  # jobs that can no longer be polled
        self._policy = policy
        self._jobs: dict[Key, Job] = {}
        self._subscriptions: dict[Key, Subscription] = {}
        self._end_checks: dict[Key, EndCheck] = {}
        self._updates: UpdateQueue[tuple[Key, Update]] = UpdateQueue(policy.schedule)
        for job in jobs:
            self.add(job)

    def __enter__(self) -> JobWatch[Job]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, job: Job) -> None:
        """Adds a job to the watch."""
        key = same_job(job)
        if key in self._jobs:
            return
        self._jobs[key], self._end_checks[key] = job, EndCheck(self._policy)
        # A final snapshot needs no request; it goes through the queue, as all updates do.
        if job.last_record is not None and job.last_record.status.is_terminal:
            self._on_update(key, job.last_record)
            return
        self._subscriptions[key] = shared_pollers().subscribe(
            job.backend, self._policy, job.id, partial(self._on_update, key), job.last_record
        )

    @property
    def unfinished(self) -> list[Job]:
        """Returns the jobs that have neither finished nor been lost."""
        return [job for key, job in self._jobs.items() if key not in self.finished and key not in self.lost]

    @property
    def trouble(self) -> BaseException | None:
        """Returns the error of the last request; None after a response."""
        return next(
            (
                trouble
                for subscription in self._subscriptions.values()
                if (trouble := subscription.trouble) is not None
            ),
            None,
        )

    def updates(self, *, deadline: float | None = None) -> Iterator[tuple[Job, Update]]:
        """Yields each changed job with its newest snapshot, until all have finished, or until the deadline."""
        while changed := self.next_updates(deadline=deadline):
            yield from changed

    def next_updates(self, *, deadline: float | None = None) -> list[tuple[Job, Update]]:
        """Returns all changed jobs, after waiting for the first change; none at the deadline."""
        # For callers that do other work between two calls: a loop over `updates` that exits early loses updates.
        while (self._updates or self.unfinished) and self._updates.wait(deadline):
            if changed := self._drain():
                return changed
        return []

    async def updates_async(self) -> AsyncGenerator[tuple[Job, Update], None]:
        """Yields each changed job in an asyncio program; no thread waits."""
        while self._updates or self.unfinished:
            await self._updates.wait_async()
            for item in self._drain():
                yield item

    async def wait_async(self) -> None:
        """Waits until all jobs have finished."""
        async for _ in self.updates_async():
            pass

    def close(self) -> None:
        """Closes all subscriptions; the responses of requests under way are dropped."""
        for subscription in self._subscriptions.values():
            subscription.close()
        self._subscriptions.clear()

    def _on_update(self, key: Key, update: Update) -> None:
        # In a worker thread: only the queue is used, so the other fields need no lock.
        self._updates.put((key, update))

    def _drain(self) -> list[tuple[Job, Update]]:
        # Only the last update of each job: a job in `finished` must not be yielded with an earlier snapshot.
        changed: dict[Key, tuple[Job, Update]] = {}
        while self._updates:
            key, update = self._updates.take()
            if key in self.finished or key in self.lost:
                continue  # queued before the subscription was closed
            job = self._jobs[key]
            if not isinstance(update, JobRecord):
                self.lost[key] = update
            else:
                job.last_record = update
                if self._end_checks[key].has_ended(update):
                    self.finished[key] = update
            if (key in self.finished or key in self.lost) and key in self._subscriptions:
                self._subscriptions.pop(key).close()
            changed[key] = (job, update)
        return [*changed.values()]
