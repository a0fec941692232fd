"""Jobs of DLC as GetJob and ListJobs describe them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from pai_sdk._core.reasons import REASON_STOPPED_BY_USER
from pai_sdk._service.identity.principal import LOCAL_USER, Principal
from pai_sdk._service.services.context import ServiceContext
from pai_sdk._service.services.dlc.problems import missing_error
from pai_sdk._service.services.jobs.host_resources import need_or_instances
from pai_sdk._service.state.dlc_models import DlcJobRow
from pai_sdk._service.state.models import Job
from pai_sdk._wire.body import received
from pai_sdk._wire.dlc.jobs import NewJob
from pai_sdk._wire.dlc.names import PodName, pods_of
from pai_sdk._wire.dlc.records import JobDetail, JobItem
from pai_sdk._wire.dlc.status import ENDED_BY_USER, dlc_status, pod_status
from pai_sdk._wire.dlc.times import wire_time
from pai_sdk._wire.pai.request import ACCESSIBILITY_LABEL, TrainingJobRequest
from pai_sdk._wire.pai.status import JobStatus

STOPPING = "Stopping"
"""The status of a job that was asked to stop and has not ended."""

_LOOPBACK = "127.0.0.1"
_DETAILS = ("Pods", "StatusHistory")
_TIME_OF_END = {"Succeeded": "GmtSuccessedTime", "Failed": "GmtFailedTime", "Stopped": "GmtStoppedTime"}


def existing_dlc_job(session: Session, job_id: str) -> tuple[Job, DlcJobRow]:
    """Returns a job of DLC; raises WireError for a training job, and if there is no job."""
    both = select(Job, DlcJobRow).where(Job.id == job_id, DlcJobRow.number == Job.number)
    row = session.execute(both).first()
    if row is None:
        raise missing_error("job", job_id)
    return row[0], row[1]


def require_dlc_job(context: ServiceContext, job_id: str) -> None:
    """Raises WireError if there is no such job of DLC."""
    with context.jobs.database.read() as session:
        existing_dlc_job(session, job_id)


def read_job(context: ServiceContext, job_id: str, *, has_details: bool = True) -> JobDetail:
    """Returns a job as GetJob does."""
    with context.jobs.database.read() as session:
        job, row = existing_dlc_job(session, job_id)
        fields = {**_fields(context, job, row), **_amounts(job)}
    if not has_details:
        fields = {name: value for name, value in fields.items() if name not in _DETAILS}
    return received(JobDetail, fields)


def job_item(context: ServiceContext, job: Job, row: DlcJobRow) -> JobItem:
    """Returns a job as ListJobs does."""
    state = {"GmtModifiedTime": wire_time(job.modified_at), "NodeCount": job.instance_count}
    fields = {**_fields(context, job, row), **_amounts(job), **state, "Username": job.owner or LOCAL_USER}
    return received(JobItem, {name: value for name, value in fields.items() if name not in _DETAILS})


def pods_of_job(job: Job, row: DlcJobRow) -> list[PodName]:
    """Returns the names of the pods of a job, by rank."""
    specs = [spec for spec in received(NewJob, row.body).job_specs if spec.pod_count != 0]
    roles = [(spec.type or "", 1 if spec.pod_count is None else spec.pod_count) for spec in specs]
    return pods_of(job.id, row.job_type, roles)


def pod_uid(pod: str, attempt: int) -> str:
    """Returns the uid of a pod, which is another one in each attempt."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{pod} {attempt}"))


def status_of(job: Job) -> str:
    """Returns the status of a job as DLC calls it."""
    is_stopping = job.stop_requested and not JobStatus(job.status).is_terminal
    return STOPPING if is_stopping else dlc_status(job.status)


def _fields(context: ServiceContext, job: Job, row: DlcJobRow) -> dict[str, Any]:
    """Returns the fields of both descriptions: the body that created the job, and its state."""
    labels = {label.key: label.value for label in job.labels if label.key != ACCESSIBILITY_LABEL}
    body = {name: value for name, value in row.body.items() if name not in ("UserVpc", "JobSpecs", "Settings")}
    if vpc := row.body.get("UserVpc"):
        body["UserVpc"] = {"ExtendedCidrs" if key == "ExtendedCIDRs" else key: vpc[key] for key in vpc}
    settings = {**row.body.get("Settings", {}), "Tags": labels}
    names = {each.id: each.name for each in context.workspaces.visible(Principal.operator(""))}
    return {
        **body,
        "JobSpecs": [_without_password(spec) for spec in row.body["JobSpecs"]],
        "Settings": settings,
        "JobId": job.id,
        "JobType": row.job_type,
        "Accessibility": job.accessibility,
        "WorkspaceId": job.workspace_id,
        "WorkspaceName": names.get(job.workspace_id),
        "UserId": job.owner or LOCAL_USER,
        "TenantId": LOCAL_USER,
        "ClusterId": context.settings.region_id,
        "ResourceType": "ECS",
        "ResourceLevel": "L0" if row.body.get("ResourceId") else None,
        "Status": status_of(job),
        **_reason(job, row.job_type),
        "StatusHistory": [*_history(job)],
        "Pods": [*_pods(context, job, row)],
        "Duration": _duration_s(job),
        "RestartTimes": str(job.attempt - 1),
        **_times(job),
    }


def _without_password(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a role without the password of its registry, which nobody needs to read again."""
    config = {key: value for key, value in spec.get("ImageConfig", {}).items() if key not in ("Password", "Auth")}
    remaining = {name: value for name, value in spec.items() if name != "ImageConfig"}
    return {**remaining, "ImageConfig": config} if config else remaining


def _reason(job: Job, job_type: str) -> dict[str, str | None]:
    code, message = job.reason_code, job.reason_message
    if JobStatus(job.status).is_success and not code:
        code, message = "JobSucceeded", f"{job_type} {job.id} is successfully completed."
    return {"ReasonCode": _reason_code(code), "ReasonMessage": message}


def _reason_code(code: str | None) -> str | None:
    return ENDED_BY_USER if code == REASON_STOPPED_BY_USER else code


def _history(job: Job) -> Iterator[dict[str, Any]]:
    for change in job.transitions:
        yield {
            "Status": dlc_status(change.status),
            "StartTime": wire_time(change.started_at),
            "EndTime": wire_time(change.ended_at),
            "ReasonCode": _reason_code(change.reason_code),
            "ReasonMessage": change.reason_message,
        }


def _times(job: Job) -> dict[str, str | None]:
    queued = (change.started_at for change in job.transitions if change.status == JobStatus.SUBMITTED)
    ended = wire_time(job.ended_at)
    return {
        "GmtCreateTime": wire_time(job.created_at),
        "GmtSubmittedTime": wire_time(next(queued, None)),
        "GmtRunningTime": wire_time(job.started_at),
        "GmtFinishTime": ended,
        _TIME_OF_END.get(dlc_status(job.status), "GmtFinishTime"): ended,
    }


def _duration_s(job: Job) -> int:
    if job.started_at is None:
        return 0
    return max(0, round((job.ended_at or time.time()) - job.started_at))  # negative after the clock was set back


def _amounts(job: Job) -> dict[str, float]:
    need = need_or_instances(TrainingJobRequest.model_validate(job.request))
    return {"RequestCPU": round(need.cpus), "RequestGPU": need.gpus, "RequestMemory": need.memory_gib}


def _pods(context: ServiceContext, job: Job, row: DlcJobRow) -> Iterator[dict[str, Any]]:
    """Yields the pods of a job that has started once; those of earlier attempts are their history."""
    by_name = {instance["name"]: instance for instance in job.instances}
    for pod in pods_of_job(job, row):
        if (instance := by_name.get(pod.name)) is None:
            continue
        ended = instance["status"] not in ("Pending", "Running")
        status = pod_status(instance["status"])
        yield {
            **_pod(job, pod, job.attempt, status),
            "GmtStartTime": wire_time(job.started_at),
            "GmtFinishTime": wire_time(job.ended_at) if ended else None,
            "Duration": _duration_s(job),
            "Ip": _LOOPBACK if context.executor.hosts == "here" else None,
            "HistoryPods": [_pod(job, pod, attempt, "Failed") for attempt in range(1, job.attempt)],
        }


def _pod(job: Job, pod: PodName, attempt: int, status: str) -> dict[str, Any]:
    return {
        "PodId": pod.name,
        "PodUid": pod_uid(pod.name, attempt),
        "Type": pod.type,
        "Status": status,
        "SubStatus": "Normal",
        "ResourceType": "ECS",
        "GmtCreateTime": wire_time(job.created_at),
    }
