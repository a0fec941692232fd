"""The objects that routes and services work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Protocol

from fastapi import Depends, Request

from pai_sdk._host.execution.base import ExecutorCapabilities
from pai_sdk._service.identity.audit import AuditLog
from pai_sdk._service.identity.bucket_rights import BucketRights
from pai_sdk._service.identity.principal import OPERATOR, Principal
from pai_sdk._service.identity.users import Users
from pai_sdk._service.identity.workspaces import WorkspaceTable
from pai_sdk._service.services.algorithms import AlgorithmRegistry
from pai_sdk._service.services.dlc.records import Records
from pai_sdk._service.services.experiments import ExperimentTable
from pai_sdk._service.services.job_metrics import MetricPages
from pai_sdk._service.services.jobs.changes import Changes
from pai_sdk._service.services.jobs.job_table import Jobs
from pai_sdk._service.services.jobs.log_reader import JobLogReader
from pai_sdk._service.services.jobs.queueing.waiting import QueueReader
from pai_sdk._service.services.jobs.schedule_table import ScheduleTable
from pai_sdk._service.services.jobs.tunnels import Tunnels
from pai_sdk._service.services.models import ModelRegistry
from pai_sdk._service.services.notifications.queue import NotificationQueue
from pai_sdk._service.services.runs.source import RunSource
from pai_sdk._service.settings import ServiceInfo, ServiceSettings
from pai_sdk._wire.notifications import OFFER as NOTIFICATIONS_OFFER


class JobRunner(Protocol):
    """The scheduler, as far as requests use it."""

    def wake(self) -> None:
        """Notifies the scheduler of a new job, or of one to stop."""
        ...

    def discard(self, job_id: str) -> None:
        """Notifies the scheduler of a deleted job, so that it deletes its folder."""
        ...


class PageAddresses(Protocol):
    """The addresses of the page of a service."""

    def link(self, host: str, run_id: str | None = None) -> str:
        """Returns the URL of the page, or of a run on it; `host` is the header `Host` of a signed-in client."""
        ...

    def new_link(self, host: str, run_id: str | None = None, *, access_key_id: str = "") -> str:
        """Returns a URL with a code that signs a browser in once, within a minute."""
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
    records: Records
    bucket_exists: Callable[[str], bool]
    create_bucket: Callable[[str], bool]
    runs: RunSource
    executor: ExecutorCapabilities
    metrics: MetricPages
    users: Users
    bucket_rights: BucketRights
    audit: AuditLog
    workspaces: WorkspaceTable
    tunnels: Tunnels
    notifications: NotificationQueue
    page: PageAddresses | None = None
    queue: QueueReader = field(kw_only=True)

    @property
    def beyond_pai(self) -> tuple[str, ...]:
        """The offers of actions that PAI's API does not have; none in the test mode of a foreign cloud."""
        if self.settings.foreign is not None:
            return ()
        roles = ("roles",) if self.executor.roles and self.executor.mounts else ()
        notifications = (NOTIFICATIONS_OFFER,) if self.notifications.sealer.is_available else ()
        return ("changes", *roles, *notifications)

    def workspace_for(self, principal: Principal, workspace_id: str | None) -> str:
        """Returns the workspace that a request names, or the default one, if the user may submit jobs there."""
        requested = self.workspaces.default_id if workspace_id is None else workspace_id
        return self.workspaces.require(requested, principal, "submit").id

    def bucket_of(self, principal: Principal) -> str:
        """Returns the bucket of a user; for the key of the service, its default bucket."""
        return self.settings.bucket if principal.user == OPERATOR else self.bucket_of_user(principal.user)

    def bucket_of_user(self, name: str) -> str:
        """Returns the name of a user's bucket."""
        return f"{self.settings.bucket}-{name}"

    def create_user_bucket(self, user: str) -> None:
        """Creates the bucket of a user, who becomes its owner."""
        bucket = self.bucket_of_user(user)
        self.bucket_rights.give(bucket, owner=user)
        self.create_bucket(bucket)

    def create_missing_buckets(self) -> None:
        """Creates the buckets of users whose creation was interrupted."""
        for user in self.users.list():
            if not self.bucket_exists(self.bucket_of_user(user.name)):
                self.create_user_bucket(user.name)

    def link_to_job(self, request: Request) -> Callable[[str], str | None]:
        """Returns a function that gives the URL of a job on the page, with the host name that the client uses."""
        page, host = self.page, request.headers.get("host", "")
        return lambda job_id: None if page is None else page.link(host, job_id)


async def _context(request: Request) -> ServiceContext:
    context: ServiceContext = request.app.state.context
    return context


ContextOf = Annotated[ServiceContext, Depends(_context)]
"""A parameter of a route: the context of the service."""
