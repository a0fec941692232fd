"""The job of a run, for the page: status, usage, difference to another job; run again."""

from __future__ import annotations

import math
import os
import re
import socket
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import psutil
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.identity.visibility import may_change
from pai_sdk._service.services.budgets import Work
from pai_sdk._service.services.context import ServiceContext
from pai_sdk._service.services.dlc.creation import create_dlc_job
from pai_sdk._service.services.dlc.rerun import changed_job, displayed_request, dlc_job_of
from pai_sdk._service.services.jobs.details.failure import job_failure
from pai_sdk._service.services.jobs.details.summary import job_summary
from pai_sdk._service.services.jobs.findings import rules_of_job
from pai_sdk._service.services.jobs.job_table import existing_job
from pai_sdk._service.services.jobs.queueing.quota_checks import QUEUED
from pai_sdk._service.services.jobs.queueing.waiting import WaitingJob
from pai_sdk._service.services.jobs.reading import read_body
from pai_sdk._service.services.jobs.rerun import (
    JOB_SPECIFIC_LABELS,
    RerunChanges,
    changed_request,
    command_text,
    form_fields,
)
from pai_sdk._service.services.runs.dlc_rows import hyperparameters_of
from pai_sdk._service.services.runs.responses import json_bytes
from pai_sdk._service.services.training_jobs import create_job
from pai_sdk._service.services.usage import CPU_USAGE, GPU_MEMORY_USAGE, GPU_USAGE, MEMORY_USAGE, read_usage
from pai_sdk._service.state.models import Event, Job
from pai_sdk._wire.base import wire_names
from pai_sdk._wire.dlc.jobs import NewJob
from pai_sdk._wire.masking import public_fields
from pai_sdk._wire.pai.job_names import short_names
from pai_sdk._wire.pai.record import NameValue
from pai_sdk._wire.pai.status import JobStatus
from pai_sdk._wire.requests import RecordedRequest, values_by_path
from pai_sdk._wire.run_jobs import (
    DifferenceGroup,
    InstanceOfRun,
    InstanceUsageSeries,
    JobDifference,
    JobDifferences,
    JobEvent,
    JobOfRun,
    JobStatusChange,
    RerunForm,
    UsageLimits,
    UsageOfRun,
)

_MAX_EVENTS = 1000
_GROUPS: Sequence[DifferenceGroup] = ("hyperparameter", "setting", "unique")
_HYPERPARAMETERS, *_ = wire_names(hyper_parameters=None)
_UNIQUE = re.compile(
    r"TrainingJobName|Labels\.pai-sdk-.*|OutputChannels\..*\.OutputUri|CredentialConfig.*"
    r"|Environments\.(?:PAI_SDK_HPS|.*(?:TOKEN|SESSION).*)"
)
_MAX_DIFFERENCES = 2000
_MIN_STEP_S = 10.0
_MAX_SAMPLES = 500


def job_of_run(context: ServiceContext, principal: Principal, run_id: str) -> JobOfRun:
    """Returns the job of a run: status, place in the queue, statuses and events, instances, request, failure."""
    with context.jobs.database.read() as session:
        job = context.jobs.get(run_id)
        query = select(Event).where(Event.job_id == run_id).order_by(Event.number.desc()).limit(_MAX_EVENTS)
        events = [*session.scalars(query)][::-1]
        position = _queue_position(session, job)
    waiting = context.queue.reason(WaitingJob(job.id, position, job.not_before)) if position else None
    queued_at = next((change.started_at for change in job.transitions), job.created_at)
    status = JobStatus(job.status)
    failure = job_failure(context, job) if status.is_failure else None
    # Instances elsewhere name their nodes, or none.
    this_node = socket.gethostname() if context.executor.hosts == "here" else None
    nodes = context.queue.nodes(job.id)
    return JobOfRun(
        status=job.status,
        message=" ".join(filter(None, (job.reason_message, waiting.text if waiting else None))),
        queue_place=position,
        queued_s=None if job.started_at is None else job.started_at - queued_at,
        created_at=job.created_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
        history=[
            JobStatusChange(status=change.status, time=change.started_at, text=change.reason_message or "")
            for change in job.transitions
        ],
        events=[
            JobEvent(time=event.happened_at, text=event.text, kind=event.instance or "job") for event in events
        ],
        failure=failure,
        instances=[
            InstanceOfRun(
                name=instance["name"],
                status=instance["status"],
                exit_code=instance.get("exit_code"),
                started_at=job.started_at,
                ended_at=job.ended_at,
                node=nodes.get(instance["name"], this_node),
            )
            for instance in job.instances
        ],
        request=public_fields(job.request),
        summary=job_summary(job, *_rerun_request(context, run_id)),
        labels={label.key: label.value for label in job.labels},
        owner=job.owner,
        sub_status="" if status.is_terminal else job.reason_code or "",
        can=_abilities(principal, job),
        rules=rules_of_job(
            context.settings.watch,
            context.info.data_dir / "jobs" / job.id,
            job.workspace_id,
            _request_of(job).environments,
            job.attempt if status == JobStatus.RUNNING else None,
        ),
    )


def _abilities(principal: Principal, job: Job) -> list[str]:
    """Returns what a user may do with a job, whatever its status is."""
    can = ["rerun"] if principal.has_right_in(job.workspace_id, "submit") else []
    if principal.has_right("submit") and may_change(principal, job.owner, job.workspace_id):
        can += ["stop", "delete", "annotate"]
    return can


def usage_of_run(context: ServiceContext, work: Work, run_id: str) -> UsageOfRun:
    """Returns processor, memory and GPUs of each instance of a job, over its life."""
    job = context.jobs.get(run_id)
    end = job.ended_at or time.time()
    start = job.started_at or job.created_at
    step_s = max(_MIN_STEP_S, math.ceil((end - start) / _MAX_SAMPLES))
    cores, memory_bytes = os.cpu_count() or 1, psutil.virtual_memory().total
    instances = []
    for log in context.logs.instance_logs(job, None):
        work.check()
        usage_of = partial(read_usage, log.path, start=start - 1, end=end + step_s, step_s=step_s)
        metrics = CPU_USAGE, MEMORY_USAGE, GPU_USAGE, GPU_MEMORY_USAGE
        cpu, memory, gpu, gpu_memory = (dict(usage_of(metric)) for metric in metrics)
        instances.append(
            InstanceUsageSeries(
                name=log.name,
                times=[*cpu],
                cpu=[round(value * cores / 100, 4) for value in cpu.values()],
                memory_bytes=[round(memory.get(time_s, 0) * memory_bytes / 100) for time_s in cpu],
                gpu=[gpu.get(time_s) for time_s in cpu] if gpu else [],
                gpu_memory=[gpu_memory.get(time_s) for time_s in cpu] if gpu_memory else [],
            )
        )
    return UsageOfRun(instances=instances, limits=UsageLimits(cpu=cores, memory_bytes=memory_bytes))


def compare_jobs(context: ServiceContext, principal: Principal, work: Work, *job_ids: str) -> JobDifferences:
    """Returns the fields in which the requests of two jobs differ; both must be visible to the user."""
    for job_id in job_ids:
        context.jobs.require_visible(job_id, principal)
    # Secrets are compared by value, and displayed as masks.
    first, second = (_comparable(context.jobs.get(job_id)) for job_id in job_ids)
    before, after = values_by_path(public_fields(first)), values_by_path(public_fields(second))
    work.hold(len(before) + len(after), "fields")
    first_values, second_values = values_by_path(first), values_by_path(second)
    paths = [
        path
        for path in {**before, **after}
        if before.get(path) != after.get(path) or first_values.get(path) != second_values.get(path)
    ]
    rows = [_difference(path, before, after) for path in paths]
    rows = sorted(rows, key=lambda row: _GROUPS.index(row.group))[:_MAX_DIFFERENCES]
    return JobDifferences(rows=rows, same=len({**before, **after}) - len(paths))


def rerun_form(context: ServiceContext, job_id: str) -> RerunForm:
    """Returns the fields that a job like this one can have changed, with their values; secrets are masked."""
    fields = form_fields(_rerun_request(context, job_id)[0])
    request = public_fields(context.jobs.get(job_id).request)
    return RerunForm(fields=fields, short_names=short_names(fields["hyperparameters"]), request=request)


def rerun_job(
    context: ServiceContext, principal: Principal, job_id: str, changes: RerunChanges, token: str
) -> str:
    """Creates a job like an earlier one, with changes; returns its id. The same token creates no second one.

    It sends messages to the targets of the earlier job, if that is of the same user: they may be secret.
    """
    earlier, dlc_job = _rerun_request(context, job_id)
    changed = changed_request(earlier, changes, f"{job_id} {token}")

    def copy_targets(session: Session, new_id: str) -> None:
        if existing_job(session, job_id).owner == principal.user:
            context.notifications.copy_to_job(session, None, new_id, earlier_job_id=job_id)

    if dlc_job is not None:
        return create_dlc_job(context, changed_job(dlc_job, earlier, changed).to_wire(), principal, copy_targets)
    return create_job(context, read_body(json_bytes(changed.to_wire())), principal, copy_targets)[0]


def _rerun_request(context: ServiceContext, job_id: str) -> tuple[RecordedRequest, NewJob | None]:
    """Returns the request of a job as its user knows it; for a job of DLC also the job as it was sent."""
    request, dlc_job = _request_of(context.jobs.get(job_id)), dlc_job_of(context, job_id)
    return (request if dlc_job is None else displayed_request(dlc_job, request)), dlc_job


def _difference(path: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> JobDifference:
    group = _group_of(path)
    if path not in before:
        return JobDifference(path=path, kind="added", group=group, after=after[path])
    if path not in after:
        return JobDifference(path=path, kind="removed", group=group, before=before[path])
    return JobDifference(path=path, kind="changed", group=group, before=before[path], after=after[path])


def _group_of(path: str) -> DifferenceGroup:
    if path.startswith(_HYPERPARAMETERS):
        return "hyperparameter"
    return "unique" if _UNIQUE.fullmatch(path) else "setting"


def _comparable(job: Job) -> dict[str, Any]:
    """Returns the request of a job with its hyperparameters, without labels that differ in every job."""
    values = [NameValue(name=name, value=value) for name, value in hyperparameters_of(job).items()]
    request, updates = _request_of(job), dict[str, Any]()
    if values:
        updates["hyperparameters"] = values
    if (spec := request.algorithm_spec) and spec.command:
        updates["algorithm_spec"] = spec.model_copy(update={"command": [command_text(spec.command)]})
    return request.model_copy(update=updates).without_labels(*JOB_SPECIFIC_LABELS).to_wire()


def _request_of(job: Job) -> RecordedRequest:
    return RecordedRequest.model_validate(job.request).model_copy(update={"workspace_id": job.workspace_id})


def _queue_position(session: Any, job: Job) -> int | None:
    """Returns the position of a job in the queue of its owner, from 1; None for a job that has started."""
    if job.status not in QUEUED:
        return None
    in_line = Job.status.in_(QUEUED), Job.owner == job.owner
    is_before = (Job.priority > job.priority) | ((Job.priority == job.priority) & (Job.number < job.number))
    ahead = session.scalar(select(func.count()).select_from(Job).where(*in_line, is_before))
    return int(ahead or 0) + 1
