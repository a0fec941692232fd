"""Many jobs, one request: those that differ from what a client knows of them. PAI's API has no such action."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

from fastapi import APIRouter, Request, Response
from sqlalchemy import select
from starlette.concurrency import run_in_threadpool

from pai_sdk.service.budgets import BudgetedRoute
from pai_sdk.service.http.context import ContextOf, ServiceContext
from pai_sdk.service.http.routes.json_responses import answer, etag, offering, wished_hold_s
from pai_sdk.service.jobs.experiment_table import experiment_names
from pai_sdk.service.jobs.job_table import latest_metrics_of
from pai_sdk.service.jobs.progress_figures import latest_progress_of
from pai_sdk.service.jobs.reading import read_body
from pai_sdk.service.jobs.snapshot import job_in_full
from pai_sdk.service.state.models import Job
from pai_sdk.service.wire_errors import Fault, invalid_parameter

__all__ = ["router"]

router = APIRouter(prefix="/api/v1/trainingjobs", route_class=BudgetedRoute)

_MOST_JOBS = 1000


@router.post("/changes")
async def list_training_job_changes(request: Request, context: ContextOf) -> Response:
    """ListTrainingJobChanges: of the jobs in `Known`, those whose ETag is not the one that is given there.

    Each is shown as GetTrainingJob shows it, with its ETag in `ETags`; `Missing` has the ids that are those of no
    job. With `Prefer: wait=N`, an answer without news waits for some. Nothing is kept between two requests, so a
    restart of the service, or a job that the client adds, needs no care.
    """
    if not context.beyond_pai:
        raise Fault(404, "InvalidAction.NotFound", "This service has no action ListTrainingJobChanges.")
    known = _known(read_body(await request.body()))
    hold_s = wished_hold_s(request, context.settings.longest_hold_s)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + (hold_s or 0.0)
    # Registered before the first look, so that no change falls between a look and the wait.
    with context.changes.of(*known) as news:
        while True:
            versions = await run_in_threadpool(context.jobs.versions, known)
            changed = [job_id for job_id, version in versions.items() if known[job_id] != etag(version)]
            left_s = deadline - loop.time()
            if changed or len(versions) < len(known) or left_s <= 0 or context.changes.closed:
                break
            await news.wait(left_s)
    etags, jobs = await run_in_threadpool(_snapshots, context, changed)
    applied = {} if hold_s is None else {"Preference-Applied": f"wait={hold_s:g}"}
    headers = {**offering("wait", "all-instances", "reported-metrics", *context.beyond_pai), **applied}
    missing = sorted({*known} - {*versions})
    return answer(request, {"TrainingJobs": jobs, "ETags": etags, "Missing": missing}, headers=headers)


def _known(body: Mapping[str, Any]) -> dict[str, str]:
    """The jobs that are asked for, each with the ETag that the client knows; an empty text for none.

    Raises:
        Fault: that is not what the body has.
    """
    given = body.get("Known")
    known = given if isinstance(given, dict) else {}
    if 0 < len(known) <= _MOST_JOBS and len(body) == 1 and all(isinstance(tag, str) for tag in known.values()):
        return known
    raise invalid_parameter(f'Known: must be an object {{"<job id>": "<ETag>"}} of 1 to {_MOST_JOBS} jobs.')


def _snapshots(context: ServiceContext, job_ids: Collection[str]) -> tuple[dict[str, str], list[dict[str, Any]]]:
    if not job_ids:
        return {}, []
    # One transaction, so that a version is that of all that is shown of its job.
    with context.jobs.database.read() as session:
        jobs = list(session.scalars(select(Job).where(Job.id.in_(job_ids)).order_by(Job.number)))
        metrics, progress = latest_metrics_of(session, job_ids), latest_progress_of(session, job_ids)
        experiments = experiment_names(session, jobs)
        shown = [job_in_full(job, metrics.get(job.id, ()), progress.get(job.id, ()), experiments) for job in jobs]
        return {job.id: etag(job.version) for job in jobs}, shown
