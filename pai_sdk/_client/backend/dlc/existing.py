"""Bodies of CreateJob that exist: of saved plans, and of jobs that are submitted again.

Such a body may have been written by the console or another client. It is sent as it is, except for what differs
from the request that describes it: so no field is lost, whether this package knows it or not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from pai_sdk._client.backend.dlc.job_folder import ML
from pai_sdk._client.backend.dlc.mapping import (
    RECORD_VARIABLES,
    SUBMISSION,
    Layout,
    input_folder,
    mount_of,
    recorded_variables,
)
from pai_sdk._client.backend.dlc.prefix import END, user_text, with_prefix
from pai_sdk._client.backend.dlc.records import record_of
from pai_sdk._wire.body import received
from pai_sdk._wire.dlc.checks import job_problems
from pai_sdk._wire.dlc.job_specs import JobSpec, SpotSpec
from pai_sdk._wire.dlc.jobs import NewJob
from pai_sdk._wire.dlc.limits import MAX_ENVS
from pai_sdk._wire.dlc.names import canonical_role
from pai_sdk._wire.dlc.records import JobDetail
from pai_sdk._wire.dlc.settings import JobSettings
from pai_sdk._wire.dlc.sources import CustomEnv, DataSource
from pai_sdk._wire.dlc.uris import without_endpoint
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk._wire.pai.recorded import described_request
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.pai.secret_values import MASK
from pai_sdk.errors import InvalidInputError, Problem

JOB_FOLDER = f"{ML}/job"


def is_prepared(job: NewJob) -> bool:
    """Returns True if the lines of this package are before the command, which make its folders and variables."""
    return END in (job.user_command or "")


def body_of_job(detail: JobDetail) -> NewJob:
    """Returns the body with which a job can be created again: what GetJob shows of the one it was created with."""
    names = {field.alias or name for name, field in NewJob.model_fields.items()}
    fields = {name: value for name, value in detail.to_wire().items() if name in names}
    job = received(NewJob, fields)
    vpc = job.user_vpc
    if vpc is not None and detail.user_vpc is not None and detail.user_vpc.extended_cidrs:
        cidrs = {"extended_cidrs": detail.user_vpc.extended_cidrs}  # CreateJob has another spelling
        job = job.model_copy(update={"user_vpc": vpc.model_copy(update=cidrs)})
    return job


def record_for(job: NewJob) -> JobRecord:
    """Returns the record that a job of a body would have."""
    return record_of(received(JobDetail, job.to_wire()))


def request_for(job: NewJob) -> TrainingJobRequest:
    """Returns the request that describes a body, as far as a training job has words for it."""
    # The number of instances is enough: roles are changed in the body.
    return described_request(record_for(job).model_copy(update={"roles": None}))


def read_job(content: Mapping[str, Any], where: str) -> tuple[TrainingJobRequest, ChangedBody]:
    """Reads a body from a file: what `Plan.save` wrote, or any other one.

    Raises:
        InvalidInputError: it cannot be read, or its secrets are masked.
    """
    try:
        job = NewJob.model_validate(content)
    except ValidationError as error:
        # The error of pydantic quotes values, which may be secrets.
        wrong = dict.fromkeys(".".join(map(str, each["loc"])) for each in error.errors(include_input=False))
        raise InvalidInputError([Problem(f"{where}: {each}", "has a wrong type") for each in wrong]) from None
    if job.display_name is None:
        raise InvalidInputError([Problem(f"{where}: DisplayName", "is required")])
    if problems := [each for each in job_problems(content) if each.where != "WorkspaceId"]:
        raise InvalidInputError([Problem(f"{where}: {each.where}", each.what, each.hint) for each in problems])
    if masked := [*masked_paths(content)]:
        hint = "save the plan by Plan.save() or `pai-sdk run --save`, which keep values"
        raise InvalidInputError([Problem(f"{where}: {each}", "is masked", hint) for each in masked])
    request = request_for(job)
    return request, ChangedBody(job, request)


def masked_paths(value: Any, path: str = "") -> Iterator[str]:
    """Yields where a value of a body is masked, so that it cannot be sent."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from masked_paths(item, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from masked_paths(item, f"{path}[{number}]")
    elif isinstance(value, str) and MASK in value:
        yield path


@dataclass(frozen=True)
class ChangedBody:
    """Renders requests as an existing body, with the changes since the request that described it."""

    job: NewJob
    before: TrainingJobRequest
    layout: Layout = field(default_factory=Layout)  # with the job folder of a copy

    def __call__(self, request: TrainingJobRequest) -> dict[str, Any]:
        """Returns the exact body."""
        job, before = self.job, self.before
        changes: dict[str, Any] = {
            "display_name": request.training_job_name,
            "workspace_id": request.workspace_id,
            "job_specs": [*_specs(job, before, request)],
            "settings": _settings(job, before, request),
            "data_sources": [*_sources(job.data_sources, before, request, self.layout)],
            **_variables(job, before, request, self.layout),
        }
        if request.compute_resource.resource_id != before.compute_resource.resource_id:
            # Without a quota the service would ignore a priority.
            changes |= {"resource_id": request.compute_resource.resource_id, "priority": None}
        if request.scheduler != before.scheduler and request.scheduler is not None:
            seconds = request.scheduler.max_running_time_in_seconds
            changes["job_max_running_time_minutes"] = math.ceil(seconds / 60) if seconds else None
        spec, previous = request.algorithm_spec, before.algorithm_spec
        if spec is not None and (previous is None or spec.command != previous.command):
            changes["user_command"] = with_prefix(spec.command) if is_prepared(job) else user_text(spec.command)
        # Read again: that leaves out empty values.
        return NewJob.model_validate(job.model_copy(update=changes).to_wire()).to_wire()


# ---- roles


def _specs(job: NewJob, before: TrainingJobRequest, after: TrainingJobRequest) -> Iterator[JobSpec]:
    earlier_image = before.algorithm_spec.image if before.algorithm_spec else None
    image = after.algorithm_spec.image if after.algorithm_spec else None
    resources, earlier = after.compute_resource, before.compute_resource
    has_other_resources = (resources.ecs_spec, resources.spot_spec) != (earlier.ecs_spec, earlier.spot_spec)
    counts = _counts(job, before.instance_count, after.instance_count)
    for spec, count in zip(job.job_specs, counts, strict=True):
        changes: dict[str, Any] = {} if count == spec.pod_count else {"pod_count": count}
        if image != earlier_image and spec.image == earlier_image:
            changes["image"] = image
        if has_other_resources:
            spot = None
            if resources.spot_spec is not None:
                spot = SpotSpec.model_validate(resources.spot_spec.to_wire())
            changes |= {"ecs_spec": resources.ecs_spec, "resource_config": None, "spot_spec": spot}
        yield spec.model_copy(update=changes)


def _counts(job: NewJob, before: int, after: int) -> list[int | None]:
    """Returns the number of pods of each role, where the workers alone make up for a change."""
    counts = [spec.pod_count for spec in job.job_specs]
    if before == after:
        return counts
    used = [number for number, count in enumerate(counts) if count != 0]
    roles = [canonical_role(job.job_type or "", spec.type or "") for spec in job.job_specs]
    workers = [number for number in used if roles[number] == "Worker"]
    changed = used[0] if len(used) == 1 else next(iter(workers), None)
    count = 0 if changed is None else (counts[changed] or 1) + after - before
    if changed is None or count < 1:
        hint = "leave instance_count out, or plan the job with the Estimator or Processor"
        problem = f"{after} instances are not possible with the roles of this job"
        raise InvalidInputError([Problem("instance_count", problem, hint)])
    counts[changed] = count
    return counts


# ---- variables and labels


def _variables(
    job: NewJob, before: TrainingJobRequest, after: TrainingJobRequest, layout: Layout
) -> dict[str, Any]:
    earlier, now = before.environments or {}, after.environments or {}
    changed = {
        name: value for name, value in now.items() if value != earlier.get(name) and name not in layout.moved
    }
    removed = earlier.keys() - now.keys()
    custom = [_changed_variable(each, changed) for each in job.custom_envs if each.key not in removed]
    envs = {name: value for name, value in job.envs.items() if name not in removed}
    in_list = {each.key for each in custom}
    envs |= {name: value for name, value in changed.items() if name not in in_list}
    recorded = recorded_variables(after)
    if is_prepared(job):
        envs = {name: value for name, value in envs.items() if name not in RECORD_VARIABLES} | recorded
    elif SUBMISSION in recorded and len(envs) + len(custom) < MAX_ENVS:
        envs[SUBMISSION] = recorded[SUBMISSION]  # it is among the tags too
    return {"envs": envs, "custom_envs": custom}


def _changed_variable(variable: CustomEnv, changed: Mapping[str, str]) -> CustomEnv:
    value = changed.get(variable.key or "")
    return variable if value is None else variable.model_copy(update={"value": value})


def _settings(job: NewJob, before: TrainingJobRequest, after: TrainingJobRequest) -> JobSettings:
    removed = {each.key for each in before.labels} - {each.key for each in after.labels}
    settings = job.settings or JobSettings()
    tags = {key: value for key, value in settings.tags.items() if key not in removed}
    return settings.model_copy(update={"tags": {**tags, **{each.key: each.value for each in after.labels}}})


# ---- mounts


def _sources(
    sources: Iterable[DataSource], before: TrainingJobRequest, after: TrainingJobRequest, layout: Layout
) -> Iterator[DataSource]:
    changed = _changed_mounts(before, after, layout)
    for source in sources:
        replacement = changed.pop((source.mount_path or "").rstrip("/"), None)
        yield source if replacement is None else replacement
    yield from changed.values()


def _changed_mounts(
    before: TrainingJobRequest, after: TrainingJobRequest, layout: Layout
) -> dict[str, DataSource]:
    """Returns the mounts that differ from those of the request before, by their paths."""
    mounts = {}
    if layout.job_folder:
        mounts[JOB_FOLDER] = mount_of(layout.job_folder, JOB_FOLDER, layout)
    inputs = {each.name: each for each in before.input_channels}
    for channel in after.input_channels:
        if channel != inputs.get(channel.name) and (uri := input_folder(channel, layout)) is not None:
            path = f"{ML}/input/data/{channel.name}"
            mounts[path] = mount_of(uri, path, layout)
    outputs = {each.name: each for each in before.output_channels}
    for output in after.output_channels:
        if output != outputs.get(output.name) and output.output_uri is not None:
            path = f"{ML}/output/{output.name}"
            mounts[path] = mount_of(output.output_uri, path, layout, access="RW")
    return mounts


def uploaded_folders(body: Mapping[str, Any]) -> dict[str, str]:
    """Returns the mounted folders of OSS by the paths of their mounts."""
    sources = received(NewJob, body).data_sources
    return {each.mount_path or "": without_endpoint(each.uri) for each in sources if each.uri}
