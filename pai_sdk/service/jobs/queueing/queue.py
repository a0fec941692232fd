"""Decides which job begins next: fair share between users, priority within the jobs of one user."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pai_sdk.schemas.request import TrainingJobRequest
from pai_sdk.service.identity.principal import OPERATOR
from pai_sdk.service.identity.quotas import NO_QUOTA, Quota, all_quotas
from pai_sdk.service.jobs.host_resources import Capacity, Need, need_or_instances
from pai_sdk.service.jobs.job_table import Jobs
from pai_sdk.service.jobs.queueing.fair_share import HeldResources, Use, all_uses, share_of
from pai_sdk.service.jobs.queueing.quota_checks import missing_in_quota
from pai_sdk.service.state.models import Job

__all__ = ["Decision", "FairQueue", "Head", "decide"]


@dataclass(frozen=True)
class Head:
    """The first job in the line of one user.

    Attributes:
        job_id: its id.
        number: in the order of creation.
        owner: the user.
        need: the resources that it asks for.
    """

    job_id: str
    number: int
    owner: str
    need: Need


@dataclass(frozen=True)
class Decision:
    """What happens to the heads of the lines.

    Attributes:
        next: whose turn it is; None if all wait for their quotas.
        lacking: what it waits for, as text; empty when it begins now.
        at_quota: the heads that wait for the quota of their user, with what is missing.
    """

    next: Head | None
    lacking: Sequence[str]
    at_quota: Sequence[tuple[Head, Sequence[str]]]


def decide(
    heads: Iterable[Head],
    held: Sequence[HeldResources],
    uses: Mapping[str, Use],
    quotas: Mapping[str, Quota],
    capacity: Callable[[], Capacity],
    now: float,
) -> Decision:
    """Decide which head begins next.

    1. A user whose head does not fit into their quota is left out; no other user waits for them.
    2. Of the others it is the turn of the user with the least share; of those with the same share, of the user
       whose head was created first.
    3. If that head does not fit into the free capacity, all wait for it: no job overtakes it.

    Args:
        heads: the first job of each user's line.
        held: of the jobs that run.
        uses: by user, of jobs that have ended.
        quotas: by user, those that were set.
        capacity: what the service has now; asked only if a head is allowed to begin.
        now: the time, in seconds since 1970.
    """
    allowed, at_quota = [], []
    for head in heads:
        own = [one.need for one in held if one.owner == head.owner]
        missing = list(missing_in_quota(quotas.get(head.owner, NO_QUOTA), head.need, own))
        if missing:
            at_quota.append((head, missing))
        else:
            allowed.append(head)
    if not allowed:
        return Decision(None, (), at_quota)
    total = capacity()

    def turn(head: Head) -> tuple[float, int]:
        own_held = [one for one in held if one.owner == head.owner]
        return share_of(uses.get(head.owner, Use()), own_held, total, now), head.number

    first = min(allowed, key=turn) if len(allowed) > 1 else allowed[0]
    return Decision(first, list(total.lacks(first.need, [one.need for one in held])), at_quota)


class FairQueue:
    """The jobs that wait, a line for each user.

    Within the line of a user jobs of a higher priority are before those of a lower one, and jobs of one priority
    in the order of their creation. Between lines the share decides, and priority does not count: a user gains
    nothing over others by a high priority. No job starves because it is large, or because of other users: while a
    user's jobs wait, that user's share falls, and the shares of those whose jobs run do not.

    Args:
        jobs: the table of jobs.
        clock: the time, in seconds since 1970.
    """

    def __init__(self, jobs: Jobs, *, clock: Callable[[], float] = time.time) -> None:
        self._jobs = jobs
        self._clock = clock
        self._noted: set[tuple[str, str]] = set()  # heads with what was noted of them

    @property
    def is_empty(self) -> bool:
        """True if no job waits, be it for its turn, a quota or the time of its next attempt."""
        return not self._jobs.owners_in_queue()

    def next_to_begin(self, capacity: Callable[[], Capacity], held: Sequence[HeldResources]) -> Job | None:
        """The job that begins now; None if there is none, or it has to wait. Heads get an event that says why.

        Args:
            capacity: what the service has now.
            held: of the jobs that run.
        """
        now = self._clock()
        queued = self._heads(now)
        if not queued:
            return None
        heads = [Head(job.id, job.number, job.owner, _need(job)) for job in queued]
        with self._jobs.database.read() as session:
            uses, quotas = all_uses(session), all_quotas(session)
        decision = decide(heads, held, uses, quotas, capacity, now)
        self._note_reasons(heads, decision, quotas)
        if decision.next is None or decision.lacking:
            return None
        chosen = decision.next.job_id
        return next(job for job in queued if job.id == chosen)

    def _heads(self, now: float) -> list[Job]:
        # The service's own key first: where it is the only user, nothing else is asked.
        found = [self._jobs.first_in_queue()]
        others = (owner for owner in self._jobs.owners_in_queue() if owner != OPERATOR)
        found += [self._jobs.first_in_queue(owner, now=now) for owner in others]
        return [job for job in found if job is not None]

    def _note_reasons(self, heads: Iterable[Head], decision: Decision, quotas: Mapping[str, Quota]) -> None:
        """Say in an event of each head why it waits, once as long as it is the head."""
        waiting = {head.job_id for head in heads}
        self._noted = {noted for noted in self._noted if noted[0] in waiting}
        for head, missing in decision.at_quota:
            if alone := list(missing_in_quota(quotas[head.owner], head.need)):  # it was lowered
                text = f"The job needs more than the quota of user {head.owner!r} allows: {', '.join(alone)}."
                text += " It and the user's other jobs wait until it is stopped, or the quota is raised."
                self._note_once(head.job_id, "quota too small", text)
            else:
                text = f"The job waits for the quota of user {head.owner!r}: {', '.join(missing)}."
                self._note_once(head.job_id, "quota", text)
        if decision.next is not None and decision.lacking:
            text = f"The job is the next to begin; it waits for {', '.join(decision.lacking)}."
            self._note_once(decision.next.job_id, "capacity", text)

    def _note_once(self, job_id: str, reason: str, text: str) -> None:
        if (job_id, reason) not in self._noted:
            self._jobs.note(job_id, text)
            self._noted.add((job_id, reason))


def _need(job: Job) -> Need:
    return need_or_instances(TrainingJobRequest.model_validate(job.request))
