"""Changes jobs of DLC: stops, deletes, updates and tags them."""

from __future__ import annotations

from collections.abc import Sequence

from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.services import training_jobs
from pai_sdk._service.services.context import ServiceContext
from pai_sdk._service.services.dlc.job_records import existing_dlc_job, status_of
from pai_sdk._service.services.dlc.problems import refuse_problems
from pai_sdk._service.services.jobs.queueing.quota_checks import QUEUED
from pai_sdk._service.wire_errors import WireError
from pai_sdk._wire.base import wire_names
from pai_sdk._wire.dlc.checks import update_problems
from pai_sdk._wire.dlc.jobs import JobUpdate
from pai_sdk._wire.dlc.resources.checks import tagging_problems
from pai_sdk._wire.dlc.resources.tags import NewTags, UntagQuery
from pai_sdk._wire.pai.request import ACCESSIBILITY_LABEL
from pai_sdk._wire.pai.status import JobStatus
from pai_sdk.errors import Problem


def stop_job(context: ServiceContext, job_id: str) -> None:
    """Stops a job; raises WireError if it has ended."""
    with context.jobs.database.read() as session:
        job, _ = existing_dlc_job(session, job_id)
    if JobStatus(job.status).is_terminal:
        raise WireError(400, "BadRequest", f"Job can't be stopped, because it is {status_of(job)}")
    training_jobs.stop_job(context, job_id)


def delete_job(context: ServiceContext, job_id: str) -> None:
    """Deletes a job that has ended, with its logs."""
    with context.jobs.database.read() as session:
        job, _ = existing_dlc_job(session, job_id)
    if not JobStatus(job.status).is_terminal:
        raise WireError(400, "BadRequest", f"Job can't be deleted, because it is {status_of(job)}; stop it first")
    training_jobs.delete_job(context, job_id)


def update_job(context: ServiceContext, job_id: str, update: JobUpdate) -> None:
    """Changes priority, description and accessibility; a priority has an effect only while the job waits."""
    problems: list[Problem] = [*update_problems(update.to_wire())]
    for where, value in (("JobSpecs", update.job_specs), ("UserCommand", update.user_command)):
        if value:
            problems.append(Problem(where, "is not changed by this service", "create another job"))
    with context.jobs.database.read() as session:
        job, _ = existing_dlc_job(session, job_id)
    if update.accessibility == "PRIVATE" and job.accessibility == "PUBLIC":
        problems.append(Problem("Accessibility", "PUBLIC cannot be changed to PRIVATE"))
    refuse_problems(problems)
    if update.accessibility is not None:
        context.jobs.set_labels(job_id, {ACCESSIBILITY_LABEL: update.accessibility})
    # As in the cloud: a priority that comes too late has no effect, and is no error.
    priority = update.priority if job.status in QUEUED else None
    if priority is not None or update.description is not None:
        _change_body(context, job_id, priority, update.description)
        context.runner.wake()


def _change_body(context: ServiceContext, job_id: str, priority: int | None, description: str | None) -> None:
    with context.jobs.changing(job_id) as (session, job):
        _, row = existing_dlc_job(session, job_id)
        row.body = {**row.body, **JobUpdate(priority=priority, description=description).to_wire()}
        if priority is not None:
            job.priority = priority
            job.request = {**job.request, **wire_names(priority=priority)}


def tag_jobs(context: ServiceContext, principal: Principal, tags: NewTags) -> None:
    """Adds tags to jobs, or replaces those of the same key."""
    problems: list[Problem] = [*tagging_problems(tags)]
    refuse_problems([*problems, *_type_problems(tags.resource_type)])
    _require_all(context, principal, tags.resource_id)
    new = {tag.key or "": tag.value or "" for tag in tags.tag}
    for job_id in tags.resource_id:
        context.jobs.set_labels(job_id, new)


def untag_jobs(context: ServiceContext, principal: Principal, query: UntagQuery) -> None:
    """Removes tags of jobs: those of some keys, or all."""
    problems: list[Problem] = [*tagging_problems(query)]
    refuse_problems([*problems, *_type_problems(query.resource_type)])
    _require_all(context, principal, query.resource_id)
    for job_id in query.resource_id:
        keys = query.tag_key
        if not keys:
            keys = [label.key for label in context.jobs.get(job_id).labels if label.key != ACCESSIBILITY_LABEL]
        context.jobs.delete_labels(job_id, keys)


def _type_problems(resource_type: str | None) -> list[Problem]:
    if resource_type is None or resource_type.lower() == "job":
        return []
    return [Problem("ResourceType", f"{resource_type!r} cannot be tagged by this service", "available: Job")]


def _require_all(context: ServiceContext, principal: Principal, job_ids: Sequence[str]) -> None:
    """Checks that a user may change all of these jobs, before any of them is changed."""
    for job_id in job_ids:
        context.jobs.require_visible(job_id, principal, changes=True)
        with context.jobs.database.read() as session:
            existing_dlc_job(session, job_id)
