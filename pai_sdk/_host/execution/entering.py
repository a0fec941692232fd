"""Entry into an instance that runs on this machine, for any executor."""

from __future__ import annotations

from pai_sdk._host.execution.docker.entry import ContainerEntry, find_container_entry
from pai_sdk._host.execution.process.entry import ProcessEntry, find_process_entry


def find_entry(job_id: str, instance: str) -> ProcessEntry | ContainerEntry | None:
    """Returns the entry into an instance, by its full name; None for another machine's or user's instance."""
    return find_process_entry(instance) or find_container_entry(job_id, instance)
