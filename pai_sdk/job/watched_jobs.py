"""The jobs that a poller asks for: what is known of each, and which one to ask for next. No requests, no locks."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass
from typing import TypeAlias

from pai_sdk.backend.base import JobChanges
from pai_sdk.job.polling import FollowPolicy
from pai_sdk.schemas.record import JobRecord
from pai_sdk.schemas.status import KNOWN_STATUSES
from pai_sdk.schemas.wire import seconds_of

__all__ = ["Watched", "WatchedJobs"]

Snapshots: TypeAlias = list[tuple[str, JobRecord]]

_FIRST_PAUSE_S = 1.0  # of a job that the list shows as ended and `get` does not
_A_LITTLE_S = 0.1
_LOOK_BEHIND_EVERY_S = 10.0


@dataclass(eq=False)
class Watched:
    """One job.

    Attributes:
        id: its id.
        record: the last snapshot of it that was given to those who listen.
        wants_all: they want whole records only.
        entry: what the list has shown of it last.
        queue: the queue that it is in, if any: `confirm` or `look`.
        confirmed: when `get` has last been asked for it, as a count.
        doubted_until: the list is not believed before this time.
        pause_s: how long it was doubted last.
        recheck_at: an unknown final status is to be looked at again.
    """

    id: str
    record: JobRecord | None = None
    wants_all: bool = False
    entry: tuple[object, ...] | None = None
    queue: str = ""
    confirmed: int = 0
    doubted_until: float = 0.0
    pause_s: float = 0.0
    recheck_at: float | None = None


class WatchedJobs:
    """The jobs of one poller, which holds its lock for each call.

        in no queue ──the list shows an end or a change──▶ confirm ─┐
             ▲  └─────not in the list, or looked at least──▶ look ──┤
             └──────────────────── `get` was asked ─────────────────┘

    Args:
        policy: the times.
    """

    def __init__(self, policy: FollowPolicy) -> None:
        self._policy = policy
        self._jobs: dict[str, Watched] = {}
        self._confirm: deque[Watched] = deque()
        self._look: deque[Watched] = deque()
        self._had_look = False  # the last request of the two kinds that take turns was a look
        self._had_news = False
        self._looked_behind_at = 0.0
        self._count = itertools.count(1)

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, job_id: str, seen: JobRecord | None, *, wants_all: bool) -> None:
        """Begin to ask for a job, or go on with what one more listener knows of it."""
        job = self._jobs.setdefault(job_id, Watched(job_id))
        job.wants_all |= wants_all
        if job.record is None or seen is None or _shown(seen) != _shown(job.record):
            job.record = seen  # both listeners get what differs from the older one

    def remove(self, job_id: str) -> None:
        """Ask for a job no more."""
        job = self._jobs.pop(job_id, None)
        if job is not None and job.queue:
            (self._confirm if job.queue == "confirm" else self._look).remove(job)

    def clear(self) -> list[str]:
        """Ask for none any more; returns those that were asked for."""
        job_ids = [*self._jobs]
        for job_id in job_ids:
            self.remove(job_id)
        return job_ids

    # ---- what to ask

    def snapshots(self) -> dict[str, JobRecord | None]:
        """All jobs with their last snapshots."""
        return {job.id: job.record for job in self._jobs.values()}

    def unseen(self) -> list[str]:
        """The jobs of which there is no snapshot yet."""
        return [job.id for job in self._jobs.values() if job.record is None]

    @property
    def has_to_confirm(self) -> bool:
        """Whether a job is to be confirmed by `get`."""
        return bool(self._confirm)

    def to_confirm(self) -> Watched | None:
        """The next job to be confirmed by `get`."""
        return self._pop(self._confirm)

    def to_look_at(self, *, one_by_one: bool) -> Watched | None:
        """The next job to look at by `get`; None for a request about all of them, every other time at least.

        Args:
            one_by_one: there are no requests about all of them.
        """
        if one_by_one:
            if not self._look:
                for job in self._jobs.values():
                    self._put(job, "look")
            return self._pop(self._look)
        self._had_look = not self._had_look and bool(self._look)
        return self._pop(self._look) if self._had_look else None

    def put_back(self, job: Watched) -> None:
        """The request for a job failed and is to be made again."""
        if self._jobs.get(job.id) is job:
            self._put(job, "confirm")

    @property
    def is_round_over(self) -> bool:
        """Whether all jobs were looked at, one by one."""
        return not self._look

    @property
    def recheck_at(self) -> float | None:
        """The next time at which `note_due` has something to do."""
        return min((job.recheck_at for job in self._jobs.values() if job.recheck_at is not None), default=None)

    def note_due(self, now: float) -> None:
        """Let unknown final statuses be confirmed whose time has come."""
        for job in self._jobs.values():
            if job.recheck_at is not None and job.recheck_at <= now:
                job.recheck_at = None
                self._put(job, "confirm")

    def round_had_news(self) -> bool:
        """Whether a status has changed since this was last asked."""
        had_news, self._had_news = self._had_news, False
        return had_news

    # ---- what was answered

    def take(self, answer: JobChanges) -> Snapshots:
        """Take an answer about all jobs; returns the snapshots that are news."""
        news: Snapshots = []
        for job_id, record in answer.records.items():
            if (job := self._jobs.get(job_id)) is not None:
                news += self.take_whole(job, record) if answer.is_exact else self._take_entry(job, record)
        for job_id in answer.missing:
            if (job := self._jobs.get(job_id)) is not None:
                self._put(job, "look")
        if answer.is_complete and not answer.is_exact:
            self._look_behind_the_list()
        return news

    def take_whole(self, job: Watched, record: JobRecord) -> Snapshots:
        """Take what `get` shows of a job."""
        if self._jobs.get(job.id) is not job:
            return []
        now, before = self._policy.schedule.now(), job.record
        job.record, job.confirmed = record, next(self._count)
        if not record.status.is_terminal:  # a list that shows its end is ahead, or its reader was behind
            job.pause_s = min(self._policy.pause_s, max(_FIRST_PAUSE_S, 2 * job.pause_s))
            job.doubted_until = now + job.pause_s
        is_unknown_end = record.status.is_unknown_end
        job.recheck_at = now + self._policy.quiet_s + _A_LITTLE_S if is_unknown_end else None
        if before is not None and _shown(before) == _shown(record) and not is_unknown_end:
            return []
        self._had_news |= before is None or before.status != record.status
        return [(job.id, record)]

    def _take_entry(self, job: Watched, entry: JobRecord) -> Snapshots:
        """Take what a list shows of a job: fewer fields, maybe older than what is known."""
        before, job.entry = job.entry, (entry.status, entry.reason_code)
        if entry.status.is_terminal:
            # It is confirmed even if it was shown before: `get` may have given an older state then.
            if self._policy.schedule.now() >= job.doubted_until:
                self._had_news |= self._put(job, "confirm")
            return []
        if entry.status not in KNOWN_STATUSES:
            self._put(job, "look")  # it may be a final one: an entry does not tell
            return []
        if job.entry == before or _is_older(entry, job.record):
            return []
        if job.record is not None and job.record.status == entry.status:
            return []
        self._had_news = True
        if job.wants_all:
            self._put(job, "confirm")
            return []
        job.record = _merged(job.record, entry)
        return [(job.id, job.record)]

    def _look_behind_the_list(self) -> None:
        """At the end of a list, choose a job that it does show: the list may stay behind what `get` shows."""
        for job in self._jobs.values():
            if job.wants_all and job.record is not None and _lacks_instances(job.record):
                self._put(job, "look")
        now = self._policy.schedule.now()
        idle = [job for job in self._jobs.values() if not job.queue]
        if idle and not self._look and now - self._looked_behind_at >= _LOOK_BEHIND_EVERY_S:
            self._looked_behind_at = now
            self._put(min(idle, key=lambda job: job.confirmed), "look")

    # ---- the queues

    def _put(self, job: Watched, queue: str) -> bool:
        """Put a job into a queue, unless it is in one; returns whether it was put there."""
        if job.queue == "look" and queue == "confirm":
            self._look.remove(job)
        elif job.queue:
            return False
        job.queue = queue
        (self._confirm if queue == "confirm" else self._look).append(job)
        return True

    def _pop(self, queue: deque[Watched]) -> Watched | None:
        if not queue:
            return None
        job = queue.popleft()
        job.queue = ""
        return job


def _shown(record: JobRecord) -> tuple[object, ...]:
    """What makes a snapshot differ from another one; the running time changes with every answer."""
    return (
        record.status,
        record.reason_code,
        record.reason_message,
        record.instances,
        record.latest_metrics,
        record.latest_progress,
        record.labels,
    )


def _is_older(entry: JobRecord, record: JobRecord | None) -> bool:
    """Whether an entry of a list shows an older state than a record, as far as both have the time of it."""
    if record is None:
        return False
    listed, known = seconds_of(entry.gmt_modified_time), seconds_of(record.gmt_modified_time)
    return listed is not None and known is not None and listed < known


def _merged(record: JobRecord | None, entry: JobRecord) -> JobRecord:
    """A record with what an entry of a list shows; the fields that the entry leaves out stay."""
    if record is None:
        return entry
    shown = {name: getattr(entry, name) for name in entry.model_fields_set}
    merged = record.model_copy(
        update={name: value for name, value in shown.items() if value not in (None, [], {})}
    )
    merged._etag = None  # it is no snapshot that the service has given
    return merged


def _lacks_instances(record: JobRecord) -> bool:
    """Whether a job that has begun may list more instances."""
    resource = record.compute_resource or {}
    count = resource.get("InstanceCount") or resource.get("EcsCount") or 1
    return record.status == "Running" and isinstance(count, int) and len(record.instances) < count
