"""From a job as GetJob and ListJobs describe it to the record of a job."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pai_sdk._client.backend.dlc.mapping import COMMAND, HYPERPARAMETERS, METRICS, RECORD_VARIABLES, SUBMISSION
from pai_sdk._client.backend.dlc.prefix import command_of
from pai_sdk._wire.body import received
from pai_sdk._wire.dlc.job_specs import JobSpec
from pai_sdk._wire.dlc.records import JobDetail, JobItem, Pod
from pai_sdk._wire.dlc.sources import DataSource, UserVpc
from pai_sdk._wire.dlc.status import STATUSES, TERMINAL, instance_status, pai_status
from pai_sdk._wire.dlc.uris import parse_oss, without_endpoint
from pai_sdk._wire.pai.record import (
    ChannelUri,
    InstanceRecord,
    JobRecord,
    KeyValue,
    NameValue,
    RecordSource,
    StatusTransition,
)
from pai_sdk._wire.pai.request import SUBMISSION_LABEL
from pai_sdk._wire.pai.roles import Role
from pai_sdk._wire.requests import (
    RecordedCode,
    RecordedCompute,
    RecordedLocation,
    RecordedRequest,
    RecordedScheduler,
    RecordedSpec,
)

LOG_PAUSE_S = 5.0
"""Between two reads of a log: the cloud limits the rate of calls."""

_INPUTS, _OUTPUTS, _CODE = "/ml/input/data/", "/ml/output/", "/ml/code"


def record_of(job: JobDetail | JobItem) -> JobRecord:
    """Returns the record of a job; one from a list may lack most details."""
    variables = variables_of(job)
    status = pai_status(word_of(job), finished_at=job.gmt_finish_time)
    job_id = job.job_id or ""
    request = RecordedRequest(
        training_job_name=job.display_name,
        training_job_description=job.description,
        workspace_id=job.workspace_id,
        priority=job.priority,
        input_channels=[*_channels(job.data_sources, _INPUTS, "input_uri")],
        output_channels=[*_channels(job.data_sources, _OUTPUTS, "output_uri")],
        hyperparameters=_hyperparameters(variables),
        algorithm_spec=_algorithm(job, variables),
        compute_resource=_compute_resource(job),
        environments={name: value for name, value in variables.items() if name not in RECORD_VARIABLES} or None,
        labels=[KeyValue(key=key, value=value) for key, value in _labels(job, variables).items()],
        scheduler=_scheduler(job),
    )
    state = {
        "training_job_id": job_id,
        "dlc_job_id": job_id or None,
        "dlc_status": job.status,
        "status": status,
        "reason_code": job.reason_code,
        "reason_message": job.reason_message,
        "gmt_create_time": job.gmt_create_time,
        "gmt_modified_time": job.gmt_finish_time or job.gmt_running_time,
        "duration": job.duration,
        "user_id": job.user_id,
        "status_transitions": _transitions(job),
        "instances": [_instance(pod) for pod in job.pods if pod.pod_id],
        "python_requirements": job.thirdparty_libs or None,
        "user_vpc": _vpc(job),
        "settings": _settings(job),
        "roles": _roles(job.job_specs),
    }
    fields = {**request.to_wire(), **{name: value for name, value in state.items() if value is not None}}
    return JobRecord.model_validate(fields).from_source(RecordSource(log_pause_s=LOG_PAUSE_S))


def word_of(job: JobDetail | JobItem) -> str | None:
    """Returns the status of a job in the words of DLC; where the word is unknown, that which its times mean."""
    if job.status in STATUSES:
        return job.status
    ends = zip(TERMINAL, (job.gmt_successed_time, job.gmt_failed_time, job.gmt_stopped_time), strict=True)
    return next((word for word, ended_at in ends if ended_at), job.status)


def variables_of(job: JobDetail | JobItem) -> dict[str, str]:
    """Returns the variables of a job."""
    custom = {each.key: each.value or "" for each in job.custom_envs if each.key}
    return {**job.envs, **custom}


def submission_of(job: JobDetail | JobItem) -> str | None:
    """Returns the submission key of a job; empty for a job without one, None where the answer does not show it."""
    variables = variables_of(job)
    tags = job.settings.tags if job.settings is not None else {}
    if key := variables.get(SUBMISSION) or tags.get(SUBMISSION_LABEL):
        return key
    return "" if variables or tags else None


def _labels(job: JobDetail | JobItem, variables: Mapping[str, str]) -> dict[str, str]:
    tags = dict(job.settings.tags) if job.settings is not None else {}
    return {SUBMISSION_LABEL: variables[SUBMISSION], **tags} if variables.get(SUBMISSION) else tags


def _transitions(job: JobDetail | JobItem) -> list[StatusTransition]:
    return [
        StatusTransition(
            status=str(pai_status(each.status)),
            start_time=each.start_time,
            end_time=each.end_time,
            reason_code=each.reason_code,
            reason_message=each.reason_message,
        )
        for each in job.status_history
    ]


def _instance(pod: Pod) -> InstanceRecord:
    more = pod.model_dump(by_alias=True, include={"pod_uid", "ip"}, exclude_none=True)
    return InstanceRecord(name=pod.pod_id, role=pod.type, status=instance_status(pod.status), **more)


def _channels(sources: Iterable[DataSource], folder: str, field: str) -> Iterable[ChannelUri]:
    """Yields the channels among the mounts of a job."""
    for source in sources:
        name = (source.mount_path or "").rstrip("/").removeprefix(folder)
        if name and "/" not in name:
            values = {
                "name": name,
                field: without_endpoint(source.uri) if source.uri else None,
                "dataset_id": source.data_source_id,
                "version_name": source.data_source_version,
            }
            yield ChannelUri(**{key: value for key, value in values.items() if value})


def _hyperparameters(variables: Mapping[str, str]) -> list[NameValue]:
    values = _json(variables.get(HYPERPARAMETERS), dict) or {}
    return [NameValue(name=name, value=str(value)) for name, value in values.items()]


def _algorithm(job: JobDetail | JobItem, variables: Mapping[str, str]) -> RecordedSpec:
    fields: dict[str, Any] = {"job_type": job.job_type}
    if job.job_specs:
        fields["image"] = job.job_specs[0].image
    if job.user_command is not None:
        fields["command"] = command_of(job.user_command, variables.get(COMMAND))
    code = next((each for each in job.data_sources if each.mount_path == _CODE and each.uri), None)
    if code is not None and (parsed := parse_oss(code.uri or "")) is not None:
        location = RecordedLocation(bucket=parsed.bucket, key=parsed.key, endpoint=parsed.endpoint)
        fields["code_dir"] = RecordedCode(location_type="oss", location_value=location)
    if (metrics := _json(variables.get(METRICS), list)) is not None:
        fields["metric_definitions"] = metrics
    return received(RecordedSpec, fields)


def _json(text: str | None, kind: type) -> Any:
    try:
        value = json.loads(text or "")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, kind) else None


def _compute_resource(job: JobDetail | JobItem) -> RecordedCompute | None:
    if not job.job_specs:
        return None
    spec = job.job_specs[0]
    count = sum(each.pod_count or 1 for each in job.job_specs if each.pod_count != 0)
    fields: dict[str, Any] = {"resource_id": job.resource_id}
    if spec.ecs_spec is not None:
        fields |= {"ecs_spec": spec.ecs_spec, "ecs_count": count}
    else:
        size = spec.resource_config.to_wire() if spec.resource_config is not None else None
        fields |= {"instance_spec": size, "instance_count": count}
    if spec.spot_spec is not None:
        fields["spot_spec"] = spec.spot_spec.to_wire()
    return RecordedCompute(**fields)


def _vpc(job: JobDetail | JobItem) -> dict[str, Any] | None:
    # CreateJob has another spelling of a field.
    return None if job.user_vpc is None else UserVpc(**job.user_vpc.model_dump(exclude_unset=True)).to_wire()


def _settings(job: JobDetail | JobItem) -> dict[str, Any] | None:
    """Returns the settings without tags, which are the labels."""
    if job.settings is None:
        return None
    return job.settings.model_dump(
        mode="json", by_alias=True, exclude_unset=True, exclude_none=True, exclude={"tags"}
    )


def _scheduler(job: JobDetail | JobItem) -> RecordedScheduler | None:
    minutes = job.job_max_running_time_minutes
    return None if minutes is None else RecordedScheduler(max_running_time_in_minutes=minutes)


def _roles(specs: Iterable[JobSpec]) -> list[dict[str, Any]] | None:
    """Returns the roles of a job whose instances are not all alike."""
    present = [spec for spec in specs if spec.pod_count != 0]
    if len(present) < 2:
        return None
    # Not validated: other programs may have names that requests of this package cannot have.
    roles = (
        Role.model_construct(name=each.type or "", count=each.pod_count or 1, image=each.image) for each in present
    )
    return [role.to_wire() for role in roles]
