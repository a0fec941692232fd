"""TrainingJob: create, get, list, stop, delete."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from pai_sdk._service.http.auditing import record_in_transaction
from pai_sdk._service.http.bodies import accepts
from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.routes.json_responses import LongPoll, etag, list_success, offering, success
from pai_sdk._service.routes.parameters import Order, PageNumber, PageSize, TimeWindow, check_workspace
from pai_sdk._service.services.budgets import LISTS, BudgetedRoute, WorkOf, within
from pai_sdk._service.services.context import ContextOf, PrincipalOf, ServiceContext
from pai_sdk._service.services.experiments import experiment_names
from pai_sdk._service.services.jobs.creation import read_request
from pai_sdk._service.services.jobs.host_resources import Capacity, refuse_oversized
from pai_sdk._service.services.jobs.job_table import existing_job, latest_metrics
from pai_sdk._service.services.jobs.listing import JobQuery, find_jobs, jobs_in_parts, read_labels
from pai_sdk._service.services.jobs.progress_figures import latest_progress
from pai_sdk._service.services.jobs.queueing.submission import NewJob
from pai_sdk._service.services.jobs.reading import read_body
from pai_sdk._service.services.jobs.request_checks import image_notice, refuse_unknown_buckets, unused_notice
from pai_sdk._service.services.jobs.resolution import Resolved
from pai_sdk._service.services.jobs.snapshot import LinkOf, error_info, job_in_full, job_in_list, output_models
from pai_sdk._wire.base import Empty
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.training_jobs import CreatedJob, JobErrorInfo, JobList, OutputModelList

__all__ = ["check_job", "create_job", "delete_job", "router", "stop_job"]

router = APIRouter(prefix="/api/v1/trainingjobs", route_class=BudgetedRoute)


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
        ended_at=_visible_before(context, window.ended_at),
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
    version, fields = await run_in_threadpool(_snapshot, context, job_id, context.link_to_job(request))
    return success(request, fields, headers={**headers, "ETag": etag(version)})


@router.put("/{job_id}/stop", response_model=Empty)
def stop_training_job(request: Request, context: ContextOf, job_id: str) -> Response:
    """StopTrainingJob. A job that has ended stays as it is."""
    stop_job(context, job_id)
    return success(request)


@router.delete("/{job_id}", response_model=Empty)
def delete_training_job(request: Request, context: ContextOf, job_id: str) -> Response:
    """DeleteTrainingJob. Its outputs in the object store stay there."""
    delete_job(context, job_id)
    return success(request)


@router.get("/{job_id}/errorinfo", response_model=JobErrorInfo)
def get_training_job_error_info(request: Request, context: ContextOf, job_id: str) -> Response:
    """GetTrainingJobErrorInfo."""
    return success(request, JobErrorInfo(error_info=error_info(context.jobs.get(job_id))))


@router.get("/{job_id}/outputmodels", response_model=OutputModelList)
def list_training_job_output_models(request: Request, context: ContextOf, job_id: str) -> Response:
    """ListTrainingJobOutputModels."""
    return success(request, OutputModelList(output_models=output_models(context.jobs.get(job_id))))


def _offers(context: ServiceContext) -> dict[str, str]:
    """Returns the features beyond PAI's API; clients rely on announced ones only."""
    return offering("submission-dedupe", "runs", *context.beyond_pai) if context.jobs.dedupes else {}


def _visible_before(context: ServiceContext, ended_at: float | None) -> float | None:
    """Returns the time after which created jobs are not listed; in the test mode of a foreign cloud, lists lag."""
    if context.settings.foreign is None:
        return ended_at
    return min(time.time() - context.settings.foreign.list_lag_s, ended_at or math.inf)


def stop_job(context: ServiceContext, job_id: str) -> None:
    """Stops a job; a finished one stays as it is."""
    context.jobs.request_stop(job_id)
    context.runner.wake()


def delete_job(context: ServiceContext, job_id: str) -> None:
    """Deletes a finished job with its log and its folder; objects in the object store stay."""
    context.jobs.delete(job_id)
    context.logs.forget(job_id)
    context.runner.discard(job_id)


def check_job(context: ServiceContext, body: dict[str, Any], principal: Principal) -> Resolved:
    """Checks the request of a user for a job; returns the job."""
    job = read_request(
        body,
        workspace_of=partial(check_workspace, context, principal),
        slots=context.settings.slots,
        algorithms=context.algorithms,
    )
    refuse_oversized(job.request, Capacity.of(context.settings, context.executor))
    if job.request.experiment_config is not None:
        context.experiments.require_visible(job.request.experiment_config.experiment_id, principal, "submit")
    refuse_unknown_buckets(
        job.request,
        lambda bucket, right: (
            context.bucket_exists(bucket) and context.bucket_rights.is_allowed(principal, bucket, right)
        ),
    )
    return job


def create_job(
    context: ServiceContext,
    body: dict[str, Any],
    principal: Principal,
    in_transaction: Callable[[Session, str], None] = lambda session, job_id: None,
) -> tuple[str, str]:
    """Creates a job of a user; returns its id and the notice about it. For `in_transaction` see `NewJob`."""
    job = check_job(context, body, principal)
    notice = unused_notice(job.request, context.executor)
    notices = (notice, image_notice(job.request, context.executor))
    submission = NewJob(job.request, job.workspace_id, principal.user, job.algorithm_id, notices, in_transaction)
    job_id = context.jobs.create(submission)
    return job_id, notice


def _snapshot(context: ServiceContext, job_id: str, link_of: LinkOf) -> tuple[int, dict[str, object]]:
    # One transaction: the version fits to the other fields.
    with context.jobs.database.read() as session:
        job = existing_job(session, job_id)
        metrics, progress = latest_metrics(session, job_id), latest_progress(session, job_id)
        return job.version, job_in_full(job, metrics, progress, experiment_names(session, [job]), link_of)
