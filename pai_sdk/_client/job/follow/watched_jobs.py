"""The state of the jobs of a poller, and which request is next. It makes no requests and has no locks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from pai_sdk._client.backend.base import JobChanges
from pai_sdk._client.job.follow.polling import FollowPolicy
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk._wire.pai.status import STATUSES
from pai_sdk._wire.pai.wire import seconds_of

Snapshots: TypeAlias = list[tuple[str, JobRecord]]

_FIRST_PAUSE_S = 1.0  # after the list has shown a job as finished and `get` has not
_MARGIN_S = 0.1
_RELIST_DELAY_S = 0.5  # of a finished job, whose instances may be listed late
_SPOT_CHECK_INTERVAL_S = 10.0


@dataclass(eq=False)
class Watched:
    """The state of one job."""

    id: str
    record: JobRecord | None = None  # the last snapshot that its subscribers have received
    needs_full_records: bool = False
    entry: tuple[object, ...] | None = None  # the last one of the list
    confirmed: int = 0  # the generation of the last exact response that had the job
    doubted_until: float = 0.0  # the list is ignored before this time
    pause_s: float = 0.0  # for how long the list was ignored the last time
    # When to poll a finished job again: its status is unknown, or instances are missing.
    recheck_at: float | None = None


class WatchedJobs:
    """The jobs of one poller, which holds its lock for each call.

    in no queue ──the list shows an end or a change──▶ to confirm ─┐
         ▲  └─────not in the list, or a spot check──▶ to check ────┤
         └──────────────────── `get` was sent ─────────────────────┘
    """

    def __init__(self, policy: FollowPolicy) -> None:
        self._policy = policy
        self._jobs: dict[str, Watched] = {}
        self._to_confirm: dict[str, Watched] = {}  # two queues; a job is in one of them at most
        self._to_check: dict[str, Watched] = {}
        self._was_check = False  # of the last request; checks alternate with requests for all jobs
        self._had_news = False
        self._spot_checked_at = 0.0

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def needs_full_records(self) -> bool:
        """Returns whether a subscriber of any job needs full records."""
        return any(job.needs_full_records for job in self._jobs.values())

    @property
    def has_new(self) -> bool:
        """Returns whether any job has no snapshot yet."""
        return any(job.record is None for job in self._jobs.values())

    def add(self, job_id: str, last_record: JobRecord | None, *, needs_full_records: bool) -> None:
        """Adds a job, or merges the last snapshot of another subscriber into it."""
        job = self._jobs.setdefault(job_id, Watched(job_id))
        job.needs_full_records |= needs_full_records
        if (
            job.record is None
            or last_record is None
            or _compared_fields(last_record) != _compared_fields(job.record)
        ):
            # One record for all subscribers: each of them gets every snapshot that differs from this one.
            job.record = last_record

    def remove(self, job_id: str) -> None:
        """Removes a job."""
        for jobs in (self._jobs, self._to_confirm, self._to_check):
            jobs.pop(job_id, None)

    def clear(self) -> list[str]:
        """Removes all jobs and returns their ids."""
        job_ids = [*self._jobs]
        for jobs in (self._jobs, self._to_confirm, self._to_check):
            jobs.clear()
        return job_ids

    # ---- what to ask

    def snapshots(self) -> dict[str, JobRecord | None]:
        """Returns all jobs with their last snapshots."""
        return {job.id: job.record for job in self._jobs.values()}

    @property
    def has_to_confirm(self) -> bool:
        """Returns whether a job is to be confirmed by `get`."""
        return bool(self._to_confirm)

    def next_to_confirm(self) -> Watched | None:
        """Returns the next job to be confirmed by `get`."""
        return self._pop(self._to_confirm)

    def next_to_check(self, *, individually: bool) -> Watched | None:
        """Returns the next job to check by `get`; None, at least every other time, for a request for all jobs."""
        if individually:  # there are no requests for all jobs
            if not self._to_check:
                for job in self._jobs.values():
                    self._put(job, self._to_check)
            return self._pop(self._to_check)
        self._was_check = not self._was_check and bool(self._to_check)
        return self._pop(self._to_check) if self._was_check else None

    def confirm(self, job_id: str) -> bool:
        """Queues a job for a confirmation by `get`; returns whether it is watched."""
        job = self._jobs.get(job_id)
        if job is not None:
            self._put(job, self._to_confirm)
        return job is not None

    def put_back(self, job: Watched, *, is_confirmation: bool) -> None:
        """Puts a job back into its queue after a failed request."""
        if self._jobs.get(job.id) is job:
            self._put(job, self._to_confirm if is_confirmation else self._to_check)

    @property
    def is_round_complete(self) -> bool:
        """Returns whether all jobs were checked individually."""
        return not self._to_check

    @property
    def recheck_at(self) -> float | None:
        """Returns the next time at which `enqueue_due` has something to do."""
        return min((job.recheck_at for job in self._jobs.values() if job.recheck_at is not None), default=None)

    def enqueue_due(self, now: float) -> None:
        """Queues finished jobs for another confirmation if their `recheck_at` has passed."""
        for job in self._jobs.values():
            if job.recheck_at is not None and job.recheck_at <= now:
                job.recheck_at = None
                self._put(job, self._to_confirm)

    def pop_news(self) -> bool:
        """Returns whether a status has changed since the last call."""
        had_news, self._had_news = self._had_news, False
        return had_news

    # ---- responses

    def take(self, response: JobChanges, generation: int) -> Snapshots:
        """Applies a response for all jobs or for one to a request of a generation; returns the new snapshots."""
        updates: Snapshots = []
        for job_id, record in response.records.items():
            job = self._jobs.get(job_id)
            # A later request may have received its response earlier: the older response must not replace it.
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
        """Applies a full record."""
        now, before = self._policy.schedule.now(), job.record
        job.record, job.confirmed = record, generation
        # If the list shows the end earlier than `get`, its entries are ignored for a growing pause: otherwise each
        # page would cause another `get`.
        if not record.status.is_terminal:
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
        """Applies an entry of a list, which has fewer fields and may be out of date."""
        before, job.entry = job.entry, (entry.status, entry.reason_code)
        if entry.status.is_terminal:
            # Confirmed even if the list has shown it before: that `get` may have returned an older state.
            if self._policy.schedule.now() >= job.doubted_until:
                self._had_news |= self._put(job, self._to_confirm)
            return []
        if entry.status not in STATUSES:
            self._put(job, self._to_check)  # an unknown status may be final, and an entry has no end time
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
        """Queues, at the end of a list, a job that the list shows: the list may be out of date."""
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
        """Puts a job into a queue, unless it is already there or to be confirmed; returns whether it did."""
        if job.id in queue or job.id in self._to_confirm:
            return False
        self._to_check.pop(job.id, None)
        queue[job.id] = job
        return True

    def _pop(self, queue: dict[str, Watched]) -> Watched | None:
        return queue.pop(next(iter(queue))) if queue else None


def _compared_fields(record: JobRecord) -> tuple[object, ...]:
    """Returns the fields whose changes subscribers are notified of."""
    # Without the running time, which changes with every response.
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
    """Returns whether an entry of a list is older than a record; False if one of them has no time."""
    if record is None:
        return False
    entry_s, record_s = seconds_of(entry.gmt_modified_time), seconds_of(record.gmt_modified_time)
    return entry_s is not None and record_s is not None and entry_s < record_s


def _merged(record: JobRecord | None, entry: JobRecord) -> JobRecord:
    """Returns a record updated with the fields that an entry of a list has."""
    if record is None:
        return entry
    entry_fields = {name: getattr(entry, name) for name in entry.model_fields_set}
    merged = record.model_copy(
        update={name: value for name, value in entry_fields.items() if value not in (None, [], {})}
    )
    # Without an ETag: the service has never sent this combination of fields.
    return merged.from_source(merged.source._replace(etag=None))


def _lacks_instances(record: JobRecord) -> bool:
    """Returns whether a running job lists fewer instances than it requested."""
    return record.status == "Running" and len(record.instances) < record.num_instances
