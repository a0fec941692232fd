"""Runs a command in an instance of a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pai_sdk._client.display.base import short_instance
from pai_sdk._client.job.follow.watch import JobHandle
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk._wire.pai.status import JobStatus
from pai_sdk.errors import InvalidInputError, Problem


class _Job(JobHandle, Protocol):
    def refresh(self) -> JobRecord: ...


def run_in_instance(job: _Job, command: Sequence[str], instance: str | None) -> int:
    """Runs a command in an instance, by its full name or suffix, or in the first one; returns the exit code."""
    if isinstance(command, str) or not command:
        hint = "give a list: ['sh', '-c', 'echo hello']"
        raise InvalidInputError(
            [Problem("command", f"{command!r} is not a list of a program and its arguments", hint)]
        )
    record = job.refresh()
    names = record.instance_names
    if record.status != JobStatus.RUNNING or not names:
        reason = f"job {job.id} is {record.status}; commands run only in running instances"
        raise InvalidInputError([Problem("JOB", reason)])
    matches = [name for name in names if not instance or name == instance or name.endswith(f"-{instance}")]
    if not matches:
        available = ", ".join(short_instance(job.id, name) for name in names)
        raise InvalidInputError(
            [Problem("instance", f"{instance!r} is not an instance of this job", f"it has {available}")]
        )
    return job.backend.enter(job.id, matches[0]).run(command)
