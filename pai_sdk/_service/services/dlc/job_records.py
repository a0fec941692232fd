"""Jobs of DLC as GetJob and ListJobs describe them."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session, lazyload

from pai_sdk._core.reasons import REASON_STOPPED_BY_USER
from pai_sdk._service.identity.principal import LOCAL_USER, Principal
from pai_sdk._service.services.context import ServiceContext
from pai_sdk._service.services.dlc.problems import missing_error
from pai_sdk._service.services.jobs.host_resources import Need, need_or_instances
from pai_sdk._service.state.dlc_models import DlcJobRow
from pai_sdk._service.state.models import Job
from pai_sdk._wire.body import checked, received
from pai_sdk._wire.dlc.job_specs import ImageConfig, JobSpec
from pai_sdk._wire.dlc.jobs import NewJob
from pai_sdk._wire.dlc.names import PodName, pods_of
from pai_sdk._wire.dlc.records import JobDetail, JobItem, Pod, RestartError, RestartRecord, StatusEntry
from pai_sdk._wire.dlc.settings import JobSettings
from pai_sdk._wire.dlc.sources import RecordedVpc
from pai_sdk._wire.dlc.status import ENDED_BY_USER, dlc_status, pod_status
from pai_sdk._wire.dlc.times import wire_time
from pai_sdk._wire.pai.request import ACCESSIBILITY_LABEL, TrainingJobRequest
from pai_sdk._wire.pai.status import JobStatus

STOPPING = "Stopping"
"""The status of a job that was asked to stop and has not ended."""

RESTARTING = "Restarting"
"""The status of a job whose instances are started again."""

BEFORE_RUNNING = (JobStatus.CREATING, JobStatus.CREATED, JobStatus.SUBMITTED, JobStatus.INITIALIZING)
"""The statuses that come before Running, as training jobs call them."""

_LOOPBACK = "127.0.0.1"
_RESOURCE_TYPE = "ECS"


def existing_dlc_job(session: Session, job_id: str) -> tuple[Job, DlcJobRow]:
    """Returns a job of DLC; raises WireError for a training job, and if there is no job."""
    both = select(Job, DlcJobRow).where(Job.id == job_id, DlcJobRow.number == Job.number)
    row = session.execute(both).first()
    if row is None:
        raise missing_error("job", job_id)
    return row[0], row[1]


def dlc_job_with_attempts(session: Session, job_id: str) -> Job:
    """Returns a job of DLC with its transitions only; raises WireError if there is none."""
    is_of_dlc = select(DlcJobRow.number).where(DlcJobRow.number == Job.number).exists()
    # Each relationship costs another query, and the log of each pod is read with a request of its own.
    parts = (lazyload(Job.labels), lazyload(Job.algorithm))
    job = session.scalars(select(Job).where(Job.id == job_id, is_of_dlc).options(*parts)).first()
    if job is None:
        raise missing_error("job", job_id)
    return job


def require_dlc_job(context: ServiceContext, job_id: str) -> None:
    """Raises WireError if there is no such job of DLC."""
    with context.jobs.database.read() as session:
        existing_dlc_job(session, job_id)


def read_job(context: ServiceContext, job_id: str, *, has_details: bool = True) -> JobDetail:
    """Returns a job as GetJob does."""
    with context.jobs.database.read() as session:
        job, row = existing_dlc_job(session, job_id)
        need = _need(job)
        amounts = JobDetail(request_gpu=need.gpus, request_memory=need.memory_gib, request_cpu=round(need.cpus))
        sent = received(NewJob, row.body)
        state = JobDetail(**_state(context, job, row, sent, workspace_names(context)))
        # Tags may have been removed since; a state without settings has no field that would replace those sent.
        without_settings = sent.model_copy(update={"settings": None})
        fields = {**without_settings.to_wire(), **state.to_wire(), **amounts.to_wire()}
        if has_details:
            details = JobDetail(pods=[*_pods(context, job, row)], status_history=[*_history(job)])
            fields |= details.to_wire()
    return received(JobDetail, fields)


def workspace_names(context: ServiceContext) -> dict[str, str]:
    """Returns the names of all workspaces, by id."""
    return {each.id: each.name for each in context.workspaces.visible(Principal.operator(""))}


def job_item(context: ServiceContext, job: Job, row: DlcJobRow, workspaces: Mapping[str, str]) -> JobItem:
    """Returns a job as ListJobs does."""
    sent, need = received(NewJob, row.body), _need(job)
    fields = {
        **{name: getattr(sent, name) for name in sent.model_fields_set},
        **_state(context, job, row, sent, workspaces),
        "request_cpu": round(need.cpus),
        "request_gpu": str(need.gpus),  # here both are text
        "request_memory": str(need.memory_gib),
        "gmt_modified_time": wire_time(job.modified_at),
        "node_count": str(job.instance_count),
        "username": job.owner or LOCAL_USER,
    }
    return checked(JobItem, fields, sent.model_extra or {})


def pods_of_job(job: Job, row: DlcJobRow) -> list[PodName]:
    """Returns the names of the pods of a job, by rank."""
    specs = [spec for spec in received(NewJob, row.body).job_specs if spec.pod_count != 0]
    roles = [(spec.type or "", 1 if spec.pod_count is None else spec.pod_count) for spec in specs]
    return pods_of(job.id, row.job_type, roles)


def pod_uid(pod: str, attempt: int) -> str:
    """Returns the uid of a pod, which is another one in each attempt."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{pod} {attempt}"))


def attempt_starts(job: Job) -> list[float]:
    """Returns the time of each attempt at which it came into the queue."""
    return [change.started_at for change in job.transitions if change.status == JobStatus.SUBMITTED]


def status_of(job: Job) -> str:
    """Returns the status of a job as DLC calls it."""
    is_stopping = job.stop_requested and not JobStatus(job.status).is_terminal
    return STOPPING if is_stopping else status_in_attempt(job.status, job.attempt)


def status_in_attempt(status: str, attempt: int) -> str:
    """Returns a status as DLC calls it: after the first attempt, one before Running is that of a restart."""
    return RESTARTING if attempt > 1 and status in BEFORE_RUNNING else dlc_status(status)


def _state(
    context: ServiceContext, job: Job, row: DlcJobRow, sent: NewJob, workspaces: Mapping[str, str]
) -> dict[str, Any]:
    """Returns the fields of both descriptions that the body of the job does not have, or not as they are now."""
    code, message = _reason(job, row.job_type)
    ended, status = wire_time(job.ended_at), dlc_status(job.status)
    return {
        "job_specs": [_without_password(spec) for spec in sent.job_specs],
        "settings": _settings(job, sent),
        "user_vpc": sent.user_vpc and RecordedVpc.model_validate(sent.user_vpc.model_dump(exclude_unset=True)),
        "job_id": job.id,
        "job_type": row.job_type,
        "accessibility": job.accessibility,
        "workspace_id": job.workspace_id,
        "workspace_name": workspaces.get(job.workspace_id),
        "user_id": job.owner or LOCAL_USER,
        "tenant_id": LOCAL_USER,
        "cluster_id": context.settings.region_id,
        "resource_type": _RESOURCE_TYPE,
        "resource_level": "L0" if sent.resource_id else None,
        "status": status_of(job),
        "reason_code": code,
        "reason_message": message,
        "duration": _duration_s(job),
        "restart_times": str(job.attempt - 1),
        "restart_record": [*_restarts(job)],
        "gmt_create_time": wire_time(job.created_at),
        "gmt_submitted_time": wire_time(next(iter(attempt_starts(job)), None)),
        "gmt_running_time": wire_time(job.started_at),
        "gmt_finish_time": ended,
        "gmt_successed_time": ended if status == "Succeeded" else None,
        "gmt_failed_time": ended if status == "Failed" else None,
        "gmt_stopped_time": ended if status == "Stopped" else None,
    }


def _need(job: Job) -> Need:
    return need_or_instances(TrainingJobRequest.model_validate(job.request))


def _settings(job: Job, sent: NewJob) -> JobSettings | None:
    """Returns the settings of a job with its tags of now."""
    tags = {label.key: label.value for label in job.labels if label.key != ACCESSIBILITY_LABEL}
    settings = (sent.settings or JobSettings()).model_copy(update={"tags": tags})
    if not tags:
        settings.model_fields_set.discard("tags")
    return settings if settings.model_fields_set else None


def _without_password(spec: JobSpec) -> JobSpec:
    """Returns a role without the password of its registry, which nobody needs to read again."""
    if spec.image_config is None:
        return spec
    config = received(ImageConfig, spec.image_config.to_wire("password", "auth"))
    return spec.model_copy(update={"image_config": config if config.model_fields_set else None})


def _reason(job: Job, job_type: str) -> tuple[str | None, str | None]:
    code, message = job.reason_code, job.reason_message
    if JobStatus(job.status).is_success and not code:
        return "JobSucceeded", f"{job_type} {job.id} is successfully completed."
    return _reason_code(code), message


def _reason_code(code: str | None) -> str | None:
    return ENDED_BY_USER if code == REASON_STOPPED_BY_USER else code


def _history(job: Job) -> Iterator[StatusEntry]:
    attempt = 0
    for change in job.transitions:
        attempt += change.status == JobStatus.SUBMITTED
        yield StatusEntry(
            status=status_in_attempt(change.status, attempt),
            start_time=wire_time(change.started_at),
            end_time=wire_time(change.ended_at),
            reason_code=_reason_code(change.reason_code),
            reason_message=change.reason_message,
        )


def _restarts(job: Job) -> Iterator[RestartRecord]:
    """Yields the returns of a job to the queue, each with the failure before it."""
    queued = [change for change in job.transitions if change.status == JobStatus.SUBMITTED]
    running = [change.started_at for change in job.transitions if change.status == JobStatus.RUNNING]
    for count, change in enumerate(queued[1:], 1):
        again = next((moment for moment in running if moment >= change.started_at), None)
        error = RestartError(error_code=change.reason_code, error_msg=change.reason_message, trigger_restart=True)
        yield RestartRecord(
            job_restart_count=count,
            occur_time=wire_time(change.started_at),
            reason=change.reason_code,
            restart_duration_in_sec=None if again is None else math.ceil(again - change.started_at),
            detail_error_info_list=[error],
        )


def _duration_s(job: Job) -> int:
    if job.started_at is None:
        return 0
    return max(
        0, math.ceil((job.ended_at or time.time()) - job.started_at)
    )  # negative after the clock was set back


def _pods(context: ServiceContext, job: Job, row: DlcJobRow) -> Iterator[Pod]:
    """Yields the pods of a job that has started once; those of earlier attempts are their history."""
    by_name = {instance["name"]: instance for instance in job.instances}
    for pod in pods_of_job(job, row):
        if (instance := by_name.get(pod.name)) is None:
            continue
        ended = instance["status"] not in ("Pending", "Running")
        status = pod_status(instance["status"])
        yield _pod(job, pod, job.attempt, status).model_copy(
            update={
                "gmt_start_time": wire_time(job.started_at),
                "gmt_finish_time": wire_time(job.ended_at) if ended else None,
                "duration": _duration_s(job),
                "ip": _LOOPBACK if context.executor.hosts == "here" else None,
                "history_pods": [_pod(job, pod, attempt, "Failed") for attempt in range(1, job.attempt)],
            }
        )


def _pod(job: Job, pod: PodName, attempt: int, status: str) -> Pod:
    return Pod(
        pod_id=pod.name,
        pod_uid=pod_uid(pod.name, attempt),
        type=pod.type,
        status=status,
        sub_status="Normal",
        resource_type=_RESOURCE_TYPE,
        gmt_create_time=wire_time(attempt_starts(job)[attempt - 1]),
    )
