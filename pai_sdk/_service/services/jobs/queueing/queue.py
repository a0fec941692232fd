"""Decides which job starts next: fair share between users, priority within the jobs of one user."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pai_sdk._service.identity.principal import OPERATOR
from pai_sdk._service.services.jobs.host_resources import Capacity, Need, need_or_instances
from pai_sdk._service.services.jobs.job_table import Jobs
from pai_sdk._service.services.jobs.queueing.fair_share import Allocation, Use, all_uses, share_of
from pai_sdk._service.services.jobs.queueing.quota_checks import NO_QUOTA, Quota, all_quotas, missing_in_quota
from pai_sdk._service.state.models import Job
from pai_sdk._wire.pai.request import TrainingJobRequest

_ANNOUNCED = ("Quota", "QuotaTooSmall", "Capacity")  # the reasons that become events


@dataclass(frozen=True)
class Head:
    """The first job in the queue of one user."""

    job_id: str
    number: int  # in the order of creation
    owner: str
    need: Need


@dataclass(frozen=True)
class Decision:
    """Decision about the heads of the queues."""

    next: Head | None  # None: all wait for their quotas
    lacking: Sequence[str]  # what `next` waits for; empty if it starts now
    at_quota: Sequence[tuple[Head, Sequence[str]]]  # heads that wait for a quota, with what is missing


def decide(
    heads: Iterable[Head],
    allocations: Sequence[Allocation],
    uses: Mapping[str, Use],
    quotas: Mapping[str, Quota],
    capacity: Callable[[], Capacity],
    now: float,
) -> Decision:
    """Decides which head starts next. `uses` and `quotas` are by user, `now` is in seconds since 1970.

    1. A user whose head exceeds their quota is skipped; no other user waits for them.
    2. Of the others, the user with the smallest share is next; with equal shares, the user whose head was created
       first.
    3. If that head exceeds the free capacity, all wait for it: no job overtakes it.
    """
    allowed, at_quota = [], []
    for head in heads:
        user_needs = [allocation.need for allocation in allocations if allocation.owner == head.owner]
        missing = list(missing_in_quota(quotas.get(head.owner, NO_QUOTA), head.need, user_needs))
        if missing:
            at_quota.append((head, missing))
        else:
            allowed.append(head)
    if not allowed:
        return Decision(None, (), at_quota)
    # Only now: on a cluster this reads what it reported last.
    total = capacity()

    def sort_key(head: Head) -> tuple[float, int]:
        user_allocations = [allocation for allocation in allocations if allocation.owner == head.owner]
        return share_of(uses.get(head.owner, Use()), user_allocations, total, now), head.number

    first = min(allowed, key=sort_key) if len(allowed) > 1 else allowed[0]
    return Decision(
        first, list(total.lacks(first.need, [allocation.need for allocation in allocations])), at_quota
    )


@dataclass(frozen=True)
class WaitingReason:
    """Why a job has not started: a code for programs, and a sentence."""

    code: str
    text: str


class FairQueue:
    """The waiting jobs, with a queue for each user.

    A user's queue is sorted by priority, then by creation. Between users only the share counts: a high priority
    gives no advantage over other users. No job starves because it is large, or because of other users: while a
    user's jobs wait, the share of this user decreases, and the shares of users with running jobs do not.
    """

    def __init__(self, jobs: Jobs, *, clock: Callable[[], float] = time.time) -> None:
        self._jobs = jobs
        self._clock = clock
        # (job id, reason) of events that were added for current heads.
        self._announced: set[tuple[str, str]] = set()

    @property
    def is_empty(self) -> bool:
        """Returns True if no job waits, whether for capacity, a quota or its next attempt."""
        return not self._jobs.owners_in_queue()

    def next_to_start(self, capacity: Callable[[], Capacity], allocations: Sequence[Allocation]) -> Job | None:
        """Returns the job that starts now, or None. Waiting heads get an event with the reason."""
        queued, heads, decision, quotas = self._decide(capacity, allocations)
        if decision is None:
            return None
        self._announce(heads, reasons_of(heads, decision, quotas))
        if decision.next is None or decision.lacking:
            return None
        chosen = decision.next.job_id
        return next(job for job in queued if job.id == chosen)

    def reasons(
        self, capacity: Callable[[], Capacity], allocations: Sequence[Allocation]
    ) -> Mapping[str, WaitingReason]:
        """Returns why the first job of each user waits, by id. Safe to call from any thread."""
        _, heads, decision, quotas = self._decide(capacity, allocations)
        return {} if decision is None else reasons_of(heads, decision, quotas)

    def _decide(
        self, capacity: Callable[[], Capacity], allocations: Sequence[Allocation]
    ) -> tuple[Sequence[Job], Sequence[Head], Decision | None, Mapping[str, Quota]]:
        now = self._clock()
        queued = self._heads(now)
        if not queued:
            return (), (), None, {}
        heads = [Head(job.id, job.number, job.owner, _need(job)) for job in queued]
        with self._jobs.database.read() as session:
            uses, quotas = all_uses(session), all_quotas(session)
        return queued, heads, decide(heads, allocations, uses, quotas, capacity, now), quotas

    def _heads(self, now: float) -> list[Job]:
        # Jobs of the service's own key first: without other users this is the only query.
        heads = [self._jobs.first_in_queue()]
        owners = (owner for owner in self._jobs.owners_in_queue() if owner != OPERATOR)
        heads += [self._jobs.first_in_queue(owner, now=now) for owner in owners]
        return [job for job in heads if job is not None]

    def _announce(self, heads: Iterable[Head], reasons: Mapping[str, WaitingReason]) -> None:
        """Adds an event with the reason to each waiting head, once while it is the head."""
        waiting = {head.job_id for head in heads}
        self._announced = {entry for entry in self._announced if entry[0] in waiting}
        for job_id, reason in reasons.items():
            # A turn changes often, and depends on other users: it has no event.
            if reason.code in _ANNOUNCED and (job_id, reason.code) not in self._announced:
                self._jobs.add_event(job_id, reason.text)
                self._announced.add((job_id, reason.code))


def reasons_of(
    heads: Iterable[Head], decision: Decision, quotas: Mapping[str, Quota]
) -> Mapping[str, WaitingReason]:
    """Returns why the first jobs of users wait, by id; without the job that starts now."""
    reasons: dict[str, WaitingReason] = {}
    for head, missing in decision.at_quota:
        # The quota was lowered after the submission.
        if alone := list(missing_in_quota(quotas[head.owner], head.need)):
            text = f"The job needs more than the quota of user {head.owner!r} allows: {', '.join(alone)}."
            text += " It and the user's other jobs wait until it is stopped, or the quota is raised."
            reasons[head.job_id] = WaitingReason("QuotaTooSmall", text)
        else:
            text = f"The job waits for the quota of user {head.owner!r}: {', '.join(missing)}."
            reasons[head.job_id] = WaitingReason("Quota", text)
    if decision.next is None:
        return reasons
    if decision.lacking:
        text = f"The job is next to start; it is waiting for {', '.join(decision.lacking)}."
        reasons[decision.next.job_id] = WaitingReason("Capacity", text)
    for head in heads:
        if head.job_id not in reasons and head is not decision.next:
            text = "The job waits for its turn: the user with the smallest share of the service is next."
            reasons[head.job_id] = WaitingReason("Turn", text)
    return reasons


def _need(job: Job) -> Need:
    return need_or_instances(TrainingJobRequest.model_validate(job.request))
