"""Waits for many jobs at once: `gather`, `as_completed`, and for asyncio `gather_async`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, nullcontext, suppress
from typing import Literal, TypeAlias

from pai_sdk._client.backend.specs import backend_for_job
from pai_sdk._client.display.choice import heartbeat, notebook_cell
from pai_sdk._client.display.commands import attach_lines, list_command
from pai_sdk._client.display.live_table import JobsDisplay, choose_jobs_display
from pai_sdk._client.job.failure.explain import brief_failure, job_failure, job_failure_async, stopped_error
from pai_sdk._client.job.follow.poller import Update
from pai_sdk._client.job.follow.polling import FollowPolicy
from pai_sdk._client.job.follow.updates import ask
from pai_sdk._client.job.follow.watch import JobWatch, Key, same_job
from pai_sdk._client.job.interrupts import (
    all_detached,
    all_stopped,
    detached,
    ignore_interrupts,
    rearm_interrupt,
    single_interrupt,
    stopped,
)
from pai_sdk._client.job.result_lists import ResultList
from pai_sdk._client.job.stopping import stop_each
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._client.job.waiting import timeout_error
from pai_sdk._core.names.hints import wrong_type
from pai_sdk._core.short_traceback import short_traceback
from pai_sdk._wire.pai.arguments import check_choice, seconds_or_none
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk.errors import InvalidInputError, JobsFailed, PaiError, WaitTimeoutError

FailFast: TypeAlias = "bool | Literal['stop']"

_STOP_TIMEOUT_S = 60.0
_MAX_EXPLAINED = 5  # failed jobs whose logs are read for the error: each costs a few requests


@short_traceback
def gather(
    jobs: Iterable[TrainingJob],
    *,
    timeout: float | None = None,
    fail_fast: FailFast = False,
    show: bool = True,
    on_interrupt: Literal["detach", "stop"] = "detach",
    policy: FollowPolicy | None = None,
) -> ResultList[JobRecord]:
    """Wait until many jobs have finished, and display a table of them meanwhile.

    Jobs of one backend are polled by at most one request a second, whatever their number. Afterwards `job.record`
    of each job is its last snapshot, in any case.

    Args:
        jobs: the jobs, of one session or of several.
        timeout: maximum time to wait, in seconds; unlimited by default.
        fail_fast: False waits for all jobs, and then raises one error with all failures. True raises at the first
            failure, and the other jobs are not stopped. `"stop"` stops them, too.
        show: a live table in a terminal or a notebook, a line for each finished job elsewhere.
        on_interrupt: the effect of Ctrl-C on the jobs: they keep running, or they are stopped and waited for.
        policy: the polling intervals.

    Returns:
        The last snapshot of each job, in the order of `jobs`, as a list that shows as a table. All jobs have
        succeeded.

    Raises:
        InvalidInputError: something is no job, or an argument is none of those above.
        JobsFailed: jobs failed or were stopped; `failures` has the error of each.
        WaitTimeoutError: the timeout has passed; the jobs are not stopped.
        KeyboardInterrupt: Ctrl-C; the interrupt says what happened to the jobs.

    Example:
        >>> def outputs(jobs: list[TrainingJob]) -> list[str]:
        ...     return [record.outputs["model"] for record in gather(jobs, timeout=3600)]
    """
    gathering = Gathering(
        check_jobs(jobs), fail_fast=fail_fast, on_interrupt=on_interrupt, show=show, policy=policy
    )
    return gathering.wait(seconds_or_none(timeout))


async def gather_async(
    jobs: Iterable[TrainingJob],
    *,
    timeout: float | None = None,
    fail_fast: FailFast = False,
    policy: FollowPolicy | None = None,
) -> ResultList[JobRecord]:
    """Wait until many jobs have finished, in an asyncio program; nothing is displayed.

    A cancelled task releases all its resources; its jobs are not stopped.

    Args:
        jobs: the jobs, of one session or of several.
        timeout: maximum time to wait, in seconds; unlimited by default.
        fail_fast: as in `gather`.
        policy: the polling intervals.

    Returns:
        The last snapshot of each job, in the order of `jobs`, as a list that shows as a table. All jobs have
        succeeded.

    Raises:
        InvalidInputError: something is no job, or an argument is none of those above.
        JobsFailed: jobs failed or were stopped; `failures` has the error of each.
        WaitTimeoutError: the timeout has passed; the jobs are not stopped.

    Example:
        >>> async def best_of(jobs: list[TrainingJob]) -> list[str]:
        ...     return [record.outputs["model"] for record in await gather_async(jobs)]
    """
    gathering = Gathering(check_jobs(jobs), fail_fast=fail_fast, on_interrupt="detach", show=False, policy=policy)
    return await gathering.wait_async(seconds_or_none(timeout))


@short_traceback
def as_completed(
    jobs: Iterable[TrainingJob], *, timeout: float | None = None, policy: FollowPolicy | None = None
) -> Iterator[TrainingJob]:
    """Yield each job as soon as it has finished: check `job.status`, or call `job.raise_for_status()`.

    Args:
        jobs: the jobs; a duplicate is yielded once.
        timeout: the longest wait for all of them, in seconds; none by default.
        policy: the polling intervals.

    Raises:
        InvalidInputError: something is no job, or `timeout` is no number.
        PaiError: a job cannot be polled, for example because it was deleted.
        WaitTimeoutError: the timeout has passed; the jobs are not stopped.

    Example:
        >>> def first_model(jobs: list[TrainingJob]) -> TrainingJob:
        ...     return next(job for job in as_completed(jobs) if job.status.is_success)
    """
    # Not a generator itself, so that wrong arguments raise here and not at the first job.
    checked_jobs, timeout_s = check_jobs(jobs), seconds_or_none(timeout)
    return _as_completed(checked_jobs, timeout_s, policy or FollowPolicy())


def _as_completed(
    jobs: Sequence[TrainingJob], timeout_s: float | None, policy: FollowPolicy
) -> Iterator[TrainingJob]:
    deadline = None if timeout_s is None else policy.schedule.now() + timeout_s
    with JobWatch(jobs, policy) as watch:
        try:
            for job, update in watch.updates(deadline=deadline):
                if not isinstance(update, JobRecord):
                    raise update
                if same_job(job) in watch.finished:
                    yield job
        except KeyboardInterrupt:
            raise _detached(watch.unfinished) from None
        if watch.unfinished:
            raise _timeout_error(watch.unfinished, timeout_s or 0.0, watch.trouble) from watch.trouble


class Gathering:
    """One wait for many jobs: the table, the timeout, failures and Ctrl-C. Jobs can be added while it waits.

    `fail_fast` and `on_interrupt` are those of `gather`.
    """

    def __init__(
        self,
        jobs: Iterable[TrainingJob],
        *,
        fail_fast: FailFast,
        on_interrupt: Literal["detach", "stop"],
        show: bool,
        policy: FollowPolicy | None,
        expected: int = 0,
        display: JobsDisplay | None = None,
    ) -> None:
        check_choice("on_interrupt", on_interrupt, ("detach", "stop"))
        check_choice("fail_fast", str(fail_fast), ("False", "True", "stop"))
        self.failures: dict[str, Exception] = {}  # by id; details from the logs are added at the end
        self.not_submitted = 0  # the number of jobs that will not be submitted because of a failure
        self._jobs = [*jobs]  # in the order of the results
        self._fail_fast = fail_fast
        self._on_interrupt = on_interrupt
        self._policy = policy or FollowPolicy()
        self._display: JobsDisplay | None = (display or choose_jobs_display()) if show else None
        self._expected = expected  # the final number of jobs, if more will be added
        self._failed: dict[Key, JobRecord] = {}

    def wait(self, timeout_s: float | None) -> ResultList[JobRecord]:
        """Waits until all jobs have finished; see `gather`."""
        deadline = None if timeout_s is None else self._policy.schedule.now() + timeout_s
        with self.watching() as watch:
            for _ in self.completions(watch, deadline=deadline):
                pass
            trouble = watch.trouble  # before the watch is closed, which drops the subscriptions with their errors
        if watch.unfinished and not self.is_aborted:
            raise _timeout_error(watch.unfinished, timeout_s or 0.0, trouble) from trouble
        return self.records(watch)

    async def wait_async(self, timeout_s: float | None) -> ResultList[JobRecord]:
        """Waits until all jobs have finished, in an asyncio program; see `gather_async`."""
        with JobWatch(self._jobs, self._policy) as watch:
            try:
                await asyncio.wait_for(self._wait_until_finished(watch), timeout_s)
            except (TimeoutError, asyncio.TimeoutError):  # two classes before Python 3.11
                raise _timeout_error(watch.unfinished, timeout_s or 0.0, watch.trouble) from watch.trouble
            if self.is_aborted and self._fail_fast == "stop":
                await self._stop_async(watch)
        for job, record in self._failed_first:
            self.failures[job.id] = await job_failure_async(job.backend, record, self._policy)
        return self._records(watch)

    @contextmanager
    def watching(self) -> Iterator[JobWatch[TrainingJob]]:
        """Watches the jobs and displays the table; Ctrl-C in its block detaches from the jobs or stops them."""
        display = self._display
        with (
            single_interrupt(),
            nullcontext() if display is None else heartbeat(display),
            JobWatch(self._jobs, self._policy) as watch,
        ):
            try:
                yield watch
            except KeyboardInterrupt:
                # `from None`: the traceback of the wait would push the commands off the screen.
                raise self._interrupted(watch) from None
            if display is not None:
                display.ended()

    @property
    def is_aborted(self) -> bool:
        """Returns whether a failure has aborted the wait."""
        return bool(self.failures) and self._fail_fast is not False

    def add(self, watch: JobWatch[TrainingJob], job: TrainingJob) -> None:
        """Adds a job."""
        self._jobs.append(job)
        watch.add(job)
        self.show()

    def completions(self, watch: JobWatch[TrainingJob], *, deadline: float | None = None) -> Iterator[TrainingJob]:
        """Yields each job as it finishes, until all have finished, a failure aborts the wait, or the deadline."""
        self.show()
        for job, update in watch.updates(deadline=deadline):
            key = same_job(job)
            self._record_failure(watch, job, update)
            self.show()
            if self.is_aborted:
                if self._fail_fast == "stop":
                    self.stop(watch)
                return
            if key in watch.finished or key in watch.lost:
                yield job

    def _record_failure(self, watch: JobWatch[TrainingJob], job: TrainingJob, update: Update) -> None:
        """Records a job that did not succeed."""
        if not isinstance(update, JobRecord):
            self.failures[job.id] = update
        elif same_job(job) in watch.finished and not update.status.is_success:
            # Without requests, while other jobs are watched: `records` adds the details from the logs.
            self._failed[same_job(job)] = update
            self.failures[job.id] = stopped_error(update) if update.status.is_stopped else brief_failure(update)

    def records(self, watch: JobWatch[TrainingJob]) -> ResultList[JobRecord]:
        """Returns the last snapshots, in the order of the jobs; the first failures have details from the logs."""
        for job, record in self._failed_first:
            self.failures[job.id] = job_failure(job.backend, record)
        return self._records(watch)

    @property
    def _failed_first(self) -> list[tuple[TrainingJob, JobRecord]]:
        """Returns the first few failed jobs, whose logs are read for the error."""
        # By key, since a job can be passed twice.
        by_key = {same_job(job): (job, self._failed.get(same_job(job))) for job in self._jobs}
        failed = [(job, record) for job, record in by_key.values() if record is not None]
        return [(job, record) for job, record in failed if record.status.is_failure][:_MAX_EXPLAINED]

    def _records(self, watch: JobWatch[TrainingJob]) -> ResultList[JobRecord]:
        if not self.failures:
            records = (watch.finished[same_job(job)] for job in self._jobs)
            cell = None if self._display is None else notebook_cell()
            return ResultList(records, displayed_in_cell=cell, jobs=self._jobs)
        # In the order of the jobs; the others are submissions that failed, and have no job.
        in_order = {job.id: self.failures[job.id] for job in self._jobs if job.id in self.failures}
        failures = {**in_order, **self.failures}
        raise JobsFailed(
            failures,
            jobs=max(len({*map(same_job, self._jobs)}), self._expected),
            unfinished=[job.id for job in watch.unfinished],
            not_submitted=self.not_submitted,
        ) from next(iter(failures.values()))

    async def _wait_until_finished(self, watch: JobWatch[TrainingJob]) -> None:
        async with aclosing(watch.updates_async()) as updates:
            async for job, update in updates:
                self._record_failure(watch, job, update)
                if self.is_aborted:
                    return

    def show(self) -> None:
        """Displays the last snapshots."""
        if self._display is not None:
            self._display.changed([job.last_record or JobRecord(training_job_id=job.id) for job in self._jobs])

    def stop(self, watch: JobWatch[TrainingJob]) -> None:
        """Stops the unfinished jobs, and waits at most a minute until they have finished."""
        unfinished = watch.unfinished
        if self._display is not None and unfinished:
            self._display.notice(f"stopping {len(unfinished)} jobs")
        for job, error in zip(unfinished, stop_each(unfinished), strict=True):
            if error is not None and self._display is not None:
                self._display.notice(f"{job.id} cannot be stopped: {error}")
        # From now on, not from the first request: services that respond slowly leave the jobs the full minute.
        deadline = self._policy.schedule.now() + _STOP_TIMEOUT_S
        for _ in watch.updates(deadline=deadline):
            self.show()

    async def _stop_async(self, watch: JobWatch[TrainingJob]) -> None:
        async def stop(job: TrainingJob) -> None:
            with suppress(PaiError):  # `JobsFailed.unfinished` lists the job
                await ask(job.stop, job.backend.endpoint, self._policy)

        await asyncio.gather(*map(stop, watch.unfinished))
        with suppress(TimeoutError, asyncio.TimeoutError):
            await asyncio.wait_for(watch.wait_async(), _STOP_TIMEOUT_S)

    def _interrupted(self, watch: JobWatch[TrainingJob]) -> KeyboardInterrupt:
        """Stops the jobs or detaches; returns the interrupt to raise."""
        unfinished = watch.unfinished
        if self._on_interrupt == "stop":
            with suppress(KeyboardInterrupt):  # a second Ctrl-C ends the wait for the stop
                rearm_interrupt()
                self.stop(watch)
            still_running = [job.id for job in watch.unfinished]
            with ignore_interrupts():  # the last state of the table must be complete
                self.show()
            ended = [job.id for job in unfinished if job.id not in still_running]
            return (
                stopped(ended[0]) if len(ended) == 1 and not still_running else all_stopped(ended, still_running)
            )
        with ignore_interrupts():
            if self._display is not None:
                self._display.detached(len(unfinished))
        return _detached(unfinished)


def check_jobs(jobs: Iterable[TrainingJob]) -> list[TrainingJob]:
    """Returns the jobs as a list; raises InvalidInputError for an item that is no job."""
    hint = "as run() or fit() return it, or session.get_job(…)"
    if isinstance(jobs, str | Mapping | TrainingJob) or not isinstance(jobs, Iterable):
        raise InvalidInputError([wrong_type("jobs", jobs, "a list of TrainingJob", hint)])
    checked = [*jobs]
    wrong = [
        wrong_type(f"jobs[{n}]", job, "a TrainingJob", hint)
        for n, job in enumerate(checked)
        if not isinstance(job, TrainingJob)
    ]
    if wrong:
        raise InvalidInputError(wrong)
    return checked


def _timeout_error(
    unfinished: Sequence[TrainingJob], timeout_s: float, last_error: BaseException | None
) -> WaitTimeoutError:
    """Builds the error of a wait whose timeout has passed; `last_error` is that of the last request."""
    first = unfinished[0]
    if len(unfinished) == 1:
        return timeout_error(first.id, first.last_record, timeout_s, last_error)
    names = ", ".join(job.id for job in unfinished[:3]) + (
        f" and {len(unfinished) - 3} more" if len(unfinished) > 3 else ""
    )
    reason = f" ({last_error})" if last_error is not None else ""
    return WaitTimeoutError(
        f"{len(unfinished)} jobs have not finished after {timeout_s:g} s, and are still running: {names}{reason}",
        job_id=first.id,
        status=first.last_record.status if first.last_record is not None else "",
        timeout_s=timeout_s,
    )


def _detached(unfinished: Sequence[TrainingJob]) -> KeyboardInterrupt:
    """Builds the interrupt of a wait for jobs that are still running."""
    if len(unfinished) == 1:
        job = unfinished[0]
        return detached(job.id, attach_lines(job.last_record or JobRecord(training_job_id=job.id)))
    options = sorted({backend_for_job(job.id).list_option for job in unfinished}) or [""]
    return all_detached([job.id for job in unfinished], [list_command(option) for option in options])
