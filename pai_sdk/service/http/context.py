"""What the routes of the API work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Protocol

from fastapi import Depends, Request

from pai_sdk.service.jobs.algorithm_registry import Algorithms
from pai_sdk.service.jobs.changes import Changes
from pai_sdk.service.jobs.experiments import Experiments
from pai_sdk.service.jobs.job_table import Jobs
from pai_sdk.service.jobs.logs import JobLogs
from pai_sdk.service.settings import ServiceInfo, ServiceSettings

__all__ = ["JobRunner", "Parts", "PartsOf"]


class JobRunner(Protocol):
    """What runs the jobs, as far as a request can ask something of it."""

    def wake(self) -> None:
        """There is a job in the queue, or one to be stopped."""
        ...

    def discard(self, job_id: str) -> None:
        """The job was deleted; its folder can go."""
        ...


@dataclass(frozen=True)
class Parts:
    """The parts of a running service that requests are answered from."""

    settings: ServiceSettings
    info: ServiceInfo
    jobs: Jobs
    logs: JobLogs
    changes: Changes
    runner: JobRunner
    algorithms: Algorithms
    experiments: Experiments
    bucket_exists: Callable[[str], bool]


def _parts(request: Request) -> Parts:
    parts: Parts = request.app.state.parts
    return parts


PartsOf = Annotated[Parts, Depends(_parts)]
"""A parameter of a route: the parts of the service."""
