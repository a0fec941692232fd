"""Watches many jobs: their snapshots as they change, until all have ended; for threads and for asyncio."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator
from functools import partial
from typing import Generic, Protocol, TypeAlias, TypeVar

from pai_sdk.backend.base import Backend
from pai_sdk.job.follow.poller import Subscription, Update, shared_pollers
from pai_sdk.job.follow.polling import EndCheck, FollowPolicy
from pai_sdk.job.follow.updates import UpdateQueue
from pai_sdk.schemas.record import JobRecord

__all__ = ["JobHandle", "JobWatch", "same_job"]

Key: TypeAlias = tuple[int, str]


class JobHandle(Protocol):
    """The parts of a `TrainingJob` that a watch uses."""

    id: str
    _backend: Backend
    _record: JobRecord | None

    def _keep(self, record: JobRecord) -> None: ...


Job = TypeVar("Job", bound=JobHandle)


def same_job(job: JobHandle) -> Key:
    """The key that two handles on the same job have in common."""
    return id(job._backend), job.id


class JobWatch(Generic[Job]):
    """One wait for many jobs. `updates` yields what comes; close the watch at the end, in any case.

    Threads: worker threads put updates into the queue. All else is used by the thread or the task that waits only.

    Args:
        jobs: the jobs; those that have ended, as far as is known, are not asked for.
        policy: the times.

    Attributes:
        ended: the last snapshot of each job that has ended, by `same_job`.
        lost: the error of each job that cannot be asked for any more.
    """

    def __init__(self, jobs: Iterable[Job], policy: FollowPolicy) -> None:
        self.finished: dict[Key, JobRecord] = {}
        self.lost: dict[Key, Exception] = {}
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
        """Watch one more job."""
        key = same_job(job)
        if key in self._jobs:
            return
        self._jobs[key], self._end_checks[key] = job, EndCheck(self._policy)
        if job._record is not None and job._record.status.is_terminal:
            self._on_update(key, job._record)
            return
        self._subscriptions[key] = shared_pollers().subscribe(
            job._backend, self._policy, job.id, partial(self._on_update, key), job._record
        )

    @property
    def unfinished(self) -> list[Job]:
        """The jobs that have not ended, as far as is known."""
        return [job for key, job in self._jobs.items() if key not in self.finished and key not in self.lost]

    @property
    def trouble(self) -> BaseException | None:
        """The error of the last request, if there was no response since."""
        return next(
            (
                trouble
                for subscription in self._subscriptions.values()
                if (trouble := subscription.trouble) is not None
            ),
            None,
        )

    def updates(self, *, deadline: float | None = None) -> Iterator[tuple[Job, Update]]:
        """Each job whose snapshot has changed, with the newest one, until all have ended, or until the deadline.

        Args:
            deadline: on the clock of the policy's schedule.
        """
        while changed := self.next_updates(deadline=deadline):
            yield from changed

    def next_updates(self, *, deadline: float | None = None) -> list[tuple[Job, Update]]:
        """All jobs whose snapshot has changed by now, or the first ones that change; none at the deadline.

        For a caller that does something else between two calls. A loop over `updates` that is left early loses
        the updates that came with the last one.

        Args:
            deadline: on the clock of the policy's schedule.
        """
        while (self._updates or self.unfinished) and self._updates.wait(deadline):
            if changed := self._drain():
                return changed
        return []

    async def updates_async(self) -> AsyncGenerator[tuple[Job, Update], None]:
        """The same for asyncio; no thread waits."""
        while self._updates or self.unfinished:
            await self._updates.wait_async()
            for item in self._drain():
                yield item

    async def wait_async(self) -> None:
        """Wait until all have ended."""
        async for _ in self.updates_async():
            pass

    def close(self) -> None:
        """End all subscriptions. Requests under way end by themselves, and their responses are dropped."""
        for subscription in self._subscriptions.values():
            subscription.close()
        self._subscriptions.clear()

    def _on_update(self, key: Key, update: Update) -> None:
        self._updates.put((key, update))

    def _drain(self) -> list[tuple[Job, Update]]:
        # One for each job, the last: with an earlier one, a job that has ended would be yielded with a snapshot of
        # the time before.
        changed: dict[Key, tuple[Job, Update]] = {}
        while self._updates:
            key, update = self._updates.take()
            if key in self.finished or key in self.lost:
                continue
            job = self._jobs[key]
            if not isinstance(update, JobRecord):
                self.lost[key] = update
            else:
                job._keep(update)
                if self._end_checks[key].has_ended(update):
                    self.finished[key] = update
            if (key in self.finished or key in self.lost) and key in self._subscriptions:
                self._subscriptions.pop(key).close()
            changed[key] = (job, update)
        return [*changed.values()]
