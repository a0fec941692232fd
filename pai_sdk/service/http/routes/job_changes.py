"""Many jobs, one request: those that differ from what a client knows of them. PAI's API has no such action."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from pai_sdk._wire.training_jobs import ChangedJobs, ChangesRequest
from pai_sdk.service.budgets import CHANGES, BudgetedRoute, Work, WorkOf, within
from pai_sdk.service.http.bodies import accepts
from pai_sdk.service.http.context import ContextOf, PrincipalOf, ServiceContext
from pai_sdk.service.http.routes.json_responses import LongPoll, etag, list_success, offering
from pai_sdk.service.jobs.experiment_table import experiment_names
from pai_sdk.service.jobs.job_table import latest_metrics_of
from pai_sdk.service.jobs.listing import jobs_in_parts, sizes_bytes
from pai_sdk.service.jobs.progress_figures import latest_progress_of
from pai_sdk.service.jobs.reading import read_body
from pai_sdk.service.jobs.snapshot import job_in_full
from pai_sdk.service.wire_errors import WireError, invalid_parameter

__all__ = ["router"]

router = APIRouter(prefix="/api/v1/trainingjobs", route_class=BudgetedRoute)

_MOST_JOBS = 1000
_MOST_BYTES = 8 << 20  # of descriptions; the rest of a snapshot is small


@router.post("/changes", response_model=ChangedJobs)
@within(CHANGES)
@accepts(ChangesRequest)
async def list_training_job_changes(
    request: Request, context: ContextOf, principal: PrincipalOf, work: WorkOf
) -> Response:
    """ListTrainingJobChanges: of the jobs in `Known`, those whose ETag is not the one that is given there.

    Each is shown as GetTrainingJob shows it, with its ETag in `ETags`; `Missing` has the ids that are those of no
    job. With `Prefer: wait=N`, a response without changes waits for one. Nothing is kept between two requests, so
    a restart of the service, or a job that the client adds, needs no care. Of jobs with large descriptions, a
    response has as many as fit in; the others still differ from what is known, and come with the next one.
    """
    if not context.beyond_pai:
        raise WireError(404, "InvalidAction.NotFound", "This service has no action ListTrainingJobChanges.")
    known = _known(read_body(await request.body()))
    poll = LongPoll(request, context.settings.max_hold_s)
    # Registered before the first look, so that no change falls between a look and the wait.
    with context.changes.of(*known) as news:
        while True:
            versions = await run_in_threadpool(context.jobs.versions, known, principal)
            changed = [job_id for job_id, version in versions.items() if known[job_id] != etag(version)]
            if changed or len(versions) < len(known) or poll.left_s <= 0 or context.changes.closed:
                break
            await news.wait(poll.left_s)
    headers = {**offering("wait", "all-instances", "reported-metrics", *context.beyond_pai), **poll.headers}
    missing = sorted({*known} - {*versions})
    return await work.run(_changed_jobs, request, context, work, changed, missing, headers)


def _known(body: Mapping[str, Any]) -> dict[str, str]:
    """The jobs that are asked for, each with the ETag that the client knows; an empty text for none.

    Raises:
        WireError: that is not what the body has.
    """
    with suppress(ValidationError):
        known = ChangesRequest.model_validate(body, by_alias=True, by_name=False).known
        if 0 < len(known) <= _MOST_JOBS:
            return known
    raise invalid_parameter(f'Known: must be an object {{"<job id>": "<ETag>"}} of 1 to {_MOST_JOBS} jobs.')


def _changed_jobs(
    request: Request,
    context: ServiceContext,
    work: Work,
    job_ids: Collection[str],
    missing: Sequence[str],
    headers: Mapping[str, str],
) -> Response:
    etags: dict[str, str] = {}
    # One transaction, so that a version is that of all that is shown of its job.
    with context.jobs.database.read() as session:

        def items() -> Iterator[dict[str, Any]]:
            for jobs in jobs_in_parts(session, _fitting(sizes_bytes(session, job_ids))):
                ids = [job.id for job in jobs]
                metrics, progress = latest_metrics_of(session, ids), latest_progress_of(session, ids)
                experiments, link_of = experiment_names(session, jobs), context.link_to_job(request)
                for job in jobs:
                    etags[job.id] = etag(job.version)
                    points, figures = metrics.get(job.id, ()), progress.get(job.id, ())
                    yield job_in_full(job, points, figures, experiments, link_of)

        # The tags are complete when the list is, so they are dumped after it.
        rest = partial(ChangedJobs.model_construct, etags=etags, missing=[*missing])
        return list_success(request, work, ChangedJobs, items() if job_ids else (), rest, headers=headers)


def _fitting(sizes: Mapping[str, int]) -> dict[str, int]:
    """The first jobs, as many as fit into one response; at least one."""
    found: dict[str, int] = {}
    left_bytes = _MOST_BYTES
    for job_id, size in sizes.items():
        if found and size > left_bytes:
            break
        found[job_id] = size
        left_bytes -= size
    return found
