"""From a job as GetJob and ListJobs describe it to the record of a job."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pai_sdk._client.backend.dlc.mapping import COMMAND, HYPERPARAMETERS, METRICS, RECORD_VARIABLES, SUBMISSION
from pai_sdk._client.backend.dlc.prefix import command_of
from pai_sdk._wire.dlc.job_specs import JobSpec
from pai_sdk._wire.dlc.records import JobDetail, JobItem, Pod
from pai_sdk._wire.dlc.sources import DataSource
from pai_sdk._wire.dlc.status import pai_status
from pai_sdk._wire.dlc.uris import parse_oss, without_endpoint
from pai_sdk._wire.pai.record import JobRecord, RecordSource
from pai_sdk._wire.pai.request import SUBMISSION_LABEL

LOG_PAUSE_S = 5.0
"""Between two reads of a log: the cloud limits the rate of calls."""

_INPUTS, _OUTPUTS, _CODE = "/ml/input/data/", "/ml/output/", "/ml/code"
_POD_STATUSES = {"Pending": "Creating", "Running": "Running", "Succeeded": "Succeed", "Failed": "Failed"}


def record_of(job: JobDetail | JobItem) -> JobRecord:
    """Returns the record of a job; one from a list may lack most details."""
    variables = variables_of(job)
    status = pai_status(job.status, finished_at=job.gmt_finish_time)
    fields: dict[str, Any] = {
        "TrainingJobId": job.job_id or "",
        "TrainingJobName": job.display_name,
        "TrainingJobDescription": job.description,
        "WorkspaceId": job.workspace_id,
        "Status": status,
        "DlcStatus": job.status,
        "ReasonCode": job.reason_code,
        "ReasonMessage": job.reason_message,
        "GmtCreateTime": job.gmt_create_time,
        "GmtModifiedTime": job.gmt_finish_time or job.gmt_running_time,
        "Duration": job.duration,
        "UserId": job.user_id,
        "Priority": job.priority,
        "DlcJobId": job.job_id,
        "StatusTransitions": _transitions(job),
        "Instances": [_instance(pod) for pod in job.pods if pod.pod_id],
        "Labels": [{"Key": key, "Value": value} for key, value in _labels(job, variables).items()],
        "InputChannels": [*_channels(job.data_sources, _INPUTS, "InputUri")],
        "OutputChannels": [*_channels(job.data_sources, _OUTPUTS, "OutputUri")],
        "HyperParameters": _hyperparameters(variables),
        "AlgorithmSpec": _algorithm(job, variables),
        "ComputeResource": _compute_resource(job),
        "Environments": {name: value for name, value in variables.items() if name not in RECORD_VARIABLES} or None,
        "PythonRequirements": job.thirdparty_libs or None,
        "UserVpc": _vpc(job),
        "Settings": job.settings.to_wire() if job.settings else None,
        "Scheduler": _scheduler(job),
        "Roles": _roles(job.job_specs),
    }
    record = JobRecord.model_validate({name: value for name, value in fields.items() if value is not None})
    return record.from_source(RecordSource(log_pause_s=LOG_PAUSE_S))


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


def _transitions(job: JobDetail | JobItem) -> list[dict[str, Any]]:
    return [
        {
            "Status": str(pai_status(each.status)),
            "StartTime": each.start_time,
            "EndTime": each.end_time,
            "ReasonCode": each.reason_code,
            "ReasonMessage": each.reason_message,
        }
        for each in job.status_history
    ]


def _instance(pod: Pod) -> dict[str, Any]:
    status = _POD_STATUSES.get(pod.status or "", pod.status)
    return {"Name": pod.pod_id, "Role": pod.type, "Status": status, "PodUid": pod.pod_uid, "Ip": pod.ip}


def _channels(sources: Iterable[DataSource], folder: str, key: str) -> Iterable[dict[str, Any]]:
    """Yields the channels among the mounts of a job."""
    for source in sources:
        name = (source.mount_path or "").rstrip("/").removeprefix(folder)
        if name and "/" not in name:
            uri = {key: without_endpoint(source.uri)} if source.uri else {}
            dataset = {"DatasetId": source.data_source_id, "VersionName": source.data_source_version}
            yield {"Name": name, **uri, **{name: value for name, value in dataset.items() if value}}


def _hyperparameters(variables: Mapping[str, str]) -> list[dict[str, str]] | None:
    values = _json(variables.get(HYPERPARAMETERS), dict)
    return None if values is None else [{"Name": name, "Value": str(value)} for name, value in values.items()]


def _algorithm(job: JobDetail | JobItem, variables: Mapping[str, str]) -> dict[str, Any]:
    spec: dict[str, Any] = {"JobType": job.job_type}
    if job.job_specs:
        spec["Image"] = job.job_specs[0].image
    if job.user_command is not None:
        spec["Command"] = command_of(job.user_command, variables.get(COMMAND))
    code = next((each for each in job.data_sources if each.mount_path == _CODE and each.uri), None)
    if code is not None and (place := parse_oss(code.uri or "")) is not None:
        location = {"Bucket": place.bucket, "Key": place.key, "Endpoint": place.endpoint}
        spec["CodeDir"] = {"LocationType": "oss", "LocationValue": location}
    if (metrics := _json(variables.get(METRICS), list)) is not None:
        spec["MetricDefinitions"] = metrics
    return spec


def _json(text: str | None, kind: type) -> Any:
    try:
        value = json.loads(text or "")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, kind) else None


def _compute_resource(job: JobDetail | JobItem) -> dict[str, Any] | None:
    if not job.job_specs:
        return None
    spec = job.job_specs[0]
    count = sum(each.pod_count or 1 for each in job.job_specs if each.pod_count != 0)
    fields: dict[str, Any] = {"ResourceId": job.resource_id}
    if spec.ecs_spec is not None:
        fields |= {"EcsSpec": spec.ecs_spec, "EcsCount": count}
    else:
        size = spec.resource_config.to_wire() if spec.resource_config is not None else None
        fields |= {"InstanceSpec": size, "InstanceCount": count}
    if spec.spot_spec is not None:
        fields["SpotSpec"] = spec.spot_spec.to_wire()
    return {name: value for name, value in fields.items() if value is not None}


def _vpc(job: JobDetail | JobItem) -> dict[str, Any] | None:
    if job.user_vpc is None:
        return None
    vpc = job.user_vpc.to_wire()
    cidrs = vpc.pop("ExtendedCidrs", None)  # CreateJob has another spelling
    return {**vpc, "ExtendedCIDRs": cidrs} if cidrs else vpc


def _scheduler(job: JobDetail | JobItem) -> dict[str, Any] | None:
    minutes = job.job_max_running_time_minutes
    return None if minutes is None else {"MaxRunningTimeInMinutes": minutes}


def _roles(specs: Iterable[JobSpec]) -> list[dict[str, Any]] | None:
    """Returns the roles of a job whose instances are not all alike."""
    present = [spec for spec in specs if spec.pod_count != 0]
    if len(present) < 2:
        return None
    return [{"Name": spec.type, "Count": spec.pod_count or 1, "Image": spec.image} for spec in present]
