"""Polls many jobs by one request: ListTrainingJobChanges of the embedded service, or pages of ListTrainingJobs.

A list of Alibaba Cloud's service has at most 100 jobs per page and no ETag. It may be stale: a new job is missing,
or a status is an older one. Jobs may move between two pages: then one is listed twice, or not at all. So a list is
only a hint: `_client/job/follow/poller.py` confirms important changes with `get`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from pai_sdk._client.api.training_jobs import BEGINNING, JobPage, TrainingJobs
from pai_sdk._client.backend.base import JobChanges
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk._wire.pai.wire import seconds_of

_MAX_JOBS_PER_REQUEST = 1000  # limit of the embedded service
_PAGE_SIZE = 100  # limit of Alibaba Cloud
_CLOCKS_DIFFER_S = 60.0


class _Lists(Protocol):
    """Jobs of a service, in pages."""

    def list_page(self, number: int, *, workspace_id: str | None, start_time: str, page_size: int) -> JobPage:
        """Returns page `number`, from 1, the newest jobs first."""
        ...


@dataclass(frozen=True)
class _Page:
    """The part of a list that was read."""

    number: int  # the last page, from 1
    ids: tuple[str, ...]  # jobs of this page, to detect a repeated page
    read: int  # number of jobs on all pages so far
    requested: frozenset[str]  # when the list started
    reported: frozenset[str]  # requested jobs that were on a page
    start_time: str  # earliest creation time of listed jobs


def changes_of_many(
    jobs: TrainingJobs, snapshots: Mapping[str, JobRecord | None], since: JobChanges | None, *, wait_s: float
) -> JobChanges:
    """Returns changed jobs, by ListTrainingJobChanges; several requests for more than 1,000 jobs."""
    done = since.page if since is not None and isinstance(since.page, frozenset) else frozenset()
    batch = dict([(key, record) for key, record in snapshots.items() if key not in done][:_MAX_JOBS_PER_REQUEST])
    done = done | batch.keys()
    is_complete = done >= snapshots.keys()
    response = jobs.changes(
        {key: record.source.etag if record else None for key, record in batch.items()},
        # A long poll of one batch would delay the changes of the next batches.
        wait_s=wait_s if len(batch) == len(snapshots) else 0.0,
    )
    return JobChanges(
        {record.training_job_id: record for record in response.records},
        frozenset(response.missing) & batch.keys(),
        is_complete=is_complete,
        page=None if is_complete else done,
    )


def page_of_list(
    jobs: _Lists,
    snapshots: Mapping[str, JobRecord | None],
    since: JobChanges | None,
    *,
    workspace_id: str | None,
) -> JobChanges:
    """Reads the next page of the list, the newest jobs first."""
    before = since.page if since is not None and isinstance(since.page, _Page) else None
    last = before or _Page(0, (), 0, frozenset(snapshots), frozenset(), _oldest(snapshots))
    number = last.number + 1
    page = jobs.list_page(number, workspace_id=workspace_id, start_time=last.start_time, page_size=_PAGE_SIZE)
    ids = tuple(record.training_job_id for record in page.records)
    reported = last.reported | (last.requested & {*ids})
    read = last.read + len(ids)
    is_last_page = not ids or ids == last.ids or (page.total is not None and read >= page.total)
    # Stops when the remaining jobs are so few that a `get` for each costs no more than the pages read so far. So
    # jobs that are never listed, or are behind thousands of other users' jobs, do not force a complete scan each
    # time.
    is_complete = is_last_page or len(last.requested - reported) <= number
    return JobChanges(
        {record.training_job_id: record for record in page.records if record.training_job_id in snapshots},
        (last.requested - reported) & snapshots.keys() if is_complete else frozenset(),
        is_exact=False,
        is_complete=is_complete,
        page=None if is_complete else _Page(number, ids, read, last.requested, reported, last.start_time),
    )


def _oldest(snapshots: Mapping[str, JobRecord | None]) -> str:
    """Returns the start time with which all these jobs are listed; by default a service lists the last 7 days."""
    created = [seconds_of(record.gmt_create_time) if record else None for record in snapshots.values()]
    times = [each for each in created if each is not None]
    if not times or len(times) < len(created):
        return BEGINNING
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(min(times) - _CLOCKS_DIFFER_S))
