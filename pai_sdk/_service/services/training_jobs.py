"""Creates, reads, stops and deletes jobs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.services.context import ServiceContext
from pai_sdk._service.services.experiments import experiment_names
from pai_sdk._service.services.jobs.creation import read_request
from pai_sdk._service.services.jobs.host_resources import Capacity, refuse_oversized
from pai_sdk._service.services.jobs.job_table import existing_job, latest_metrics_of
from pai_sdk._service.services.jobs.progress_figures import latest_progress_of
from pai_sdk._service.services.jobs.queueing.submission import NewJob
from pai_sdk._service.services.jobs.request_checks import (
    image_notice,
    refuse_unknown_buckets,
    refuse_unsupported,
    unused_notice,
)
from pai_sdk._service.services.jobs.resolution import Resolved
from pai_sdk._service.services.jobs.snapshot import LinkOf, job_in_full
from pai_sdk._service.state.models import Job
from pai_sdk._wire.dlc.jobs import NewJob as NewDlcJob


def check_job(
    context: ServiceContext, body: dict[str, Any], principal: Principal, *, is_of_dlc: bool = False
) -> Resolved:
    """Checks the request of a user for a job; returns the job."""
    job = read_request(
        body,
        workspace_of=partial(context.workspace_for, principal),
        slots=context.settings.slots,
        algorithms=context.algorithms,
        is_of_dlc=is_of_dlc,
    )
    refuse_unsupported(job.request, context.executor, is_of_dlc=is_of_dlc)
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
    *,
    dlc_job: NewDlcJob | None = None,
) -> tuple[str, str]:
    """Creates a job of a user; returns its id and the notice about it. The options are those of `NewJob`."""
    targets = context.notifications.take_targets(body)

    def record(session: Session, job_id: str) -> None:
        in_transaction(session, job_id)
        context.notifications.attach(session, targets, job_id=job_id)

    job = check_job(context, body, principal, is_of_dlc=dlc_job is not None)
    notice = unused_notice(job.request, context.executor)
    notices = (notice, image_notice(job.request, context.executor))
    submission = NewJob(job.request, job.workspace_id, principal.user, job.algorithm_id, notices, record, dlc_job)
    job_id = context.jobs.create(submission)
    return job_id, notice


def stop_job(context: ServiceContext, job_id: str) -> None:
    """Stops a job; a finished one stays as it is."""
    context.jobs.request_stop(job_id)
    context.runner.wake()


def delete_job(context: ServiceContext, job_id: str) -> None:
    """Deletes a finished job with its log and its folder; objects in the object store stay."""
    context.jobs.delete(job_id)
    context.logs.forget(job_id)
    context.runner.discard(job_id)


def read_job(context: ServiceContext, job_id: str, link_of: LinkOf) -> tuple[int, dict[str, object]]:
    """Returns the version of a job and all its fields."""
    # One transaction: the version fits to the other fields.
    with context.jobs.database.read() as session:
        ((job, fields),) = jobs_in_full(session, [existing_job(session, job_id)], link_of)
        return job.version, fields


def jobs_in_full(session: Session, jobs: Sequence[Job], link_of: LinkOf) -> Iterator[tuple[Job, dict[str, Any]]]:
    """Yields jobs with all their fields."""
    ids = [job.id for job in jobs]
    metrics, progress = latest_metrics_of(session, ids), latest_progress_of(session, ids)
    experiments = experiment_names(session, jobs)
    for job in jobs:
        yield job, job_in_full(job, metrics.get(job.id, ()), progress.get(job.id, ()), experiments, link_of)


def visible_before(context: ServiceContext, ended_at: float | None) -> float | None:
    """Returns the time after which created jobs are not listed; in the test mode of a foreign cloud, lists lag."""
    if context.settings.foreign is None:
        return ended_at
    return min(time.time() - context.settings.foreign.list_lag_s, ended_at or math.inf)
