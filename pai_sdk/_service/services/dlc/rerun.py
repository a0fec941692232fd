"""Re-runs of jobs of DLC from the page."""

from __future__ import annotations

import math
from typing import Any

from sqlalchemy import select

from pai_sdk._service.services.context import ServiceContext
from pai_sdk._service.state.dlc_models import DlcJobRow
from pai_sdk._service.state.models import Job
from pai_sdk._service.wire_errors import invalid_parameter
from pai_sdk._wire.body import received
from pai_sdk._wire.dlc.job_specs import JobSpec
from pai_sdk._wire.dlc.jobs import NewJob
from pai_sdk._wire.dlc.settings import JobSettings
from pai_sdk._wire.pai.request import ACCESSIBILITY_LABEL
from pai_sdk._wire.requests import RecordedCompute, RecordedRequest, RecordedScheduler, RecordedSpec


def dlc_job_of(context: ServiceContext, job_id: str) -> NewJob | None:
    """Returns a job of DLC as it was sent; None for a training job."""
    with context.jobs.database.read() as session:
        row = session.scalar(select(DlcJobRow).where(DlcJobRow.number == Job.number, Job.id == job_id))
        return None if row is None else received(NewJob, row.body)


def displayed_request(job: NewJob, request: RecordedRequest) -> RecordedRequest:
    """Returns the request of a job with the command that its user has sent, without what the service adds."""
    specs = [spec for spec in job.job_specs if spec.pod_count != 0]
    text = (specs[0].user_command if len(specs) == 1 else None) or job.user_command
    spec = _spec(request).model_copy(update={"command": ["sh", "-c", text]})
    return request.model_copy(update={"algorithm_spec": spec})


def changed_job(job: NewJob, before: RecordedRequest, after: RecordedRequest) -> NewJob:
    """Returns a new job: an earlier one with the changes of its request."""
    labels = {label.key: label.value for label in after.labels if label.key != ACCESSIBILITY_LABEL}
    changes: dict[str, Any] = {
        "display_name": after.training_job_name,
        "workspace_id": after.workspace_id,
        "settings": (job.settings or JobSettings()).model_copy(update={"tags": labels}),
        "job_specs": _changed_specs(job, before, after),
    }
    if after.environments != before.environments:
        changes |= {"envs": after.environments or {}, "custom_envs": []}
    if (limit_s := _limit_s(after)) != _limit_s(before):
        changes["job_max_running_time_minutes"] = math.ceil(limit_s / 60) if limit_s else None
    command = _spec(after).command
    if command != _spec(before).command:
        changes["user_command"] = command[2]  # of `sh -c`: it was entered as text
    return job.model_copy(update=changes)


def _changed_specs(job: NewJob, before: RecordedRequest, after: RecordedRequest) -> list[JobSpec]:
    image, compute = _spec(after).image, after.compute_resource or RecordedCompute()
    earlier = before.compute_resource or RecordedCompute()
    is_single = len(job.job_specs) == 1
    has_new_count = compute.num_instances != earlier.num_instances
    if has_new_count and not is_single:
        raise invalid_parameter("instance_count: cannot be changed for a job with several roles")
    specs = []
    for spec in job.job_specs:
        changes: dict[str, Any] = {"pod_count": compute.num_instances} if has_new_count else {}
        if image != _spec(before).image and spec.image == _spec(before).image:
            changes["image"] = image
        if compute.ecs_spec != earlier.ecs_spec and spec.ecs_spec == earlier.ecs_spec:
            changes["ecs_spec"] = compute.ecs_spec
        if is_single and _spec(after).command != _spec(before).command:
            changes["user_command"] = None
        specs.append(spec.model_copy(update=changes))
    return specs


def _spec(request: RecordedRequest) -> RecordedSpec:
    return request.algorithm_spec or RecordedSpec()


def _limit_s(request: RecordedRequest) -> int | None:
    return (request.scheduler or RecordedScheduler()).max_running_time_in_seconds
