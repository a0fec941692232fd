"""The way into an instance that runs on this machine, whichever executor has started it."""

from __future__ import annotations

from pai_sdk.execution.docker.entry import ContainerEntry, find_container_entry
from pai_sdk.execution.process.entry import ProcessEntry, find_process_entry

__all__ = ["find_entry"]


def find_entry(job_id: str, instance: str) -> ProcessEntry | ContainerEntry | None:
    """The way into an instance; None if it is not on this machine, or belongs to another user.

    Args:
        job_id: its job.
        instance: its full name.
    """
    return find_process_entry(instance) or find_container_entry(job_id, instance)
