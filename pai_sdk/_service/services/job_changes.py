"""Reads the jobs of a list of changes, as many as fit into a response."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from sqlalchemy.orm import Session

from pai_sdk._service.services.jobs.listing import jobs_in_parts, sizes_bytes
from pai_sdk._service.services.jobs.snapshot import LinkOf
from pai_sdk._service.services.training_jobs import jobs_in_full
from pai_sdk._service.state.models import Job

_MAX_BYTES = 8 << 20  # of requests; the other fields of a snapshot are small


def fitting_jobs(
    session: Session, job_ids: Collection[str], link_of: LinkOf
) -> Iterator[tuple[Job, dict[str, Any]]]:
    """Yields jobs with all their fields; the first ones, as many as fit into a response."""
    for jobs in jobs_in_parts(session, _fitting(sizes_bytes(session, job_ids))):
        yield from jobs_in_full(session, jobs, link_of)


def _fitting(sizes: Mapping[str, int]) -> dict[str, int]:
    """Returns the first jobs that fit into one response; at least one."""
    fitting: dict[str, int] = {}
    remaining_bytes = _MAX_BYTES
    for job_id, size in sizes.items():
        if fitting and size > remaining_bytes:
            break
        fitting[job_id] = size
        remaining_bytes -= size
    return fitting
