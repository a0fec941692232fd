"""DLC: create, get, list, update, stop, delete and count jobs."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from pai_sdk._service.http.auditing import record_in_transaction
from pai_sdk._service.http.bodies import accepts
from pai_sdk._service.identity.requests import PrincipalOf
from pai_sdk._service.routes.dlc.dlc_route import DlcRoute
from pai_sdk._service.routes.json_responses import success
from pai_sdk._service.services.budgets import LISTS, within
from pai_sdk._service.services.context import ContextOf
from pai_sdk._service.services.dlc import changes
from pai_sdk._service.services.dlc.creation import create_dlc_job
from pai_sdk._service.services.dlc.job_records import job_item, read_job, workspace_names
from pai_sdk._service.services.dlc.listing import find_jobs
from pai_sdk._service.services.jobs.reading import read_body
from pai_sdk._service.services.training_jobs import visible_before
from pai_sdk._wire.dlc.jobs import JobDetailQuery, JobQuery, JobReference, JobUpdate, NewJob
from pai_sdk._wire.dlc.records import JobDetail, JobList

router = APIRouter(prefix="/api/v1/jobs", route_class=DlcRoute)


@router.post("", response_model=JobReference)
@accepts(NewJob)
async def create_job(request: Request, context: ContextOf, principal: PrincipalOf) -> Response:
    """CreateJob."""
    body = read_body(await request.body())
    with record_in_transaction(context.audit, request.scope) as record:
        job_id = await run_in_threadpool(create_dlc_job, context, body, principal, record)
    context.runner.wake()
    return success(request, JobReference(job_id=job_id))


@router.get("")
@within(LISTS)
def list_jobs(context: ContextOf, principal: PrincipalOf, query: JobQuery) -> JobList:
    """ListJobs: by default, those that were created in the last seven days."""
    names = workspace_names(context)
    with context.jobs.database.read() as session:
        rows, total = find_jobs(session, principal, query, visible_before=visible_before(context, None))
        return JobList(jobs=[job_item(context, job, row, names) for job, row in rows], total_count=total)


@router.get("/{job_id}")
def get_job(request: Request, context: ContextOf, job_id: str, query: JobDetailQuery) -> JobDetail:
    """GetJob."""
    return read_job(context, job_id, has_details=query.need_detail is not False)


@router.put("/{job_id}")
def update_job(context: ContextOf, job_id: str, update: JobUpdate) -> JobReference:
    """UpdateJob: the priority of a job that waits, its description, and who may see it."""
    changes.update_job(context, job_id, update)
    return JobReference(job_id=job_id)


@router.post("/{job_id}/stop")
def stop_job(context: ContextOf, job_id: str) -> JobReference:
    """StopJob; refuses for a job that has ended."""
    changes.stop_job(context, job_id)
    return JobReference(job_id=job_id)


@router.delete("/{job_id}")
def delete_job(context: ContextOf, job_id: str) -> JobReference:
    """DeleteJob, of one that has ended."""
    changes.delete_job(context, job_id)
    return JobReference(job_id=job_id)
