"""The objects that the routes of the API work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Protocol

from fastapi import Depends, Request

from pai_sdk.execution.base import ExecutorCapabilities
from pai_sdk.service.http.page_requests import PageAddresses
from pai_sdk.service.identity.audit import AuditLog
from pai_sdk.service.identity.bucket_rights import BucketRights
from pai_sdk.service.identity.principal import OPERATOR, Principal
from pai_sdk.service.identity.quotas import Quotas
from pai_sdk.service.identity.users import Users
from pai_sdk.service.identity.workspaces import WorkspaceTable
from pai_sdk.service.jobs.changes import Changes
from pai_sdk.service.jobs.experiment_table import ExperimentTable
from pai_sdk.service.jobs.job_table import Jobs
from pai_sdk.service.jobs.log_reader import JobLogReader
from pai_sdk.service.jobs.metric_pages import MetricPages
from pai_sdk.service.jobs.schedules.schedule_table import ScheduleTable
from pai_sdk.service.registry.algorithm_registry import AlgorithmRegistry
from pai_sdk.service.registry.model_registry import ModelRegistry
from pai_sdk.service.runs.source import RunSource
from pai_sdk.service.settings import ServiceInfo, ServiceSettings

__all__ = ["ContextOf", "JobRunner", "PrincipalOf", "ServiceContext", "principal_of"]


class JobRunner(Protocol):
    """The scheduler, as far as requests use it."""

    def wake(self) -> None:
        """There is a job in the queue, or one to be stopped."""
        ...

    def discard(self, job_id: str) -> None:
        """The job was deleted; its folder can go."""
        ...


@dataclass(frozen=True)
class ServiceContext:
    """The parts of a running service that request handlers use."""

    settings: ServiceSettings
    info: ServiceInfo
    jobs: Jobs
    logs: JobLogReader
    changes: Changes
    runner: JobRunner
    algorithms: AlgorithmRegistry
    experiments: ExperimentTable
    models: ModelRegistry
    schedules: ScheduleTable
    bucket_exists: Callable[[str], bool]
    create_bucket: Callable[[str], bool]
    runs: RunSource
    executor: ExecutorCapabilities
    metrics: MetricPages
    users: Users
    bucket_rights: BucketRights
    audit: AuditLog
    workspaces: WorkspaceTable
    page: PageAddresses | None = None

    @property
    def beyond_pai(self) -> tuple[str, ...]:
        """The actions that PAI's API does not have, as offers; none in the mode of a cloud that is not ours."""
        return ("changes",) if self.settings.foreign is None else ()

    def bucket_of(self, principal: Principal) -> str:
        """The bucket of a user; the service's own for its key."""
        return self.settings.bucket if principal.user == OPERATOR else self.bucket_of_user(principal.user)

    def bucket_of_user(self, name: str) -> str:
        """The name of a user's bucket."""
        return f"{self.settings.bucket}-{name}"

    def make_bucket(self, user: str) -> None:
        """Make the bucket of a user, and theirs."""
        bucket = self.bucket_of_user(user)
        self.bucket_rights.give(bucket, owner=user)
        self.create_bucket(bucket)

    def make_missing_buckets(self) -> None:
        """Make the buckets of users whose creation was cut off."""
        for user in self.users.list():
            if not self.bucket_exists(self.bucket_of_user(user.name)):
                self.make_bucket(user.name)

    @property
    def quotas(self) -> Quotas:
        """The quotas of the users."""
        return Quotas(self.jobs.database)

    def link_to_job(self, request: Request) -> Callable[[str], str | None]:
        """A function that gives the address of a job on the page, under the name that a client uses."""
        page, host = self.page, request.headers.get("host", "")
        return lambda job_id: None if page is None else page.link(host, job_id)


async def _context(request: Request) -> ServiceContext:
    context: ServiceContext = request.app.state.context
    return context


ContextOf = Annotated[ServiceContext, Depends(_context)]
"""A parameter of a route: the context of the service."""


def principal_of(request: Request) -> Principal:
    """Whose request it is; the gate has noted it."""
    principal: Principal = request.scope["state"]["principal"]
    return principal


async def _principal(request: Request) -> Principal:
    return principal_of(request)


PrincipalOf = Annotated[Principal, Depends(_principal)]
"""A parameter of a route: whose request it is."""
