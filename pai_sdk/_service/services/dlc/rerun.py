"""Re-runs of jobs of DLC from the page: the body of the new job."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sqlalchemy import select

from pai_sdk._service.services.context import ServiceContext
from pai_sdk._service.state.dlc_models import DlcJobRow
from pai_sdk._service.state.models import Job
from pai_sdk._service.wire_errors import invalid_parameter
from pai_sdk._wire.pai.request import ACCESSIBILITY_LABEL
from pai_sdk._wire.requests import RecordedCompute, RecordedRequest, RecordedScheduler, RecordedSpec


def body_of(context: ServiceContext, job_id: str) -> dict[str, Any] | None:
    """Returns the body that has created a job of DLC; None for a training job."""
    with context.jobs.database.read() as session:
        row = session.scalar(select(DlcJobRow).where(DlcJobRow.number == Job.number, Job.id == job_id))
        return None if row is None else row.body


def displayed_request(body: Mapping[str, Any], request: RecordedRequest) -> RecordedRequest:
    """Returns the request of a job with the command that its user has sent, without what the service adds."""
    specs = [spec for spec in body["JobSpecs"] if spec.get("PodCount") != 0]
    text = (specs[0].get("UserCommand") if len(specs) == 1 else None) or body["UserCommand"]
    spec = _spec(request).model_copy(update={"command": ["sh", "-c", text]})
    return request.model_copy(update={"algorithm_spec": spec})


def changed_body(body: Mapping[str, Any], before: RecordedRequest, after: RecordedRequest) -> dict[str, Any]:
    """Returns the body of a new job: that of an earlier one, with the changes of its request."""
    labels = {label.key: label.value for label in after.labels if label.key != ACCESSIBILITY_LABEL}
    changed = {
        **body,
        "DisplayName": after.training_job_name,
        "WorkspaceId": after.workspace_id,
        "Settings": {**body.get("Settings", {}), "Tags": labels},
        "JobSpecs": _changed_specs(body, before, after),
    }
    if after.environments != before.environments:
        changed |= {"Envs": after.environments, "CustomEnvs": None}
    if (limit_s := _limit_s(after)) != _limit_s(before):
        changed["JobMaxRunningTimeMinutes"] = math.ceil(limit_s / 60) if limit_s else None
    command = _spec(after).command
    if command != _spec(before).command:
        changed["UserCommand"] = command[2]  # of `sh -c`: it was entered as text
    return {name: value for name, value in changed.items() if value is not None}


def _changed_specs(
    body: Mapping[str, Any], before: RecordedRequest, after: RecordedRequest
) -> list[dict[str, Any]]:
    specs = [dict(spec) for spec in body["JobSpecs"]]
    image, compute = _spec(after).image, after.compute_resource or RecordedCompute()
    earlier = before.compute_resource or RecordedCompute()
    if compute.num_instances != earlier.num_instances:
        if len(specs) > 1:
            raise invalid_parameter("instance_count: cannot be changed for a job with several roles")
        specs[0]["PodCount"] = compute.num_instances
    for spec in specs:
        if image != _spec(before).image and spec.get("Image") == _spec(before).image:
            spec["Image"] = image
        if compute.ecs_spec != earlier.ecs_spec and spec.get("EcsSpec") == earlier.ecs_spec:
            spec["EcsSpec"] = compute.ecs_spec
    if len(specs) == 1 and _spec(after).command != _spec(before).command:
        specs[0].pop("UserCommand", None)
    return specs


def _spec(request: RecordedRequest) -> RecordedSpec:
    return request.algorithm_spec or RecordedSpec()


def _limit_s(request: RecordedRequest) -> int | None:
    return (request.scheduler or RecordedScheduler()).max_running_time_in_seconds
