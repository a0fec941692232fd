"""Summarizes what a job runs: command, image, instances, code, inputs and outputs."""

from __future__ import annotations

from pai_sdk._service.services.jobs.rerun import command_text
from pai_sdk._service.state.models import Job
from pai_sdk._wire.dlc.jobs import NewJob
from pai_sdk._wire.dlc.sources import CodeSource
from pai_sdk._wire.masking import public_fields
from pai_sdk._wire.pai.names import PACKAGE_CHANNEL
from pai_sdk._wire.pai.secret_values import masked_command
from pai_sdk._wire.requests import RecordedRequest, RecordedSpec
from pai_sdk._wire.run_jobs import JobSummary, tasks_of


def job_summary(job: Job, request: RecordedRequest, dlc_job: NewJob | None) -> JobSummary:
    """Returns the summary of a job, with secrets masked; `request` as its user knows it."""
    fields = public_fields(request.to_wire())
    public = RecordedRequest.model_validate(fields)
    spec = public.algorithm_spec or RecordedSpec()
    source = (dlc_job and dlc_job.code_source) or CodeSource()
    labels = {label.key: label.value for label in job.labels}
    return JobSummary(
        command=masked_command(command_text(spec.command)) if spec.command else "",
        algorithm=" ".join(filter(None, (public.algorithm_name, public.algorithm_version))),
        image=spec.image or "",
        tasks=tasks_of(fields),
        code=str(public.code_dir or spec.code_dir or source.code_source_id or ""),
        repository=labels.get("git-repository", ""),
        commit=labels.get("git-commit") or source.commit or "",
        branch=labels.get("git-branch") or source.branch or "",
        has_changes=labels.get("git-dirty") == "true",
        inputs={
            channel.name or "": channel.uri or channel.dataset_id or ""
            for channel in public.input_channels
            if channel.name != PACKAGE_CHANNEL
        },
        outputs={
            channel.name or "": channel.uri or channel.dataset_id or "" for channel in public.output_channels
        },
        workspace=job.workspace_id,
        priority=job.priority,
        max_runtime_s=public.scheduler.max_running_time_in_seconds if public.scheduler else None,
    )
