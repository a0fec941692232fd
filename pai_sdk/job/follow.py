"""Follows a job: polls its state and reads the logs of its instances, through errors, to the last line."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias, TypeVar

from pai_sdk.backend.base import Backend
from pai_sdk.base.retry import one_attempt
from pai_sdk.errors import AuthenticationError, PaiError
from pai_sdk.job.async_calls import waking
from pai_sdk.job.job_poller import News, Seat, shared_pollers
from pai_sdk.job.log_reasons import shows_reason
from pai_sdk.job.polling import (
    FIRST_PAUSE_S,
    EndCheck,
    FollowPolicy,
    PollState,
    may_appear_later,
)
from pai_sdk.job.workers import Step
from pai_sdk.schemas.record import JobRecord, LogLine, LogPage
from pai_sdk.schemas.status import JobStatus

__all__ = ["PAGE_LINES", "FollowPolicy", "Follower", "LogFault", "Update"]

logger = logging.getLogger(__name__)

PAGE_LINES = 10_000
_MOST_QUEUED_LINES = 50_000  # lines queued for a slow consumer; then reading pauses
_CHARACTERS_A_LINE = 500  # longer ones count for more
_BATCH_DELAY_S = 0.02  # where lines come faster than requests, several are read at once
_SLOTS_FOR_READERS = 6
_LISTING_PATIENCE_S = 20.0
_LINES_FOR_A_REASON = 50


@dataclass(frozen=True)
class LogFault:
    """The log of one instance cannot be read any further; the others can."""

    instance: str
    error: PaiError


Update: TypeAlias = list[LogLine] | JobRecord | LogFault

_Answer = TypeVar("_Answer")


@dataclass
class _Reader:
    """How far one instance has been read."""

    instance: str
    next_line: int
    poll: PollState
    quiet_since: float | None = None
    last: deque[str] = field(default_factory=lambda: deque(maxlen=_LINES_FOR_A_REASON))
    turn: int = 0  # of the step that reads next; steps with an older number do nothing
    is_asleep: bool = False


class Follower:
    """Polls a job and reads the logs of its instances; `updates` yields what comes.

    The work is done in steps. A step makes at most one request, in a worker thread, and then schedules the next
    step, or publishes an error, or finishes its stream. The queue of updates is bounded: a slow consumer slows the
    reading down.

        job       unseen -> running -> ended -> all instances listed -> finished
                  polled by `_poll_job` -> heard of by `_hear`, once many jobs of the backend are followed
        instance  reading <-> scheduled (pause, retry) -> finished, at the last line or at an error
                     ^-> parked: the queue is full; `_take` schedules the reader again
        follower  open -> done, when the job and all instances are finished (`_open_streams` is 0)

    Locks: `_changed` guards the fields below it and the readers. It is held to change state, never during a
    request. Steps read `_seen`, `_ended_at` and `_closed` without it: a stale value costs one more request.
    A reader's `next_line` and `poll` are used only by the step that has the reader's current `turn`.
    `_schedule` takes the lock of the workers inside `_changed`, `_leave` that of the pollers; never the other way
    round: the poller of many jobs calls `_hear` without a lock.
    Called with `_changed` held: `_leave`, `_publish`, `_publish_lines`, `_finish_stream`, `_start_readers`,
    `_schedule_read`, `_wake_readers`, `_listing_poll`, `_next_read_delay_s`.
    """

    def __init__(
        self,
        backend: Backend,
        job_id: str,
        instances_of: Callable[[JobRecord], list[str]],
        cursor: Mapping[str, int],
        policy: FollowPolicy,
    ) -> None:
        self._backend = backend
        self._job_id = job_id
        self._instances_of = instances_of
        self._cursor = cursor  # as it is when an instance appears: `instances_of` may add to it
        self._policy = policy
        self._workers = policy.schedule
        self._poll = PollState(policy)
        self._changed = threading.Condition()  # guards all that follows
        self._updates: deque[Update | Exception | None] = deque()  # an exception or None is the last entry
        self._queued_lines = 0  # in `_updates`, weighed
        self._parked: list[_Reader] = []
        self._readers: dict[str, _Reader] = {}
        self._seen: JobRecord | None = None
        self._open_streams = 1  # the job itself, and every instance not read to its end
        self._ended_at: float | None = None
        self._end_check = EndCheck(policy)
        self._gave_up = False
        self._wake: Callable[[], None] = lambda: None  # of an event loop that waits; it takes no lock of ours
        self._closed = False
        self._seat: Seat | None = None  # from the first poll to the end of the job
        self._reported_key = False
        self._is_done = False
        self._is_held = True  # until the backend shows that it does not answer long polls

    @property
    def seen(self) -> JobRecord | None:
        """The last snapshot, which may not have been yielded yet."""
        return self._seen

    @property
    def is_done(self) -> bool:
        """Whether all updates were yielded, to the last line."""
        return self._is_done

    @property
    def gave_up(self) -> bool:
        """Whether a job that failed did not show why before its log was taken as complete."""
        return self._gave_up

    @property
    def trouble(self) -> BaseException | None:
        """The error of the last poll of the job; None after an answer."""
        seat = self._seat
        return self._poll.trouble or (seat.trouble if seat is not None else None)

    def updates(self, *, deadline: float | None = None) -> Iterator[Update]:
        """Lines and snapshots of the job as they come, until the job has ended and all is read."""
        self._begin()
        while True:
            left_s = None if deadline is None else deadline - self._workers.now()
            # The deadline holds for a slow consumer too, whatever the queue has.
            if left_s is not None and left_s <= 0:
                return
            if not self._workers.wait(self._changed, lambda: bool(self._updates), left_s):
                return
            update = self._take()
            if update is None:
                self._is_done = True
                return
            if isinstance(update, Exception):
                raise update
            yield update

    async def updates_async(self) -> AsyncGenerator[Update, None]:
        """The same for asyncio, without a deadline. No thread waits."""
        with waking(self._set_wake) as news:
            self._begin()
            while True:
                news.clear()
                if not self._updates:
                    await news.wait()
                    continue
                update = self._take()
                if update is None:
                    self._is_done = True
                    return
                if isinstance(update, Exception):
                    raise update
                yield update

    def _set_wake(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def _begin(self) -> None:
        self._seat = shared_pollers().join(self._backend, self._policy, self._job_id)
        self._schedule(self._poll_job)

    def close(self) -> None:
        """Stop: no step makes a new request. Requests under way end by themselves."""
        with self._changed:
            self._closed = True
            self._updates.clear()
            self._parked.clear()
            self._leave()

    def _leave(self) -> None:
        """The job needs no more polls."""
        seat, self._seat = self._seat, None
        if seat is not None:
            seat.close()

    # ---- the job

    def _poll_job(self) -> None:
        if self._has_ended:
            return
        seen, seat = self._seen, self._seat
        if seat is not None and seat.is_crowded:
            seat.listen(self._hear, seen, wants_all=True)
            return
        with self._workers.long_poll_slot(self._backend.endpoint, keep_free=_SLOTS_FOR_READERS) as granted:
            wait_s = self._policy.hold_s if granted and seen is not None else 0.0
            asked_at = self._workers.now()
            record = self._request(
                self._poll,
                self._poll_job,
                lambda: self._backend.get(self._job_id, changed_from=seen, wait_s=wait_s),
            )
        if record is None or self._update(record):
            return
        was_held = wait_s > 0 and self._was_held(asked_at)
        # The running time changes with every answer, and is no reason to poll sooner.
        is_news = seen is None or (record.status, record.instances) != (seen.status, seen.instances)
        pause_s = self._poll.pause_s(is_news=is_news, is_held=record._lists_all)
        self._schedule(self._poll_job, 0.0 if was_held else pause_s)

    def _hear(self, news: News) -> None:
        """Take what the poller of all jobs has found about this one."""
        if isinstance(news, JobRecord):
            self._update(news)
        elif not self._has_ended:
            with self._changed:
                self._publish(news)

    def _poll_job_once(self, poll: PollState) -> None:
        """Poll the job once, outside its schedule: a complete log shows that the job has ended."""
        record = self._request(poll, partial(self._poll_job_once, poll), lambda: self._backend.get(self._job_id))
        if record is not None:
            self._update(record)

    def _update(self, record: JobRecord) -> bool:
        """Take a snapshot of the job; returns whether the job has ended."""
        with self._changed:
            if self._has_ended:
                return True
            is_end = self._end_check.has_ended(record)
            if record != self._seen and (is_end or not record.status.is_terminal):
                self._seen = record
                self._publish(record)
                self._start_readers(record)
            if is_end:
                self._ended_at = self._workers.now()
                self._leave()
                self._wake_readers()
                if record.may_list_more:
                    self._schedule(self._listing_poll())
                else:
                    self._finish_stream()
            return self._has_ended

    @property
    def _has_ended(self) -> bool:
        return self._ended_at is not None

    def _listing_poll(self) -> Step:
        """The step that polls an ended job until all its instances are listed; a service may list them late."""
        poll = PollState(replace(self._policy, patience_s=min(self._policy.patience_s, _LISTING_PATIENCE_S)))
        ended_at = self._workers.now()

        def look() -> None:
            asked_at = self._workers.now()
            try:
                record = self._request(poll, look, lambda: self._backend.get(self._job_id))
            except PaiError:  # the end of the job is known already
                with self._changed:
                    self._finish_stream()
                return
            if record is None:
                return
            with self._changed:
                if record.status.is_terminal and record != self._seen:
                    self._seen = record
                    self._publish(record)
                    self._start_readers(record)
                # An answer may be older than the end that was seen.
                is_open = record.may_list_more or not record.status.is_terminal
                if is_open and asked_at - ended_at < self._policy.quiet_s:
                    self._schedule(look, poll.pause_s(is_news=False, is_held=True))
                else:
                    self._finish_stream()

        return look

    def _start_readers(self, record: JobRecord) -> None:
        for instance in self._instances_of(record):
            if instance not in self._readers:
                self._open_streams += 1
                reader = _Reader(instance, self._cursor.get(instance, 0), PollState(self._policy))
                self._readers[instance] = reader
                self._schedule_read(reader)

    # ---- its instances

    def _schedule_read(self, reader: _Reader, delay_s: float = 0.0) -> None:
        reader.turn += 1
        reader.is_asleep = delay_s > 0
        self._schedule(partial(self._read, reader, reader.turn), delay_s)

    def _wake_readers(self) -> None:
        """Read quiet logs now: their pauses are long, and the last lines are there at the end of the job."""
        for reader in self._readers.values():
            if reader.is_asleep:
                self._schedule_read(reader)

    def _read(self, reader: _Reader, turn: int) -> None:
        with self._changed:
            if turn != reader.turn:
                return
            reader.is_asleep = False
        try:
            self._read_page(reader)
        except PaiError as error:
            with self._changed:
                self._publish(LogFault(reader.instance, error))
                self._finish_stream()

    def _read_page(self, reader: _Reader) -> None:
        with self._workers.long_poll_slot(self._backend.endpoint) as granted:
            wait_s = self._policy.hold_s if granted and not self._has_ended else 0.0
            asked_at = self._workers.now()
            page = self._request(
                reader.poll,
                partial(self._read, reader, reader.turn),
                lambda: self._backend.read_log(
                    self._job_id, reader.instance, start=reader.next_line, limit=PAGE_LINES, wait_s=wait_s
                ),
                is_transient=self._may_appear_later,
            )
        if page is None:
            return
        if page.lines and wait_s > 0:
            self._is_held = page.waited
        was_held = page.waited and self._was_held(asked_at)
        lines = page.numbered(reader.instance, reader.next_line)
        with self._changed:
            if lines:
                reader.quiet_since = None
                self._publish_lines(reader, lines)
            pause_s = self._next_read_delay_s(reader, page, asked_at, was_held=was_held)
            if pause_s is None:
                self._publish_lines(reader, page.notice_of_rest(reader.instance, reader.next_line))
                self._finish_stream()
            elif self._queued_lines >= _MOST_QUEUED_LINES:
                self._parked.append(reader)
            else:
                self._schedule_read(reader, pause_s)

    def _may_appear_later(self, fault: PaiError) -> bool:
        """Whether the log may appear later: some services list an instance before it has a log."""
        longest_s = max(self._policy.quiet_s, self._policy.failed_quiet_s)
        is_early = self._ended_at is None or self._workers.now() - self._ended_at < longest_s
        return is_early and may_appear_later(fault)

    def _next_read_delay_s(
        self, reader: _Reader, page: LogPage, asked_at: float, *, was_held: bool
    ) -> float | None:
        """Seconds until the next read of the instance; None when its log is complete."""
        if page.complete:
            if not self._has_ended:
                self._schedule(partial(self._poll_job_once, PollState(self._policy)))
            return None
        has_more = page.total is not None and reader.next_line < page.total  # a service may grant short pages
        if was_held or len(page.lines) >= PAGE_LINES or (page.lines and has_more):
            return 0.0
        if not self._has_ended:
            if page.waited and page.lines:
                return _BATCH_DELAY_S
            is_held = self._is_held and (self._seen is None or self._seen._lists_all)
            return reader.poll.pause_s(is_news=bool(page.lines), is_held=is_held)
        if reader.quiet_since is None:
            reader.quiet_since = self._workers.now()
        # A slow answer shows the log at the time of the request, not now.
        quiet_s = self._quiet_needed_s(reader)
        needed_s = max(quiet_s, self._policy.failed_quiet_s) if has_more else quiet_s  # lines may be late
        if page.unsure:  # they are searched for
            needed_s = max(needed_s, self._policy.patience_s)
        if not page.lines and asked_at - reader.quiet_since >= needed_s:
            self._gave_up |= quiet_s > self._policy.quiet_s
            return None
        if page.unsure:
            return min(FIRST_PAUSE_S, self._policy.pause_s)
        return min(self._policy.pause_s, self._policy.quiet_s / 3)

    def _quiet_needed_s(self, reader: _Reader) -> float:
        """How long the log must be quiet after the end: longer for a failed job whose log shows no reason."""
        record = self._seen
        if record is None or not (record.status == JobStatus.FAILED or record.status.is_unknown_end):
            return self._policy.quiet_s
        listed = {one.name for one in record.instances if one.status and JobStatus(one.status).is_failure}
        suspects = [one for one in self._readers.values() if one.instance in listed or not listed]
        if reader not in suspects or any(shows_reason(one.last) for one in suspects):
            return self._policy.quiet_s
        return max(self._policy.quiet_s, self._policy.failed_quiet_s)

    # ---- steps

    def _was_held(self, asked_at: float) -> bool:
        return self._workers.now() - asked_at > min(FIRST_PAUSE_S, self._policy.pause_s)

    def _request(
        self,
        poll: PollState,
        retry: Step,
        call: Callable[[], _Answer],
        *,
        is_transient: Callable[[PaiError], bool] = lambda fault: False,
    ) -> _Answer | None:
        """The answer; None after an error that may pass, and then `retry` is scheduled.

        Makes one attempt, whatever the backend's own policy is: a pause here would keep a thread from other jobs.
        """
        try:
            with one_attempt():
                answer = call()
        except PaiError as fault:
            pause_s = poll.pause_after(fault, may_pass=fault.may_pass or is_transient(fault))
            if pause_s is None:
                raise
            if isinstance(fault, AuthenticationError) and fault.is_key_expired and not self._reported_key:
                self._reported_key = True
                logger.warning("following %s: %s; waiting for a new key", self._job_id, fault)
            logger.info("following %s: %s; trying again in %.1f s", self._job_id, fault, pause_s)
            if poll.should_report(pause_s):
                self._policy.retry.warnings.warn(fault, left_s=poll.left_s)
            self._schedule(retry, pause_s, is_retry=True)
            return None
        poll.answered()
        return answer

    def _schedule(self, step: Step, delay_s: float = 0.0, *, is_retry: bool = False) -> None:
        endpoint = self._backend.endpoint
        self._workers.call_later(partial(self._run_step, step), delay_s, endpoint=endpoint, is_retry=is_retry)

    def _run_step(self, step: Step) -> None:
        if self._closed:
            return
        try:
            step()
        except Exception as fault:  # a lost error would leave the consumer waiting for ever
            if not isinstance(fault, PaiError):
                logger.debug("following %s", self._job_id, exc_info=True)
            with self._changed:
                self._publish(fault)

    def _publish(self, update: Update | Exception | None) -> None:
        if not self._closed:
            self._updates.append(update)
            self._changed.notify_all()
            self._wake()

    def _publish_lines(self, reader: _Reader, lines: list[LogLine]) -> None:
        if lines:
            reader.next_line = lines[-1].next_number
            reader.last.extend(line.text for line in lines[-_LINES_FOR_A_REASON:])
            self._queued_lines += _weight(lines)
            self._publish(lines)

    def _take(self) -> Update | Exception | None:
        with self._changed:
            update = self._updates.popleft()
            if isinstance(update, list):
                self._queued_lines -= _weight(update)
            if self._parked and self._queued_lines < _MOST_QUEUED_LINES // 2:
                for reader in self._parked:
                    self._schedule_read(reader)
                self._parked.clear()
            return update

    def _finish_stream(self) -> None:
        self._open_streams -= 1
        if self._open_streams == 0:
            self._publish(None)


def _weight(lines: Sequence[LogLine]) -> int:
    """The cost of queued lines, in lines of a usual length."""
    return len(lines) + sum(len(line.text) for line in lines) // _CHARACTERS_A_LINE
