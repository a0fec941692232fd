"""Following a log: the threads that watch a job and read its instances, through faults, to the last line."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from pai_sdk.backend.base import Backend
from pai_sdk.errors import BadAnswerError, ConnectionFailedError, PaiError, ServiceFaultError, ThrottledError
from pai_sdk.job.record import JobRecord, LogLine, LogPage
from pai_sdk.retry import RetryPolicy

__all__ = ["PAGE_LINES", "FollowPolicy", "Follower"]

logger = logging.getLogger(__name__)

PAGE_LINES = 1000
_CLOSE_S = 0.2
_PASSING_FAULTS = (ConnectionFailedError, BadAnswerError, ThrottledError, ServiceFaultError)


@dataclass(frozen=True)
class FollowPolicy:
    """How patiently a log is followed.

    Attributes:
        hold_s: how long a backend may hold an answer back for news, in seconds.
        pause_s: the pause between two questions to a backend that does not hold answers back.
        quiet_s: a job that has ended, on a backend that does not say when a log is complete, has said all it had
            to say when nothing came for so long.
        patience_s: how long a log may stay out of reach before following gives up; progress starts it anew.
        threads: the most threads that read at once, however many instances there are.
        retry: the pauses between attempts while the log is out of reach.
    """

    hold_s: float = 10.0
    pause_s: float = 1.0
    quiet_s: float = 3.0
    patience_s: float = 600.0
    threads: int = 8
    retry: RetryPolicy = field(default_factory=RetryPolicy)


_Answer = TypeVar("_Answer")

_Update: TypeAlias = JobRecord | list[LogLine] | Exception | None
"""What the background threads hand over: news of the job, lines, a fault that ends it all, or the end."""


@dataclass
class _Reader:
    """How far one instance has been read."""

    instance: str
    next_line: int
    quiet_since: float | None = None


class Follower:
    """The threads behind a followed stream: one that watches the job, and a few that read its instances.

    The hand-over queue is short, so a slow consumer slows the reading down instead of filling the memory.
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
        self._cursor = dict(cursor)
        self._policy = policy
        self._stop = threading.Event()
        self._ended = threading.Event()
        self._handover: queue.Queue[_Update] = queue.Queue(maxsize=64)
        self._due: queue.Queue[_Reader | None] = queue.Queue()
        self._known: set[str] = set()
        self._open = 1  # the watcher, and one for every instance not read to its end
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def updates(self, *, deadline: float | None = None) -> Iterator[list[LogLine] | JobRecord]:
        """Lines and snapshots of the job as they come, until the job has ended and all is read."""
        self._begin(self._watch, "watch")
        while True:
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                update = self._handover.get(timeout=left_s)
            except queue.Empty:
                return
            if update is None:
                return
            if isinstance(update, Exception):
                raise update
            yield update

    def close(self) -> None:
        """Tell the threads to end. One that waits for an answer ends with it; it can do no harm until then."""
        self._stop.set()
        for _ in self._threads:
            self._due.put(None)
        deadline = time.monotonic() + _CLOSE_S
        for thread in self._threads:
            thread.join(timeout=max(0.0, deadline - time.monotonic()))
        late = [thread.name for thread in self._threads if thread.is_alive()]
        if late:
            logger.debug("still waiting for an answer after close: %s", ", ".join(late))

    # ---- the thread that watches the job

    def _watch(self) -> None:
        seen: JobRecord | None = None
        while not self._stop.is_set():
            asked = time.monotonic()
            record = self._patiently(lambda seen=seen: self._ask(seen))  # type: ignore[misc]
            if record is None:
                return
            is_news = record != seen
            if is_news:
                seen = record
                self._put(record)
                self._read_new_instances(record)
            if record.status.is_terminal:
                self._ended.set()
                self._one_less()
                return
            if not is_news and time.monotonic() - asked < self._policy.pause_s / 4:
                self._stop.wait(self._policy.pause_s)  # a backend that does not hold its answers back

    def _ask(self, seen: JobRecord | None) -> JobRecord:
        wait_s = self._policy.hold_s if seen is not None else 0.0
        return self._backend.get(self._job_id, changed_from=seen, wait_s=wait_s)

    def _read_new_instances(self, record: JobRecord) -> None:
        for instance in self._wanted(record):
            if instance in self._known:
                continue
            self._known.add(instance)
            with self._lock:
                self._open += 1
            self._due.put(_Reader(instance, self._cursor.get(instance, 0)))
            if len(self._known) <= self._policy.threads:
                self._begin(self._read, f"read-{len(self._known)}")

    # ---- the threads that read

    def _read(self) -> None:
        while not self._stop.is_set():
            reader = self._due.get()
            if reader is None:
                return
            page = self._patiently(lambda reader=reader: self._page(reader))  # type: ignore[misc]
            if page is None:
                return
            if self._take(reader, page):
                self._due.put(reader)
            else:
                self._one_less()

    def _page(self, reader: _Reader) -> LogPage:
        # With more instances than threads nobody may hold a thread: the others' lines would wait.
        crowded = len(self._known) > self._policy.threads
        wait_s = 0.0 if crowded or self._ended.is_set() else self._policy.hold_s
        return self._backend.read_log(
            self._job_id, reader.instance, start=reader.next_line, limit=PAGE_LINES, wait_s=wait_s
        )

    def _take(self, reader: _Reader, page: LogPage) -> bool:
        """Hand a page over; whether the instance may have more to say."""
        if page.lines:
            self._put(page.numbered(reader.instance, reader.next_line))
            reader.next_line += len(page.lines)
            reader.quiet_since = None
        if page.complete:
            return False
        has_more = page.total is not None and reader.next_line < page.total  # a service may grant short pages
        if page.waited or len(page.lines) >= PAGE_LINES or (page.lines and has_more):
            return True
        now = time.monotonic()
        if self._ended.is_set() and not page.lines:
            reader.quiet_since = reader.quiet_since or now
            if now - reader.quiet_since >= self._policy.quiet_s:
                return False
        self._stop.wait(self._pause_s())
        return True

    def _pause_s(self) -> float:
        # Every instance is asked about once a pause, however few the threads are.
        crowd = max(1.0, len(self._known) / self._policy.threads)
        return min(self._policy.pause_s, self._policy.quiet_s / 3) / crowd

    # ---- what they share

    def _patiently(self, ask: Callable[[], _Answer]) -> _Answer | None:
        """Ask until there is an answer, the patience is used up, or nobody wants it any more (None)."""
        first_fault: float | None = None
        attempt = 0
        while not self._stop.is_set():
            try:
                return ask()
            except _PASSING_FAULTS as fault:
                now = time.monotonic()
                first_fault = first_fault or now
                attempt += 1
                if now - first_fault > self._policy.patience_s:
                    self._put(fault)
                    return None
                pause = self._policy.retry.pause_s(attempt, getattr(fault, "retry_after_s", None))
                logger.info("following %s: %s; trying again in %.1f s", self._job_id, fault, pause)
                self._stop.wait(pause)
            except PaiError as fault:
                self._put(fault)
                return None
        return None

    def _put(self, update: _Update) -> None:
        while not self._stop.is_set():
            try:
                self._handover.put(update, timeout=0.5)
                return
            except queue.Full:
                continue

    def _one_less(self) -> None:
        with self._lock:
            self._open -= 1
            last = self._open == 0
        if last:
            self._put(None)

    def _begin(self, work: Callable[[], None], name: str) -> None:
        def guarded() -> None:
            try:
                work()
            except Exception as fault:  # a thread that dies silently would leave its reader waiting for ever
                self._put(fault)

        thread = threading.Thread(target=guarded, name=f"pai-log-{name}", daemon=True)
        self._threads.append(thread)
        thread.start()
