"""One poller a backend: it asks for all jobs that are being waited for, however many, at a bounded rate.

`JobPollers.join` gives a seat to everyone who waits for a job: a `Follower`, or a `JobWatch` for each of its jobs.
A few jobs are polled by their own followers. When a backend is crowded, they listen to its poller instead.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TypeAlias

from pai_sdk.backend.base import Backend, JobChanges
from pai_sdk.base.retry import one_attempt
from pai_sdk.errors import InvalidRequestError, NotFoundError, PaiError, PermissionDeniedError
from pai_sdk.job.polling import FollowPolicy, PollState
from pai_sdk.job.watched_jobs import Watched, WatchedJobs
from pai_sdk.job.workers import Step
from pai_sdk.schemas.record import JobRecord

__all__ = ["JobPoller", "JobPollers", "News", "Seat", "shared_pollers"]

logger = logging.getLogger(__name__)

News: TypeAlias = JobRecord | Exception

_FEW_JOBS = 4  # of one backend, polled by their own followers
_SLOTS_FOR_READERS = 6
_GATHER_S = 0.02  # who joins within this time is asked for by one request
_SHORTEST_S, _LONGEST_S, _JOBS_A_SECOND = 0.1, 1.0, 100.0
_CONFIRM_EVERY_S = 0.2
_FIRST_HOLD_S = 1.0


class Seat:
    """The place of one who waits for one job; from `JobPollers.join`. Close it at the end."""

    def __init__(self, pollers: JobPollers, poller: JobPoller, job_id: str) -> None:
        self._pollers = pollers
        self._poller = poller
        self.job_id = job_id
        self.on_news: Callable[[News], None] | None = None
        self.wants_all = False

    @property
    def is_crowded(self) -> bool:
        """Whether so many jobs of this backend are being waited for that they should be asked for together."""
        return self._poller.is_crowded

    @property
    def trouble(self) -> BaseException | None:
        """The error of the last request; None after an answer, and for a seat that does not listen."""
        return self._poller.trouble if self.on_news is not None else None

    def listen(self, on_news: Callable[[News], None], seen: JobRecord | None, *, wants_all: bool = False) -> None:
        """Be called with each new snapshot of the job, until the seat is closed; with an error, for the last time.

        Args:
            on_news: called in a worker thread, without any lock of the poller; it must be quick.
            seen: the last snapshot that the caller has; it is not given again.
            wants_all: every change is confirmed by `get`, so that no field is missing. Otherwise only the end is.
        """
        self.on_news, self.wants_all = on_news, wants_all
        self._poller._listen(self, seen)

    def close(self) -> None:
        """Leave. A call of `on_news` that is under way ends by itself."""
        self._pollers._leave(self)


class JobPollers:
    """The pollers of a process, by backend and schedule. A poller is there as long as it has seats.

    Locks, in the order in which they may be taken: that of a follower, `_lock` here, that of a poller, that of the
    workers. No lock is held during a request or a call of `on_news`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards `_pollers`, and that nobody joins a poller that is being forgotten
        self._pollers: dict[tuple[int, int], JobPoller] = {}

    def join(self, backend: Backend, policy: FollowPolicy, job_id: str) -> Seat:
        """Take a seat.

        Args:
            backend: where the job runs.
            policy: the times; for a backend that has a poller already, that one keeps the policy it has.
            job_id: the job.
        """
        with self._lock:
            # The poller keeps backend and schedule alive, so their ids stay theirs as long as it is here.
            key = id(backend), id(policy.schedule)
            poller = self._pollers.setdefault(key, JobPoller(backend, policy))
            seat = Seat(self, poller, job_id)
            poller._add(seat)
            return seat

    def _leave(self, seat: Seat) -> None:
        with self._lock:
            poller = seat._poller
            if poller._remove(seat):
                self._pollers.pop((id(poller._backend), id(poller._policy.schedule)), None)


class JobPoller:
    """Asks for the jobs of one backend. Every request is a step of the workers; at most one is waiting to be made.

        idle ──listen──▶ waiting (for its time) ──▶ asking ──▶ waiting …      `_turn` counts; a step of an
          ▲                  ▲      └─listen: sooner─┘  │                      older turn does nothing
          └── no listeners ──┴──────────────────────────┘

    While a request is held back, those who begin to listen are asked for by one more request (`_ask_new`).

    What is asked, in this order (`WatchedJobs` decides):
        1. `get` for a job that the list shows as ended or changed: once for each change, 5 a second;
        2. `changes` of all jobs: exact where the backend offers that; otherwise the next page of its list;
        3. in turn with 2: `get` for jobs that the list does not show, and now and then for one that it does show,
           in case the list stays behind.
    2 and 3 together make at most one request a second. If the backend answers exactly, fewer than 100 jobs may be
    asked for more often, at most 10 times a second.

    Threads: steps run in worker threads; `_listen`, `_add` and `_remove` in any thread. `_lock` guards all fields
    and the jobs. It is held to choose a request and to take its answer. `_schedule` takes the lock of the workers
    inside it.
    """

    def __init__(self, backend: Backend, policy: FollowPolicy) -> None:
        self._backend = backend
        self._policy = policy
        self._workers = policy.schedule
        self._lock = threading.Lock()
        self._seats: dict[str, list[Seat]] = {}
        self._jobs = WatchedJobs(policy)
        self._poll = PollState(policy)
        self._turn = 0
        self._is_asking = False
        self._is_held = False
        self._asks_new = False
        self._is_list_refused = False
        self._is_exact = True  # what the last answer was
        self._is_scheduled = False
        self._due_at = 0.0  # of the step that is scheduled
        self._asked_at = 0.0  # when the last request of kinds 2 and 3 was made
        self._paced_at = 0.0  # when the next request of kinds 2 and 3 may be made
        self._confirm_at = 0.0  # and of kind 1
        self._grown_at = 0.0  # when a job was added
        self._answer: JobChanges | None = None

    @property
    def is_crowded(self) -> bool:
        """Whether more than a few jobs are being waited for."""
        return len(self._seats) > _FEW_JOBS

    @property
    def trouble(self) -> BaseException | None:
        """The error of the last request; None after an answer."""
        return self._poll.trouble

    # ---- seats

    def _add(self, seat: Seat) -> None:
        with self._lock:
            self._seats.setdefault(seat.job_id, []).append(seat)

    def _remove(self, seat: Seat) -> bool:
        """Take a seat away; returns whether no seat is left."""
        with self._lock:
            seats = self._seats.get(seat.job_id, [])
            if seat in seats:
                seats.remove(seat)
            if not seats:
                self._seats.pop(seat.job_id, None)
            if not any(one.on_news for one in seats):
                self._jobs.remove(seat.job_id)
            return not self._seats

    def _listen(self, seat: Seat, seen: JobRecord | None) -> None:
        with self._lock:
            if seat not in self._seats.get(seat.job_id, ()):
                return  # it was closed meanwhile, and this poller may be forgotten
            now = self._workers.now()
            self._jobs.add(seat.job_id, seen, wants_all=seat.wants_all)
            self._grown_at = now
            if self._poll.trouble is None:  # the pause after an answer without news does not hold for a new job
                self._paced_at = min(self._paced_at, self._asked_at + self._interval_s)
            delay_s = max(_GATHER_S, self._paced_at - now)
            if not self._is_asking:
                if not self._is_scheduled or now + delay_s < self._due_at:
                    self._schedule(delay_s)
            elif self._is_held and not self._asks_new:
                self._asks_new = True
                step = functools.partial(self._guarded, self._ask_new)
                self._workers.call_later(step, delay_s, endpoint=self._backend.endpoint)

    # ---- steps

    def _schedule(self, delay_s: float, *, is_retry: bool = False) -> None:
        self._turn += 1
        self._is_scheduled, self._due_at = True, self._workers.now() + delay_s
        step = functools.partial(self._guarded, functools.partial(self._step, self._turn))
        self._workers.call_later(step, delay_s, endpoint=self._backend.endpoint, is_retry=is_retry)

    def _guarded(self, step: Step) -> None:
        try:
            step()
        except Exception as fault:  # a lost error would leave all who listen waiting for ever
            logger.debug("asking for jobs", exc_info=True)
            with self._lock:
                self._is_asking = self._is_held = False
                news: list[tuple[str, News]] = [(job_id, fault) for job_id in self._jobs.clear()]
            self._tell(news)

    def _step(self, turn: int) -> None:
        with self._lock:
            if turn != self._turn:
                return
            self._is_scheduled = False
            if not self._jobs:
                return
            now = self._workers.now()
            self._is_asking = True
            self._jobs.note_due(now)
            job = self._jobs.to_confirm() if now >= self._confirm_at else None
            if job is not None:
                self._confirm_at = now + _CONFIRM_EVERY_S
            elif now >= self._paced_at:
                self._asked_at, self._paced_at = now, now + self._interval_s
                job = self._jobs.to_look_at(one_by_one=self._is_list_refused)
            else:
                self._schedule_next(now)
                return
        if job is None:
            self._ask_all()
        else:
            self._ask_one(job)

    @property
    def _interval_s(self) -> float:
        """Seconds between two requests of kinds 2 and 3."""
        if not self._is_exact:
            return _LONGEST_S
        return min(_LONGEST_S, max(_SHORTEST_S, len(self._jobs) / _JOBS_A_SECOND))

    def _schedule_next(self, now: float) -> None:
        """Schedule the next request, after an answer or if none was due."""
        self._is_asking = self._is_held = False
        due_at = min(self._paced_at, self._confirm_at) if self._jobs.has_to_confirm else self._paced_at
        if (recheck_at := self._jobs.recheck_at) is not None:
            due_at = min(due_at, recheck_at)
        if self._jobs:
            self._schedule(max(0.0, due_at - now))

    def _ask_all(self) -> None:
        endpoint = self._backend.endpoint
        with self._workers.long_poll_slot(endpoint, keep_free=_SLOTS_FOR_READERS) as granted:
            with self._lock:
                known, since = self._jobs.snapshots(), self._answer
                asked_at = self._workers.now()
                # Short holds while jobs are being added: each makes the next request ask for one more.
                hold_s = min(self._policy.hold_s, _FIRST_HOLD_S + asked_at - self._grown_at)
                wait_s = hold_s if granted and not self._jobs.unseen() else 0.0
                self._is_held = wait_s > 0
            try:
                with one_attempt():
                    answer = self._backend.changes(known, since, wait_s=wait_s)
            except (InvalidRequestError, NotFoundError, PermissionDeniedError) as fault:
                self._refuse_list(fault)
                return
            except PaiError as fault:
                self._fail(fault)
                return
        self._take(answer, asked_at, is_held=wait_s > 0)

    def _take(self, answer: JobChanges, asked_at: float, *, is_held: bool) -> None:
        with self._lock:
            self._poll.answered()
            now = self._workers.now()
            self._answer = None if answer.is_complete else answer
            if not answer.is_exact and self._is_exact:
                self._paced_at = asked_at + _LONGEST_S
            self._is_exact = answer.is_exact
            news = self._jobs.take(answer)
            if answer.is_complete:
                was_held = is_held and now - asked_at > _SHORTEST_S
                pause_s = self._poll.pause_s(is_news=self._jobs.round_had_news(), is_held=answer.is_exact)
                self._paced_at = max(self._paced_at, now + (0.0 if was_held else pause_s))
            self._schedule_next(now)
        self._tell(news)

    def _ask_new(self) -> None:
        """Ask at once for jobs that were added while a request is held back; its answer does not have them."""
        with self._lock:
            self._asks_new = False
            known: dict[str, JobRecord | None] = dict.fromkeys(self._jobs.unseen())
            if not known or not self._is_held:  # the request has ended, and the next one has them
                return
            self._paced_at = max(self._paced_at, self._workers.now() + self._interval_s)
        try:
            with one_attempt():
                answer = self._backend.changes(known)
        except PaiError as fault:
            logger.info("%s; the next request asks for these jobs again", fault)
            return
        with self._lock:
            news = self._jobs.take(answer)
        self._tell(news)

    def _ask_one(self, job: Watched) -> None:
        try:
            with one_attempt():
                record = self._backend.get(job.id)
        except PaiError as fault:
            if fault.may_pass:
                with self._lock:
                    self._jobs.put_back(job)
                self._fail(fault)
                return
            with self._lock:
                self._poll.answered()
                news: list[tuple[str, News]] = [(job.id, fault)]
                self._jobs.remove(job.id)
                self._schedule_next(self._workers.now())
        else:
            with self._lock:
                self._poll.answered()
                now = self._workers.now()
                news = [*self._jobs.take_whole(job, record)]
                if self._is_list_refused and self._jobs.is_round_over:
                    pause_s = self._poll.pause_s(is_news=self._jobs.round_had_news(), is_held=False)
                    self._paced_at = max(self._paced_at, now + pause_s)
                self._schedule_next(now)
        self._tell(news)

    # ---- faults

    def _refuse_list(self, fault: PaiError) -> None:
        """A key that may not list jobs, or a service that does not know the request: each job is asked for."""
        with self._lock:
            logger.info("%s; the jobs are asked for one by one", fault)
            self._is_list_refused, self._answer = True, None
            self._schedule_next(self._workers.now())

    def _fail(self, fault: PaiError) -> None:
        with self._lock:
            pause_s = self._poll.pause_after(fault, may_pass=fault.may_pass)
            if pause_s is not None:
                self._paced_at = self._confirm_at = self._workers.now() + pause_s
                logger.info("asking for %d jobs: %s; trying again in %.1f s", len(self._jobs), fault, pause_s)
                if self._poll.should_report(pause_s):
                    self._policy.retry.warnings.warn(fault, left_s=self._poll.left_s)
                self._is_asking = self._is_held = False
                self._schedule(pause_s, is_retry=True)
                return
            news: list[tuple[str, News]] = [(job_id, fault) for job_id in self._jobs.clear()]
            self._is_asking = self._is_held = False
        self._tell(news)

    def _tell(self, news: Sequence[tuple[str, News]]) -> None:
        """Call those who listen; without the lock, because they may close their seats."""
        for job_id, one in news:
            with self._lock:
                listeners = [seat.on_news for seat in self._seats.get(job_id, ()) if seat.on_news is not None]
            for on_news in listeners:
                try:
                    on_news(one)
                except Exception:  # of one who listens; it concerns no other
                    logger.exception("the news of job %s could not be taken", job_id)


@functools.cache
def shared_pollers() -> JobPollers:
    """The pollers of this process; one poller a backend bounds the requests of all who wait."""
    return JobPollers()


# A child of a fork has none of its parent's threads, and so no steps that would go on.
if sys.platform != "win32":
    os.register_at_fork(after_in_child=shared_pollers.cache_clear)
