"""A job as GetTrainingJob and ListTrainingJobs show it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from pai_sdk.schemas.status import JobStatus
from pai_sdk.schemas.wire import wire_time
from pai_sdk.service.identity.principal import LOCAL_USER
from pai_sdk.service.jobs.progress_figures import REMAINING_TIME
from pai_sdk.service.state.models import Job, LatestMetric, Progress

__all__ = ["LinkOf", "error_info", "job_in_full", "job_in_list", "metric_point", "output_models"]

_MODEL_CHANNEL = "model"

LinkOf: TypeAlias = Callable[[str], "str | None"]
"""Gives the address of a job on the page of the service, by its id; None without a page."""


def job_in_list(job: Job, experiments: Mapping[str, str], link_of: LinkOf) -> dict[str, Any]:
    """The part of a job that a list shows.

    Args:
        job: the job.
        experiments: names of experiments by id, with that of the job.
        link_of: the address of its page.
    """
    return {
        **_request_fields(job, experiments),
        "TrainingJobId": job.id,
        "TrainingJobUrl": link_of(job.id),
        "WorkspaceId": job.workspace_id,
        "UserId": job.owner or LOCAL_USER,
        "Status": job.status,
        "ReasonCode": job.reason_code,
        "ReasonMessage": job.reason_message,
        "IsTempAlgo": job.algorithm is None,
        "AlgorithmId": job.algorithm.algorithm_id if job.algorithm else None,
        "Duration": _duration_s(job),
        "GmtCreateTime": wire_time(job.created_at),
        "GmtModifiedTime": wire_time(job.modified_at),
        "Labels": [{"Key": label.key, "Value": label.value} for label in job.labels],
        "StatusTransitions": [
            {
                "Status": transition.status,
                "StartTime": wire_time(transition.started_at),
                "EndTime": wire_time(transition.ended_at),
                "ReasonCode": transition.reason_code,
                "ReasonMessage": transition.reason_message,
            }
            for transition in job.transitions
        ],
    }


def job_in_full(
    job: Job,
    metrics: Sequence[LatestMetric],
    progress: Sequence[Progress],
    experiments: Mapping[str, str],
    link_of: LinkOf,
) -> dict[str, Any]:
    """All there is to see of a job; the same arguments as for a list, and the job's last metrics and progress."""
    models = output_models(job)
    return {
        **job_in_list(job, experiments, link_of),
        "Instances": [
            {"Name": instance["name"], "Role": instance["role"], "Status": instance["status"]}
            for instance in job.instances
        ],
        "LatestMetrics": [metric_point(metric) for metric in metrics],
        "LatestProgress": _progress(progress),
        "OutputModel": {key: models[0][key] for key in ("OutputChannelName", "Uri")} if models else None,
    }


def _progress(figures: Sequence[Progress]) -> dict[str, Any] | None:
    """Part of the work done, and seconds left; None while the log has neither."""
    shown = {
        figure.name: {
            "Timestamp": wire_time(figure.timestamp),
            "Value": int(figure.value) if figure.name == REMAINING_TIME else figure.value,
        }
        for figure in figures
    }
    return shown or None


def metric_point(metric: LatestMetric) -> dict[str, Any]:
    """One value of a metric."""
    where = {"Step": metric.step, "Instance": metric.instance}
    known = {key: value for key, value in where.items() if value is not None}
    return {"Name": metric.name, "Timestamp": wire_time(metric.timestamp), "Value": metric.value, **known}


def error_info(job: Job) -> dict[str, Any]:
    """The reason for which a job failed; empty for one that did not."""
    if not JobStatus(job.status).is_failure:
        return {}
    where = {"Instance": job.failed_instance, "ExitCode": job.exit_code}
    known = {key: value for key, value in where.items() if value is not None}
    return {
        "Code": job.reason_code or "",
        "Message": job.reason_message or "",
        "AdditionalInfo": json.dumps(known) if known else "",
    }


def output_models(job: Job) -> list[dict[str, Any]]:
    """The model a job has left: what lies in its output channel `model` once it has succeeded."""
    if not JobStatus(job.status).is_success:
        return []
    return [
        {
            "OutputChannelName": channel["Name"],
            "Uri": channel["OutputUri"],
            "SourceType": "TrainingJob",
            "SourceId": f"{job.id}",
            "Labels": [],
            "Metrics": {},
        }
        for channel in job.request.get("OutputChannels", [])
        if channel["Name"] == _MODEL_CHANNEL and channel.get("OutputUri")
    ]


def _request_fields(job: Job, experiments: Mapping[str, str]) -> dict[str, Any]:
    """The request as it was sent; lists that were not set are empty, as in responses of PAI."""
    fields: dict[str, Any] = {"HyperParameters": [], "InputChannels": [], "OutputChannels": [], **job.request}
    if experiment := fields.get("ExperimentConfig"):
        name = experiments.get(experiment["ExperimentId"])
        fields["ExperimentConfig"] = {**experiment, "ExperimentName": name} if name else experiment
    return fields


def _duration_s(job: Job) -> int:
    if job.started_at is None:
        return 0
    return max(0, round((job.ended_at or time.time()) - job.started_at))  # clocks are put back, too
