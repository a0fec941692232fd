"""The commands to go on with a job. Plain text, for every display."""

from __future__ import annotations

from pai_sdk.job.record import JobRecord

__all__ = ["next_commands"]


def next_commands(record: JobRecord) -> list[str]:
    """The exact lines to type for the log, the status and the end of a job."""
    job_id = record.training_job_id
    commands = [f"pai-sdk logs {'' if record.status.is_terminal else '-f '}{job_id}", f"pai-sdk status {job_id}"]
    if not record.status.is_terminal:
        commands.append(f"pai-sdk stop {job_id}")
    return commands
