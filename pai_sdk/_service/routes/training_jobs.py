"""TrainingJob: create, get, list, stop, delete."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from pai_sdk._service.http.auditing import record_in_transaction
from pai_sdk._service.http.bodies import accepts
from pai_sdk._service.identity.requests import PrincipalOf
from pai_sdk._service.routes.action_route import ActionRoute
from pai_sdk._service.routes.json_responses import LongPoll, etag, list_success, offering, success
from pai_sdk._service.routes.parameters import Order, PageNumber, PageSize, TimeWindow
from pai_sdk._service.services.budgets import LISTS, WorkOf, within
from pai_sdk._service.services.context import ContextOf, ServiceContext
from pai_sdk._service.services.experiments import experiment_names
from pai_sdk._service.services.jobs.listing import JobQuery, find_jobs, jobs_in_parts, read_labels
from pai_sdk._service.services.jobs.reading import read_body
from pai_sdk._service.services.jobs.snapshot import error_info, job_in_list, output_models
from pai_sdk._service.services.training_jobs import create_job, delete_job, read_job, stop_job, visible_before
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.training_jobs import CreatedJob, JobErrorInfo, JobList, OutputModelList

router = APIRouter(prefix="/api/v1/trainingjobs", route_class=ActionRoute)


@router.post("", response_model=CreatedJob)
@accepts(TrainingJobRequest)
async def create_training_job(request: Request, context: ContextOf, principal: PrincipalOf) -> Response:
    """CreateTrainingJob."""
    body = read_body(await request.body())
    with record_in_transaction(context.audit, request.scope) as record:
        job_id, notice = await run_in_threadpool(create_job, context, body, principal, record)
    context.runner.wake()
    notices = {"notices": [notice]} if notice else {}
    return success(request, CreatedJob(training_job_id=job_id, **notices), headers=_offers(context))


@router.get("", response_model=JobList)
@within(LISTS)
def list_training_jobs(
    request: Request,
    work: WorkOf,
    context: ContextOf,
    principal: PrincipalOf,
    window: TimeWindow,
    page_number: PageNumber = 1,
    page_size: PageSize = 10,
    status: Annotated[str | None, Query(alias="Status")] = None,
    name: Annotated[str | None, Query(alias="TrainingJobName")] = None,
    job_id: Annotated[str | None, Query(alias="TrainingJobId")] = None,
    workspace_id: Annotated[str | None, Query(alias="WorkspaceId")] = None,
    algorithm_name: Annotated[str | None, Query(alias="AlgorithmName")] = None,
    algorithm_provider: Annotated[str | None, Query(alias="AlgorithmProvider")] = None,
    is_temp_algo: Annotated[bool | None, Query(alias="IsTempAlgo")] = None,
    labels: Annotated[str | None, Query(alias="Labels")] = None,
    sort_by: Annotated[str, Query(alias="SortBy")] = "GmtCreateTime",
    order: Order = "DESC",
) -> Response:
    """ListTrainingJobs. `TrainingJobName` may be a part of a name."""
    query = JobQuery(
        principal,
        status=status,
        name=name,
        job_id=job_id,
        workspace_id=workspace_id,
        algorithm_name=algorithm_name,
        algorithm_provider=algorithm_provider,
        is_temp_algo=is_temp_algo,
        labels=read_labels(labels),
        started_at=window.started_at,
        ended_at=visible_before(context, window.ended_at),
        sort_by=sort_by,
        descending=order.upper() == "DESC",
        page_number=page_number,
        page_size=page_size,
    )
    with context.jobs.database.read() as session:
        sizes, total = find_jobs(session, query)
        work.require(sum(sizes.values()), f"{len(sizes)} jobs with large descriptions")
        link_of = context.link_to_job(request)
        items = (
            job_in_list(job, experiments, link_of)
            for jobs in jobs_in_parts(session, sizes)
            for experiments in [experiment_names(session, jobs)]
            for job in jobs
        )
        tail = partial(JobList, total_count=total)
        return list_success(request, work, JobList, items, tail, headers=_offers(context))


@router.get("/{job_id}", response_model=JobRecord)
async def get_training_job(request: Request, context: ContextOf, job_id: str) -> Response:
    """GetTrainingJob. With `If-None-Match` and `Prefer: wait=N`, the response waits for the next snapshot.

    `x-pai-offers` announces this, that an instance is listed before its log has a line, and that metrics
    include those that a job reports.
    """
    client_etag = request.headers.get("if-none-match")
    poll = LongPoll(request, context.settings.max_hold_s)
    offers = ["wait", "all-instances", "reported-metrics", *context.beyond_pai]
    headers = {**offering(*offers), **poll.headers}
    with context.changes.of(job_id) as news:
        while client_etag is not None:
            version = await run_in_threadpool(context.jobs.version, job_id)
            if client_etag != etag(version):
                break
            if poll.remaining_s <= 0 or context.changes.closed:
                return Response(status_code=304, headers={**headers, "ETag": client_etag})
            await news.wait(poll.remaining_s)
    version, fields = await run_in_threadpool(read_job, context, job_id, context.link_to_job(request))
    return success(request, fields, headers={**headers, "ETag": etag(version)})


@router.put("/{job_id}/stop")
def stop_training_job(context: ContextOf, job_id: str) -> None:
    """StopTrainingJob. A job that has ended stays as it is."""
    stop_job(context, job_id)


@router.delete("/{job_id}")
def delete_training_job(context: ContextOf, job_id: str) -> None:
    """DeleteTrainingJob. Its outputs in the object store stay there."""
    delete_job(context, job_id)


@router.get("/{job_id}/errorinfo")
def get_training_job_error_info(context: ContextOf, job_id: str) -> JobErrorInfo:
    """GetTrainingJobErrorInfo."""
    return JobErrorInfo(error_info=error_info(context.jobs.get(job_id)))


@router.get("/{job_id}/outputmodels")
def list_training_job_output_models(context: ContextOf, job_id: str) -> OutputModelList:
    """ListTrainingJobOutputModels."""
    return OutputModelList(output_models=output_models(context.jobs.get(job_id)))


def _offers(context: ServiceContext) -> dict[str, str]:
    """Returns the features beyond PAI's API; clients rely on announced ones only."""
    return offering("submission-dedupe", "runs", *context.beyond_pai) if context.jobs.dedupes else {}
