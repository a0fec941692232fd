"""Builds the responses about a job from its row."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from pai_sdk._service.identity.principal import LOCAL_USER
from pai_sdk._service.services.jobs.progress_figures import REMAINING_TIME
from pai_sdk._service.state.models import Job, LatestMetric, Progress
from pai_sdk._wire.pai.record import (
    ErrorInfo,
    FailedInstance,
    InstanceRecord,
    JobState,
    KeyValue,
    MetricPoint,
    OutputModel,
    StatusTransition,
)
from pai_sdk._wire.pai.status import JobStatus
from pai_sdk._wire.pai.wire import wire_time
from pai_sdk._wire.requests import job_body, output_uris
from pai_sdk._wire.training_jobs import OutputModelRecord, ProgressFigure

_MODEL_CHANNEL = "model"

LinkOf: TypeAlias = Callable[[str], "str | None"]
"""Returns the URL of a job on the page of the service, by id; None without a page."""


def job_in_list(job: Job, experiments: Mapping[str, str], link_of: LinkOf) -> dict[str, Any]:
    """Returns the part of a job that a list has."""
    return job_body(job.request, _state(job, link_of), experiments)


def job_in_full(
    job: Job,
    metrics: Sequence[LatestMetric],
    progress: Sequence[Progress],
    experiments: Mapping[str, str],
    link_of: LinkOf,
) -> dict[str, Any]:
    """Returns all fields of a job: those of a list, and its instances, last metrics, progress and model."""
    models = output_models(job)
    model = OutputModel(output_channel_name=models[0].output_channel_name, uri=models[0].uri) if models else None
    state = _state(
        job,
        link_of,
        instances=[
            InstanceRecord(name=instance["name"], role=instance["role"], status=instance["status"])
            for instance in job.instances
        ],
        latest_metrics=[metric_point(metric) for metric in metrics],
        latest_progress=_progress(progress),
        output_model=model,
    )
    return job_body(job.request, state, experiments)


def _state(job: Job, link_of: LinkOf, **more: Any) -> JobState:
    return JobState(
        training_job_id=job.id,
        training_job_url=link_of(job.id),
        workspace_id=job.workspace_id,
        user_id=job.owner or LOCAL_USER,
        status=job.status,
        reason_code=job.reason_code,
        reason_message=job.reason_message,
        is_temp_algo=job.algorithm is None,
        algorithm_id=job.algorithm.algorithm_id if job.algorithm else None,
        duration=_duration_s(job),
        gmt_create_time=wire_time(job.created_at),
        gmt_modified_time=wire_time(job.modified_at),
        labels=[KeyValue(key=label.key, value=label.value) for label in job.labels],
        status_transitions=[
            StatusTransition(
                status=transition.status,
                start_time=wire_time(transition.started_at),
                end_time=wire_time(transition.ended_at),
                reason_code=transition.reason_code,
                reason_message=transition.reason_message,
            )
            for transition in job.transitions
        ],
        **more,
    )


def _progress(figures: Sequence[Progress]) -> dict[str, ProgressFigure] | None:
    """Returns the completed part and the remaining seconds; None while the log has neither."""
    return {
        figure.name: ProgressFigure(
            timestamp=wire_time(figure.timestamp),
            value=int(figure.value) if figure.name == REMAINING_TIME else figure.value,
        )
        for figure in figures
    } or None


def metric_point(metric: LatestMetric) -> MetricPoint:
    """Returns a value of a metric, with step and instance where they are known."""
    source = {"step": metric.step, "instance": metric.instance}
    present = {name: value for name, value in source.items() if value is not None}
    return MetricPoint(name=metric.name, timestamp=wire_time(metric.timestamp), value=metric.value, **present)


def error_info(job: Job) -> ErrorInfo:
    """Returns the reason for which a job failed; without fields for one that did not."""
    if not JobStatus(job.status).is_failure:
        return ErrorInfo()
    failed = FailedInstance(instance=job.failed_instance, exit_code=job.exit_code)
    return ErrorInfo(
        code=job.reason_code or "", message=job.reason_message or "", additional_info=failed.to_json()
    )


def output_models(job: Job) -> list[OutputModelRecord]:
    """Returns the model that a job has left in its output channel `model`, once it has succeeded."""
    if not JobStatus(job.status).is_success:
        return []
    uri = output_uris(job.request).get(_MODEL_CHANNEL)
    if uri is None:
        return []
    return [
        OutputModelRecord(
            output_channel_name=_MODEL_CHANNEL,
            uri=uri,
            source_type="TrainingJob",
            source_id=job.id,
            labels=[],
            metrics={},
        )
    ]


def _duration_s(job: Job) -> int:
    if job.started_at is None:
        return 0
    return max(0, round((job.ended_at or time.time()) - job.started_at))  # negative after the clock was set back
