"""Waits until one job has finished: display, timeout and Ctrl-C."""

from __future__ import annotations

from pai_sdk._client.display.base import Display, Silent, short_instance
from pai_sdk._client.display.choice import heartbeat
from pai_sdk._client.display.commands import attach_lines, next_commands
from pai_sdk._client.job.failure.explain import job_failure_async, stopped_error
from pai_sdk._client.job.follow.follower import Follower, LogError, Update
from pai_sdk._client.job.follow.polling import FollowPolicy
from pai_sdk._client.job.follow.watch import JobHandle, JobWatch, same_job
from pai_sdk._client.job.interrupts import (
    detached,
    ignore_interrupts,
    rearm_interrupt,
    single_interrupt,
    stopped,
    stopping,
)
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk.errors import WaitTimeoutError

_STOP_TIMEOUT_S = 60.0


class Waiting:
    """Waits until one job has finished, once."""

    def __init__(self, job: JobHandle, display: Display, policy: FollowPolicy) -> None:
        self._job = job
        self._last_record = job.last_record
        self._display = display
        self._policy = policy
        self._trouble: BaseException | None = None
        self.has_read_log = False  # the complete log was read and displayed
        self.gave_up = False  # the log of a failed job was waited for, and shows no reason

    def wait(self, timeout_s: float | None, *, show_logs: bool, stops: bool) -> JobRecord:
        """Waits until the job has finished, and returns its last snapshot. `stops`: Ctrl-C also stops the job.

        The job is polled once, whatever the timeout. The message of the KeyboardInterrupt has the commands to
        follow the job, or reports its stop.
        """
        deadline = None if timeout_s is None else self._deadline_in(timeout_s)
        with single_interrupt(), heartbeat(self._display):
            try:
                if show_logs or not self._has_ended():
                    self._follow(deadline, self._display, with_log=show_logs)
                if self._last_record is None:  # the job is polled once even with a timeout of 0
                    self._follow(self._deadline_in(self._policy.poll_timeout_s), Silent(), once=True)
            except KeyboardInterrupt:
                # `from None`: the traceback of the wait would push the commands off the screen.
                raise self._handle_interrupt(stops=stops) from None
        if self._last_record is None or not self._last_record.status.is_terminal:
            raise timeout_error(
                self._job.id, self._last_record, timeout_s or 0.0, self._trouble
            ) from self._trouble
        return self._last_record

    def _deadline_in(self, seconds: float) -> float:
        return self._policy.schedule.now() + seconds

    def _has_ended(self) -> bool:
        return self._last_record is not None and self._last_record.status.is_terminal

    def _update(self, record: JobRecord) -> None:
        self._last_record = record
        self._job.last_record = record

    def _follow(
        self, deadline: float | None, display: Display, *, with_log: bool = False, once: bool = False
    ) -> None:
        follower = Follower(
            self._job.backend,
            self._job.id,
            (lambda record: record.instance_names) if with_log else (lambda record: []),
            {},
            self._policy,
        )
        try:
            for update in follower.updates(deadline=deadline):
                self._show(update, display, deadline)
                if once and self._last_record is not None:
                    return
        finally:
            # Before `close`, which drops the subscription with its last error.
            self._trouble = follower.trouble
            self.has_read_log, self.gave_up = with_log and follower.is_done, follower.gave_up
            follower.close()
        if follower.last_record is not None and follower.last_record is not self._last_record:
            # The follower may be ahead of a slow display, whose queued updates are dropped.
            self._update(follower.last_record)
        if with_log and self._has_ended() and not follower.is_done:
            command = next_commands(self._last_record or JobRecord(training_job_id=self._job.id))[0]
            display.notice(f"timed out before the log was complete; all of it: {command}")

    def _show(self, update: Update, display: Display, deadline: float | None) -> None:
        if isinstance(update, JobRecord):
            self._update(update)
            display.changed(update)
        elif isinstance(update, LogError):
            instance = short_instance(self._job.id, update.instance)
            display.notice(f"the log of {instance} cannot be shown: {update.error}")
        else:
            for line in update:
                if deadline is not None and self._policy.schedule.now() >= deadline:
                    return
                display.line(line)

    def _handle_interrupt(self, *, stops: bool) -> KeyboardInterrupt:
        """Stops the job or detaches; returns the interrupt to raise."""
        is_stop_requested = False
        if stops:
            try:
                rearm_interrupt()
                self._display.notice(f"stopping {self._job.id}; press Ctrl-C again to leave without waiting")
                self._job.backend.stop(self._job.id)
                is_stop_requested = True
                self._follow(self._deadline_in(_STOP_TIMEOUT_S), self._display)
            except KeyboardInterrupt:  # also before the request was sent: `is_stop_requested` tells
                pass  # a second Ctrl-C ends the wait for the stop
        record = self._last_record or JobRecord(training_job_id=self._job.id)
        if stops and record.status.is_terminal:
            with ignore_interrupts():
                self._display.ended(record)
            return stopped(self._job.id)
        if is_stop_requested:
            with ignore_interrupts():
                self._display.notice(f"{self._job.id} is being stopped; not waiting for it to finish")
            return stopping(self._job.id, next_commands(record))
        with ignore_interrupts():
            self._display.detached(record)
        return detached(self._job.id, attach_lines(record))


async def wait_async(job: JobHandle, timeout_s: float | None, policy: FollowPolicy) -> None:
    """Waits until one job has finished; see `TrainingJob.wait_async`."""
    import asyncio  # for weight: an asyncio program has it

    with JobWatch([job], policy) as watch:
        try:
            await asyncio.wait_for(watch.wait_async(), timeout_s)
        except (TimeoutError, asyncio.TimeoutError):  # two classes before Python 3.11
            raise timeout_error(job.id, job.last_record, timeout_s or 0.0, watch.trouble) from watch.trouble
    if watch.lost:
        raise watch.lost[same_job(job)]
    record = watch.finished[same_job(job)]
    if record.status.is_failure:
        raise await job_failure_async(job.backend, record, policy)
    if record.status.is_stopped:
        raise stopped_error(record)


def timeout_error(
    job_id: str, last_record: JobRecord | None, timeout_s: float, last_error: BaseException | None
) -> WaitTimeoutError:
    """Builds the error of a wait whose timeout has passed; `last_error` is that of the last request."""
    status = last_record.status if last_record is not None else ""
    if last_record is None:
        message = f"there was no response about job {job_id} within {timeout_s:g} s"
    elif last_error is not None:
        last = f"; its last known status is {status}" if status else ""
        message = f"job {job_id} could not be reached when the timeout of {timeout_s:g} s passed{last}"
    else:
        state = f"is still {status}" if status else "has not finished"
        message = f"job {job_id} {state} after {timeout_s:g} s, and was not stopped"
    reason = f" ({last_error})" if last_error is not None else ""
    stop = next_commands(last_record or JobRecord(training_job_id=job_id))[-1]
    return WaitTimeoutError(
        f"{message}{reason}. Wait longer, or stop it: {stop}", job_id=job_id, status=status, timeout_s=timeout_s
    )
