"""Follows a job: receives its snapshots from the poller, and reads the logs of its instances to the last line."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, TypeVar

from pai_sdk._client.backend.base import Backend
from pai_sdk._client.job.follow.poller import Subscription, shared_pollers
from pai_sdk._client.job.follow.polling import (
    EndCheck,
    FollowPolicy,
    PollState,
)
from pai_sdk._client.job.follow.read_pace import PAGE_LINES, REASON_LINES, LogReader, ReadPace
from pai_sdk._client.job.follow.updates import UpdateQueue
from pai_sdk._client.job.follow.workers import Step
from pai_sdk._core.retry import single_attempt
from pai_sdk._wire.pai.record import JobRecord, LogLine
from pai_sdk.errors import PaiError

logger = logging.getLogger(__name__)

_MAX_QUEUED_LINES = 50_000  # lines queued for a slow consumer; then reading pauses
_CHARACTERS_PER_LINE = 500  # a line counts once more for each 500 characters of all lines
_LISTING_PATIENCE_S = 20.0


@dataclass(frozen=True)
class LogError:
    """A permanent error of the log of one instance; the other instances are still read."""

    instance: str
    error: PaiError


Update: TypeAlias = list[LogLine] | JobRecord | LogError

_Response = TypeVar("_Response")


class Follower:
    """Follows a job and reads the logs of its instances; `updates` yields lines and snapshots.

    The poller of the backend calls `_on_update` with snapshots of the job. Logs are read in steps: a step makes at
    most one request, in a worker thread, and then schedules the next step, or publishes an error, or finishes its
    stream. The queue of updates is bounded: a slow consumer slows the reading down.

        job       subscribed -> ended -> all instances listed -> finished
        instance  reading <-> scheduled (pause, retry) -> finished, at the last line or at an error
                     ^-> parked: the queue is full; `_next_update` schedules the reader again
        follower  open -> done, when the job and all instances are finished (`_open_streams` is 0)

    Locks: `_changed`, the lock of the queue, guards the fields below it and the readers. It is held to change
    state, never during a request. Steps read `_last_record`, `_pace.ended_at` and `_closed` without it: a stale
    value costs one more request. A reader's `next_line` and `poll` are used only by the step of the reader's
    current `generation`. Within `_changed` the locks of the pollers and of the workers are acquired, never the
    other way round: the poller calls `_on_update` without a lock.
    Called with `_changed` held: `_unsubscribe`, `_apply_snapshot`, `_publish_lines`, `_finish_stream`,
    `_finish_job`, `_start_readers`, `_schedule_read`, `_wake_readers`, and what changes a reader in `_pace`.
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
        self._instances_of = instances_of  # the instances of a snapshot whose logs are read
        # The first line by instance; -n for the last n. Not copied: `instances_of` may add to it before an
        # instance appears.
        self._cursor = cursor
        self._policy = policy
        self._workers = policy.schedule
        # The last entry is None, or the error that ends it.
        self._updates: UpdateQueue[Update | Exception | None] = UpdateQueue(policy.schedule)
        self._changed = self._updates.changed  # guards all that follows
        self._queued_lines = 0  # in `_updates`, weighed
        self._parked: list[LogReader] = []
        self._readers: dict[str, LogReader] = {}
        self._last_record: JobRecord | None = None
        self._open_streams = 1  # the job itself, and every instance not read to its end
        self._is_job_finished = False
        self._end_check = EndCheck(policy)
        self._pace = ReadPace(policy)
        self._closed = False
        self._subscription: Subscription | None = None  # until the job has ended and its instances are listed
        self._is_done = False

    @property
    def last_record(self) -> JobRecord | None:
        """Returns the last snapshot, which may not have been yielded yet."""
        return self._last_record

    @property
    def is_done(self) -> bool:
        """Returns whether all updates up to the last line were yielded."""
        return self._is_done

    @property
    def gave_up(self) -> bool:
        """Returns whether the log of a failed job was considered complete although it shows no reason."""
        return self._pace.gave_up

    @property
    def trouble(self) -> BaseException | None:
        """Returns the error of the last poll of the job; None after a response."""
        subscription = self._subscription
        return subscription.trouble if subscription is not None else None

    def updates(self, *, deadline: float | None = None) -> Iterator[Update]:
        """Yields lines and snapshots as they arrive, until the job has finished and its logs are complete."""
        self._subscribe()
        while self._updates.wait(deadline):
            update = self._next_update()
            if update is None:
                return
            yield update
            # The deadline holds for a slow consumer too, whatever the queue has.
            if deadline is not None and self._workers.now() >= deadline:
                return

    async def updates_async(self) -> AsyncGenerator[Update, None]:
        """Yields lines and snapshots in an asyncio program, without a deadline; no thread waits."""
        self._subscribe()
        while True:
            await self._updates.wait_async()
            update = self._next_update()
            if update is None:
                return
            yield update

    def _subscribe(self) -> None:
        with self._changed:  # `_on_update` may be called before this returns
            self._subscription = shared_pollers().subscribe(
                self._backend, self._policy, self._job_id, self._on_update, needs_full_records=True
            )

    def close(self) -> None:
        """Stops following; steps make no new request, and the responses of current ones are dropped."""
        with self._changed:
            self._closed = True
            self._updates.clear()
            self._parked.clear()
            self._unsubscribe()

    def _unsubscribe(self) -> None:
        """Closes the subscription: the job needs no more polls."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close()

    # ---- the job

    def _on_update(self, update: JobRecord | Exception) -> None:
        """Processes a snapshot of the job, or the error that ended its polling."""
        with self._changed:
            if self._closed or self._is_job_finished:
                return
            if isinstance(update, JobRecord):
                try:
                    self._apply_snapshot(update)
                except Exception as error:  # of `instances_of`
                    self._publish(error)
            elif self._pace.has_ended:  # the job finished before its polling failed, so the error does not matter
                self._finish_job()
            else:
                self._publish(update)

    def _apply_snapshot(self, record: JobRecord) -> None:
        has_ended = self._end_check.has_ended(record)
        if record != self._last_record and (has_ended or not (self._pace.has_ended or record.status.is_terminal)):
            self._last_record = record
            self._publish(record)
            self._start_readers(record)
        if has_ended and not self._pace.has_ended:
            self._pace.ended_at = self._workers.now()
            self._wake_readers()
            if record.may_list_more:
                self._schedule(self._end_listing, _LISTING_PATIENCE_S)
        if self._pace.ended_at is not None:
            # A late response may be older than the one that showed the end.
            may_list_more = record.may_list_more or not record.status.is_terminal
            if not may_list_more or self._workers.now() - self._pace.ended_at >= self._policy.quiet_s:
                self._finish_job()

    def _end_listing(self) -> None:
        """Stops waiting for instances that the service may still list."""
        with self._changed:
            self._finish_job()

    def _finish_job(self) -> None:
        """Marks the list of instances as complete."""
        if not self._is_job_finished:
            self._is_job_finished = True
            self._unsubscribe()
            self._finish_stream()

    def _start_readers(self, record: JobRecord) -> None:
        for instance in self._instances_of(record):
            if instance not in self._readers:
                self._open_streams += 1
                reader = LogReader(instance, self._cursor.get(instance, 0), PollState(self._policy, instance))
                self._readers[instance] = reader
                self._schedule_read(reader)

    # ---- its instances

    def _schedule_read(self, reader: LogReader, delay_s: float = 0.0) -> None:
        reader.generation += 1
        reader.is_paused = delay_s > 0
        self._schedule(partial(self._read, reader, reader.generation), delay_s)

    def _wake_readers(self) -> None:
        """Reads quiet logs now: the job has finished, so their last lines are written."""
        # A new generation makes the step that is already scheduled do nothing: no instance is read twice.
        for reader in self._readers.values():
            if reader.is_paused:
                self._schedule_read(reader)

    def _read(self, reader: LogReader, generation: int) -> None:
        with self._changed:
            if generation != reader.generation:
                return
            reader.is_paused = False
        try:
            self._read_page(reader)
        except PaiError as error:
            with self._changed:
                self._publish(LogError(reader.instance, error))
                self._finish_stream()

    def _read_page(self, reader: LogReader) -> None:
        retry = partial(self._read, reader, reader.generation)
        if reader.next_line < 0:
            first = self._request(
                reader.poll,
                retry,
                lambda: self._backend.read_log(self._job_id, reader.instance, start=0, limit=1),
            )
            if first is not None:
                reader.next_line = max(0, (first.total or 0) + reader.next_line)
                self._schedule(retry)
            return
        with self._workers.long_poll_slot(self._backend.endpoint) as granted:
            wait_s = self._policy.hold_s if granted and not self._pace.has_ended else 0.0
            requested_at = self._workers.now()
            page = self._request(
                reader.poll,
                retry,
                lambda: self._backend.read_log(
                    self._job_id, reader.instance, start=reader.next_line, limit=PAGE_LINES, wait_s=wait_s
                ),
                is_transient=self._pace.may_appear_later,
            )
        if page is None:
            return
        read = self._pace.read_of(page, requested_at, wait_s)
        lines = page.numbered(reader.instance, reader.next_line)
        with self._changed:
            if lines:
                self._pace.record_lines(reader, len(lines))
                self._publish_lines(reader, lines)
            if page.complete and not self._pace.has_ended and self._subscription is not None:
                self._subscription.refresh()  # only the log of a finished job is complete, so poll the job now
            readers = self._readers.values()
            pause_s = self._pace.next_read_delay_s(reader, read, self._last_record, readers)
            if pause_s is None:
                self._publish_lines(reader, page.missing_at_end(reader.instance, reader.next_line))
                self._finish_stream()
            elif self._queued_lines >= _MAX_QUEUED_LINES:
                self._parked.append(reader)
            else:
                self._schedule_read(reader, pause_s)

    # ---- steps

    def _request(
        self,
        poll: PollState,
        retry: Step,
        call: Callable[[], _Response],
        *,
        is_transient: Callable[[PaiError], bool] = lambda error: False,
    ) -> _Response | None:
        """Returns the response; None after a transient error, and then `retry` is scheduled."""
        try:
            # One attempt, whatever the policy of the backend is: a pause would keep this thread from other jobs.
            with single_attempt():
                response = call()
        except PaiError as error:
            pause_s = poll.pause_after(error, may_pass=error.may_pass or is_transient(error))
            if pause_s is None:
                raise
            self._schedule(retry, pause_s, is_retry=True)
            return None
        poll.on_response()
        return response

    def _schedule(self, step: Step, delay_s: float = 0.0, *, is_retry: bool = False) -> None:
        endpoint = self._backend.endpoint
        self._workers.call_later(partial(self._run_step, step), delay_s, endpoint=endpoint, is_retry=is_retry)

    def _run_step(self, step: Step) -> None:
        if self._closed:
            return
        try:
            step()
        except Exception as error:  # a lost error would leave the consumer waiting for ever
            if not isinstance(error, PaiError):
                logger.debug("following %s", self._job_id, exc_info=True)
            self._publish(error)

    def _publish(self, update: Update | Exception | None) -> None:
        with self._changed:
            if not self._closed:
                self._updates.put(update)

    def _publish_lines(self, reader: LogReader, lines: list[LogLine]) -> None:
        if lines:
            reader.next_line = lines[-1].next_number
            reader.last.extend(line.text for line in lines[-REASON_LINES:])
            self._queued_lines += _weight(lines)
            self._publish(lines)

    def _next_update(self) -> Update | None:
        """Returns the next update; None at the end."""
        with self._changed:
            update = self._updates.take()
            if isinstance(update, list):
                self._queued_lines -= _weight(update)
            # At half of the limit: at the limit itself, readers would park and wake for every page.
            if self._parked and self._queued_lines < _MAX_QUEUED_LINES // 2:
                for reader in self._parked:
                    self._schedule_read(reader)
                self._parked.clear()
        if isinstance(update, Exception):
            raise update
        self._is_done = update is None
        return update

    def _finish_stream(self) -> None:
        self._open_streams -= 1
        if self._open_streams == 0:
            self._publish(None)


def _weight(lines: Sequence[LogLine]) -> int:
    """Returns the memory cost of queued lines, in lines of a usual length."""
    return len(lines) + sum(len(line.text) for line in lines) // _CHARACTERS_PER_LINE
