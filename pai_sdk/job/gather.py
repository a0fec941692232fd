"""Waiting for many jobs at once: `gather`, `as_completed`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Literal, TypeAlias

from pai_sdk.base.hints import wrong_type
from pai_sdk.base.short_traceback import short_traceback
from pai_sdk.display.commands import list_command, next_commands
from pai_sdk.display.heartbeat import heartbeat
from pai_sdk.display.live_table import JobsDisplay, choose_jobs_display
from pai_sdk.errors import InvalidInputError, JobsFailed, PaiError, WaitTimeoutError
from pai_sdk.job.failure import brief_failure, job_failure, stopped_error
from pai_sdk.job.interrupt_messages import all_detached, all_stopped, detached, stopped
from pai_sdk.job.interrupts import ignore_interrupts, rearm_interrupt, single_interrupt
from pai_sdk.job.job_watch import JobWatch, Key, same_job
from pai_sdk.job.polling import FollowPolicy
from pai_sdk.schemas.arguments import check_one_of, seconds_or_none
from pai_sdk.schemas.names import is_local_id
from pai_sdk.schemas.record import JobRecord

if TYPE_CHECKING:
    from pai_sdk.job.training_job import TrainingJob

__all__ = ["FailFast", "Gathering", "as_completed", "check_jobs", "gather", "timeout_error"]

FailFast: TypeAlias = "bool | Literal['stop']"

STOPPED_WITHIN_S = 60.0
_STOPS_AT_ONCE = 8
_TOLD_IN_FULL = 5  # failed jobs whose log is read for the error: each costs a few requests


@short_traceback
def gather(
    jobs: Iterable[TrainingJob],
    *,
    timeout: float | None = None,
    fail_fast: FailFast = False,
    show: bool = True,
    on_interrupt: Literal["detach", "stop"] = "detach",
    policy: FollowPolicy | None = None,
) -> list[JobRecord]:
    """Wait for the end of many jobs, and show a table of them meanwhile.

    However many they are, they cost one backend no more than one request a second. `job.record` of each job is its
    last snapshot afterwards, in any case.

    Args:
        jobs: the jobs, of one session or of several.
        timeout: the longest wait, in seconds; none by default.
        fail_fast: False waits for all jobs, and then raises one error with all failures. True raises at the first
            failure, and the other jobs go on. `"stop"` stops them, too.
        show: a live table in a terminal or a notebook, a line for each end elsewhere.
        on_interrupt: what Ctrl-C means for the jobs: they go on, or they are stopped and waited for.
        policy: how patiently to follow.

    Returns:
        The last snapshot of each job, in the order of `jobs`. All of them have succeeded.

    Raises:
        InvalidInputError: something is no job, or an argument is none of those above.
        JobsFailed: jobs failed or were stopped; `failures` has the error of each.
        WaitTimeoutError: the timeout has passed; the jobs go on.
        KeyboardInterrupt: Ctrl-C; the interrupt tells what has become of the jobs.

    Example:
        >>> def outputs(jobs: list[TrainingJob]) -> list[str]:
        ...     return [record.outputs["model"] for record in gather(jobs, timeout=3600)]
    """
    gathering = Gathering(
        check_jobs(jobs), fail_fast=fail_fast, on_interrupt=on_interrupt, show=show, policy=policy
    )
    return gathering.wait(seconds_or_none(timeout))


@short_traceback
def as_completed(
    jobs: Iterable[TrainingJob], *, timeout: float | None = None, policy: FollowPolicy | None = None
) -> Iterator[TrainingJob]:
    """Each job as soon as it has ended, in whatever way: look at `job.status`, or call `job.raise_for_status()`.

    Args:
        jobs: the jobs; one that is given twice comes once.
        timeout: the longest wait for all of them, in seconds; none by default.
        policy: how patiently to follow.

    Raises:
        InvalidInputError: something is no job, or `timeout` is no number.
        PaiError: a job cannot be asked for, such as one that was deleted.
        WaitTimeoutError: the timeout has passed; the jobs go on.

    Example:
        >>> def first_model(jobs: list[TrainingJob]) -> TrainingJob:
        ...     return next(job for job in as_completed(jobs) if job.status.is_success)
    """
    given, timeout_s = check_jobs(jobs), seconds_or_none(timeout)
    return _as_completed(given, timeout_s, policy or FollowPolicy())


def _as_completed(
    jobs: Sequence[TrainingJob], timeout_s: float | None, policy: FollowPolicy
) -> Iterator[TrainingJob]:
    deadline = None if timeout_s is None else policy.schedule.now() + timeout_s
    with JobWatch(jobs, policy) as watch:
        try:
            for job, news in watch.updates(deadline=deadline):
                if not isinstance(news, JobRecord):
                    raise news
                if same_job(job) in watch.ended:
                    yield job
        except KeyboardInterrupt:
            raise _detached(watch.unfinished) from None
        if watch.unfinished:
            raise timeout_error(watch.unfinished, timeout_s or 0.0, watch.trouble) from watch.trouble


class Gathering:
    """One wait for many jobs: the table, the timeout, failures and Ctrl-C. Jobs may be added while it waits.

    Args:
        jobs: the jobs, in the order of the results.
        fail_fast: as in `gather`.
        on_interrupt: as in `gather`.
        show: whether to show a table.
        policy: how patiently to follow.
        expected: how many jobs there will be, if not all are there yet.

    Attributes:
        failures: the error of each job that did not succeed, by id; without what its log tells, until the end.
        not_submitted: how many jobs will not be submitted any more, because of a failure.
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
    ) -> None:
        check_one_of("on_interrupt", on_interrupt, ("detach", "stop"))
        check_one_of("fail_fast", str(fail_fast), ("False", "True", "stop"))
        self.failures: dict[str, Exception] = {}
        self.not_submitted = 0
        self._jobs = [*jobs]
        self._fail_fast = fail_fast
        self._on_interrupt = on_interrupt
        self._policy = policy or FollowPolicy()
        self._display: JobsDisplay | None = choose_jobs_display() if show else None
        self._expected = expected
        self._failed: dict[Key, JobRecord] = {}

    def wait(self, timeout_s: float | None) -> list[JobRecord]:
        """Wait for the end of all; see `gather`."""
        deadline = None if timeout_s is None else self._policy.schedule.now() + timeout_s
        with self.watching() as watch:
            for _ in self.ends(watch, deadline=deadline):
                pass
            trouble = watch.trouble
        if watch.unfinished and not self.is_over:
            raise timeout_error(watch.unfinished, timeout_s or 0.0, trouble) from trouble
        return self.records(watch)

    @contextmanager
    def watching(self) -> Iterator[JobWatch]:
        """Watch the jobs, with the table; within it, Ctrl-C is that of a wait for jobs."""
        display = self._display
        with (
            single_interrupt(),
            nullcontext() if display is None else heartbeat(display),
            JobWatch(self._jobs, self._policy) as watch,
        ):
            try:
                yield watch
            except KeyboardInterrupt:
                # A new interrupt: the traceback of the wait would push the commands off the screen.
                raise self._interrupted(watch) from None
            if display is not None:
                display.ended()

    @property
    def is_over(self) -> bool:
        """Whether a failure ends the wait."""
        return bool(self.failures) and self._fail_fast is not False

    def add(self, watch: JobWatch, job: TrainingJob) -> None:
        """One more job."""
        self._jobs.append(job)
        watch.add(job)
        self._show()

    def ends(self, watch: JobWatch, *, deadline: float | None = None) -> Iterator[TrainingJob]:
        """Each job as it ends, until all have ended, or a failure ends the wait, or the time is up."""
        self._show()
        for job, news in watch.updates(deadline=deadline):
            key = same_job(job)
            self.note(watch, job, news)
            self._show()
            if self.is_over:
                if self._fail_fast == "stop":
                    self._stop(watch)
                return
            if key in watch.ended or key in watch.lost:
                yield job

    def note(self, watch: JobWatch, job: TrainingJob, news: JobRecord | Exception) -> None:
        """Take note of a job that did not succeed."""
        if not isinstance(news, JobRecord):
            self.failures[job.id] = news
        elif same_job(job) in watch.ended and not news.status.is_success:
            self._failed[same_job(job)] = news
            self.failures[job.id] = stopped_error(news) if news.status.is_stopped else brief_failure(news)

    def records(self, watch: JobWatch) -> list[JobRecord]:
        """The last snapshots, in the order of the jobs.

        Raises:
            JobsFailed: some jobs did not succeed; the first few errors have what the logs tell.
        """
        for job, record in self.failed_first:
            self.failures[job.id] = job_failure(job._backend, record)
        self.raise_failures(watch)
        return [watch.ended[same_job(job)] for job in self._jobs]

    @property
    def failed_first(self) -> list[tuple[TrainingJob, JobRecord]]:
        """The first few jobs that failed, whose logs are worth a few requests each."""
        found = {same_job(job): (job, self._failed.get(same_job(job))) for job in self._jobs}
        failed = [(job, record) for job, record in found.values() if record is not None]
        return [(job, record) for job, record in failed if record.status.is_failure][:_TOLD_IN_FULL]

    def raise_failures(self, watch: JobWatch) -> None:
        """Raise one error for all that did not succeed.

        Raises:
            JobsFailed: there are some.
        """
        if not self.failures:
            return
        in_order = {job.id: self.failures[job.id] for job in self._jobs if job.id in self.failures}
        failures = {**in_order, **self.failures}
        unfinished = [job.id for job in watch.unfinished]
        raise JobsFailed(
            failures,
            jobs=max(len({*map(same_job, self._jobs)}), self._expected),
            unfinished=unfinished,
            not_submitted=self.not_submitted,
        ) from next(iter(failures.values()))

    def _show(self) -> None:
        if self._display is not None:
            self._display.changed([job._record or JobRecord(training_job_id=job.id) for job in self._jobs])

    def _stop(self, watch: JobWatch) -> None:
        """Stop the jobs that go on, and wait for their ends, a minute at most."""
        rest = watch.unfinished
        if self._display is not None and rest:
            self._display.notice(f"stopping {len(rest)} jobs")
        with ThreadPoolExecutor(_STOPS_AT_ONCE, thread_name_prefix="pai-stop") as pool:
            for job, fault in zip(rest, pool.map(_stop_one, rest), strict=True):
                if fault is not None and self._display is not None:
                    self._display.notice(f"{job.id} cannot be stopped: {fault}")
        deadline = self._policy.schedule.now() + STOPPED_WITHIN_S
        for _ in watch.updates(deadline=deadline):
            self._show()

    def _interrupted(self, watch: JobWatch) -> KeyboardInterrupt:
        """Stop the jobs or detach; returns the interrupt to raise. A second Ctrl-C ends the wait for the stop."""
        rest = watch.unfinished
        if self._on_interrupt == "stop":
            with suppress(KeyboardInterrupt):
                rearm_interrupt()
                self._stop(watch)
            going = [job.id for job in watch.unfinished]
            with ignore_interrupts():
                self._show()
            ended = [job.id for job in rest if job.id not in going]
            return stopped(ended[0]) if len(ended) == 1 and not going else all_stopped(ended, going)
        with ignore_interrupts():
            if self._display is not None:
                self._display.detached(len(rest))
        return _detached(rest)


def check_jobs(jobs: Iterable[TrainingJob]) -> list[TrainingJob]:
    """The jobs, if they are some.

    Raises:
        InvalidInputError: they are not.
    """
    from pai_sdk.job.training_job import TrainingJob

    hint = "give the jobs that run() or fit() returned, or session.get_job(…)"
    if isinstance(jobs, str | Mapping | TrainingJob) or not isinstance(jobs, Iterable):
        raise InvalidInputError([wrong_type("jobs", jobs, hint)])
    given = [*jobs]
    wrong = [
        wrong_type(f"jobs[{n}]", job, hint) for n, job in enumerate(given) if not isinstance(job, TrainingJob)
    ]
    if wrong:
        raise InvalidInputError(wrong)
    return given


def timeout_error(
    rest: Sequence[TrainingJob], timeout_s: float, trouble: BaseException | None
) -> WaitTimeoutError:
    """The error of a wait whose time is up, and these jobs go on; `trouble` is why there was no answer, if so."""
    names = ", ".join(job.id for job in rest[:3]) + (f" and {len(rest) - 3} more" if len(rest) > 3 else "")
    why = f" ({trouble})" if trouble is not None else ""
    count = f"{len(rest)} jobs have" if len(rest) > 1 else "1 job has"
    status = rest[0]._record.status if rest[0]._record is not None else ""
    return WaitTimeoutError(
        f"{count} not ended after {timeout_s:g} s, and go on: {names}{why}",
        job_id=rest[0].id,
        status=status,
        timeout_s=timeout_s,
    )


def _detached(rest: Sequence[TrainingJob]) -> KeyboardInterrupt:
    """The interrupt of a wait for these jobs, which go on."""
    if len(rest) == 1:
        return detached(rest[0].id, next_commands(rest[0]._record or JobRecord(training_job_id=rest[0].id)))
    kinds = sorted({is_local_id(job.id) for job in rest}) or [False]
    return all_detached([job.id for job in rest], [list_command(local=kind) for kind in kinds])


def _stop_one(job: TrainingJob) -> PaiError | None:
    try:
        job.stop()
    except PaiError as fault:
        return fault
    return None
