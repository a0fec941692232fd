"""The jobs that a poller asks for: what is known of each, and which one to ask for next. No requests, no locks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from pai_sdk.backend.base import JobChanges
from pai_sdk.job.follow.polling import FollowPolicy
from pai_sdk.schemas.record import JobRecord
from pai_sdk.schemas.status import KNOWN_STATUSES
from pai_sdk.schemas.wire import seconds_of

__all__ = ["Watched", "WatchedJobs"]

Snapshots: TypeAlias = list[tuple[str, JobRecord]]

_FIRST_PAUSE_S = 1.0  # of a job that the list shows as ended and `get` does not
_MARGIN_S = 0.1
_RELIST_DELAY_S = 0.5  # of an ended job, whose instances may be listed late
_SPOT_CHECK_INTERVAL_S = 10.0


@dataclass(eq=False)
class Watched:
    """One job.

    Attributes:
        id: its id.
        record: the last snapshot of it that its subscribers were given.
        wants_all: they need whole records.
        entry: what the list has shown of it last.
        confirmed: the turn of the last exact response that had it.
        doubted_until: the list is not used before this time.
        pause_s: how long it was not used the last time.
        recheck_at: when to ask again for an ended job: its status is not known, or instances are missing.
    """

    id: str
    record: JobRecord | None = None
    needs_full_records: bool = False
    entry: tuple[object, ...] | None = None
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
        self._to_confirm: dict[str, Watched] = {}  # two queues; a job is in one of them at most
        self._to_check: dict[str, Watched] = {}
        self._was_check = False  # the last request of the two kinds that take turns was a look
        self._had_news = False
        self._spot_checked_at = 0.0

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def needs_full_records(self) -> bool:
        """True if whole records of some jobs are needed."""
        return any(job.needs_full_records for job in self._jobs.values())

    @property
    def has_new(self) -> bool:
        """True if there is no snapshot yet of some jobs."""
        return any(job.record is None for job in self._jobs.values())

    def add(self, job_id: str, last_record: JobRecord | None, *, needs_full_records: bool) -> None:
        """Begin to ask for a job, or add what one more subscriber knows of it."""
        job = self._jobs.setdefault(job_id, Watched(job_id))
        job.needs_full_records |= needs_full_records
        if (
            job.record is None
            or last_record is None
            or _compared_fields(last_record) != _compared_fields(job.record)
        ):
            job.record = last_record  # both subscribers get what differs from the older one

    def remove(self, job_id: str) -> None:
        """Stop asking for a job."""
        for jobs in (self._jobs, self._to_confirm, self._to_check):
            jobs.pop(job_id, None)

    def clear(self) -> list[str]:
        """Stop asking for all jobs; returns them."""
        job_ids = [*self._jobs]
        for jobs in (self._jobs, self._to_confirm, self._to_check):
            jobs.clear()
        return job_ids

    # ---- what to ask

    def snapshots(self) -> dict[str, JobRecord | None]:
        """All jobs with their last snapshots."""
        return {job.id: job.record for job in self._jobs.values()}

    @property
    def has_to_confirm(self) -> bool:
        """True if a job is to be confirmed by `get`."""
        return bool(self._to_confirm)

    def next_to_confirm(self) -> Watched | None:
        """The next job to be confirmed by `get`."""
        return self._pop(self._to_confirm)

    def next_to_check(self, *, individually: bool) -> Watched | None:
        """The next job to look at by `get`; None for a request about all of them, every other time at least.

        Args:
            individually: there are no requests about all of them.
        """
        if individually:
            if not self._to_check:
                for job in self._jobs.values():
                    self._put(job, self._to_check)
            return self._pop(self._to_check)
        self._was_check = not self._was_check and bool(self._to_check)
        return self._pop(self._to_check) if self._was_check else None

    def confirm(self, job_id: str) -> bool:
        """Let a job be confirmed by `get`; returns whether it is watched."""
        job = self._jobs.get(job_id)
        if job is not None:
            self._put(job, self._to_confirm)
        return job is not None

    def put_back(self, job: Watched, *, is_confirmation: bool) -> None:
        """Put a job into its queue again, after a request that failed."""
        if self._jobs.get(job.id) is job:
            self._put(job, self._to_confirm if is_confirmation else self._to_check)

    @property
    def is_round_complete(self) -> bool:
        """True if all jobs were looked at, one by one."""
        return not self._to_check

    @property
    def recheck_at(self) -> float | None:
        """The next time at which `enqueue_due` has something to do."""
        return min((job.recheck_at for job in self._jobs.values() if job.recheck_at is not None), default=None)

    def enqueue_due(self, now: float) -> None:
        """Let ended jobs be confirmed again whose time has come."""
        for job in self._jobs.values():
            if job.recheck_at is not None and job.recheck_at <= now:
                job.recheck_at = None
                self._put(job, self._to_confirm)

    def pop_news(self) -> bool:
        """True if a status has changed since this was last asked."""
        had_news, self._had_news = self._had_news, False
        return had_news

    # ---- responses

    def take(self, response: JobChanges, generation: int) -> Snapshots:
        """Take a response about all jobs or about one; returns the snapshots that are new.

        Args:
            response: the response.
            generation: of its request. A later request may have had its response before.
        """
        updates: Snapshots = []
        for job_id, record in response.records.items():
            job = self._jobs.get(job_id)
            if job is not None and job.confirmed <= generation:
                updates += (
                    self._apply_record(job, record, generation)
                    if response.is_exact
                    else self._apply_entry(job, record)
                )
        for job_id in response.missing:
            if (job := self._jobs.get(job_id)) is not None:
                self._put(job, self._to_check)
        if response.is_complete and not response.is_exact:
            self._spot_check()
        return updates

    def _apply_record(self, job: Watched, record: JobRecord, generation: int) -> Snapshots:
        """Take a whole record of a job."""
        now, before = self._policy.schedule.now(), job.record
        job.record, job.confirmed = record, generation
        if not record.status.is_terminal:  # a list that shows its end is ahead, or `get` was behind
            job.pause_s = min(self._policy.pause_s, max(_FIRST_PAUSE_S, 2 * job.pause_s))
            job.doubted_until = now + job.pause_s
        job.recheck_at = None
        if record.status.is_unknown_end:
            job.recheck_at = now + self._policy.quiet_s + _MARGIN_S
        elif record.may_list_more and job.needs_full_records:
            job.recheck_at = now + min(_RELIST_DELAY_S, self._policy.pause_s)
        if before is not None and _compared_fields(before) == _compared_fields(record) and job.recheck_at is None:
            return []
        self._had_news |= before is None or before.status != record.status
        self._had_news |= job.needs_full_records and before is not None and before.instances != record.instances
        return [(job.id, record)]

    def _apply_entry(self, job: Watched, entry: JobRecord) -> Snapshots:
        """Take an entry of a list: fewer fields, maybe older than what is known."""
        before, job.entry = job.entry, (entry.status, entry.reason_code)
        if entry.status.is_terminal:
            # It is confirmed even if it was shown before: `get` may have given an older state then.
            if self._policy.schedule.now() >= job.doubted_until:
                self._had_news |= self._put(job, self._to_confirm)
            return []
        if entry.status not in KNOWN_STATUSES:
            self._put(job, self._to_check)  # it may be a final one: an entry does not show it
            return []
        if job.entry == before or _is_older(entry, job.record):
            return []
        if job.record is not None and job.record.status == entry.status:
            return []
        self._had_news = True
        if job.needs_full_records:
            self._put(job, self._to_confirm)
            return []
        job.record = _merged(job.record, entry)
        return [(job.id, job.record)]

    def _spot_check(self) -> None:
        """At the end of a list, choose a job that it does show: the list may stay behind what `get` shows."""
        for job in self._jobs.values():
            if job.needs_full_records and job.record is not None and _lacks_instances(job.record):
                self._put(job, self._to_check)
        now = self._policy.schedule.now()
        idle = [job for job in self._jobs.values() if job.id not in self._to_confirm]
        if idle and not self._to_check and now - self._spot_checked_at >= _SPOT_CHECK_INTERVAL_S:
            self._spot_checked_at = now
            self._put(min(idle, key=lambda job: job.confirmed), self._to_check)

    # ---- the queues

    def _put(self, job: Watched, queue: dict[str, Watched]) -> bool:
        """Put a job into a queue, unless it is there or to be confirmed; returns whether it was put there."""
        if job.id in queue or job.id in self._to_confirm:
            return False
        self._to_check.pop(job.id, None)
        queue[job.id] = job
        return True

    def _pop(self, queue: dict[str, Watched]) -> Watched | None:
        return queue.pop(next(iter(queue))) if queue else None


def _compared_fields(record: JobRecord) -> tuple[object, ...]:
    """The fields that make a snapshot differ from another one; the running time changes with every response."""
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
    """True if an entry of a list shows an older state than a record, as far as both have the time of it."""
    if record is None:
        return False
    entry_s, record_s = seconds_of(entry.gmt_modified_time), seconds_of(record.gmt_modified_time)
    return entry_s is not None and record_s is not None and entry_s < record_s


def _merged(record: JobRecord | None, entry: JobRecord) -> JobRecord:
    """A record with what an entry of a list shows; the fields that the entry leaves out stay."""
    if record is None:
        return entry
    listed = {name: getattr(entry, name) for name in entry.model_fields_set}
    merged = record.model_copy(
        update={name: value for name, value in listed.items() if value not in (None, [], {})}
    )
    merged._etag = None  # it is no snapshot that the service has given
    return merged


def _lacks_instances(record: JobRecord) -> bool:
    """True if a job that has begun may list more instances."""
    return record.status == "Running" and len(record.instances) < record.num_instances
