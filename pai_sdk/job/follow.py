"""Following a log: a job is watched and its instances are read, through faults, to the last line."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias, TypeVar

from pai_sdk.backend.base import Backend
from pai_sdk.errors import (
    AuthenticationError,
    BadAnswerError,
    ConnectionFailedError,
    PaiError,
    ServiceFaultError,
    ThrottledError,
)
from pai_sdk.job.record import JobRecord, LogLine, LogPage
from pai_sdk.job.workers import Schedule, Step, shared_workers
from pai_sdk.retry import RetryPolicy

__all__ = ["PAGE_LINES", "FollowPolicy", "Follower"]

logger = logging.getLogger(__name__)

PAGE_LINES = 10_000
_FULL_LINES = 50_000  # so much may wait for a slow consumer; then reading pauses
_FIRST_PAUSE_S = 0.1
_HOLDS_FOR_READERS = 6
_PASSING_FAULTS = (ConnectionFailedError, BadAnswerError, ThrottledError, ServiceFaultError)


@dataclass(frozen=True)
class FollowPolicy:
    """How patiently a log is followed.

    Attributes:
        hold_s: how long a backend may hold an answer back for news, in seconds.
        pause_s: the longest pause between two questions where answers are not held back.
        quiet_s: a job that has ended, on a backend that does not say when a log is complete, has said all it had
            to say when nothing came for so long.
        patience_s: how long a log may stay out of reach before following gives up; progress starts it anew.
        retry: the pauses between attempts while the log is out of reach.
        schedule: the threads that ask, and their clock; those of this process by default. Tests bring their own.
    """

    hold_s: float = 10.0
    pause_s: float = 1.0
    quiet_s: float = 3.0
    patience_s: float = 600.0
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    schedule: Schedule = field(default_factory=shared_workers)


_Answer = TypeVar("_Answer")

_Update: TypeAlias = JobRecord | list[LogLine] | Exception | None
"""What is handed over: news of the job, lines, a fault that ends it all, or the end."""


@dataclass
class _Asking:
    """One question that is asked again and again, and how that goes."""

    pause_s: float
    out_of_reach_since: float | None = None
    attempts: int = 0


@dataclass
class _Reader:
    """How far one instance has been read."""

    instance: str
    next_line: int
    asking: _Asking
    quiet_since: float | None = None


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
        self._first_pause_s = min(_FIRST_PAUSE_S, policy.pause_s)
        self._news = threading.Condition()  # guards all that follows
        self._updates: deque[_Update] = deque()
        self._waiting_lines = 0
        self._parked: list[_Reader] = []
        self._known: set[str] = set()
        self._seen: JobRecord | None = None
        self._open = 1  # the job itself, and every instance not read to its end
        self._ended = False
        self._closed = False
        self._told_of_key = False

    def updates(self, *, deadline: float | None = None) -> Iterator[list[LogLine] | JobRecord]:
        """Lines and snapshots of the job as they come, until the job has ended and all is read."""
        self._later(partial(self._watch, _Asking(self._first_pause_s)))
        while True:
            left_s = None if deadline is None else max(0.0, deadline - self._schedule.now())
            if not self._schedule.wait(self._news, lambda: bool(self._updates), left_s):
                return
            update = self._take()
            if update is None:
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

    def _watch(self, asking: _Asking) -> None:
        if self._ended:
            return
        seen, again = self._seen, partial(self._watch, asking)
        with self._schedule.may_hold(keep_free=_HOLDS_FOR_READERS) as granted:
            wait_s = self._policy.hold_s if granted and seen is not None else 0.0
            asked_at = self._schedule.now()
            record = self._answer(
                asking, again, lambda: self._backend.get(self._job_id, changed_from=seen, wait_s=wait_s)
            )
        if record is None or self._see(record):
            return
        is_news = record != seen
        was_held = wait_s and self._schedule.now() - asked_at > self._first_pause_s
        self._later(again, 0.0 if was_held or (is_news and granted) else self._pause_s(asking, is_news=is_news))

    def _look(self, asking: _Asking) -> None:
        """Ask once, besides the watching: a log has told that the job has ended."""
        record = self._answer(asking, partial(self._look, asking), lambda: self._backend.get(self._job_id))
        if record is not None:
            self._see(record)

    def _see(self, record: JobRecord) -> bool:
        """Take note of how the job stands; whether it has ended."""
        with self._news:
            if self._ended:
                return True
            if record != self._seen:
                self._seen = record
                self._put(record)
                self._read_new_instances(record)
            if record.status.is_terminal:
                self._ended = True
                self._one_less()
            return self._ended

    def _read_new_instances(self, record: JobRecord) -> None:
        for instance in self._wanted(record):
            if instance not in self._known:
                self._known.add(instance)
                self._open += 1
                reader = _Reader(instance, self._cursor.get(instance, 0), _Asking(self._first_pause_s))
                self._later(partial(self._read, reader))

    # ---- its instances

    def _read(self, reader: _Reader) -> None:
        with self._schedule.may_hold() as granted:
            wait_s = self._policy.hold_s if granted and not self._ended else 0.0
            page = self._answer(
                reader.asking,
                partial(self._read, reader),
                lambda: self._backend.read_log(
                    self._job_id, reader.instance, start=reader.next_line, limit=PAGE_LINES, wait_s=wait_s
                ),
            )
        if page is None:
            return
        lines = page.numbered(reader.instance, reader.next_line)
        with self._news:
            if lines:
                reader.next_line += len(lines)
                reader.quiet_since = None
                self._waiting_lines += len(lines)
                self._put(lines)
            pause_s = self._until_next(reader, page)
            if pause_s is None:
                self._one_less()
            elif self._waiting_lines >= _FULL_LINES:
                self._parked.append(reader)
            else:
                self._later(partial(self._read, reader), pause_s)

    def _until_next(self, reader: _Reader, page: LogPage) -> float | None:
        """Seconds until the instance is to be read again; None when it has said all."""
        if page.complete:
            if not self._ended:
                self._later(partial(self._look, _Asking(self._first_pause_s)))
            return None
        has_more = page.total is not None and reader.next_line < page.total  # a service may grant short pages
        if page.waited or len(page.lines) >= PAGE_LINES or (page.lines and has_more):
            return 0.0
        if not self._ended:
            return self._pause_s(reader.asking, is_news=bool(page.lines))
        now = self._schedule.now()
        reader.quiet_since = reader.quiet_since or now
        if not page.lines and now - reader.quiet_since >= self._policy.quiet_s:
            return None
        return min(self._policy.pause_s, self._policy.quiet_s / 3)

    # ---- what they share

    def _pause_s(self, asking: _Asking, *, is_news: bool) -> float:
        """Short while there is news, then longer and longer."""
        asking.pause_s = self._first_pause_s if is_news else min(self._policy.pause_s, asking.pause_s * 1.5)
        return asking.pause_s

    def _answer(self, asking: _Asking, again: Step, ask: Callable[[], _Answer]) -> _Answer | None:
        """The answer; None when there is none, and then the same is asked again later, or it is all over."""
        try:
            answer = ask()
        except PaiError as fault:
            if not _may_pass(fault):
                raise
            if isinstance(fault, AuthenticationError) and not self._told_of_key:
                self._told_of_key = True
                logger.warning("following %s: %s; waiting for a new key", self._job_id, fault)
            now = self._schedule.now()
            if asking.out_of_reach_since is None:
                asking.out_of_reach_since = now
            asking.attempts += 1
            if now - asking.out_of_reach_since > self._policy.patience_s:
                raise
            pause_s = self._policy.retry.pause_s(asking.attempts, getattr(fault, "retry_after_s", None))
            logger.info("following %s: %s; trying again in %.1f s", self._job_id, fault, pause_s)
            self._later(again, pause_s)
            return None
        asking.out_of_reach_since, asking.attempts = None, 0
        return answer

    def _later(self, step: Step, delay_s: float = 0.0) -> None:
        self._schedule.later(partial(self._guarded, step), delay_s)

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

    def _put(self, update: _Update) -> None:
        if not self._closed:
            self._updates.append(update)
            self._news.notify_all()

    def _take(self) -> _Update:
        with self._news:
            update = self._updates.popleft()
            if isinstance(update, list):
                self._waiting_lines -= len(update)
            if self._parked and self._waiting_lines < _FULL_LINES // 2:
                for reader in self._parked:
                    self._later(partial(self._read, reader))
                self._parked.clear()
            return update

    def _one_less(self) -> None:
        self._open -= 1
        if self._open == 0:
            self._put(None)


def _may_pass(fault: PaiError) -> bool:
    # The key is read anew for each request, and a temporary one may be renewed a little late.
    is_key_too_old = isinstance(fault, AuthenticationError) and fault.code.endswith("Expired")
    return is_key_too_old or isinstance(fault, _PASSING_FAULTS)
