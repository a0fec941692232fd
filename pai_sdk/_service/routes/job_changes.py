"""The changes of many jobs in one response. PAI's API has no such action."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from pai_sdk._service.http.bodies import accepts
from pai_sdk._service.identity.requests import PrincipalOf
from pai_sdk._service.routes.json_responses import LongPoll, etag, list_success, offering
from pai_sdk._service.services.budgets import CHANGES, BudgetedRoute, Work, WorkOf, within
from pai_sdk._service.services.context import ContextOf, ServiceContext
from pai_sdk._service.services.job_changes import fitting_jobs
from pai_sdk._service.services.jobs.reading import read_body
from pai_sdk._service.wire_errors import WireError, invalid_parameter
from pai_sdk._wire.training_jobs import ChangedJobs, ChangesRequest

router = APIRouter(prefix="/api/v1/trainingjobs", route_class=BudgetedRoute)

_MAX_JOBS = 1000


@router.post("/changes", response_model=ChangedJobs)
@within(CHANGES)
@accepts(ChangesRequest)
async def list_training_job_changes(
    request: Request, context: ContextOf, principal: PrincipalOf, work: WorkOf
) -> Response:
    """ListTrainingJobChanges: of the jobs in `Known`, those whose ETag differs from the one there.

    Each has the form of GetTrainingJob, with its ETag in `ETags`; `Missing` has ids without a job. With
    `Prefer: wait=N`, a response without changes waits for one. The service stores nothing between two requests, so
    restarts and additional jobs need no care. A response has as many large jobs as fit; the ETags of the others
    still differ, so the next response has them.
    """
    if not context.beyond_pai:
        raise WireError(404, "InvalidAction.NotFound", "This service has no action ListTrainingJobChanges.")
    client_etags = _client_etags(read_body(await request.body()))
    poll = LongPoll(request, context.settings.max_hold_s)
    # Subscribes before the first read, so that no change between the read and the wait is lost.
    with context.changes.of(*client_etags) as news:
        while True:
            versions = await run_in_threadpool(context.jobs.versions, client_etags, principal)
            changed = [job_id for job_id, version in versions.items() if client_etags[job_id] != etag(version)]
            if changed or len(versions) < len(client_etags) or poll.remaining_s <= 0 or context.changes.closed:
                break
            await news.wait(poll.remaining_s)
    headers = {**offering("wait", "all-instances", "reported-metrics", *context.beyond_pai), **poll.headers}
    missing = sorted({*client_etags} - {*versions})
    return await work.run(_changed_jobs, request, context, work, changed, missing, headers)


def _client_etags(body: Mapping[str, Any]) -> dict[str, str]:
    """Returns the ETag that the client has of each job; an empty string for none."""
    with suppress(ValidationError):
        client_etags = ChangesRequest.model_validate(body, by_alias=True, by_name=False).known
        if 0 < len(client_etags) <= _MAX_JOBS:
            return client_etags
    raise invalid_parameter(f'Known: must be an object {{"<job id>": "<ETag>"}} of 1 to {_MAX_JOBS} jobs.')


def _changed_jobs(
    request: Request,
    context: ServiceContext,
    work: Work,
    job_ids: Collection[str],
    missing: Sequence[str],
    headers: Mapping[str, str],
) -> Response:
    etags: dict[str, str] = {}
    # One transaction: each version fits to the other fields of its job.
    with context.jobs.database.read() as session:

        def items() -> Iterator[dict[str, Any]]:
            for job, fields in fitting_jobs(session, job_ids, context.link_to_job(request)):
                etags[job.id] = etag(job.version)
                yield fields

        # `items` adds the tags, so they are written after the list.
        tail = partial(ChangedJobs.model_construct, etags=etags, missing=[*missing])
        return list_success(request, work, ChangedJobs, items() if job_ids else (), tail, headers=headers)
