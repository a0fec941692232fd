"""Following a log: a job is watched and its instances are read, through faults, to the last line."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias, TypeVar

from pai_sdk.backend.base import Backend
from pai_sdk.base.retry import one_attempt
from pai_sdk.errors import AuthenticationError, PaiError
from pai_sdk.job.polling import (
    FIRST_PAUSE_S,
    Asking,
    FollowPolicy,
    may_not_be_there_yet,
)
from pai_sdk.job.reasons import shows_reason
from pai_sdk.job.workers import Step
from pai_sdk.schemas.record import JobRecord, LogLine, LogPage
from pai_sdk.schemas.status import JobStatus

__all__ = ["PAGE_LINES", "FollowPolicy", "Follower", "LogFault", "Update"]

logger = logging.getLogger(__name__)

PAGE_LINES = 10_000
_FULL = 50_000  # so many lines may wait for a slow consumer; then reading pauses
_CHARACTERS_A_LINE = 500  # longer ones count for more
_BREATH_S = 0.02  # where lines come faster than we can ask, a few are taken at once
_HOLDS_FOR_READERS = 6
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
    asking: Asking
    quiet_since: float | None = None
    last: deque[str] = field(default_factory=lambda: deque(maxlen=_LINES_FOR_A_REASON))
    turn: int = 0  # of the step that reads next; steps planned before it do nothing
    is_asleep: bool = False


class Follower:
    """Watches a job and reads its instances; what comes is handed over to whoever iterates.

    What waits to be taken is bounded: a slow consumer slows the reading down instead of filling the memory.
    """

    def __init__(
        self,
        backend: Backend,
        job_id: str,
        wanted: Callable[[JobRecord], list[str]],
        cursor: Mapping[str, int],
        policy: FollowPolicy,
    ) -> None:
        self._backend = backend
        self._job_id = job_id
        self._wanted = wanted
        self._cursor = cursor  # as it is when an instance appears: `wanted` may add to it
        self._policy = policy
        self._schedule = policy.schedule
        self._asking = Asking(policy)
        self._news = threading.Condition()  # guards all that follows
        self._updates: deque[Update | Exception | None] = deque()  # an exception, or None, is the end of it all
        self._waiting = 0  # lines in there, weighed
        self._parked: list[_Reader] = []
        self._readers: dict[str, _Reader] = {}
        self._seen: JobRecord | None = None
        self._open = 1  # the job itself, and every instance not read to its end
        self._ended_at: float | None = None
        self._unknown_end: tuple[str, float] | None = None  # a status, and since when it seems to be the end
        self._gave_up = False
        self._closed = False
        self._told_of_key = False
        self._is_done = False
        self._is_held = True  # until the backend shows that it does not hold answers back

    @property
    def seen(self) -> JobRecord | None:
        """The last snapshot, which may not have been handed over yet."""
        return self._seen

    @property
    def is_done(self) -> bool:
        """Whether all has been handed over, to the last line."""
        return self._is_done

    @property
    def gave_up(self) -> bool:
        """Whether a job that failed did not show why before its log was taken as complete."""
        return self._gave_up

    @property
    def trouble(self) -> BaseException | None:
        """Why nothing new is known of the job; None while it is within reach."""
        return self._asking.trouble

    def updates(self, *, deadline: float | None = None) -> Iterator[Update]:
        """Lines and snapshots of the job as they come, until the job has ended and all is read."""
        self._later(self._watch)
        while True:
            left_s = None if deadline is None else deadline - self._schedule.now()
            # Whatever waits to be taken: one who is slow to take it has a deadline all the same.
            if left_s is not None and left_s <= 0:
                return
            if not self._schedule.wait(self._news, lambda: bool(self._updates), left_s):
                return
            update = self._take()
            if update is None:
                self._is_done = True
                return
            if isinstance(update, Exception):
                raise update
            yield update

    def close(self) -> None:
        """Ask no more. What waits for an answer ends with it; it can do no harm until then."""
        with self._news:
            self._closed = True
            self._updates.clear()
            self._parked.clear()

    # ---- the job

    def _watch(self) -> None:
        if self._has_ended:
            return
        seen = self._seen
        with self._schedule.may_hold(self._backend.endpoint, keep_free=_HOLDS_FOR_READERS) as granted:
            wait_s = self._policy.hold_s if granted and seen is not None else 0.0
            asked_at = self._schedule.now()
            record = self._answer(
                self._asking,
                self._watch,
                lambda: self._backend.get(self._job_id, changed_from=seen, wait_s=wait_s),
            )
        if record is None or self._see(record):
            return
        was_held = wait_s > 0 and self._was_held(asked_at)
        # How long it has been running changes all the time, and is no reason to look closer.
        is_news = seen is None or (record.status, record.instances) != (seen.status, seen.instances)
        pause_s = self._asking.pause_s(is_news=is_news, is_held=record._lists_all)
        self._later(self._watch, 0.0 if was_held else pause_s)

    def _look(self, asking: Asking) -> None:
        """Ask once, besides the watching: a log has told that the job has ended."""
        record = self._answer(asking, partial(self._look, asking), lambda: self._backend.get(self._job_id))
        if record is not None:
            self._see(record)

    def _see(self, record: JobRecord) -> bool:
        """Take note of how the job stands; whether it has ended."""
        with self._news:
            if self._has_ended:
                return True
            is_end = self._is_end(record)
            if record != self._seen and (is_end or not record.status.is_terminal):
                self._seen = record
                self._put(record)
                self._read_new_instances(record)
            if is_end:
                self._ended_at = self._schedule.now()
                self._wake_readers()
                if record.may_list_more:
                    self._later(self._until_all_are_listed())
                else:
                    self._one_less()
            return self._has_ended

    @property
    def _has_ended(self) -> bool:
        return self._ended_at is not None

    def _is_end(self, record: JobRecord) -> bool:
        """Whether the job has ended; a status that is not known must stay the last one for a while."""
        if not record.status.is_unknown_end:
            self._unknown_end = None
            return record.status.is_terminal
        now = self._schedule.now()
        if self._unknown_end is None or self._unknown_end[0] != record.status:
            self._unknown_end = record.status, now
        return now - self._unknown_end[1] >= self._policy.quiet_s

    def _until_all_are_listed(self) -> Step:
        """A job that ended soon may be seen to have ended before all its instances are listed."""
        asking = Asking(replace(self._policy, patience_s=min(self._policy.patience_s, _LISTING_PATIENCE_S)))
        ended_at = self._schedule.now()

        def look() -> None:
            asked_at = self._schedule.now()
            try:
                record = self._answer(asking, look, lambda: self._backend.get(self._job_id))
            except PaiError:  # how the job has ended is known, and stays
                with self._news:
                    self._one_less()
                return
            if record is None:
                return
            with self._news:
                if record.status.is_terminal and record != self._seen:
                    self._seen = record
                    self._put(record)
                    self._read_new_instances(record)
                # An answer may be older than the end that we have seen.
                is_open = record.may_list_more or not record.status.is_terminal
                if is_open and asked_at - ended_at < self._policy.quiet_s:
                    self._later(look, asking.pause_s(is_news=False, is_held=True))
                else:
                    self._one_less()

        return look

    def _read_new_instances(self, record: JobRecord) -> None:
        for instance in self._wanted(record):
            if instance not in self._readers:
                self._open += 1
                reader = _Reader(instance, self._cursor.get(instance, 0), Asking(self._policy))
                self._readers[instance] = reader
                self._read_later(reader)

    # ---- its instances

    def _read_later(self, reader: _Reader, delay_s: float = 0.0) -> None:
        reader.turn += 1
        reader.is_asleep = delay_s > 0
        self._later(partial(self._read, reader, reader.turn), delay_s)

    def _wake_readers(self) -> None:
        """Read quiet logs now: the pauses of a quiet job are long, and its last lines are there at its end."""
        for reader in self._readers.values():
            if reader.is_asleep:
                self._read_later(reader)

    def _read(self, reader: _Reader, turn: int) -> None:
        with self._news:
            if turn != reader.turn:
                return
            reader.is_asleep = False
        try:
            self._read_on(reader)
        except PaiError as error:
            with self._news:
                self._put(LogFault(reader.instance, error))
                self._one_less()

    def _read_on(self, reader: _Reader) -> None:
        with self._schedule.may_hold(self._backend.endpoint) as granted:
            wait_s = self._policy.hold_s if granted and not self._has_ended else 0.0
            asked_at = self._schedule.now()
            page = self._answer(
                reader.asking,
                partial(self._read, reader, reader.turn),
                lambda: self._backend.read_log(
                    self._job_id, reader.instance, start=reader.next_line, limit=PAGE_LINES, wait_s=wait_s
                ),
                may_come=self._may_come,
            )
        if page is None:
            return
        if page.lines and wait_s > 0:
            self._is_held = page.waited
        was_held = page.waited and self._was_held(asked_at)
        lines = page.numbered(reader.instance, reader.next_line)
        with self._news:
            if lines:
                reader.next_line += len(lines)
                reader.quiet_since = None
                reader.last.extend(line.text for line in lines[-_LINES_FOR_A_REASON:])
                self._waiting += _weight(lines)
                self._put(lines)
            pause_s = self._until_next(reader, page, asked_at, was_held=was_held)
            if pause_s is None:
                self._one_less()
            elif self._waiting >= _FULL:
                self._parked.append(reader)
            else:
                self._read_later(reader, pause_s)

    def _may_come(self, fault: PaiError) -> bool:
        """Whether the log may be there later: not all services have it as soon as they list its instance."""
        longest_s = max(self._policy.quiet_s, self._policy.failed_quiet_s)
        is_early = self._ended_at is None or self._schedule.now() - self._ended_at < longest_s
        return is_early and may_not_be_there_yet(fault)

    def _until_next(self, reader: _Reader, page: LogPage, asked_at: float, *, was_held: bool) -> float | None:
        """Seconds until the instance is to be read again; None when it has said all."""
        if page.complete:
            if not self._has_ended:
                self._later(partial(self._look, Asking(self._policy)))
            return None
        has_more = page.total is not None and reader.next_line < page.total  # a service may grant short pages
        if was_held or len(page.lines) >= PAGE_LINES or (page.lines and has_more):
            return 0.0
        if not self._has_ended:
            if page.waited and page.lines:
                return _BREATH_S
            is_held = self._is_held and (self._seen is None or self._seen._lists_all)
            return reader.asking.pause_s(is_news=bool(page.lines), is_held=is_held)
        if reader.quiet_since is None:
            reader.quiet_since = self._schedule.now()
        # An answer that took long tells how it was when it was asked for, not how it is now.
        quiet_s = self._quiet_s(reader)
        if not page.lines and asked_at - reader.quiet_since >= quiet_s:
            self._gave_up |= quiet_s > self._policy.quiet_s
            return None
        return min(self._policy.pause_s, self._policy.quiet_s / 3)

    def _quiet_s(self, reader: _Reader) -> float:
        """How long a log of the job must be quiet after the end: longer where lines are missing for sure."""
        record = self._seen
        if record is None or not (record.status == JobStatus.FAILED or record.status.is_unknown_end):
            return self._policy.quiet_s
        listed = {one.name for one in record.instances if one.status and JobStatus(one.status).is_failure}
        suspects = [one for one in self._readers.values() if one.instance in listed or not listed]
        if reader not in suspects or any(shows_reason(one.last) for one in suspects):
            return self._policy.quiet_s
        return max(self._policy.quiet_s, self._policy.failed_quiet_s)

    # ---- what they share

    def _was_held(self, asked_at: float) -> bool:
        return self._schedule.now() - asked_at > min(FIRST_PAUSE_S, self._policy.pause_s)

    def _answer(
        self,
        asking: Asking,
        again: Step,
        ask: Callable[[], _Answer],
        *,
        may_come: Callable[[PaiError], bool] = lambda fault: False,
    ) -> _Answer | None:
        """The answer; None when there is none, and then the same is asked again later.

        One attempt, whatever the backend's own policy is: a pause in here would keep a thread from other jobs.
        """
        try:
            with one_attempt():
                answer = ask()
        except PaiError as fault:
            pause_s = asking.pause_after(fault, may_pass=fault.may_pass or may_come(fault))
            if pause_s is None:
                raise
            if isinstance(fault, AuthenticationError) and fault.is_key_expired and not self._told_of_key:
                self._told_of_key = True
                logger.warning("following %s: %s; waiting for a new key", self._job_id, fault)
            logger.info("following %s: %s; trying again in %.1f s", self._job_id, fault, pause_s)
            if asking.is_to_be_told(pause_s):
                self._policy.retry.warnings.warn(fault, left_s=asking.left_s)
            self._later(again, pause_s, is_retry=True)
            return None
        asking.answered()
        return answer

    def _later(self, step: Step, delay_s: float = 0.0, *, is_retry: bool = False) -> None:
        endpoint = self._backend.endpoint
        self._schedule.later(partial(self._guarded, step), delay_s, endpoint=endpoint, is_retry=is_retry)

    def _guarded(self, step: Step) -> None:
        if self._closed:
            return
        try:
            step()
        except Exception as fault:  # one that is lost here would leave the reader waiting for ever
            if not isinstance(fault, PaiError):
                logger.debug("following %s", self._job_id, exc_info=True)
            with self._news:
                self._put(fault)

    def _put(self, update: Update | Exception | None) -> None:
        if not self._closed:
            self._updates.append(update)
            self._news.notify_all()

    def _take(self) -> Update | Exception | None:
        with self._news:
            update = self._updates.popleft()
            if isinstance(update, list):
                self._waiting -= _weight(update)
            if self._parked and self._waiting < _FULL // 2:
                for reader in self._parked:
                    self._read_later(reader)
                self._parked.clear()
            return update

    def _one_less(self) -> None:
        self._open -= 1
        if self._open == 0:
            self._put(None)


def _weight(lines: Sequence[LogLine]) -> int:
    """What they cost while they wait, in lines of a usual length."""
    return len(lines) + sum(len(line.text) for line in lines) // _CHARACTERS_A_LINE
