"""Many jobs of a service by one request: by the action of the embedded service, or by pages of ListTrainingJobs.

A list of Alibaba Cloud's service has at most 100 jobs a page and no ETag. It may lag: a new job is missing, and a
status is an older one. Between two pages jobs may move: one is shown twice, another is not shown at all. A list
is only a hint: `job/follow/poller.py` confirms with `get` what matters.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from pai_sdk.api.training_jobs import BEGINNING, TrainingJobs
from pai_sdk.backend.base import JobChanges
from pai_sdk.schemas.record import JobRecord
from pai_sdk.schemas.wire import seconds_of

__all__ = ["changes_of_many", "page_of_list"]

_MOST_AT_ONCE = 1000  # of the embedded service
_PAGE_SIZE = 100  # Alibaba Cloud's largest
_CLOCKS_DIFFER_S = 60.0


@dataclass(frozen=True)
class _Page:
    """The part of a list that was read.

    Attributes:
        number: the last page, from 1.
        ids: its jobs, to recognise a page that is given again.
        read: how many jobs the pages had until now.
        asked: the jobs that were asked for when the list began.
        shown: those of them that have been shown.
        start_time: the time from which jobs are listed.
    """

    number: int
    ids: tuple[str, ...]
    read: int
    asked: frozenset[str]
    shown: frozenset[str]
    start_time: str


def changes_of_many(
    jobs: TrainingJobs, known: Mapping[str, JobRecord | None], since: JobChanges | None, *, wait_s: float
) -> JobChanges:
    """The jobs that have changed, by ListTrainingJobChanges; for more than 1,000 jobs, in several requests.

    Args:
        jobs: the actions of the service.
        known: the jobs, each with its last snapshot.
        since: the former response.
        wait_s: for how long the service may hold the response back; not if there are more than 1,000 jobs.
    """
    done = since.page if since is not None and isinstance(since.page, frozenset) else frozenset()
    some = dict([(key, record) for key, record in known.items() if key not in done][:_MOST_AT_ONCE])
    done = done | some.keys()
    is_complete = done >= known.keys()
    found = jobs.changes(
        {key: record._etag if record else None for key, record in some.items()},
        wait_s=wait_s if len(some) == len(known) else 0.0,
    )
    return JobChanges(
        {record.training_job_id: record for record in found.records},
        frozenset(found.missing) & some.keys(),
        is_complete=is_complete,
        page=None if is_complete else done,
    )


def page_of_list(
    jobs: TrainingJobs,
    known: Mapping[str, JobRecord | None],
    since: JobChanges | None,
    *,
    workspace_id: str | None,
) -> JobChanges:
    """The next page of the list, the newest jobs first.

    The list ends when all jobs have been shown, or when the missing ones are so few that one `get` for each costs
    no more than the pages until now. So jobs that a list will never show, or behind thousands of other users'
    jobs, do not make it read to its end each time.

    Args:
        jobs: the actions of the service.
        known: the jobs, each with its last snapshot.
        since: the former response.
        workspace_id: only jobs of this workspace are listed.
    """
    before = since.page if since is not None and isinstance(since.page, _Page) else None
    last = before or _Page(0, (), 0, frozenset(known), frozenset(), _oldest(known))
    number = last.number + 1
    found = jobs.list_page(number, workspace_id=workspace_id, start_time=last.start_time, page_size=_PAGE_SIZE)
    ids = tuple(record.training_job_id for record in found.records)
    shown = last.shown | (last.asked & {*ids})
    read = last.read + len(ids)
    is_over = not ids or ids == last.ids or (found.total is not None and read >= found.total)
    is_complete = is_over or len(last.asked - shown) <= number
    return JobChanges(
        {record.training_job_id: record for record in found.records if record.training_job_id in known},
        (last.asked - shown) & known.keys() if is_complete else frozenset(),
        is_exact=False,
        is_complete=is_complete,
        page=None if is_complete else _Page(number, ids, read, last.asked, shown, last.start_time),
    )


def _oldest(known: Mapping[str, JobRecord | None]) -> str:
    """The time from which all these jobs are listed. Without one, the service would list the last 7 days."""
    created = [seconds_of(record.gmt_create_time) if record else None for record in known.values()]
    times = [each for each in created if each is not None]
    if not times or len(times) < len(created):
        return BEGINNING
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(min(times) - _CLOCKS_DIFFER_S))
