"""The job of a run, for the page: status, usage, difference to another job; stop, delete, run again."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from pai_sdk._service.http.auditing import record_created_id
from pai_sdk._service.identity.requests import PrincipalOf
from pai_sdk._service.services import run_jobs
from pai_sdk._service.services.budgets import RUNS, BudgetedRoute, WorkOf, within
from pai_sdk._service.services.context import ContextOf
from pai_sdk._service.services.jobs.annotations import annotations_of, change_annotations
from pai_sdk._service.services.jobs.rerun import RerunChanges
from pai_sdk._service.services.runs.list_responses import plain
from pai_sdk._service.services.runs.responses import LIVE, json_response
from pai_sdk._service.services.training_jobs import delete_job, stop_job
from pai_sdk._wire.annotations import AnnotationChanges, JobAnnotations
from pai_sdk._wire.base import response_body
from pai_sdk._wire.run_jobs import (
    JobDifferences,
    JobOfRun,
    NoFields,
    RerunForm,
    RerunJob,
    UsageOfRun,
)
from pai_sdk._wire.runs import ExtensionBody

router = APIRouter(prefix="/api/v1/runs/{run_id}", route_class=BudgetedRoute)


class RerunRequest(BaseModel):
    """The changes to the earlier job."""

    model_config = ConfigDict(extra="forbid")

    changes: RerunChanges = Field(default_factory=RerunChanges, description="Some of the fields of the form.")
    token: str = Field(min_length=8, max_length=200, description="The same token makes no second job.")


@router.get("/job", response_model=JobOfRun)
@within(RUNS)
def get_job_of_run(context: ContextOf, principal: PrincipalOf, work: WorkOf, run_id: str) -> Response:
    """Read the job of a run: status, place in the queue, statuses and events, instances, request, failure."""
    body = run_jobs.job_of_run(context, principal, run_id)
    fields = plain(response_body(body))
    if body.failure is not None:
        fields["failure"]["traceback"] = body.failure.traceback  # not truncated: its exception is in the last line
    # Not truncated either.
    fields["annotations"] = response_body(annotations_of(context.jobs, principal, run_id))
    return json_response(fields, LIVE, work)


@router.patch("/annotations", response_model=JobAnnotations)
@within(RUNS)
def annotate_job_of_run(
    context: ContextOf, principal: PrincipalOf, run_id: str, body: AnnotationChanges
) -> Response:
    """Change the star, the tags or the note of a job, or archive it.

    The star is the user's own; all who see the job see the rest, which its owner and administrators can change. A
    note with `v` is refused with 409 if it has been changed since this version was read.
    """
    return json_response(response_body(change_annotations(context.jobs, principal, run_id, body)), LIVE)


@router.get("/usage", response_model=UsageOfRun)
@within(RUNS)
def get_usage_of_run(context: ContextOf, work: WorkOf, run_id: str) -> Response:
    """Read processor, memory and GPUs of each instance of a job, over its life."""
    return json_response(response_body(run_jobs.usage_of_run(context, work, run_id)), LIVE)


@router.get("/diff", response_model=JobDifferences)
@within(RUNS)
def compare_jobs_of_runs(
    context: ContextOf,
    principal: PrincipalOf,
    work: WorkOf,
    run_id: str,
    other: Annotated[str, Query(alias="with", max_length=200, description="The other job.")],
) -> Response:
    """In which fields the requests of two jobs differ."""
    differences = run_jobs.compare_jobs(context, principal, work, run_id, other)
    return json_response(response_body(differences), LIVE)


@router.post("/stop", response_model=ExtensionBody)
@within(RUNS)
def stop_job_of_run(context: ContextOf, run_id: str, body: NoFields) -> Response:
    """Stop the job of a run; one that has ended stays as it is."""
    stop_job(context, run_id)
    return json_response({}, LIVE)


@router.delete("", response_model=ExtensionBody)
@within(RUNS)
def delete_job_of_run(context: ContextOf, run_id: str) -> Response:
    """Delete the job of a run, which must have ended. Its outputs in the object store stay there."""
    delete_job(context, run_id)
    return json_response({}, LIVE)


@router.get("/rerun", response_model=RerunForm)
@within(RUNS)
def get_rerun_form(context: ContextOf, run_id: str) -> Response:
    """The fields that a job like this one can have changed, with their values; secrets are masked."""
    return json_response(response_body(run_jobs.rerun_form(context, run_id)), LIVE)


@router.post("/rerun", response_model=RerunJob)
@within(RUNS)
async def rerun_job(
    request: Request, context: ContextOf, principal: PrincipalOf, run_id: str, body: RerunRequest
) -> Response:
    """Create a job like this one, with changes, a name and output folders of its own."""
    job_id = await run_in_threadpool(run_jobs.rerun_job, context, principal, run_id, body.changes, body.token)
    record_created_id(request, job_id)
    context.runner.wake()
    return json_response(response_body(RerunJob(id=job_id)), LIVE)
