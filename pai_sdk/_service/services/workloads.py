"""The jobs that run and wait in a quota."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from pai_sdk._service.identity.principal import LOCAL_USER, Principal
from pai_sdk._service.identity.visibility import visible_jobs
from pai_sdk._service.services.context import ServiceContext
from pai_sdk._service.services.jobs.queueing.quota_checks import QUEUED
from pai_sdk._service.state.models import Job
from pai_sdk._service.wire_errors import invalid_parameter
from pai_sdk._wire.base import wire_name
from pai_sdk._wire.body import comma_list
from pai_sdk._wire.dlc.times import wire_time
from pai_sdk._wire.pai.status import STATUSES, JobStatus
from pai_sdk._wire.resources.workloads import Workload, WorkloadList, WorkloadQuery

_OPEN = tuple(status for status in STATUSES if not JobStatus(status).is_terminal)
_TYPE = "dlc"  # the product that jobs of both APIs belong to
_DEFAULT_PAGE_SIZE, _MAX_PAGE_SIZE = 20, 100


def list_workloads(
    context: ServiceContext, principal: Principal, quota_id: str, query: WorkloadQuery
) -> WorkloadList:
    """Returns a page of the jobs in a quota that a user can see: those that run, then those that wait."""
    size, number = query.page_size or _DEFAULT_PAGE_SIZE, query.page_number or 1
    if not (1 <= size <= _MAX_PAGE_SIZE and number >= 1):
        raise invalid_parameter(f"PageSize is 1 to {_MAX_PAGE_SIZE}, and PageNumber 1 or more.")
    with context.jobs.database.read() as session:
        positions = _positions(session, quota_id)
        jobs = [*session.scalars(select(Job).where(*_conditions(principal, quota_id, query)))]
    if query.before_workload_id is not None:
        position = positions.get(query.before_workload_id, 0)
        jobs = [job for job in jobs if positions.get(job.id, 0) < position]
    jobs.sort(key=lambda job: (positions.get(job.id, 0), job.number))
    start = (number - 1) * size
    workloads = [_workload(job, quota_id, positions) for job in jobs[start : start + size]]
    return WorkloadList(workloads=workloads, total_count=len(jobs))


def _positions(session: Session, quota_id: str) -> Mapping[str, int]:
    """Returns the places in the queue of the waiting jobs of all users, from 1."""
    waiting = (
        select(Job.id).where(_is_in(quota_id), Job.status.in_(QUEUED)).order_by(Job.priority.desc(), Job.number)
    )
    return {job_id: position for position, job_id in enumerate(session.scalars(waiting), 1)}


def _conditions(principal: Principal, quota_id: str, query: WorkloadQuery) -> Iterator[ColumnElement[bool]]:
    yield _is_in(quota_id)
    yield Job.status.in_(_OPEN)
    yield visible_jobs(principal)
    for column, values in (
        (Job.id, comma_list(query.workload_ids)),
        (Job.workspace_id, comma_list(query.workspace_ids)),
        (Job.owner, comma_list(query.user_ids)),
    ):
        if values:
            yield column.in_(values)


def _is_in(quota_id: str) -> ColumnElement[bool]:
    quota: ColumnElement[str] = Job.request[wire_name("compute_resource"), wire_name("resource_id")].as_string()
    return quota == quota_id


def _workload(job: Job, quota_id: str, positions: Mapping[str, int]) -> Workload:
    position, user = positions.get(job.id), job.owner or LOCAL_USER
    fields: dict[str, Any] = {} if position else {"gmt_dequeued_time": wire_time(_dequeued_at(job))}
    return Workload(
        workload_id=job.id,
        workload_name=job.name,
        workload_type=_TYPE,
        workload_status=job.status,
        position=position,
        priority=job.priority,
        reason=job.reason_message,
        code=job.reason_code,
        quota_id=quota_id,
        user_id=user,
        user_name=user,
        workspace_id=job.workspace_id,
        gmt_created_time=wire_time(job.created_at),
        gmt_enqueued_time=wire_time(job.created_at),
        **fields,
    )


def _dequeued_at(job: Job) -> float:
    ends = [
        change.ended_at for change in job.transitions if change.status in QUEUED and change.ended_at is not None
    ]
    return max(ends, default=job.created_at)
