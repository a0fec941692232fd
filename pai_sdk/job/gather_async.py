"""The asyncio twins of waiting. Workers and pollers make the requests, as for threads; no thread waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, TypeVar

from pai_sdk.errors import PaiError
from pai_sdk.job.async_calls import ask
from pai_sdk.job.failure import job_failure_async, stopped_error
from pai_sdk.job.gather import STOPPED_WITHIN_S, FailFast, Gathering, check_jobs, timeout_error
from pai_sdk.job.job_watch import JobWatch, same_job
from pai_sdk.job.polling import FollowPolicy
from pai_sdk.schemas.arguments import seconds_or_none
from pai_sdk.schemas.record import JobRecord

if TYPE_CHECKING:
    from pai_sdk.job.training_job import TrainingJob

__all__ = ["gather_async", "wait_async"]

T = TypeVar("T")


async def gather_async(
    jobs: Iterable[TrainingJob],
    *,
    timeout: float | None = None,
    fail_fast: FailFast = False,
    policy: FollowPolicy | None = None,
) -> list[JobRecord]:
    """Wait for the end of many jobs in an asyncio program; nothing is shown.

    A task that is cancelled leaves nothing behind, and the jobs go on.

    Args:
        jobs: the jobs, of one session or of several.
        timeout: the longest wait, in seconds; none by default.
        fail_fast: as in `gather`.
        policy: how patiently to follow.

    Returns:
        The last snapshot of each job, in the order of `jobs`. All of them have succeeded.

    Raises:
        InvalidInputError: something is no job, or an argument is none of those above.
        JobsFailed: jobs failed or were stopped; `failures` has the error of each.
        WaitTimeoutError: the timeout has passed; the jobs go on.

    Example:
        >>> async def best_of(jobs: list[TrainingJob]) -> list[str]:
        ...     return [record.outputs["model"] for record in await gather_async(jobs)]
    """
    given, timeout_s, policy = check_jobs(jobs), seconds_or_none(timeout), policy or FollowPolicy()
    gathering = Gathering(given, fail_fast=fail_fast, on_interrupt="detach", show=False, policy=policy)
    with JobWatch(given, policy) as watch:
        await _within(_until_over(watch, gathering), watch, timeout_s)
        if gathering.is_over and fail_fast == "stop":
            await _stop(watch, policy)
    for job, record in gathering.failed_first:
        gathering.failures[job.id] = await job_failure_async(job._backend, record, policy)
    gathering.raise_failures(watch)
    return [watch.ended[same_job(job)] for job in given]


async def wait_async(job: TrainingJob, timeout_s: float | None, policy: FollowPolicy) -> None:
    """Wait for the end of one job; see `TrainingJob.wait_async`."""
    with JobWatch([job], policy) as watch:
        await _within(_until_over(watch, None), watch, timeout_s)
    if watch.lost:
        raise watch.lost[same_job(job)]
    record = watch.ended[same_job(job)]
    if record.status.is_failure:
        raise await job_failure_async(job._backend, record, policy)
    if record.status.is_stopped:
        raise stopped_error(record)


async def _until_over(watch: JobWatch, gathering: Gathering | None) -> None:
    async with aclosing(watch.updates_async()) as updates:
        async for job, news in updates:
            if gathering is not None:
                gathering.note(watch, job, news)
                if gathering.is_over:
                    return


async def _within(waiting: Awaitable[T], watch: JobWatch, timeout_s: float | None) -> T:
    try:
        return await asyncio.wait_for(waiting, timeout_s)
    except (TimeoutError, asyncio.TimeoutError):
        raise timeout_error(watch.unfinished, timeout_s or 0.0, watch.trouble) from watch.trouble


async def _stop(watch: JobWatch, policy: FollowPolicy) -> None:
    """Stop the jobs that go on, and wait for their ends, a minute at most."""

    async def stop(job: TrainingJob) -> None:
        with suppress(PaiError):  # it is among those that have not ended
            await ask(job.stop, job._backend.endpoint, policy)

    await asyncio.gather(*(stop(job) for job in watch.unfinished))
    with suppress(TimeoutError, asyncio.TimeoutError):
        await asyncio.wait_for(_until_over(watch, None), STOPPED_WITHIN_S)
