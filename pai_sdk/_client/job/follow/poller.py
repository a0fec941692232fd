"""Polls all jobs of a backend that are being waited for, at a bounded rate.

`JobPollers.subscribe` is the only source of a job's changes. Followers of logs (`Follower`) and waits for
many jobs (`JobWatch`) use it, and so `wait`, `logs`, `gather`, `as_completed`, their asyncio versions and cards.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TypeAlias

from pai_sdk._client.backend.base import Backend, JobChanges
from pai_sdk._client.job.follow.polling import FollowPolicy, PollState
from pai_sdk._client.job.follow.watched_jobs import Watched, WatchedJobs
from pai_sdk._core.retry import single_attempt
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk.errors import InvalidRequestError, NotFoundError, PaiError, PermissionDeniedError

logger = logging.getLogger(__name__)

Update: TypeAlias = JobRecord | Exception

_FEW_JOBS = 4  # up to this number are requested one by one, if a request for all of them is not exact
_SLOTS_FOR_READERS = 6
_COLLECT_S = 0.02  # jobs that are subscribed to within this time are requested together
# With cheap requests: 10 a second for up to 10 jobs, then n jobs every n / 100 s, one a second from 100 jobs on.
_MIN_INTERVAL_S, _MAX_INTERVAL_S, _JOBS_PER_SECOND = 0.1, 1.0, 100.0
_CONFIRM_INTERVAL_S = 0.2  # 5 requests a second
_FIRST_HOLD_S = 1.0


class Subscription:
    """One consumer of a job's updates, created by `JobPollers.subscribe`; it must be closed."""

    def __init__(
        self, pollers: JobPollers, poller: JobPoller, job_id: str, on_update: Callable[[Update], None]
    ) -> None:
        self._pollers = pollers
        self.poller = poller
        self.job_id = job_id
        self.on_update = on_update

    @property
    def trouble(self) -> BaseException | None:
        """Returns the error of the last request; None after a response."""
        return self.poller.trouble

    def refresh(self) -> None:
        """Polls the job now, because it has probably changed."""
        self.poller.refresh(self)

    def close(self) -> None:
        """Unsubscribes; a call of `on_update` that is under way is not interrupted."""
        self._pollers.unsubscribe(self)


class JobPollers:
    """The pollers of a process, by backend and policy. A poller exists as long as it has subscriptions.

    Lock order: the lock of a follower, `_lock`, the lock of a poller, the lock of the workers. No lock is held
    during a request or a call of `on_update`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards `_pollers`; no poller gets a subscription while it is removed
        self._pollers: dict[tuple[int, FollowPolicy], JobPoller] = {}

    def subscribe(
        self,
        backend: Backend,
        policy: FollowPolicy,
        job_id: str,
        on_update: Callable[[Update], None],
        last_record: JobRecord | None = None,
        *,
        needs_full_records: bool = False,
    ) -> Subscription:
        """Subscribes to the snapshots of a job that follow `last_record`; an error is the last update.

        `on_update` is called in a worker thread, without any lock of the poller; it must be quick. The first call
        may happen before `subscribe` returns. With `needs_full_records` every change is confirmed by `get`, not
        only the end, so that no field is missing.
        """
        subscription: Subscription | None = None
        try:
            with self._lock:
                # The poller keeps the backend alive, so no other object gets its id as long as the poller exists.
                poller = self._pollers.setdefault((id(backend), policy), JobPoller(backend, policy))
                subscription = Subscription(self, poller, job_id, on_update)
                poller.add(subscription, last_record, needs_full_records=needs_full_records)
            return subscription
        except BaseException:  # Ctrl-C: the caller has no subscription that it could close
            if subscription is not None:
                subscription.close()
            raise

    def unsubscribe(self, subscription: Subscription) -> None:
        """Removes a subscription, and a poller that has no other one."""
        with self._lock:
            poller = subscription.poller
            if poller.remove(subscription):
                self._pollers.pop((id(poller.backend), poller.policy), None)


@dataclass(frozen=True)
class _Request:
    """One request of a poller."""

    generation: int  # of the step that makes the request
    job: Watched | None  # the job for `get`; None for `changes` of all jobs
    is_paced: bool  # of kind 2 or 3, see `JobPoller`
    is_first: bool = False  # of a single job


class JobPoller:
    """Polls the jobs of one backend. Every request is a step of the workers.

        idle ──add──▶ scheduled ──due──▶ requesting ──response──▶ scheduled …
          ▲               │                │  └─a long poll, and a job is added──▶ scheduled
          └── no jobs ────┴────────────────┘

    `_generation` counts the scheduled steps; a step of an older generation does nothing. So one request is under
    way, except for long polls that a later request has superseded: their responses are used, but schedule nothing.

    Requests, in this order (`WatchedJobs` decides):
        1. `get` for a job that the list shows as ended or changed, and after `refresh`: 5 a second;
        2. a single job: `get`. Several jobs: `changes` of all, exact where the backend offers that, otherwise the
           next page of its list. A few jobs whose full records are needed: `get` in turn, instead of a list;
        3. in turn with 2: `get` for jobs that the list does not show, and now and then for one that it does show,
           in case the list is out of date.
    2 and 3 together make at most one request a second, for a few jobs one a second for each. A backend with long
    polls, or a local one, is polled more often, at most 10 times a second; the second time at once.

    Threads: steps run in worker threads; `add`, `remove`, `refresh` in any thread. `_lock` guards all fields
    and the jobs. It is held to choose a request and to process its response. Within it, `_schedule` acquires the
    lock of the workers.
    """

    def __init__(self, backend: Backend, policy: FollowPolicy) -> None:
        self.backend = backend
        self.policy = policy
        self._workers = policy.schedule
        self._lock = threading.Lock()
        self._subscriptions: dict[str, list[Subscription]] = {}
        self._jobs = WatchedJobs(policy)
        self._poll = PollState(policy, "jobs")
        self._generation = 0
        self._is_requesting = False
        self._is_long_poll = False  # of the request under way
        self._is_list_refused = False
        self._is_exact = True  # of the last response to `changes`
        self._is_cheap = True  # the backend supports frequent polls
        self._scheduled_at: float | None = None  # when the scheduled step is due
        self._requested_at = 0.0  # when the last request of kinds 2 and 3 was made
        self._paced_at = 0.0  # when the next request of kinds 2 and 3 may be made
        self._confirm_at = 0.0  # when the next request of kind 1 may be made
        self._grown_at = float("-inf")  # when a job was added to others
        self._unfinished: JobChanges | None = None  # the response to continue

    @property
    def polls_in_bulk(self) -> bool:
        """Returns whether one request polls all jobs, instead of one request for each."""
        if self._is_list_refused or len(self._jobs) == 1:
            return False
        return self._is_exact or len(self._jobs) > _FEW_JOBS or not self._jobs.needs_full_records

    @property
    def trouble(self) -> BaseException | None:
        """Returns the error of the last request; None after a response."""
        return self._poll.trouble

    # ---- subscriptions

    def add(self, subscription: Subscription, last_record: JobRecord | None, *, needs_full_records: bool) -> None:
        """Polls a job for a subscription, from its last snapshot on."""
        with self._lock:
            now = self._workers.now()
            is_first = not self._jobs
            self._subscriptions.setdefault(subscription.job_id, []).append(subscription)
            self._jobs.add(subscription.job_id, last_record, needs_full_records=needs_full_records)
            if not is_first:
                self._grown_at = now
            if self._poll.trouble is None:  # a new job does not wait for the pause of the quiet ones
                self._paced_at = min(self._paced_at, self._requested_at + self._interval_s)
            collects_s = 0.0 if is_first and needs_full_records else _COLLECT_S
            self._schedule_soon(max(collects_s, self._paced_at - now))

    def remove(self, subscription: Subscription) -> bool:
        """Removes a subscription; returns whether it was the last one."""
        with self._lock:
            of_job = self._subscriptions.get(subscription.job_id, [])
            if subscription in of_job:
                of_job.remove(subscription)
            if not of_job:
                self._subscriptions.pop(subscription.job_id, None)
                self._jobs.remove(subscription.job_id)
            return not self._subscriptions

    def refresh(self, subscription: Subscription) -> None:
        """Polls the job of a subscription now."""
        with self._lock:
            if self._jobs.confirm(subscription.job_id):
                self._schedule_soon(max(0.0, self._confirm_at - self._workers.now()))

    # ---- steps

    def _schedule_soon(self, delay_s: float) -> None:
        """Schedules the next request soon; a long poll under way is superseded."""
        if self._is_requesting and not self._is_long_poll:
            return  # its response schedules the next one
        if self._scheduled_at is None or self._workers.now() + delay_s < self._scheduled_at:
            self._is_requesting = self._is_long_poll = False
            self._schedule(delay_s)

    def _schedule_next(self) -> None:
        """Schedules the next request: after a response, or if none was due."""
        self._is_requesting = self._is_long_poll = False
        due_at = min(self._paced_at, self._confirm_at) if self._jobs.has_to_confirm else self._paced_at
        if (recheck_at := self._jobs.recheck_at) is not None:
            due_at = min(due_at, recheck_at)
        if self._jobs:
            self._schedule(max(0.0, due_at - self._workers.now()))

    def _schedule(self, delay_s: float, *, is_retry: bool = False) -> None:
        # The generation is set last: Ctrl-C in between must not leave other jobs without a current step.
        generation = self._generation + 1
        step = functools.partial(self._step, generation)
        self._workers.call_later(step, delay_s, endpoint=self.backend.endpoint, is_retry=is_retry)
        self._generation, self._scheduled_at = generation, self._workers.now() + delay_s

    def _step(self, generation: int) -> None:
        try:
            with self._lock:
                if generation != self._generation:
                    return
                self._scheduled_at = None
                request = self._next_request()
                if request is None:
                    self._schedule_next()
                    return
                self._is_requesting = True
            self._send_request(request)
        except Exception as error:  # a lost error would leave all subscribers waiting for ever
            logger.debug("asking for jobs", exc_info=True)
            self._fail_all(error)

    def _next_request(self) -> _Request | None:
        now = self._workers.now()
        if not self._jobs:
            return None
        self._jobs.enqueue_due(now)
        job = self._jobs.next_to_confirm() if now >= self._confirm_at else None
        if job is not None:
            self._confirm_at = now + _CONFIRM_INTERVAL_S
            return _Request(self._generation, job, is_paced=False)
        if now < self._paced_at:
            return None
        self._requested_at, self._paced_at = now, now + self._interval_s
        job = self._jobs.next_to_check(individually=not self.polls_in_bulk)
        is_first = job is not None and job.record is None and len(self._jobs) == 1
        return _Request(self._generation, job, is_paced=True, is_first=is_first)

    @property
    def _interval_s(self) -> float:
        """Returns the minimum time between two requests of kinds 2 and 3."""
        if self._is_cheap:
            interval_s = min(_MAX_INTERVAL_S, max(_MIN_INTERVAL_S, len(self._jobs) / _JOBS_PER_SECOND))
        else:
            are_few = len(self._jobs) <= _FEW_JOBS and self._jobs.needs_full_records
            interval_s = _MAX_INTERVAL_S / max(1, len(self._jobs)) if are_few else _MAX_INTERVAL_S
        return min(interval_s, self.policy.pause_s)

    # ---- requests

    def _send_request(self, request: _Request) -> None:
        job, endpoint = request.job, self.backend.endpoint
        slot = self._workers.long_poll_slot(endpoint, keep_free=_SLOTS_FOR_READERS)
        with slot if request.is_paced else nullcontext(False) as granted:
            with self._lock:
                requested_at = self._workers.now()
                last_records = self._jobs.snapshots() if job is None else {job.id: job.record}
                # A long `get` must not delay other jobs, and a new job is requested at once.
                can_hold = granted and len(last_records) == len(self._jobs) and None not in last_records.values()
                # Short long polls while jobs are being added: each new job needs another request.
                wait_s = (
                    min(self.policy.hold_s, _FIRST_HOLD_S + requested_at - self._grown_at) if can_hold else 0.0
                )
                self._is_long_poll = wait_s > 0
                since = self._unfinished
            try:
                with single_attempt():
                    if job is None:
                        response = self.backend.changes(last_records, since, wait_s=wait_s)
                    else:
                        record = self.backend.get(job.id, changed_from=last_records[job.id], wait_s=wait_s)
                        response = JobChanges({job.id: record})
            except PaiError as error:
                self._process_error(request, error)
                return
        has_waited = wait_s > 0 and self._workers.now() - requested_at > _MIN_INTERVAL_S
        self._process_response(request, response, requested_at, has_waited=has_waited)

    def _process_response(
        self, request: _Request, response: JobChanges, requested_at: float, *, has_waited: bool
    ) -> None:
        with self._lock:
            updates = self._jobs.take(response, request.generation)
            if request.generation == self._generation:
                self._poll.on_response()
                if request.is_paced:
                    self._set_pace(request, response, requested_at, has_waited=has_waited)
                self._schedule_next()
        self._notify(updates)

    def _set_pace(self, request: _Request, response: JobChanges, requested_at: float, *, has_waited: bool) -> None:
        """Chooses the time of the next request of kinds 2 and 3."""
        job = request.job
        if job is None:
            self._unfinished = None if response.is_complete else response
            self._is_exact = is_cheap = response.is_exact
            is_round_complete = response.is_complete
        else:
            is_cheap = response.records[job.id].source.lists_all and len(self._jobs) == 1
            is_round_complete = not self.polls_in_bulk and self._jobs.is_round_complete
        if self._is_cheap and not is_cheap:
            self._is_cheap = False
            self._paced_at = requested_at + self._interval_s
        self._is_cheap = is_cheap
        if is_round_complete and not self._jobs.has_new:
            pause_s = self._poll.pause_s(has_news=self._jobs.pop_news(), is_cheap=is_cheap)
            # A slow response alone is no long poll: a service without long polls needs its pause.
            self._paced_at = max(
                self._paced_at, self._workers.now() + (0.0 if has_waited and is_cheap else pause_s)
            )
            if request.is_first and is_cheap:
                # The long poll for the start of the job, whose log is read from then on.
                self._paced_at = self._workers.now()

    def _process_error(self, request: _Request, error: PaiError) -> None:
        job, is_current = request.job, request.generation == self._generation
        with self._lock:
            if job is None and isinstance(error, InvalidRequestError | NotFoundError | PermissionDeniedError):
                # The key has no permission to list jobs, or the service does not support the request.
                logger.info("%s; the jobs are requested one by one", error)
                self._is_list_refused, self._unfinished = True, None
            elif job is not None and not error.may_pass:
                self._jobs.remove(job.id)
                self._poll.on_response()
            elif not is_current:
                return
            else:
                if job is not None:
                    self._jobs.put_back(job, is_confirmation=not request.is_paced)
                pause_s = self._poll.pause_after(error, may_pass=error.may_pass)
                if pause_s is not None:
                    self._paced_at = self._confirm_at = self._workers.now() + pause_s
                    self._is_requesting = self._is_long_poll = False
                    self._schedule(pause_s, is_retry=True)
                    return
                raise error
            if is_current:
                self._schedule_next()
        if job is not None:
            self._notify([(job.id, error)])

    def _fail_all(self, error: Exception) -> None:
        """Notifies all subscribers of an error, and stops polling."""
        with self._lock:
            self._is_requesting = self._is_long_poll = False
            job_ids = self._jobs.clear()
        self._notify([(job_id, error) for job_id in job_ids])

    def _notify(self, updates: Iterable[tuple[str, Update]]) -> None:
        """Calls the subscribers of each job."""
        # Without the lock: subscribers acquire locks of their own, and may close their subscriptions.
        for job_id, update in updates:
            with self._lock:
                subscriptions = [*self._subscriptions.get(job_id, ())]
            for subscription in subscriptions:
                try:
                    subscription.on_update(update)
                except Exception:  # the error of one subscriber must not affect the others
                    logger.exception("a subscriber failed to process the update of job %s", job_id)


@functools.cache
def shared_pollers() -> JobPollers:
    """Returns the pollers of this process, which bound the requests of all its waits."""
    return JobPollers()


# A forked child has none of its parent's threads, so the steps of the inherited pollers would never run.
if sys.platform != "win32":
    os.register_at_fork(after_in_child=shared_pollers.cache_clear)
